"""Runs a conversion as Headrace does, and says where that differs from Kafka's answer."""

from __future__ import annotations

import base64
import json
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.contract.converting import converter, decode, frame_of
from tests.differential.comparing import (
    Difference,
    Headrace,
    differing_parts,
    header_tree,
    same,
    same_plain,
)
from tests.differential.fitting import ordered

from headrace.dataplane.conversion import encoded
from headrace.dataplane.records import record_frame
from headrace.dataplane.trial import natives
from headrace.plugins import Registry
from headrace.sdk import Schema
from headrace.sdk.arrow import from_arrow
from headrace.sdk.connectjson import (
    connect_json,
    connect_schema,
    json_from_native,
    native_from_json,
)
from headrace.sdk.converter import ArrowDecoder, RecordPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from tests.differential.converter_cases import Conversion
    from tests.differential.oracle import Oracle

    from headrace.dataplane.conversion import PartConverter

Json = dict[str, Any]
_HEADED = "value int, headers array<struct<key:string,value:string,type:string>>"


@dataclass(frozen=True)
class Converting:
    """Headrace's converters, ready to be compared with answers of the oracle."""

    spark: SparkSession

    def differences(self, case: Conversion, theirs: Json) -> Iterator[Difference]:
        """Yield where ours differs from the oracle's answer to a case."""
        given = case.records or [{"bytes": _shown(raw)} for raw in case.raws]
        ours = self.written(case) if case.records else self.read(case)
        for one, their, our in zip(given, theirs["results"], ours, strict=True):
            what = _differing(case, their, our, one.get("value_schema"))
            if what is not None:
                yield Difference(what, case.step, one, their, our)

    def read(self, case: Conversion) -> list[Json]:
        """Return what our converter makes of the bytes."""
        each = _converter(case)
        if each.part is RecordPart.HEADER:
            return self._read_headers(case, each)
        decoder = each.converter.decoder()
        if not isinstance(decoder, ArrowDecoder):
            return self._read_by_spark(case, each)
        if not case.alone:
            return _decoded(decoder, case.raws)
        return [
            outcome for raw in case.raws for outcome in _decoded(_arrow_decoder(each), [raw])
        ]

    def _read_headers(self, case: Conversion, each: PartConverter) -> list[Json]:
        given = [[("h", raw if raw is None else raw.decode(), None)] for raw in case.raws]
        frame = self.spark.createDataFrame(list(enumerate(given)), _HEADED)
        with tempfile.TemporaryDirectory() as folder:
            read = decode(self.spark, each, frame, Path(folder)).orderBy("value")
            rows = read.select("headers", "error").collect()
        return [
            _failed(row.error.exception, row.error.message)
            if row.error
            else {"header": row.headers[0].asDict()}
            for row in rows
        ]

    def _written_headers(self, case: Conversion, each: PartConverter) -> list[Json]:
        """Let fields become headers, and write these."""
        made = self._headers(case)
        headers = [
            [("h", one["header"]["value"], one["header"].get("type"))]
            if "header" in one
            else []
            for one in made
        ]
        frame = self.spark.createDataFrame(list(enumerate(headers)), _HEADED)
        records = encoded(record_frame(frame, "t"), [each])
        sent = records.frame.selectExpr(*records.columns()).orderBy("value")
        return [
            {"bytes": _text_base64(row.headers[0].value)} if "header" in one else one
            for one, row in zip(made, sent.select("headers").collect(), strict=True)
        ]

    def _headers(self, case: Conversion) -> list[Json]:
        # A header here is a text, so that it is the transform that knows of a default.
        without = "true" if "JsonConverter" in case.name else "false"
        defaults = case.config.get("replace.null.with.default", without)
        config = {"fields": "h", "headers": "h", "operation": "copy"}
        step = {
            "class": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
            "config": {**config, "replace.null.with.default": defaults},
        }
        schema = {"field": "h", **case.records[0]["value_schema"]}
        struct = {"type": "struct", "optional": False, "fields": [schema]}
        records = [
            {"topic": "t", "value": {"h": record["value"]}, "value_schema": struct}
            for record in case.records
        ]
        results = Headrace(self.spark, Registry()).answer(step, records)["results"]
        return [
            {"header": result["record"]["headers"][0]} if "record" in result else result
            for result in results
        ]

    def _read_by_spark(self, case: Conversion, each: PartConverter) -> list[Json]:
        numbers = pa.array(range(len(case.raws)), pa.int32())
        given = {"value": pa.nulls(len(case.raws), pa.string())}
        given |= {case.part: pa.array(case.raws, pa.binary()), "number": numbers}
        table = pa.table(given)
        with tempfile.TemporaryDirectory() as folder:
            frame = decode(self.spark, each, self.spark.createDataFrame(table), Path(folder))
            rows = frame.orderBy("number").select(case.part, "error").toArrow()
        schema = from_arrow(rows.schema.field(case.part))
        values = natives(rows[case.part].combine_chunks())
        return [
            _failed(error["exception"], error["message"]) if error else _told(schema, value)
            for value, error in zip(values, rows["error"].to_pylist(), strict=True)
        ]

    def written(self, case: Conversion) -> list[Json]:
        """Return the bytes that our converter makes of the values."""
        each = _converter(case)
        if each.part is RecordPart.HEADER:
            return self._written_headers(case, each)
        schema = connect_schema(case.records[0]["value_schema"])
        assert schema is not None
        values = [native_from_json(schema, record["value"]) for record in case.records]
        frame = frame_of(self.spark, schema, values)
        if each.part is RecordPart.KEY:
            frame = frame.selectExpr("value AS key", "CAST(NULL AS STRING) AS value")
        records = encoded(record_frame(frame, "t"), [each])
        rows = records.frame.selectExpr(*records.columns()).select(case.part).collect()
        return [{"bytes": None if row[0] is None else _base64(bytes(row[0]))} for row in rows]


