"""Runs a case as Headrace does, and says where that differs from Kafka's answer."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from headrace.control import try_transforms
from headrace.dataplane import Step, try_chain
from headrace.sdk import ConfigError, RecordError
from headrace.sdk.connectjson import connect_json, connect_schema, native_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from tests.differential.cases import Case

    from headrace.plugins import Registry

Json = dict[str, Any]

_LOGICAL = {"Decimal": "decimal", "Date": "date", "Time": "time", "Timestamp": "timestamp"}
# A text in quotes, or a moment, which Kafka Connect writes without quotes.
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\[\s\S])*"'
    r"|[0-9]+-[0-9]{2}-[0-9]{2}(?:T[0-9:.]+Z)?|[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+Z"
)


# A text in quotes, or a key of a map that is no text, which JSON has not.
_KEY = re.compile(r'"(?:[^"\\]|\\[\s\S])*"|(?<=[{,])(?:-?[0-9]+|true|false)(?=:)')


@dataclass(frozen=True)
class Difference:
    """One record that Kafka and Headrace make different things of.

    Args:
        what: Where they differ, in a word, such as ``value`` or ``error``.
        step: The configuration.
        record: The record; None where the configuration itself is judged differently.
        theirs: Kafka's answer.
        ours: Headrace's answer.
    """

    what: str
    step: Json
    record: Json | None
    theirs: Json
    ours: Json


@dataclass(frozen=True)
class Headrace:
    """Headrace's side, ready to be compared with answers of the oracle."""

    spark: SparkSession
    registry: Registry

    def differences(self, case: Case, theirs: Json) -> Iterator[Difference]:
        """Yield where ours differs from the oracle's answer to a case."""
        ours = self.answer(case.step, case.records)
        if "error" in theirs or "error" in ours:
            if ("error" in theirs) != ("error" in ours):
                yield Difference("config", case.step, None, _brief(theirs), _brief(ours))
            return
        for record, their, our in zip(
            case.records, theirs["results"], ours["results"], strict=True
        ):
            what = differing(their, our)
            if what is not None:
                yield Difference(what, case.step, record, their, our)

    def answer(self, step: Json, records: Sequence[Json]) -> Json:
        """Return what `headrace transform try` answers, in the oracle's form."""
        request = {"config": chain_config(step), "records": list(records)}
        try:
            answer = try_transforms(
                request,
                self.registry,
                lambda steps, given: try_chain(
                    self.spark, [Step(s.transform, s.predicate, s.negate) for s in steps], given
                ),
            )
        except ConfigError as error:
            return {"error": {"class": type(error).__name__, "message": str(error)}}
        return {"results": [_outcome(result) for result in answer["results"]]}


def chain_config(step: Mapping[str, Any]) -> Json:
    """Return the chain of one step in Kafka Connect's form."""
    config = {"transforms": "s", "transforms.s.type": step["class"]}
    config |= {f"transforms.s.{name}": value for name, value in step["config"].items()}
    if (predicate := step.get("predicate")) is not None:
        config |= {
            "transforms.s.predicate": "p",
            "transforms.s.negate": str(step["negate"]).lower(),
            "predicates": "p",
            "predicates.p.type": predicate["class"],
        }
        config |= {f"predicates.p.{name}": v for name, v in predicate["config"].items()}
    return config


def _outcome(result: Json) -> Json:
    kind = next(name for name in ("error", "dropped", "record") if name in result)
    return {kind: True if kind == "dropped" else result[kind]}


def _brief(answer: Json) -> Json:
    return {"error": answer["error"]} if "error" in answer else {"accepted": True}


def differing(theirs: Json, ours: Json) -> str | None:
    """Say where two outcomes differ; None if nowhere."""
    if "unwritable" in theirs:
        return None
    if theirs.keys() != ours.keys():
        return f"{next(iter(theirs))} but {next(iter(ours))}"
    if "error" in theirs:
        return _differing_errors(theirs["error"], ours["error"])
    return None if "dropped" in theirs else _differing_records(theirs["record"], ours["record"])


def _differing_records(theirs: Json, ours: Json) -> str | None:
    for name in ("topic", "partition", "timestamp"):
        if theirs[name] != ours[name]:
            return name
    if [header_tree(h) for h in theirs["headers"]] != [header_tree(h) for h in ours["headers"]]:
        return "headers"
    return differing_parts("key", theirs, ours) or differing_parts("value", theirs, ours)


