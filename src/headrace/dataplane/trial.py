"""Tries a chain of transforms on a few records that a user writes as JSON.

A record is ``{"topic", "partition", "key", "value", "headers": [{"key", "value", "type"}],
"timestamp", "offset", "key_schema", "value_schema"}``; all are optional. The timestamp is in
milliseconds since 1970. A schema and its payload have Kafka Connect's JSON form; a key or
value without a schema is schemaless: it is processed like plain JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.chain import Step, apply_chain
from headrace.dataplane.failures import translate
from headrace.dataplane.records import RecordFrame
from headrace.sdk import (
    ConfigError,
    HeadraceError,
    RecordError,
    RecordExpr,
    Schema,
    Type,
    ValueExpr,
)
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import (
    connect_json,
    connect_schema,
    json_from_native,
    native_from_json,
)
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, VARIANT
from headrace.sdk.schema_evolution import evolve
from headrace.sdk.struct_exprs import has_variant, texts_of_variants, variants_of_texts

_PLACE = {
    "topic": Schema.string(default="topic"),
    "partition": Schema.int32(optional=True),
    "timestamp": Schema.timestamp(optional=True),
    "offset": Schema.int64(optional=True),
}
_KEYS = (*_PLACE, "key", "value", "headers", "key_schema", "value_schema")
_HEADERS = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.string()), ("type", pa.string())])
)
_LOWEST = -(1 << 63)
_UNKNOWN = Schema.string(optional=True, parameters={"headrace.untyped": "true"})
"""The placeholder type of values that are always null; Spark also uses string for them."""
_SCALARS = {
    bool: Schema.boolean(),
    int: Schema.int64(),
    float: Schema.float64(),
    str: Schema.string(),
}
_HEADER_TYPES = {bool: "boolean", int: "int64", float: "float64"}


@dataclass(frozen=True)
class PartKind:
    """The schema of the keys or values of a group of records.

    Args:
        schema: The given or inferred schema; None if there is no key or value.
        schemaless: Whether the schema was inferred.
    """

    schema: Schema | None = None
    schemaless: bool = False

    def part(self, column: str) -> ValueExpr:
        """Return the part for a column of this kind."""
        if self.schema is None:
            return ValueExpr(None)
        return ValueExpr.of(column, self.schema, schemaless=self.schemaless)

    @property
    def arrow(self) -> pa.DataType:
        """Return the type of the column."""
        return pa.string() if self.schema is None else to_arrow_type(self.schema)


@dataclass(frozen=True)
class Kind:
    """The schemas of a group of records that Spark processes together."""

    key: PartKind
    value: PartKind
    placed: bool

    def completed(self, others: Iterable[Kind]) -> Kind:
        """Return the kind; a missing value schema is taken from the first schemaless kind.

        In a stream, tombstones have the schema of the records with values.
        """
        if self.value.schema is not None:
            return self
        value = next((kind.value for kind in others if kind.value.schemaless), self.value)
        if value.schema is None:
            return self
        return replace(self, value=replace(value, schema=value.schema.replaced(optional=True)))

    def shape(self) -> RecordExpr:
        """Return the shape of the records in the columns of ``table``."""
        return RecordExpr(
            key=self.key.part("key"),
            value=self.value.part("value"),
            topic="topic",
            partition="partition",
            headers="headers",
            timestamp="timestamp",
            offset="offset" if self.placed else None,
        )

    def table(self, rows: list[dict[str, Any]]) -> pa.Table:
        """Return the rows as an Arrow table, numbered in the column ``__number``."""
        fields = {
            "topic": pa.string(),
            "partition": pa.int32(),
            "key": self.key.arrow,
            "value": self.value.arrow,
            "headers": _HEADERS,
            "timestamp": pa.timestamp("us", tz="UTC"),
            "offset": pa.int64(),
        }
        columns = {
            name: pa.array([row[name] for row in rows], kind) for name, kind in fields.items()
        }
        return pa.table({**columns, "__number": pa.array(range(len(rows)), pa.int32())})


@dataclass(frozen=True)
class Input:
    """One record: its kind, and its cells by column."""

    kind: Kind
    row: dict[str, Any]


def read_input(record: object) -> Input:
    """Read one record.

    Raises:
        RecordError: The record is malformed or does not fit its schema; `field` is the path.
    """
    if not isinstance(record, Mapping):
        raise RecordError(
            problem=f"Expected a JSON object, got {json.dumps(record)[:50]}.",
            fix='Write it as {"value": ...}.',
        )
    for name in record:
        if name not in _KEYS:
            close = get_close_matches(str(name), _KEYS, n=1)
            fix = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(_KEYS)}."
            raise RecordError(problem="Unknown key of a record.", field=str(name), fix=fix)
    key_kind, key = _part(record, "key")
    value_kind, value = _part(record, "value")
    row = {n: native_from_json(kind, record.get(n), path=n) for n, kind in _PLACE.items()}
    row |= {"key": key, "value": value, "headers": _headers(record.get("headers"))}
    return Input(Kind(key_kind, value_kind, row["offset"] is not None), row)


def _headers(headers: object) -> list[dict[str, str | None]]:
    if headers is None:
        return []
    if not isinstance(headers, list) or not all(
        isinstance(header, Mapping) and isinstance(header.get("key"), str) for header in headers
    ):
        raise RecordError(
            problem="Must be a list of objects with a key and a value.", field="headers"
        )
    found = []
    for header in headers:
        value = header.get("value")
        kind = header.get("type") or _HEADER_TYPES.get(type(value), "string")
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        found.append({"key": header["key"], "value": text, "type": str(kind)})
    return found


def _part(record: Mapping[str, Any], name: str) -> tuple[PartKind, Any]:
    payload = record.get(name)
    key = f"{name}_schema"
    if record.get(key) is None:
        return (PartKind(), None) if payload is None else _inferred(payload, name)
    try:
        schema = connect_schema(record[key])
    except RecordError as error:
        where = ".".join(part for part in (key, error.field) if part)
        raise RecordError(error.problem, field=where) from error
    assert schema is not None
    return PartKind(schema), native_from_json(schema, payload, path=name)


def _inferred(payload: object, name: str) -> tuple[PartKind, Any]:
    schema = _schema_of(payload, name)
    plain = payload if not has_variant(schema) else _with_texts(schema, payload)
    return PartKind(schema, schemaless=True), native_from_json(schema, plain, path=name)


def _with_texts(schema: Schema, value: Any) -> Any:
    """Return a value with its Variants as JSON texts."""
    if value is None:
        return None
    if schema.is_logical and schema.name == VARIANT:
        return json.dumps(value)
    if isinstance(value, list) and schema.value_schema is not None:
        return [_with_texts(schema.value_schema, item) for item in value]
    if isinstance(value, dict):
        parts = ((field, value.get(field.name)) for field in schema.fields)
        return {field.name: _with_texts(field.schema, part) for field, part in parts}
    return value


def _schema_of(value: object, path: str) -> Schema:
    """Return the schema of a JSON value; items of a list with different types are Variants."""
    if isinstance(value, list):
        found = [_schema_of(item, f"{path}[{n}]") for n, item in enumerate(value)]
        known = [schema for item, schema in zip(value, found, strict=True) if item is not None]
        try:
            items = reduce(_common, known or [_UNKNOWN])
        except ConfigError:
            items = Schema.variant(optional=True)
        return Schema.array(items.replaced(optional=items.optional or None in value))
    if isinstance(value, dict):
        if "" in value:
            raise RecordError(problem="A field needs a name.", field=path)
        return Schema.struct({k: _schema_of(item, f"{path}.{k}") for k, item in value.items()})
    if type(value) is int and not _LOWEST <= value <= ~_LOWEST:
        raise RecordError(problem=f"{value} does not fit 64 bits.", field=path)
    return _UNKNOWN if value is None else _SCALARS[type(value)]


def _common(one: Schema, other: Schema) -> Schema:
    one = _without_unknown(one, other)
    return evolve(one, _without_unknown(other, one))


def _without_unknown(schema: Schema, other: Schema) -> Schema:
    """Return the struct without always-null fields that the other struct also has."""
    if schema.type is not Type.STRUCT:
        return schema
    fields = {f.name: f.schema for f in schema.fields}
    known = {n: s for n, s in fields.items() if s != _UNKNOWN or other.field(n) is None}
    return schema.with_fields(known)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def natives(array: pa.Array) -> list[Any]:
    """Return the values of an array in the form of `headrace.sdk.connectjson`.

    Unlike ``to_pylist``, returns dates and timestamps as numbers, whose range is not limited.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [natives(column) for column in array.flatten()]
        rows = zip(*columns, strict=True) if columns else ((),) * len(array)
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif pa.types.is_map(kind):
        pairs = list(zip(natives(array.keys), natives(array.items), strict=True))
        found = _sliced(pairs, array)
    elif pa.types.is_list(kind):
        found = _sliced(natives(array.values), array)
    elif pa.types.is_date32(kind):
        return natives(array.cast(pa.int32()))
    elif pa.types.is_timestamp(kind):
        return natives(array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()))
    else:
        return list(array.to_pylist())
    valid = array.is_valid().to_pylist()
    return [value if here else None for value, here in zip(found, valid, strict=True)]