def job(case: Conversion) -> Json:
    """Return the job that asks the oracle for the same."""
    asked: Json = {"class": case.name, "config": case.config, "part": case.part}
    if case.records:
        return {**asked, "op": "write", "records": case.records}
    raws = [None if raw is None else _base64(raw) for raw in case.raws]
    return {**asked, "op": "read", "bytes": raws}


def asked(oracle: Oracle, case: Conversion) -> Json:
    """Return Kafka's answer."""
    return oracle.ask(job(case))


def _converter(case: Conversion) -> PartConverter:
    return converter(case.name, case.config, part=RecordPart(case.part))


def _arrow_decoder(each: PartConverter) -> ArrowDecoder:
    decoder = each.converter.decoder()
    assert isinstance(decoder, ArrowDecoder)
    return decoder


def _decoded(decoder: ArrowDecoder, raws: Sequence[bytes | None]) -> list[Json]:
    decoder.start(None)
    decoded = decoder.decode(pa.array(raws, pa.binary()))
    told: list[Json] = [{"record": {"value": None}} for _ in raws]
    for group in decoded.groups:
        rows = range(len(raws)) if group.rows is None else group.rows
        for row, value in zip(rows, natives(group.values), strict=True):
            told[row] = _told(group.schema, value)
    for row, (exception, message) in decoded.faults.items():
        told[row] = _failed(exception, message)
    return told


def _told(schema: Schema, native: Any) -> Json:
    value = json_from_native(schema, native)
    return {"record": {"value": value, "value_schema": connect_json(schema)}}


def _failed(exception: str, message: str) -> Json:
    return {"error": {"class": exception, "message": message}}


def _text_base64(text: str | None) -> str | None:
    return None if text is None else _base64(text.encode())


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _shown(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="backslashreplace")


def _differing(case: Conversion, theirs: Json, ours: Json, schema: Json | None) -> str | None:
    if "unwritable" in theirs:
        return None
    if theirs.keys() != ours.keys():
        return f"{next(iter(theirs))} but {next(iter(ours))}"
    if "error" in theirs:
        return _differing_errors(theirs["error"], ours["error"])
    if "bytes" in theirs:
        return _differing_bytes(case, theirs, ours, schema)
    if "header" in theirs:
        return differing_headers(theirs["header"], ours["header"])
    return _differing_values(theirs["record"], ours["record"])


def _differing_bytes(
    case: Conversion, theirs: Json, ours: Json, schema: Json | None
) -> str | None:
    if case.is_text:
        return differing_headers(_as_header(theirs), _as_header(ours))
    trees = (_tree(side["bytes"], schema) for side in (theirs, ours))
    return None if _equal(*trees) else "bytes"


def _differing_values(theirs: Json, ours: Json) -> str | None:
    if theirs["value"] is None and ours["value"] is None:
        return None
    if "value_schema" not in theirs:
        alike = same_plain(theirs["value"], _without_absent(ours["value"], theirs["value"]))
        return None if alike else "value"
    return differing_parts("value", theirs, ours)


def _differing_errors(theirs: Json, ours: Json) -> str | None:
    if theirs["class"] != ours["class"]:
        return "class of the error"
    message, own = theirs["message"] or "", ours["message"]
    if message.endswith(": "):  # the cause follows, which Kafka Connect keeps beside it
        return None if own.startswith(message) else "message"
    return None if message == own else "message"


def _as_header(side: Json) -> Json:
    text = side["bytes"]
    value = None if text is None else base64.b64decode(text).decode()
    return {"key": "h", "value": value, "type": None}


def differing_headers(theirs: Json, ours: Json) -> str | None:
    """Say where two headers differ, but for the texts of moments; None if nowhere."""
    _, their, kind = header_tree(theirs, moments=False)
    _, our, own = header_tree(ours, moments=False)
    typed = theirs["type"] is not None  # JSON has no types
    if kind != own and their is not None and typed:
        return "type"
    return None if same(numbers(their), numbers(our)) else "header"


def numbers(tree: Any) -> Any:
    """Read the numbers of a tree: a float has many texts, that of a whole one is a number's."""
    if isinstance(tree, dict):
        return {name: numbers(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [numbers(item) for item in tree]
    if type(tree) is int and int(float(tree)) == tree:
        return float(tree)
    try:
        return float(tree) if isinstance(tree, str) else tree
    except ValueError:
        return tree


def _without_absent(ours: Any, theirs: Any) -> Any:
    """Leave out the nulls of fields that a text has not, but others of its topic."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {
            name: _without_absent(item, theirs.get(name))
            for name, item in ours.items()
            if item is not None or name in theirs
        } | {name: None for name, item in theirs.items() if item is None}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [_without_absent(*pair) for pair in zip(ours, theirs, strict=True)]
    return ours


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two trees are the same, with each number exact but for a float's text."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, Decimal) and isinstance(other, Decimal) and one != other:
        return same(float(one), float(other))
    return bool(one == other) and type(one) is type(other)


def _tree(text: str | None, schema: Json | None) -> Any:
    """Give bytes as JSON, whose objects have no order; as they are where they are none."""
    if text is None:
        return None
    raw = base64.b64decode(text)
    try:
        tree = json.loads(raw.decode(), parse_float=Decimal)
    except ValueError:
        return raw
    if not isinstance(tree, dict | list) or schema is None:
        return raw
    if isinstance(tree, dict) and tree.keys() == {"schema", "payload"}:
        return {**tree, "payload": ordered(schema, tree["payload"])}
    return ordered(schema, tree)
