"""Schemas and structs keep the rules of Kafka Connect's data API."""

import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sdk.strategies import SCHEMAS, values

from headrace.sdk.errors import ConfigError, RecordError
from headrace.sdk.frozen import FrozenMap
from headrace.sdk.schema import Field, Schema, Type, validate_value
from headrace.sdk.struct import Struct

PLACE = Schema.struct({"a": Schema.int32(), "b": Schema.string(optional=True)}, name="Place")

FITTING: list[tuple[Schema, Any]] = [
    (Schema.int8(), 127),
    (Schema.int16(), -32768),
    (Schema.int32(), 2**31 - 1),
    (Schema.int64(), -(2**63)),
    (Schema.float32(), 1.5),
    (Schema.float32(), float("inf")),
    (Schema.float64(), float("nan")),
    (Schema.boolean(), True),
    (Schema.string(), "x"),
    (Schema.bytes(), b"x"),
    (Schema.bytes(), bytearray(b"x")),
    (Schema.array(Schema.int8(optional=True)), [1, None]),
    (Schema.map(Schema.string(), Schema.int8()), {"a": 1}),
    (PLACE, Struct(PLACE, {"a": 1})),
    (PLACE.replaced(optional=True, doc="other"), Struct(PLACE, {"a": 1})),
    (Schema.decimal(2), Decimal("1.25")),
    (Schema.decimal(2), Decimal("1.2500")),
    (Schema.decimal(2, precision=3), Decimal("9.99")),
    (Schema.date(), date(2026, 1, 2)),
    (Schema.time(), time(1, 2, 3)),
    (Schema.timestamp(), datetime(2026, 1, 2, tzinfo=UTC)),
    (Schema.string(optional=True), None),
]
NOT_FITTING: list[tuple[Schema, Any]] = [
    (Schema.int8(), 128),
    (Schema.int8(), True),
    (Schema.int8(), 1.0),
    (Schema.int64(), 2**63),
    (Schema.float64(), 1),
    (Schema.float32(), 1e39),
    (Schema.boolean(), 1),
    (Schema.string(), b"x"),
    (Schema.bytes(), "x"),
    (Schema.array(Schema.int8()), [1, None]),
    (Schema.map(Schema.string(), Schema.int8()), {1: 1}),
    (PLACE, {"a": 1}),
    (PLACE, Struct(PLACE)),
    (PLACE.replaced(name="Other"), Struct(PLACE, {"a": 1})),
    (Schema.decimal(2), Decimal("1.255")),
    (Schema.decimal(2), Decimal("NaN")),
    (Schema.decimal(2), 1.25),
    (Schema.decimal(2, precision=3), Decimal("10.00")),
    (Schema.date(), datetime(2026, 1, 2, tzinfo=UTC)),
    (Schema.time(), time(1, tzinfo=UTC)),
    (Schema.timestamp(), datetime(2026, 1, 2)),  # noqa: DTZ001 - the fault under test
    (Schema.timestamp(), date(2026, 1, 2)),
    (Schema.string(), None),
]


@pytest.mark.parametrize(("schema", "value"), FITTING)
def test_a_value_of_the_exact_type_fits(schema: Schema, value: Any) -> None:
    validate_value(schema, value)


@pytest.mark.parametrize(("schema", "value"), NOT_FITTING)
def test_a_value_of_another_type_or_out_of_range_is_refused(schema: Schema, value: Any) -> None:
    with pytest.raises(RecordError):
        validate_value(schema, value)


def test_the_error_names_the_path_to_the_bad_value() -> None:
    outer = Schema.struct({"list": Schema.array(Schema.map(Schema.string(), Schema.int8()))})
    with pytest.raises(RecordError) as caught:
        Struct(outer, {"list": [{}, {"k": "no"}]})
    assert caught.value.field == "list[1]['k']"


def test_a_schema_cannot_be_changed() -> None:
    schema = Schema.struct({"a": Schema.int8()}, parameters={"p": "q"})
    with pytest.raises(FrozenInstanceError):
        schema.name = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        schema.parameters["p"] = "x"  # type: ignore[index]


def test_a_default_does_not_change_with_the_list_it_came_from() -> None:
    given_list = [1]
    schema = Schema.array(Schema.int8(), default=given_list)
    given_list.append(2)
    assert schema.default == (1,)


@pytest.mark.parametrize(
    "other",
    [
        Schema.int32(default=1),
        Schema.int32(name="n"),
        Schema.int32(version=1),
        Schema.int32(doc="d"),
        Schema.int32(parameters={"a": "b"}),
        Schema.int32(optional=True),
        Schema.int64(),
    ],
)
def test_equality_covers_every_attribute(other: Schema) -> None:
    assert Schema.int32() != other


def test_schemas_with_the_default_nan_are_equal() -> None:
    nan = float("nan")
    assert Schema.float64(default=nan) == Schema.float64(default=-nan)


@given(SCHEMAS)
def test_a_schema_survives_pickling_with_its_hash(schema: Schema) -> None:
    copy = pickle.loads(pickle.dumps(schema))  # noqa: S301 - our own bytes
    assert copy == schema
    assert hash(copy) == hash(schema)


@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), values(schema))))
def test_generated_values_fit_their_schema(pair: tuple[Schema, Any]) -> None:
    schema, value = pair
    validate_value(schema, value)


def test_logical_types_have_kafkas_names_and_version() -> None:
    decimal = Schema.decimal(3, precision=9)
    assert (decimal.type, decimal.version) == (Type.BYTES, 1)
    assert decimal.name == "org.apache.kafka.connect.data.Decimal"
    assert decimal.parameters == {"scale": "3", "connect.decimal.precision": "9"}
    assert Schema.date().name == "org.apache.kafka.connect.data.Date"
    assert Schema.time().type is Type.INT32
    assert Schema.timestamp().type is Type.INT64