def _sliced(values: list[Any], array: pa.Array) -> list[list[Any]]:
    ends = array.offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(ends)]


def record_json(state: dict[str, Any], key: ValueExpr, value: ValueExpr) -> dict[str, Any]:
    """Return a record in the input form."""
    record: dict[str, Any] = {
        "topic": state["topic"],
        "partition": state["partition"],
        "key": _payload(key, state["key"]),
        "value": _payload(value, state["value"]),
        "headers": [_header_json(header) for header in state["headers"] or ()],
        "timestamp": None if state["timestamp"] is None else state["timestamp"] // 1_000,
    }
    for name, part in (("key_schema", key), ("value_schema", value)):
        if part.schema is not None and not part.schemaless:
            record[name] = connect_json(part.schema)
    return record


def _header_json(header: dict[str, str | None]) -> dict[str, str | None]:
    shown = {"key": header["key"], "value": header["value"]}
    return shown if header["type"] in {None, "string"} else {**shown, "type": header["type"]}


def _payload(part: ValueExpr, native: Any) -> Any:
    if part.schema is None:
        return None
    if part.schemaless:
        return _schemaless(part.schema, native)
    return json_from_native(part.schema, native)


def _schemaless(schema: Schema, native: Any) -> Any:
    """Return a value without a schema as JSON; times have the ISO form."""
    if native is None:
        return None
    if schema.is_logical and schema.name == VARIANT:
        return json.loads(native)
    if schema.is_logical and schema.name != DECIMAL:
        return _iso(str(schema.name), native)
    match schema.type:
        case Type.STRUCT:
            return {f.name: _schemaless(f.schema, native[f.name]) for f in schema.fields}
        case Type.ARRAY if schema.value_schema is not None:
            return [_schemaless(schema.value_schema, item) for item in native]
        case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            return {
                str(_schemaless(keys, key)): _schemaless(values, item) for key, item in native
            }
        case _:
            return json_from_native(schema, native)


