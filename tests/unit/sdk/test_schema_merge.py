"""A schema grows to take old and new values, or says where it cannot."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.sdk.strategies import ROWS, values

from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import COLUMN_TYPE, Schema
from headrace.sdk.schema_evolution import evolve


def evolved(old: Schema, new: Schema) -> Schema:
    try:
        return evolve(old, new)
    except ConfigError:
        assume(False)
        raise


@st.composite
def related(draw: st.DrawFn) -> tuple[Schema, Schema]:
    """Two rows of which the second has fields of the first, and others."""
    old, other = draw(ROWS), draw(ROWS)
    kept = {f.name: f.schema for f in old.fields if draw(st.booleans())}
    added = {f.name: f.schema for f in other.fields if draw(st.booleans())}
    names = draw(st.permutations(sorted({*kept, *added})))
    fields = {name: added.get(name) or kept[name] for name in names}
    return old, other.with_fields(fields).replaced(default=None)


@given(ROWS)
def test_a_schema_evolves_into_itself(schema: Schema) -> None:
    assert evolve(schema, schema) == schema


@given(related())
def test_evolving_twice_changes_nothing(pair: tuple[Schema, Schema]) -> None:
    old, new = pair
    once = evolved(old, new)
    assert evolve(once, new) == once
    assert evolve(once, old) == once


@given(st.data())
def test_old_and_new_values_fit_into_the_evolved_schema(data: st.DataObject) -> None:
    old, new = data.draw(related())
    merged = evolved(old, new)
    for schema in (old, new):
        value = data.draw(values(schema.replaced(optional=False)))
        grown = evolve(merged.replaced(default=None), schema.replaced(default=value))
        assert grown.default is not None


@given(related())
def test_old_fields_keep_their_order_and_new_ones_follow(pair: tuple[Schema, Schema]) -> None:
    old, new = pair
    names = [field.name for field in evolved(old, new).fields]
    before = [field.name for field in old.fields]
    assert names == [*before, *(f.name for f in new.fields if f.name not in before)]


@pytest.mark.parametrize(
    ("old", "new", "common"),
    [
        (Schema.int8(), Schema.int64(), Schema.int64()),
        (Schema.int64(), Schema.int8(), Schema.int64()),
        (Schema.int16(), Schema.float32(), Schema.float64()),
        (Schema.float32(), Schema.float64(), Schema.float64()),
        (
            Schema.decimal(2, precision=5),
            Schema.decimal(4, precision=6),
            Schema.decimal(4, precision=7),
        ),
        (Schema.int32(), Schema.decimal(2, precision=5), Schema.decimal(2, precision=12)),
        (Schema.decimal(2), Schema.decimal(4, precision=6), Schema.decimal(4)),
        (Schema.int8(optional=True), Schema.int8(), Schema.int8(optional=True)),
        (Schema.int8(default=1), Schema.float64(), Schema.float64(default=1.0)),
        (Schema.int8(default=1), Schema.decimal(1), Schema.decimal(1, default=Decimal(1))),
        (
            Schema.array(Schema.int8()),
            Schema.array(Schema.int16()),
            Schema.array(Schema.int16()),
        ),
        (
            Schema.map(Schema.int8(), Schema.int8()),
            Schema.map(Schema.int16(), Schema.int8(optional=True)),
            Schema.map(Schema.int16(), Schema.int8(optional=True)),
        ),
    ],
)
def test_types_are_widened(old: Schema, new: Schema, common: Schema) -> None:
    assert evolve(old, new) == common


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Schema.string(), Schema.int8()),
        (Schema.date(), Schema.int32()),
        (Schema.date(), Schema.timestamp()),
        (Schema.decimal(2), Schema.float64()),
        (Schema.decimal(30, precision=38), Schema.decimal(0, precision=38)),
        (Schema.array(Schema.int8()), Schema.int8()),
        (Schema.boolean(), Schema.int8()),
    ],
)
def test_types_with_nothing_in_common_are_refused_by_path(old: Schema, new: Schema) -> None:
    outer = [Schema.struct({"a": Schema.struct({"b": schema})}) for schema in (old, new)]
    with pytest.raises(ConfigError) as caught:
        evolve(*outer)
    assert caught.value.field == "a.b"


def test_fields_that_one_side_lacks_become_optional() -> None:
    old = Schema.struct({"a": Schema.int8(), "b": Schema.struct({"c": Schema.int8()})})
    new = Schema.struct({"b": Schema.struct({"d": Schema.int8()}), "e": Schema.int8()})
    assert evolve(old, new) == Schema.struct(
        {
            "a": Schema.int8(optional=True),
            "b": Schema.struct(
                {"c": Schema.int8(optional=True), "d": Schema.int8(optional=True)}
            ),
            "e": Schema.int8(optional=True),
        }
    )


@pytest.mark.parametrize(
    ("old", "default", "new", "expected"),
    [
        (Schema.int64(), 5, Schema.decimal(2), Decimal(5)),
        (Schema.decimal(1), Decimal("1.5"), Schema.decimal(3), Decimal("1.5")),
        (Schema.int8(name="a"), 5, Schema.int16(name="b"), 5),
        (Schema.int32(), 5, Schema.variant(), "5"),
        (Schema.string(), "a", Schema.variant(), '"a"'),
    ],
)
def test_a_default_becomes_one_of_the_common_type(
    old: Schema, default: Any, new: Schema, expected: Any
) -> None:
    assert evolve(old.replaced(default=default), new).default == expected


def test_local_times_beside_others_are_of_utc() -> None:
    local, zoned = Schema.local_timestamp(), Schema.timestamp()
    assert evolve(local, local).is_local
    assert evolve(local, zoned) == evolve(zoned, local) == zoned


def _of(schema: Schema, type_: str) -> Schema:
    return schema.replaced(parameters={**schema.parameters, COLUMN_TYPE: type_})


@pytest.mark.parametrize(
    ("old", "new", "type_"),
    [
        (
            _of(Schema.decimal(2, precision=10), "postgresql numeric(10,2)"),
            _of(Schema.decimal(4, precision=12), "postgresql numeric(12,4)"),
            "postgresql numeric(12,4)",
        ),
        (
            _of(Schema.decimal(4, precision=10), "postgresql numeric(10,4)"),
            _of(Schema.decimal(2, precision=12), "postgresql numeric(12,2)"),
            None,
        ),
        (
            _of(Schema.int32(), "mysql int"),
            _of(Schema.int64(), "mysql bigint"),
            "mysql bigint",
        ),
        (
            _of(Schema.string(), "mysql enum('x(1)','y')"),
            _of(Schema.string(), "mysql enum('x(2)','y')"),
            None,
        ),
        (
            _of(Schema.string(), "mysql enum('x(1)','y')"),
            _of(Schema.string(), "mysql enum('x(1)','y')"),
            "mysql enum('x(1)','y')",
        ),
        (
            _of(Schema.int64(), "mysql bigint"),
            _of(Schema.int32(), "mysql int"),
            "mysql bigint",
        ),
        (
            _of(Schema.local_timestamp(), "mysql datetime(3)"),
            _of(Schema.local_timestamp(), "mysql datetime(6)"),
            "mysql datetime(6)",
        ),
        (
            _of(Schema.string(), "postgresql character varying(20)"),
            _of(Schema.string(), "postgresql character varying(9)"),
            "postgresql character varying(20)",
        ),
        (
            _of(Schema.string(), "mysql varchar(20)"),
            _of(Schema.string(), "mysql char(20)"),
            None,
        ),
        (
            _of(Schema.string(), "mysql char(3)"),
            _of(Schema.string(), "mysql char(3)"),
            "mysql char(3)",
        ),
    ],
)
def test_the_type_of_a_column_is_kept_only_where_it_takes_both(
    old: Schema, new: Schema, type_: str | None
) -> None:
    once = evolve(old, new.replaced(doc="another"))
    assert once.parameters.get(COLUMN_TYPE) == type_
    assert evolve(once, old) == evolve(once, new) == once
