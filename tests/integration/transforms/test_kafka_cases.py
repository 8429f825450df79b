"""Every case observed on Kafka Connect 4.3 that is in the table; each line is run by a test."""

import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.transforms.outcomes import (
    Trial,
    outcomes,
    shape_after,
    step,
    without_schema,
)

from headrace.plugins import Registry
from headrace.sdk import ConfigErrors, Schema, Transform, ValueExpr
from headrace.sdk.connectjson import (
    connect_json,
    connect_schema,
    json_from_native,
    native_from_json,
    to_string,
    value_from_native,
)
from headrace.sdk.sqltext import sql_value
from headrace.sdk.struct_exprs import java_class
from headrace_plugins.converters.json_decoding import EnvelopeDecoder
from headrace_plugins.kafka_compat.value_parsing import parse_string

PACKAGE = "org.apache.kafka.connect.transforms."
CONFIG_ERROR = "org.apache.kafka.common.config.ConfigException"
PLUGINS = Registry()
JAVA_DATE = "%a %b %d %H:%M:%S UTC %Y"
COLUMNS = ("key", "value", "topic", "headers", "dropped")

Case = tuple[dict[str, Any], dict[str, Any]]


def cases(kind: str) -> list[Case]:
    text = Path(__file__).with_name("kafka_cases.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [(case["in"], case["out"]) for case in found if case["in"]["kind"] == kind]


def is_config_error(case: Case) -> bool:
    return case[1].get("error") == CONFIG_ERROR


def kind_of(given: dict[str, Any]) -> type[Transform]:
    name = given["class"].removeprefix(PACKAGE).partition("$")[0]
    return PLUGINS.transform(name)


def value_of(given: dict[str, Any]) -> ValueExpr:
    value = given["value"]
    if not given["value_schemas"]:
        return without_schema(value)
    schema = connect_schema(value["schema"])
    assert schema is not None
    native = native_from_json(schema, value["payload"])
    return ValueExpr.of(sql_value(schema, value_from_native(schema, native)), schema)


def test_no_line_of_the_table_is_left_out() -> None:
    counts = Counter({kind: len(cases(kind)) for kind in TESTED})
    text = Path(__file__).with_name("kafka_cases.jsonl").read_text()
    assert counts.total() == len(text.splitlines())
    assert min(counts.values()) > 0


def test_wrong_configurations_are_refused_in_kafkas_words() -> None:
    wrong = [case for case in cases("smt") if is_config_error(case)]
    assert len(wrong) > 1
    for given, out in wrong:
        kind = kind_of(given)
        with pytest.raises(ConfigErrors) as caught:
            step(kind, given["config"])
        (error,) = caught.value.errors
        # Kafka tells what is wrong with a pattern first, and then where; here it is last.
        parts = error.problem.rsplit(": ", 1)
        assert all(part in out["message"] for part in parts), given


@pytest.mark.spark
def test_records_become_what_kafka_makes_of_them(spark) -> None:
    run = [case for case in cases("smt") if not is_config_error(case)]
    trials = [trial_of(given) for given, _ in run]
    for trial, found, (given, out) in zip(
        trials, outcomes(spark, trials, COLUMNS), run, strict=True
    ):
        expected = DIFFERENT.get(json.dumps([given["class"], given["config"]]), out)
        assert told(trial, found, given, expected) == expected, given


def trial_of(given: dict[str, Any]) -> Trial:
    record: dict[str, Any] = {"headers": tuple(map(tuple, given.get("headers", ())))}
    if "topic" in given:
        record["topic"] = given["topic"]
    if "timestamp" in given:
        record["timestamp"] = f"timestamp_millis({given['timestamp']})"
    return Trial(step(kind_of(given), given["config"]), value_of(given), **record)


def told(
    trial: Trial, found: dict[str, Any], given: dict[str, Any], out: dict[str, Any]
) -> dict[str, Any]:
    """The outcome as the table has it."""
    if "error" in found:
        return found
    if found["dropped"]:
        return {"dropped": True}
    shape = shape_after(trial)
    headers = [[h["key"], h["type"].upper(), h["value"]] for h in found["headers"]]
    record = {
        "key": _told(shape.key, found["key"]),
        "value": _told(shape.value, found["value"]),
        "topic": found["topic"],
        "headers": headers,
        # No transform of the table changes these.
        "partition": None,
        "timestamp": given.get("timestamp"),
    }
    return {name: record[name] for name in out}


def _told(part: ValueExpr, value: object) -> object:
    if part.schemaless or part.schema is None:
        return value
    return {"payload": _payload(part.schema, value), "schema": connect_json(part.schema)}


def _payload(schema: Schema, value: Any) -> object:
    """A value that was collected, as a payload; Spark's Time is microseconds already."""
    if isinstance(value, dict):
        return value
    if isinstance(value, date):
        value = (value - date(1970, 1, 1)).days
    return json_from_native(schema, value)


# By class and configuration: what we give instead, listed in the docs with the reasons.
DIFFERENT: dict[str, dict[str, Any]] = {
    # Our records do not know whether they are in a source; the offset is null if unknown.
    json.dumps([f"{PACKAGE}InsertField$Value", {"offset.field": "o"}]): {
        "value": {"a": 1, "o": None}
    },
    # It is Kafka's converter that refuses this record afterwards; ours writes timestamps.
    json.dumps([f"{PACKAGE}TimestampConverter$Value", {"target.type": "Timestamp"}]): {
        "value": datetime(2017, 1, 1, 0, 0, 1, 456000),  # noqa: DTZ001 - as Spark gives it
        "topic": "t",
    },
}


@pytest.mark.parametrize("case", cases("parse"), ids=lambda case: case[0]["s"])
def test_texts_are_parsed(case: Case) -> None:
    given, out = case
    parsed = parse_string(given["s"])
    if given["s"] == "null":
        # The exception is the observer's, who asked a null for its schema.
        assert (out["error"], parsed.value) == ("java.lang.NullPointerException", None)
        return
    if parsed.schema is None:
        # An array or map of unlike members, whose members have no one schema.
        assert parsed.kind == out["schema"].lower()
    else:
        assert _name(parsed.schema) == out["schema"]
        assert java_class(parsed.schema).rpartition(".")[2] in out["class"]
    assert _java(parsed.value) == out["value"]


def _name(schema: Schema) -> str:
    return schema.name if schema.is_logical and schema.name else schema.type.value


def _java(value: Any) -> str:
    """What Java's toString() gives."""
    match value:
        case list():
            return f"[{', '.join(map(_java, value))}]"
        case dict():
            pairs = (f"{_java(key)}={_java(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case datetime():
            return value.strftime(JAVA_DATE)
        case date():
            return _java(datetime(value.year, value.month, value.day, tzinfo=UTC))
        case None:
            return "null"
        case _:
            return str(to_string(value, float32=True))


@pytest.mark.parametrize("case", cases("roundtrip"), ids=lambda case: str(case[0]["v"]))
def test_json_with_a_schema_is_read_and_written(case: Case) -> None:
    given, out = case
    texts = pa.array([json.dumps(given["v"]).encode()], pa.binary())
    decoded = EnvelopeDecoder(defaults=True).decode(texts)
    if given["v"]["schema"] is None:
        # The exception is the observer's: a value without schema has none to print.
        assert out["error"] == "java.lang.NullPointerException"
        assert not decoded.faults
        return
    if "error" in out:
        assert decoded.faults == {0: (out["error"], out["message"])}
        return
    (group,) = decoded.groups
    native = group.values[0].as_py()
    if isinstance(native, date):
        native = (native - date(1970, 1, 1)).days
    written = {"schema": connect_json(group.schema), "payload": native}
    if isinstance(native, list):
        written["payload"] = json_from_native(group.schema, native)
    # A value of the converter's is always one that may be null, as any record is.
    assert _required(written) == _required(out["out"])
    kind = group.schema
    assert f"{kind.type.value}/{kind.name or 'null'}" == out["schema"]


def _required(envelope: dict[str, Any]) -> dict[str, Any]:
    return envelope | {"schema": envelope["schema"] | {"optional": False}}


TESTED = ("smt", "parse", "roundtrip")