def _iso(name: str, native: int) -> str | int:
    try:
        unit = timedelta(days=native) if name == DATE else timedelta(microseconds=native)
        moment = _EPOCH + unit
    except OverflowError:
        return native
    millis = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    day, clock = millis.split("T")
    return {DATE: day, TIME: clock.removesuffix("Z"), TIMESTAMP: millis}[name]


_NUMBER = "__number"


def try_chain(
    spark: SparkSession, steps: Sequence[Step], records: Sequence[object]
) -> list[dict[str, Any]]:
    """Return the result of each step for each record, without reading or writing any data.

    Spark processes records of one schema together, all steps in one plan, as in a batch.

    Args:
        spark: The session.
        steps: The chain.
        records: Records as `headrace.dataplane.trial` describes them.

    Returns:
        For each record ``{"steps": [...]}`` with one of ``record``, ``dropped`` (the alias of
        the step) and ``error`` (``{"class", "message"}``); a step is ``{"name"}`` with one of
        the same three. Steps after a record was dropped or rejected are not listed.
    """
    results: list[dict[str, Any]] = [{} for _ in records]
    found: dict[int, Input] = {}
    for number, record in enumerate(records):
        try:
            found[number] = read_input(record)
        except RecordError as error:
            results[number] = {"steps": [], "error": _error(error)}
    groups: dict[Kind, list[tuple[int, Input]]] = defaultdict(list)
    kinds = [record.kind for record in found.values()]
    for number, record in found.items():
        groups[record.kind.completed(kinds)].append((number, record))
    for kind, members in groups.items():
        rows = [record.row for _, record in members]
        outcomes = _Trial(spark, kind, steps).outcomes(rows)
        for (number, _), outcome in zip(members, outcomes, strict=True):
            results[number] = outcome
    return results


@dataclass(frozen=True)
class _Laid:
    """The steps applied to the records of one kind.

    Args:
        records: The records after the last step; one column per step has its outcome.
        failure: The error of the next step, which cannot process these records.
    """

    records: RecordFrame
    shapes: tuple[RecordExpr, ...] = ()
    failure: HeadraceError | None = None