def _differing_errors(theirs: Json, ours: Json) -> str | None:
    if theirs["class"] != ours["class"]:
        return "class of the error"
    same = (theirs["message"] or "").rstrip(".") == (ours["message"] or "").rstrip(".")
    return None if same else "message"


def header_tree(header: Json, *, moments: bool = True) -> tuple[str, Any, str]:
    """Give a header in a form that can be compared.

    Args:
        header: The header.
        moments: Whether the texts of moments count.
    """
    name = str(header.get("name") or "").rpartition(".")[2]
    kind = _LOGICAL.get(name) or header.get("type") or "string"
    text = header["value"]
    if text is None:
        return header["key"], None, kind
    if not moments:
        text = _TOKEN.sub(lambda found: found[0] if found[0].startswith('"') else "0", text)
    if kind == "float32":  # Java 17 does not always write the fewest digits
        return header["key"], struct.pack("f", float(text)), kind
    return header["key"], _tree(text), kind


def _tree(text: str) -> Any:
    """Give the tree of a value's text, whose maps have no order; the text if it has none."""

    def quoted(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else f'"{found[0]}"'

    try:
        words = _KEY.sub(quoted, _TOKEN.sub(quoted, text))
        tree = json.loads(words, strict=False, parse_float=str)
    except ValueError:
        return text
    return tree if isinstance(tree, dict | list) else text


def differing_parts(name: str, theirs: Json, ours: Json) -> str | None:
    """Say where the keys or values of two records differ; None if nowhere."""
    their_schema, our_schema = (side.get(f"{name}_schema") for side in (theirs, ours))
    if their_schema is None or our_schema is None:
        if their_schema is not our_schema:
            return f"{name}: with and without schema"
        return None if same_plain(theirs[name], ours[name]) else name
    try:
        schema = connect_schema(their_schema)
        assert schema is not None
        native = native_from_json(schema, theirs[name])
    except RecordError:
        return f"{name}: Kafka's is not valid"
    if connect_json(schema) != connect_json(connect_schema(our_schema)):
        return f"{name} schema"
    alike = same(unordered(native), unordered(native_from_json(schema, ours[name])))
    return None if alike else name


def unordered(native: Any) -> Any:
    """Return a native value with its maps as such: the order of their entries is nothing."""
    if isinstance(native, dict):
        return {name: unordered(item) for name, item in native.items()}
    if isinstance(native, list) and native and all(type(item) is tuple for item in native):
        return {key: unordered(item) for key, item in native}
    return [unordered(item) for item in native] if isinstance(native, list) else native


def same(one: Any, other: Any) -> bool:
    """Tell whether two native values are the same; a float of 32 bits has many texts."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or _near(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and type(one) is type(other)


def _near(one: float, other: float) -> bool:
    """Tell whether both are the same float of 32 bits, and one is written as such.

    Java's texts of floats have up to nine digits, and not always the fewest.
    """
    try:
        _, long = sorted((one, other), key=lambda number: len(repr(number)))
        same = struct.pack("f", one) == struct.pack("f", other)
        whole = struct.unpack("f", struct.pack("f", long))[0] == long
    except OverflowError:
        return False
    return bool(same and (whole or float(f"{long:.9g}") == long))


def same_plain(theirs: Any, ours: Any) -> bool:
    """Tell whether schemaless values are the same; a date of Kafka's is a moment."""
    if isinstance(theirs, dict) and theirs.keys() == {"$date"}:
        if type(ours) is int:  # days or microseconds of a year that ISO's form has not
            return theirs["$date"] in {ours * 86_400_000, ours // 1_000}
        return bool(_moment(ours) == theirs["$date"])
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(
            same_plain(theirs[k], ours[k]) for k in ours
        )
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same_plain, theirs, ours))
    return same(theirs, ours)


def _moment(text: object) -> int | None:
    """Return the milliseconds that an ISO date, time or timestamp stands for."""
    if not isinstance(text, str):
        return None
    try:
        if "T" in text:
            moment = datetime.fromisoformat(text)
        elif ":" in text:
            moment = datetime.combine(date(1970, 1, 1), time.fromisoformat(text))
        else:
            moment = datetime.combine(date.fromisoformat(text), time())
    except ValueError:
        return None
    since = moment.replace(tzinfo=None) - datetime(1970, 1, 1)  # noqa: DTZ001 - both UTC
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
