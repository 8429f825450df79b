"""A chain tried on a few records, with Spark."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.dataplane.flow_doubles import transform

from headrace.control import try_transforms
from headrace.dataplane import Step, try_chain
from headrace.dataplane.chain import apply_chain
from headrace.dataplane.records import record_frame
from headrace.plugins import Registry
from headrace.sdk import ConfigErrors
from headrace_plugins.transforms.unwrap import Unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAIN = {
    "transforms": "cast,stamp,keep",
    "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.cast.spec": "n:int32",
    "transforms.stamp.type": "InsertField$Value",
    "transforms.stamp.topic.field": "topic",
    "transforms.keep.type": "Filter",
    "transforms.keep.condition": "100 / n > 1",
}
ROW_SCHEMA = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "int64", "optional": False, "field": "n"},
        {
            "type": "int64",
            "optional": False,
            "name": "org.apache.kafka.connect.data.Timestamp",
            "version": 1,
            "field": "at",
        },
    ],
}


def _try(spark: "SparkSession", config: dict[str, Any], *records: object) -> list[Any]:
    answer = try_transforms(
        {"config": config, "records": list(records)},
        Registry(),
        lambda steps, given: try_chain(
            spark, [Step(s.transform, s.predicate, s.negate) for s in steps], given
        ),
    )
    results: list[Any] = answer["results"]
    return results


def _names(result: dict[str, Any]) -> list[str]:
    return [step["name"] for step in result["steps"]]


def test_each_record_is_told_after_each_step(spark: "SparkSession") -> None:
    good, dropped, wrong, typed, broken = _try(
        spark,
        CHAIN,
        {"topic": "t", "value": {"n": "5"}, "key": 1},
        {"value": {"n": "200"}},
        {"value": {"n": "x"}},
        {"value": {"n": 5, "at": 86400000}, "value_schema": ROW_SCHEMA, "timestamp": 7},
        {"value": {"n": 1, "m": {"": 1}}},
    )
    assert [step["record"]["value"] for step in good["steps"]] == [
        {"n": 5},
        {"n": 5, "topic": "t"},
        {"n": 5, "topic": "t"},
    ]
    assert good["record"]["key"] == 1
    assert _names(dropped) == ["cast", "stamp", "keep"]
    assert (dropped["steps"][2], dropped["dropped"]) == (
        {"name": "keep", "dropped": "keep"},
        "keep",
    )
    assert _names(wrong) == ["cast"]
    assert wrong["error"] == wrong["steps"][0]["error"]
    assert wrong["error"]["class"] == "org.apache.kafka.connect.errors.DataException"
    assert typed["record"]["value"] == {"n": 5, "at": 86400000, "topic": "topic"}
    assert [f["type"] for f in typed["record"]["value_schema"]["fields"]] == [
        "int32",
        "int64",
        "string",
    ]
    assert typed["record"]["timestamp"] == 7
    assert (broken["steps"], broken["error"]["class"]) == ([], "RecordError")


def test_values_of_any_kind_are_told_as_they_are(spark: "SparkSession") -> None:
    mixed = [1, "x", {"a": [None]}, None]
    config = {
        "transforms": "s",
        "transforms.s.type": "Sql",
        "transforms.s.query": "SELECT m, parse_json(j) AS v, variant_get(m[2], '$.a') AS a",
    }
    typed = {"type": "string", "name": "headrace.Variant", "optional": True}
    one, whole, bad = _try(
        spark,
        config,
        {"value": {"m": mixed, "j": '{"b":1}'}},
        {"value": "[1]", "value_schema": typed},
        {"value": "[1", "value_schema": typed},
    )
    assert one["record"]["value"] == {"m": mixed, "v": {"b": 1}, "a": [None]}
    assert "`m`" in whole["error"]["message"]
    assert "Invalid JSON" in bad["error"]["message"]


def test_a_tombstone_has_the_fields_of_the_others(spark: "SparkSession") -> None:
    config = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.condition": "n > 1 OR n IS NULL",
    }
    good, tombstone = _try(spark, config, {"value": {"n": 2}}, {"key": 1, "value": None})
    assert good["record"]["value"] == {"n": 2}
    assert (tombstone["record"]["key"], tombstone["record"]["value"]) == (1, None)


def test_a_record_at_which_spark_itself_fails_leaves_the_others_alone(
    spark: "SparkSession",
) -> None:
    good, failed = _try(spark, CHAIN, {"value": {"n": 5}}, {"value": {"n": 0}})
    assert good["record"]["value"]["n"] == 5
    assert _names(failed) == ["cast", "stamp", "keep"]
    assert "record" in failed["steps"][1]
    assert "DIVIDE_BY_ZERO" in failed["error"]["message"]


def test_a_step_that_does_not_fit_records_is_told_for_these_records(
    spark: "SparkSession",
) -> None:
    config = {**CHAIN, "transforms.keep.condition": "m > 1"}
    without, with_m = _try(spark, config, {"value": {"n": 1}}, {"value": {"n": 1, "m": 2}})
    assert _names(without) == ["cast", "stamp", "keep"]
    assert without["error"]["class"] == "ConfigError"
    assert "`m`" in without["error"]["message"]
    assert with_m["record"]["value"]["m"] == 2


def test_a_handful_of_records_takes_one_job_for_all_steps(spark: "SparkSession") -> None:
    """That is what makes an answer come within a second once Spark is warm."""
    records = [{"value": {"n": number, "s": "x"}} for number in range(1, 6)]
    context = spark.sparkContext
    context.setJobGroup("trial", "a trial")
    try:
        results = _try(spark, CHAIN, *records)
    finally:
        context._jsc.clearJobGroup()
    assert len(results) == 5
    assert len(context.statusTracker().getJobIdsForGroup("trial")) <= 1


def test_a_chain_may_be_given_in_sections(spark: "SparkSession") -> None:
    steps = [{"type": "Cast", "name": "c", "spec": "n:string", "predicate": "n > 1"}]
    small, large = _try(
        spark, {"transforms": steps}, {"value": {"n": "1"}}, {"value": {"n": "2"}}
    )
    assert small["steps"][0]["name"] == "c"
    assert (small["record"]["value"], large["record"]["value"]) == ({"n": "1"}, {"n": "2"})


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"records": []}, "config"),
        ({"config": CHAIN, "records": {}}, "records"),
        ({"config": {"transforms": ""}, "records": []}, "transforms"),
        ({"config": {"transforms": "a"}, "records": []}, "transforms.a.type"),
        ({"config": {**CHAIN, "transforms.cast.type": "Nope"}, "records": []}, "cast.type"),
        ({"config": {**CHAIN, "transforms.cast.spec": ""}, "records": []}, "cast.spec"),
    ],
)
def test_a_request_that_is_wrong_is_refused_before_anything_runs(
    request_: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigErrors) as caught:
        try_transforms(request_, Registry(), lambda _, __: pytest.fail("it ran"))
    assert any(str(error.field).endswith(field) for error in caught.value.errors)


@pytest.mark.parametrize("mode", ["delete-to-tombstone", "rewrite"])
def test_a_trial_of_unwrap_gives_what_a_stream_of_the_same_records_gives(
    spark: "SparkSession", mode: str
) -> None:
    values: list[dict[str, Any]] = [
        {"pk": 1, "before": None, "after": {"pk": 1, "name": "a"}, "op": "c"},
        {"pk": 1, "note": "hello"},
        {"pk": 2, "before": {"pk": 2, "name": "b"}, "after": None, "op": "d"},
        {"pk": 3, "before": None, "after": None, "op": "d", "ts": 1},
        {"pk": 4, "before": None, "after": None, "op": "u", "ts": 1},
        {"pk": 5, "before": None, "after": None, "op": "d"},
    ]
    config = {
        "transforms": "u",
        "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.u.delete.tombstone.handling.mode": mode,
    }
    tried = _try(spark, config, *({"value": value} for value in values))
    frame = spark.read.json(spark.sparkContext.parallelize([json.dumps(v) for v in values]))
    order = frame.selectExpr("pk AS key", "struct(*) AS value").coalesce(1)
    unwrap = Step(transform(Unwrap, "u", delete_tombstone_handling_mode=mode))
    records = apply_chain(record_frame(order, "topic"), [unwrap])
    fate = [f"{records.shape.error} AS error"]
    rows = records.frame.selectExpr(*records.columns(), *fate).orderBy("key").collect()
    for row, each in zip(rows, tried, strict=True):
        if row["error"] is not None:
            assert each["error"]["message"] == row["error"]["message"]
            continue
        found = row["value"] and row["value"].asDict(recursive=True)
        assert _some(each["record"]["value"]) == _some(found)


def _some(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields that are not null: a trial knows of a record's own fields only."""
    return value and {name: part for name, part in value.items() if part is not None}