@dataclass(frozen=True)
class _Trial:
    spark: SparkSession
    kind: Kind
    steps: Sequence[Step]

    def outcomes(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            return self.run(rows)
        except (PySparkException, Py4JError) as error:
            # Spark failed at one of the records: run each separately to get the other results.
            if len(rows) > 1:
                return [outcome for row in rows for outcome in self.outcomes([row])]
            return [self._failed(rows, translate(error, "trying a record"))]

    def run(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        laid = self._laid(rows)
        names = laid.records.carried
        # toArrow() itself fails at a map inside a struct, which it casts to its own type.
        frame: Any = laid.records.frame.select(*names)
        table = pa.Table.from_batches(frame._collect_as_arrow())  # noqa: SLF001
        cells = {name: natives(table[name].combine_chunks()) for name in names}
        outcomes: list[dict[str, Any]] = [{} for _ in rows]
        for place, number in enumerate(cells[_NUMBER]):
            states = [cells[name][place] for name in names[1:]]
            outcomes[number] = self._outcome(laid, states)
        return outcomes

    def _failed(self, rows: list[dict[str, Any]], error: HeadraceError) -> dict[str, Any]:
        """Find the step at which Spark fails for a record; return the record's outcome."""
        for count in range(len(self.steps) - 1, -1, -1):
            before = _Trial(self.spark, self.kind, self.steps[:count])
            try:
                (outcome,) = before.run(rows)
            except (PySparkException, Py4JError) as earlier:
                error = translate(earlier, "trying a record")
            else:
                return _ended(outcome, self.steps[count].transform.alias, error)
        return {"steps": [], "error": _error(error)}

    def _laid(self, rows: list[dict[str, Any]]) -> _Laid:
        frame = self.spark.createDataFrame(self.kind.table(rows))
        for part, of in (("key", self.kind.key), ("value", self.kind.value)):
            if of.schema is not None and has_variant(of.schema):
                frame = frame.withColumn(part, F.expr(variants_of_texts(part, of.schema)))
        records = RecordFrame(frame, self.kind.shape(), carried=(_NUMBER,))
        records = _with_state(records, "__input")
        shapes = [records.shape]
        for number, step in enumerate(self.steps):
            try:
                records = _with_state(apply_chain(records, [step]), f"__step{number}")
            except HeadraceError as error:
                return _Laid(records, tuple(shapes), error)
            shapes.append(records.shape)
        return _Laid(records, tuple(shapes))

    def _outcome(self, laid: _Laid, states: list[dict[str, Any]]) -> dict[str, Any]:
        first, *after = zip(states, laid.shapes, strict=True)
        fate = _fate(*first)
        steps = []
        for step, (state, shape) in zip(self.steps, after, strict=False):
            fate = _fate(state, shape)
            steps.append({"name": step.transform.alias, **fate})
            if "record" not in fate:
                return {"steps": steps, **fate}
        if laid.failure is None:
            return {"steps": steps, **fate}
        failed = self.steps[len(after)]
        return _ended({"steps": steps}, failed.transform.alias, laid.failure)


def _with_state(records: RecordFrame, name: str) -> RecordFrame:
    """Add a column with the record's current state for Arrow: variants are JSON texts."""
    cells = records.parts() | records.outcome()
    for cell, part in (("key", records.shape.key), ("value", records.shape.value)):
        if part.schema is not None:
            cells[cell] = texts_of_variants(part.sql(), part.schema)
    pairs = ", ".join(f"'{cell}', {sql}" for cell, sql in cells.items())
    return records.keeping(name, f"named_struct({pairs})")


def _fate(state: dict[str, Any], shape: RecordExpr) -> dict[str, Any]:
    if state["error"] is not None:
        error = state["error"]
        return {"error": {"class": error["exception"], "message": error["message"]}}
    if state["dropped"] is not None:
        return {"dropped": state["dropped"]}
    return {"record": record_json(state, shape.key, shape.value)}


def _ended(outcome: dict[str, Any], alias: str, error: HeadraceError) -> dict[str, Any]:
    if "dropped" in outcome or "error" in outcome:
        return outcome
    failed = {"error": _error(error)}
    return {"steps": [*outcome["steps"], {"name": alias, **failed}], **failed}


def _error(error: HeadraceError) -> dict[str, str]:
    where = f"{error.field}: " if error.field else ""
    return {"class": type(error).__name__, "message": f"{where}{error.problem}"}
