"""The differences of two schemas are found and named by their kinds."""

import pytest
from hypothesis import given
from tests.unit.sdk.strategies import ROWS

from headrace.evolution import schema_changes
from headrace.sdk import Schema

PLACE = {"id": Schema.int64(), "name": Schema.string(optional=True)}


def told(old: Schema, new: Schema, **renames: str) -> list[str]:
    return [str(change) for change in schema_changes(old, new, renames)]


def one(schema: Schema) -> Schema:
    return Schema.struct({"a": schema})


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (Schema.int32(), Schema.int64(), "widen a: INT NOT NULL -> BIGINT NOT NULL"),
        (Schema.int64(), Schema.int32(), "narrow a: BIGINT NOT NULL -> INT NOT NULL"),
        (Schema.int32(), Schema.float64(), "widen a: INT NOT NULL -> DOUBLE NOT NULL"),
        # Above 2**53 a double holds not every whole number.
        (Schema.int64(), Schema.float64(), "retype a: BIGINT NOT NULL -> DOUBLE NOT NULL"),
        (Schema.float32(), Schema.float64(), "widen a: FLOAT NOT NULL -> DOUBLE NOT NULL"),
        (
            Schema.decimal(2, precision=5),
            Schema.decimal(2, precision=7),
            "widen a: DECIMAL(5, 2) NOT NULL -> DECIMAL(7, 2) NOT NULL",
        ),
        (
            Schema.decimal(2, precision=7),
            Schema.int8(),
            "narrow a: DECIMAL(7, 2) NOT NULL -> TINYINT NOT NULL",
        ),
        (Schema.string(), Schema.int64(), "retype a: STRING NOT NULL -> BIGINT NOT NULL"),
        (Schema.date(), Schema.timestamp(), "retype a: DATE NOT NULL -> TIMESTAMP NOT NULL"),
        (Schema.date(), Schema.int32(), "retype a: DATE NOT NULL -> INT NOT NULL"),
        (
            Schema.string(),
            Schema.array(Schema.string(optional=True)),
            "retype a: STRING NOT NULL -> ARRAY<STRING> NOT NULL",
        ),
        (
            Schema.array(Schema.string()),
            Schema.array(Schema.int8()),
            "retype a: ARRAY<STRING> NOT NULL -> ARRAY<TINYINT> NOT NULL",
        ),
        (
            Schema.array(Schema.int8()),
            Schema.array(Schema.int16()),
            "widen a element: TINYINT NOT NULL -> SMALLINT NOT NULL",
        ),
        (
            Schema.map(Schema.string(), Schema.int16()),
            Schema.map(Schema.string(), Schema.int8()),
            "narrow a value: SMALLINT NOT NULL -> TINYINT NOT NULL",
        ),
        (Schema.string(), Schema.string(optional=True), "widen a: STRING NOT NULL -> STRING"),
        (Schema.string(optional=True), Schema.string(), "narrow a: STRING -> STRING NOT NULL"),
        (Schema.int8(), Schema.variant(), "widen a: TINYINT NOT NULL -> VARIANT NOT NULL"),
        (
            Schema.variant(),
            Schema.struct({"b": Schema.int8(optional=True)}),
            "narrow a: VARIANT NOT NULL -> STRUCT<`b`: TINYINT> NOT NULL",
        ),
        (Schema.string(), Schema.string(doc="d"), "annotate a: doc None -> doc d"),
    ],
)
def test_a_change_of_a_type_has_its_kind(old: Schema, new: Schema, change: str) -> None:
    assert told(one(old), one(new)) == [change]


def test_fields_are_added_dropped_and_reordered() -> None:
    old = Schema.struct({"a": Schema.int8(), "b": Schema.int8(), "c": Schema.int8()})
    new = Schema.struct({"c": Schema.int8(), "d": Schema.int8(), "a": Schema.int8()})
    assert told(old, new) == [
        "drop b TINYINT NOT NULL",
        "add d TINYINT NOT NULL",
        "reorder the value: a, c -> c, a",
    ]


def test_a_rename_is_seen_only_where_it_is_declared() -> None:
    old = Schema.struct({"address": Schema.struct({"zip": Schema.string()})})
    new = Schema.struct({"address": Schema.struct({"postcode": Schema.string()})})
    assert told(old, new) == [
        "drop address.zip STRING NOT NULL",
        "add address.postcode STRING NOT NULL",
    ]
    renames = {"address.zip": "address.postcode"}
    assert [str(c) for c in schema_changes(old, new, renames)] == [
        "rename address.zip: zip -> postcode"
    ]


def test_a_renamed_field_may_change_its_type_too() -> None:
    old, new = Schema.struct({"a": Schema.int8()}), Schema.struct({"b": Schema.int16()})
    assert told(old, new, a="b") == [
        "rename a: a -> b",
        "widen a: TINYINT NOT NULL -> SMALLINT NOT NULL",
    ]


@given(ROWS)
def test_a_schema_does_not_differ_from_itself(schema: Schema) -> None:
    assert schema_changes(schema, schema.replaced()) == ()