@pytest.mark.parametrize(
    "attributes",
    [
        {"type": Type.ARRAY},
        {"type": Type.MAP, "value_schema": Schema.int8()},
        {"type": Type.INT8, "value_schema": Schema.int8()},
        {"type": Type.INT8, "fields": (Field("a", 0, Schema.int8()),)},
        {"type": Type.STRUCT, "fields": (Field("a", 1, Schema.int8()),)},
        {"type": Type.STRUCT, "fields": (Field("", 0, Schema.int8()),)},
        {"type": Type.INT8, "default": "x"},
        {"type": Type.BYTES, "name": "org.apache.kafka.connect.data.Decimal"},
    ],
)
def test_attributes_that_do_not_go_together_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Schema(**attributes)


def test_a_field_name_may_be_there_once() -> None:
    twice = tuple(Field("a", index, Schema.int8()) for index in range(2))
    with pytest.raises(ConfigError, match="field name duplication a"):
        Schema(Type.STRUCT, fields=twice)


MISFITS: list[tuple[Schema, Any, str]] = [
    (Schema.int8(), "x", "Invalid Python object for schema with type INT8: class str"),
    (
        Schema.int8(name="small"),
        "x",
        'Invalid Python object for schema "small" with type INT8: class str',
    ),
    (
        Schema.date(),
        datetime(2026, 1, 2, tzinfo=UTC),
        (
            'Invalid Python object for schema "org.apache.kafka.connect.data.Date" '
            "with type INT32: class datetime"
        ),
    ),
]


@pytest.mark.parametrize(("schema", "value", "message"), MISFITS)
def test_errors_of_validation_begin_as_kafkas(schema: Schema, value: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        validate_value(schema, value)
    assert caught.value.problem.startswith(f"{message}: it must be")
    with pytest.raises(RecordError) as in_struct:
        Struct(Schema.struct({"f": schema})).put("f", value)
    assert in_struct.value.problem.startswith(f'{message} for field: "f": it must be')
    assert in_struct.value.field == "f"


def test_a_null_where_a_value_is_required_is_told_as_kafka_does() -> None:
    with pytest.raises(RecordError) as caught:
        Struct(PLACE).validate()
    assert caught.value.problem == (
        'Invalid value: null used for required field: "a", schema type: INT32'
    )


def test_only_a_struct_schema_makes_a_struct() -> None:
    with pytest.raises(RecordError, match="Not a struct schema: INT8"):
        Struct(Schema.int8())


def test_a_struct_of_another_schema_does_not_fit() -> None:
    other = Struct(PLACE.replaced(name="x"), {"a": 1})
    with pytest.raises(RecordError, match="Struct schemas do not match"):
        validate_value(PLACE, other)


def test_a_struct_gives_the_default_where_it_has_no_value() -> None:
    schema = Schema.struct({"a": Schema.array(Schema.int8(), default=[1])})
    struct = Struct(schema)
    assert struct.get("a") == [1]
    assert struct.get_without_default("a") is None
    struct.validate()


def test_a_default_that_was_changed_by_its_reader_stays_what_it_was() -> None:
    schema = Schema.struct({"a": Schema.array(Schema.int8(), default=[1])})
    Struct(schema).get("a").append(2)
    assert Struct(schema).get("a") == [1]


def test_a_struct_without_a_required_value_is_not_valid() -> None:
    with pytest.raises(RecordError) as caught:
        Struct(PLACE, {"b": "x"}).validate()
    assert caught.value.field == "a"


def test_a_struct_checks_what_is_put() -> None:
    with pytest.raises(RecordError):
        Struct(PLACE).put("a", "x")
    with pytest.raises(RecordError, match="zz is not a valid field name"):
        Struct(PLACE).put("zz", 1)


def test_a_struct_shows_without_its_nulls() -> None:
    assert repr(Struct(PLACE, {"a": 1})) == "Struct{a=1}"
    assert repr(Struct(PLACE, {"a": 1, "b": "x"})) == "Struct{a=1,b=x}"


def test_structs_are_equal_by_schema_and_values() -> None:
    assert Struct(PLACE, {"a": 1}) == Struct(PLACE).put("a", 1)
    assert Struct(PLACE, {"a": 1}) != Struct(PLACE, {"a": 2})
    assert Struct(PLACE, {"a": 1}) != Struct(PLACE.replaced(name="x"), {"a": 1})


def test_a_frozen_struct_cannot_be_changed_and_can_be_hashed() -> None:
    struct = Struct(PLACE, {"a": 1})
    frozen = struct.frozen()
    with pytest.raises(RecordError):
        frozen.put("a", 2)
    assert {frozen: 1}[struct.frozen()] == 1
    with pytest.raises(TypeError):
        hash(struct)


def test_a_struct_is_made_from_nested_dictionaries_and_gives_them_back() -> None:
    schema = Schema.struct(
        {"places": Schema.array(PLACE), "by": Schema.map(Schema.int8(), PLACE)}
    )
    plain = {"places": [{"a": 1, "b": None}], "by": {1: {"a": 2, "b": "x"}}}
    assert Struct.of(schema, plain).to_dict() == plain


def test_a_frozen_map_is_equal_whatever_its_order() -> None:
    assert FrozenMap({"a": 1, "b": 2}) == FrozenMap({"b": 2, "a": 1})
    assert hash(FrozenMap({"a": 1, "b": 2})) == hash(FrozenMap({"b": 2, "a": 1}))
