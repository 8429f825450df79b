"""Cases observed on Kafka Connect 4.3, in the form of a table."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transforms.outcomes import (
    Trial,
    outcomes,
    shape_after,
    step,
    with_schema,
    without_schema,
)

from headrace.sdk import ConfigErrors, Part, Transform
from headrace.sdk.connectjson import connect_json, connect_schema
from headrace_plugins import transforms

pytestmark = pytest.mark.spark

PACKAGE = "org.apache.kafka.connect.transforms."
CONFIG_ERROR = "org.apache.kafka.common.config.ConfigException"
# Our records do not know whether they are in a source; the offset is null where it is unknown.
ACCEPTED = {("InsertField", "offset.field")}


def kind_of(case: dict[str, Any]) -> type[Transform] | None:
    name = case["class"].removeprefix(PACKAGE).partition("$")[0]
    return getattr(transforms, name, None)


def cases() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    text = Path(__file__).with_name("kafka_cases.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [(case["in"], case["out"]) for case in found]


def value_of(case: dict[str, Any]) -> Part:
    value = case["value"]
    if not case["value_schemas"]:
        return without_schema(value)
    schema = connect_schema(value["schema"])
    assert schema is not None
    return with_schema(schema, value["payload"])


def test_wrong_configurations_are_refused_in_kafkas_words() -> None:
    wrong = [(given, out) for given, out in cases() if out.get("error") == CONFIG_ERROR]
    assert len(wrong) > 1
    for given, out in wrong:
        kind = kind_of(given)
        assert kind is not None
        with pytest.raises(ConfigErrors) as caught:
            step(kind, given["config"])
        assert out["message"] in [error.problem for error in caught.value.errors]


def test_records_become_what_kafka_makes_of_them(spark) -> None:
    trials, wanted = [], []
    for given, out in cases():
        kind = kind_of(given)
        assert kind is not None
        if out.get("error") == CONFIG_ERROR or _accepted(kind, given):
            continue
        trials.append(Trial(step(kind, given["config"]), value_of(given)))
        wanted.append(out)
    for trial, found, out in zip(trials, outcomes(spark, trials), wanted, strict=True):
        shape = shape_after(trial)
        told = type(trial.step.transform).__name__, trial.step.transform.config
        if "error" in out:
            assert found == {"error": out["error"], "message": out["message"]}, told
            continue
        for name, part in (("key", shape.key), ("value", shape.value)):
            assert _told(part, found[name]) == out[name], told


def _accepted(kind: type[Transform], given: dict[str, Any]) -> bool:
    return any((kind.__name__, key) in ACCEPTED for key in given["config"])


def _told(part: Part, value: object) -> object:
    if part.schemaless or part.schema is None:
        return value
    return {"payload": value, "schema": connect_json(part.schema)}
