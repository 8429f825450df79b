"""What the field transforms do beyond the observed cases, with and without a schema."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from tests.integration.transforms.field_cases import CASES, FULL, fault, row
from tests.integration.transforms.outcomes import (
    Trial,
    outcomes,
    shape_after,
    step,
    with_schema,
    without_schema,
)

from headrace.sdk import ConfigErrors, Schema, Struct, Transform, ValueExpr
from headrace_plugins.transforms.fields import Flatten, InsertField, ReplaceField, ValueToKey
from headrace_plugins.transforms.masks import MaskField

pytestmark = pytest.mark.spark

MASKED = Schema.struct(
    {
        "flag": Schema.boolean(),
        "f32": Schema.float32(),
        "dec": Schema.decimal(2),
        "day": Schema.date(),
        "time": Schema.time(),
        "ts": Schema.timestamp(),
        "list": Schema.array(Schema.int8()),
        "map": Schema.map(Schema.string(), Schema.int8()),
        "bytes": Schema.bytes(),
        "n": Schema.int8(optional=True),
    }
)
BARE = {"flag": True, "f32": 1.5, "dec": Decimal("1.10"), "day": date(2020, 1, 1)}


def test_each_transform_does_what_kafkas_does(spark) -> None:
    trials = [Trial(step(kind, config), value) for kind, config, value, _ in CASES]
    for (kind, config, _, want), found in zip(CASES, outcomes(spark, trials), strict=True):
        told = kind.__name__, config
        if isinstance(want, dict) and "error" in want:
            assert found == want, told
        else:
            assert found.get("key" if kind is ValueToKey else "value", found) == want, told


def test_masks_fit_the_type_of_the_field(spark) -> None:
    fields = [f.name for f in MASKED.fields if f.name not in ("bytes", "n")]
    value = {**BARE, "list": [1], "map": {"a": 1}, "bytes": b"a", "n": 1}
    part = with_schema(MASKED.replaced(optional=True), {**value, **_times()})
    masked = Trial(step(MaskField, {"fields": ",".join(fields)}), part)
    refused = Trial(step(MaskField, {"fields": "bytes"}), part)
    found = outcomes(spark, [masked, refused])
    told = found[0]["value"]
    assert told.pop("ts").timestamp() == 0
    assert told == {
        "flag": False,
        "f32": 0.0,
        "dec": Decimal("0.00"),
        "day": date(1970, 1, 1),
        "time": 0,
        "list": [],
        "map": {},
        "bytes": bytearray(b"a"),
        "n": 1,
    }
    assert found[1] == fault("Cannot mask value of type: class [B")
    assert shape_after(masked).value.schema == part.schema


def _times() -> dict[str, Any]:
    return {"time": time(1), "ts": datetime(2020, 1, 1, tzinfo=UTC)}


def test_metadata_goes_into_fields_as_kafka_types_it(spark) -> None:
    config = {"partition.field": "p!", "offset.field": "o", "timestamp.field": "ts"}
    offset = "CAST(42 AS BIGINT)"
    timestamp = "timestamp_millis(1500)"

    def trial(value: ValueExpr) -> Trial:
        return Trial(
            step(InsertField, config), value, partition="3", timestamp=timestamp, offset=offset
        )

    schema = Schema.struct({"a": Schema.int8()})
    trials = [
        trial(with_schema(schema, {"a": 1})),
        trial(without_schema({"a": 1})),
    ]
    typed, plain = (item["value"] for item in outcomes(spark, trials))
    assert (typed["p"], typed["o"], typed.pop("ts").timestamp()) == (3, 42, 1.5)
    assert plain == {"a": 1, "p": 3, "o": 42, "ts": 1500}
    assert shape_after(trials[0]).value.schema == Schema.struct(
        {
            "a": Schema.int8(),
            "p": Schema.int32(),
            "o": Schema.int64(optional=True),
            "ts": Schema.timestamp(optional=True),
        }
    )


def test_flattened_fields_take_what_their_parents_say(spark) -> None:
    around = Schema.struct({"x": Schema.int8(), "y": Schema.string(default="own")})
    schema = Schema.struct(
        {
            "in": around.replaced(
                optional=True, default=Struct(around, {"x": 1, "y": "parent"})
            ),
            "list": Schema.array(Schema.int8(), name="l", doc="d"),
        },
        name="n",
    )
    trial = Trial(step(Flatten, {}), with_schema(schema, {"list": []}))
    assert outcomes(spark, [trial])[0]["value"] == {"in.x": None, "in.y": None, "list": []}
    assert shape_after(trial).value.schema == Schema.struct(
        {
            "in.x": Schema.int8(optional=True, default=1),
            "in.y": Schema.string(optional=True, default="own"),
            "list": Schema.array(Schema.int8(), name="l", doc="d"),
        },
        name="n",
    )


def test_structs_keep_their_names_and_fields_their_schemas() -> None:
    trial = Trial(step(ReplaceField, {"renames": "a:z", "exclude": "in"}), row(FULL))
    assert shape_after(trial).value.schema == Schema.struct(
        {
            "z": Schema.int32(optional=True, default=5),
            "b": Schema.string(),
            "c.d": Schema.int64(optional=True),
        },
        name="row",
        version=2,
        doc="a row",
        parameters={"p": "q"},
    )
    key = shape_after(Trial(step(ValueToKey, {"fields": "a"}), row(FULL))).key.schema
    assert key == Schema.struct({"a": Schema.int32(optional=True, default=5)})


def test_the_key_has_the_same_transforms(spark) -> None:
    key = with_schema(Schema.struct({"a": Schema.int8(), "b": Schema.int8()}), {"a": 1, "b": 2})
    trial = Trial(
        step(ReplaceField, {"exclude": "a", "of": "key"}), without_schema({"a": 1}), key=key
    )
    assert outcomes(spark, [trial]) == [{"key": {"b": 2}, "value": {"a": 1}}]


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        (MaskField, {"fields": ""}, "Invalid value [] for configuration fields: Empty list"),
        (ValueToKey, {}, 'Missing required configuration "fields" which has no default value.'),
        (
            ReplaceField,
            {"renames": "a:b:c"},
            "Invalid value [a:b:c] for configuration renames: Invalid rename mapping: a:b:c",
        ),
        (
            InsertField,
            {"static.field": "s"},
            (
                "Invalid value null for configuration static.value: No value specified for "
                "static field: s"
            ),
        ),
    ],
)
def test_wrong_configurations_are_refused_in_kafkas_words(
    kind: type[Transform], config: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigErrors) as caught:
        step(kind, config)
    assert problem in [error.problem for error in caught.value.errors]
