"""Arrow values get their target's type, to the depth, or are refused."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.evolution import reconcile
from headrace.evolution.apply_arrow import moved_array
from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import to_array, to_arrow_type
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling

INT8, INT, LONG = Schema.int8(optional=True), Schema.int32(optional=True), Schema.int64()
TEXT, DOUBLE = Schema.string(optional=True), Schema.float64(optional=True)
CENTS = Schema.decimal(2, precision=5, optional=True)


def moved(old: Schema, new: Schema, values: list[Any], handling: Handling) -> pa.Array:
    move = reconcile(old, new, EvolutionPolicy(handling)).move
    array = moved_array(move, to_array(values, new))
    assert array.type == to_arrow_type(move.target)
    array.validate(full=True)
    return array


@pytest.mark.parametrize(
    ("old", "new", "fits", "told"),
    [
        (INT8, INT, [1, None, -128], 128),
        (INT, TEXT, ["7", "-1"], "07"),
        (TEXT, INT, [7, None], None),
        (INT, DOUBLE, [7.0, None], 7.5),
        (DOUBLE, TEXT, ["7.0", "1.0E10", "NaN"], "7"),
        (TEXT, DOUBLE, [7.0, 1e10, None], None),
        (CENTS, DOUBLE, [1.25], 1.255),
        (CENTS, INT, [7], 1000),
        (CENTS, Schema.decimal(4, precision=9, optional=True), [Decimal("1.2500")], "1.2501"),
        (TEXT, Schema.date(optional=True), [date(2026, 1, 2)], None),
        (TEXT, Schema.timestamp(optional=True), [datetime(2026, 1, 2, 3, 4, 5, 60, UTC)], None),
        (Schema.timestamp(optional=True), TEXT, ["2026-01-02 03:04:05.06"], "soon"),
        (Schema.boolean(optional=True), TEXT, ["true"], "True"),
        (INT, Schema.boolean(optional=True), [None], True),
    ],
)
def test_values_go_into_a_type_that_stays_when_they_come_back_the_same(
    old: Schema, new: Schema, fits: list[Any], told: Any
) -> None:
    array = moved(old, new, fits, Handling.IGNORE)
    assert array.null_count == fits.count(None)
    if told is not None:
        told = Decimal(told) if new.is_logical else told
        with pytest.raises(RecordError, match="does not fit the target's"):
            moved(old, new, [*fits, told], Handling.IGNORE)


def test_texts_are_those_that_spark_writes() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 60_000, UTC)
    stamps = Schema.timestamp(optional=True)
    assert moved(TEXT, stamps, [when], Handling.IGNORE).to_pylist() == [
        "2026-01-02 03:04:05.06"
    ]
    plain = [when.replace(microsecond=0)]
    assert moved(TEXT, stamps, plain, Handling.IGNORE).to_pylist() == ["2026-01-02 03:04:05"]
    assert moved(TEXT, DOUBLE, [1e10, 2.0], Handling.IGNORE).to_pylist() == ["1.0E10", "2.0"]
    nested = Schema.struct({"a": INT}, optional=True)
    assert moved(TEXT, nested, [{"a": 1}, None], Handling.IGNORE).to_pylist() == [
        '{"a":1}',
        None,
    ]


def test_parts_of_lists_maps_and_structs_move_and_nulls_stay() -> None:
    def deep(leaf: Schema, **more: Schema) -> Schema:
        inner = Schema.struct({"x": leaf, **more}, optional=True)
        tags = Schema.map(Schema.string(), Schema.array(inner, optional=True), optional=True)
        return Schema.struct({"tags": tags}, optional=True)

    values: list[Any] = [
        None,
        {"tags": None},
        {"tags": {"k": [{"x": 1, "y": "a"}, None], "n": None}},
        {"tags": {}},
        {"tags": {"l": [], "m": [{"x": None, "y": None}]}},
    ]
    array = moved(deep(DOUBLE), deep(INT, y=TEXT), values, Handling.IGNORE)
    assert array.to_pylist(maps_as_pydicts="strict") == [
        None,
        {"tags": None},
        {"tags": {"k": [{"x": 1.0}, None], "n": None}},
        {"tags": {}},
        {"tags": {"l": [], "m": [{"x": None}]}},
    ]
    move = reconcile(deep(DOUBLE), deep(INT, y=TEXT), EvolutionPolicy(Handling.IGNORE)).move
    whole = to_array(values, deep(INT, y=TEXT))
    assert moved_array(move, whole.slice(2, 2)).to_pylist() == array.slice(2, 2).to_pylist()


def test_a_field_that_is_gone_gets_its_default_and_null_in_a_null_struct_is_fine() -> None:
    old = Schema.struct({"a": INT, "b": Schema.int32(default=9)}, optional=True)
    new = Schema.struct({"a": Schema.int32(optional=True)}, optional=True)
    array = moved(old, new, [{"a": 1}, None, {"a": None}], Handling.IGNORE)
    assert array.to_pylist() == [{"a": 1, "b": 9}, None, {"a": None, "b": 9}]


def test_null_is_refused_where_the_target_must_not_have_it_but_not_in_a_null_struct() -> None:
    old = Schema.struct({"a": Schema.int32()}, optional=True)
    new = Schema.struct({"a": Schema.int32(optional=True)}, optional=True)
    assert moved(old, new, [{"a": 1}, None], Handling.IGNORE).null_count == 1
    with pytest.raises(RecordError, match="a does not fit the target's INT NOT NULL"):
        moved(old, new, [{"a": None}], Handling.IGNORE)


def test_what_has_nothing_in_common_is_null_beside_its_own_field() -> None:
    old = Schema.struct({"a": INT}, optional=True)
    new = Schema.struct({"a": TEXT}, optional=True)
    array = moved(old, new, [{"a": "x"}], Handling.LENIENT)
    assert array.to_pylist() == [{"a": None, "a__string": "x"}]
