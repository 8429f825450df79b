"""Records that do not fit a transform are rejected, and the chain goes on."""

from dataclasses import replace

import pytest
from tests.integration.dataplane.flow_doubles import condition, transform

from headrace.dataplane import Step
from headrace.dataplane.chain import apply_chain
from headrace.dataplane.records import record_frame
from headrace.sdk import ConfigError, RecordExpr, Schema, Transform
from headrace.sdk.config import ConfigDef
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.fields import InsertField, ReplaceField
from headrace_plugins.transforms.sql import Filter

pytestmark = pytest.mark.spark

DATA = "org.apache.kafka.connect.errors.DataException"


class ToKey(Transform):
    """Gives each record the key 1, in a struct."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def apply(self, shape: RecordExpr) -> RecordExpr:
        return replace(shape, key=shape.value.of_fields({"k": ("1", Schema.int32())}))


def run(spark, values: str, *steps: Step) -> list[dict[str, object]]:
    frame = spark.sql(f"SELECT value FROM VALUES {values} AS t(value)")  # noqa: S608 - constants
    records = apply_chain(record_frame(frame, "t"), steps)
    error = f"{records.shape.error or 'NULL'} AS error"
    rows = records.frame.selectExpr(*records.columns(), error).collect()
    return [row.asDict(recursive=True) for row in rows]


def test_texts_where_fields_are_needed_are_rejected_but_for_nulls(spark) -> None:
    steps = [
        Step(transform(ReplaceField, "drop", exclude="a")),
        Step(transform(InsertField, "add", static_field="s", static_value="x")),
        Step(transform(Filter, "none", condition="a > 1")),
    ]
    found = run(spark, "('text'), (NULL)", *steps[:2])
    text, nothing = (row["error"] for row in found)
    assert text == {
        "stage": "TRANSFORMATION",
        "plugin": "drop (ReplaceField)",
        "exception": DATA,
        "message": "Only Struct objects supported for [field replacement], "
        "found: java.lang.String",
        "raw": None,
    }
    assert nothing is None
    # A later step that needs what the rejected step would have made.
    found = run(spark, "('text'), (NULL)", *steps)
    messages = [row["error"]["message"] for row in found]  # type: ignore[index]
    assert messages[0] == text["message"]
    assert "Spark cannot run this step" in messages[1]


def test_a_predicate_spares_records_from_a_step_that_does_not_fit(spark) -> None:
    spared = Step(transform(ReplaceField, "drop", exclude="a"), condition("value = 'x'"))
    found = run(spark, "('x'), ('y')", spared)
    assert [row["error"] is None for row in found] == [False, True]
    assert [row["value"] for row in found] == ["x", "y"]


def test_a_wrong_configuration_still_stops(spark) -> None:
    with pytest.raises(ConfigError):
        run(spark, "('x')", Step(transform(Filter, "f", condition="a > 1")))


def test_a_part_that_only_some_records_get_is_null_for_the_others(spark) -> None:
    step = Step(ToKey("key", ConfigDef().parse({})), condition("value = 'x'"))
    found = run(spark, "('x'), ('y')", step)
    assert [row["key"] for row in found] == [{"k": 1}, None]


def test_defaults_and_the_names_of_structs_go_through_a_chain(spark) -> None:
    schema = Schema.struct(
        {"a": Schema.int32(optional=True, default=5), "b": Schema.string()}, name="n"
    )
    frame = spark.sql("SELECT named_struct('a', 1, 'b', 'x') AS value")
    records = record_frame(frame, "t")
    value = records.shape.value
    records = replace(records, shape=replace(records.shape, value=value.of("value", schema)))
    steps = [
        Step(transform(Cast, "cast", spec="b:string")),
        Step(transform(ReplaceField, "rename", renames="b:c")),
    ]
    after = apply_chain(records, steps).shape.value.schema
    assert after is not None
    assert after.name == "n"
    assert after.fields[0].schema == schema.fields[0].schema


def test_a_step_for_all_but_tombstones_may_give_another_type(spark) -> None:
    step = Step(transform(Cast, "cast", spec="int32"), condition("value IS NULL"), negate=True)
    found = run(spark, "('7'), (NULL)", step)
    assert [row["value"] for row in found] == [7, None]
    assert [row["error"] for row in found] == [None, None]


def test_numbers_that_a_predicate_spares_get_the_wider_type(spark) -> None:
    step = Step(transform(Cast, "cast", spec="int16"), condition("value = 1"))
    assert [row["value"] for row in run(spark, "(1), (70000)", step)] == [1, 70000]


def test_a_spared_value_of_another_type_is_a_bad_record(spark) -> None:
    values = "(named_struct('a', '1', 'b', 0)), (named_struct('a', 'x', 'b', 1))"
    step = Step(transform(Cast, "cast", spec="a:int32"), condition("b = 0"))
    good, bad = run(spark, values, step)
    assert good["value"] == {"a": 1, "b": 0}
    assert bad["error"]["exception"] == DATA  # type: ignore[index]
    assert "Field a has type STRING" in bad["error"]["message"]  # type: ignore[index]
