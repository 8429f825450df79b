"""Values are projected by the rules of Kafka Connect's SchemaProjector."""

from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from headrace.sdk.errors import RecordError
from headrace.sdk.projection import project
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct

NUMBERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
SCALARS = (*NUMBERS, Type.BOOLEAN, Type.STRING, Type.BYTES)
SAMPLES: dict[Type, Any] = {
    **dict.fromkeys(NUMBERS[:4], 5),
    **dict.fromkeys(NUMBERS[4:], 1.5),
    Type.BOOLEAN: True,
    Type.STRING: "x",
    Type.BYTES: b"x",
}
MISMATCH = "Schema type mismatch. source type: {} and target type: {}"


@pytest.mark.parametrize(("source", "target"), list(product(SCALARS, SCALARS)))
def test_a_type_becomes_itself_and_larger_numbers_only(source: Type, target: Type) -> None:
    value = SAMPLES[source]
    numbers = source in NUMBERS and target in NUMBERS
    if source is target or (numbers and NUMBERS.index(source) < NUMBERS.index(target)):
        projected = project(Schema(source), value, Schema(target))
        assert projected == value
        assert type(projected) is type(SAMPLES[target])
        return
    with pytest.raises(RecordError) as caught:
        project(Schema(source), value, Schema(target))
    assert caught.value.problem == MISMATCH.format(source.value, target.value)


OPTIONAL = "Writer schema is optional, however, target schema does not provide a default value."


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        (Schema.int8(optional=True), None, Schema.int8(default=7), 7),
        (Schema.int8(optional=True), 5, Schema.int8(default=7), 5),
        (Schema.int8(optional=True), None, Schema.int16(optional=True), None),
        # The default stands for null only where null cannot be.
        (Schema.int8(optional=True), None, Schema.int8(optional=True, default=7), None),
        (Schema.int8(), 5, Schema.int8(optional=True, default=7), 5),
        (Schema.int8(default=1), 5, Schema.int8(default=7), 5),
    ],
)
def test_nulls_and_defaults(source: Schema, value: Any, target: Schema, expected: Any) -> None:
    assert project(source, value, target) == expected


@pytest.mark.parametrize("value", [None, 5])
def test_what_is_optional_does_not_fit_what_is_required_without_a_default(value: Any) -> None:
    with pytest.raises(RecordError) as caught:
        project(Schema.int8(optional=True), value, Schema.int8())
    assert caught.value.problem == OPTIONAL


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (
            Schema.int32(name="a"),
            Schema.int32(name="b"),
            "Schema name mismatch. source name: a and target name: b",
        ),
        (
            Schema.date(),
            Schema.int32(),
            (
                "Schema name mismatch. source name: org.apache.kafka.connect.data.Date and "
                "target name: None"
            ),
        ),
        (
            Schema.int32(parameters={"p": "1"}),
            Schema.int32(parameters={"p": "2"}),
            (
                "Schema parameters not equal. source parameters: {'p': '1'} and "
                "target parameters: {'p': '2'}"
            ),
        ),
        (
            Schema.decimal(2),
            Schema.decimal(3),
            (
                "Schema parameters not equal. source parameters: {'scale': '2'} and "
                "target parameters: {'scale': '3'}"
            ),
        ),
    ],
)
def test_names_and_parameters_must_be_equal(
    source: Schema, target: Schema, message: str
) -> None:
    value = Decimal("1.25") if source.name == Schema.decimal(0).name else 5
    with pytest.raises(RecordError) as caught:
        project(source, value, target)
    assert caught.value.problem == message


def test_the_version_and_the_doc_may_differ() -> None:
    assert project(Schema.int8(version=1, doc="a"), 5, Schema.int16(version=2)) == 5


def test_a_missing_optional_field_stays_null_whatever_its_default() -> None:
    source = Schema.struct({"a": Schema.int32()})
    b = Schema.string(optional=True, default="dd")
    target = Schema.struct({"a": Schema.int64(), "b": b})
    projected = project(source, Struct(source, {"a": 1}), target)
    assert repr(projected) == "Struct{a=1}"
    assert projected.get("b") == "dd"


def test_a_missing_required_field_takes_its_default_or_is_refused() -> None:
    source = Schema.struct({})
    with_default = Schema.struct({"b": Schema.string(default="dd")})
    assert project(source, Struct(source), with_default).get_without_default("b") == "dd"
    with pytest.raises(RecordError, match="Required field `b` is missing from source schema"):
        project(source, Struct(source), Schema.struct({"b": Schema.string()}))


def test_a_field_that_the_target_lacks_is_left_out() -> None:
    source = Schema.struct({"a": Schema.int32(), "b": Schema.int32()})
    target = Schema.struct({"b": Schema.int32()})
    assert repr(project(source, Struct(source, {"a": 1, "b": 2}), target)) == "Struct{b=2}"


def test_the_error_names_the_path_to_the_field() -> None:
    inner = Schema.struct({"b": Schema.array(Schema.string())})
    source = Schema.struct({"a": inner})
    target = Schema.struct({"a": Schema.struct({"b": Schema.array(Schema.int8())})})
    value = Struct.of(source, {"a": {"b": ["x"]}})
    with pytest.raises(RecordError) as caught:
        project(source, value, target)
    assert caught.value.field == "a.b element"


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        (Schema.array(Schema.int8()), [1], Schema.array(Schema.float64()), [1.0]),
        (
            Schema.map(Schema.int8(), Schema.int16()),
            {1: 2},
            Schema.map(Schema.int64(), Schema.float32()),
            {1: 2.0},
        ),
        (
            Schema.array(Schema.int8(optional=True)),
            [1, None],
            Schema.array(Schema.int8(default=9)),
            [1, 9],
        ),
    ],
)
def test_items_keys_and_values_are_projected(
    source: Schema, value: Any, target: Schema, expected: Any
) -> None:
    assert project(source, value, target) == expected
