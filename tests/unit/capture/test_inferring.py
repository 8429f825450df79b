"""Python values become Arrow arrays that topics take, or are refused."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.rows import infer, widen
from headrace.sdk import RecordError, Schema, Struct
from headrace.sdk.arrow import to_array, to_arrow_type

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)

ROW = Schema.struct(
    {
        "at": Schema.time(optional=True),
        "day": Schema.date(optional=True),
        "when": Schema.timestamp(optional=True),
        "price": Schema.decimal(2, precision=10, optional=True),
        "tags": Schema.array(Schema.time(), optional=True),
        "more": Schema.map(Schema.string(), Schema.struct({"x": Schema.int8()}), optional=True),
    }
)


def test_every_logical_type_arrives_as_topics_hold_it() -> None:
    value = Struct.of(
        ROW,
        {
            "at": time(0, 0, 1),
            "day": date(2026, 1, 2),
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "price": Decimal("1.50"),
            "tags": [time(0, 0, 0, 7)],
            "more": {"k": {"x": 1}},
        },
    )
    array = to_array([value, None], ROW.replaced(optional=True))
    assert array.type == to_arrow_type(ROW)
    assert array.to_pylist() == [
        {
            "at": 1_000_000,
            "day": date(2026, 1, 2),
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "price": Decimal("1.50"),
            "tags": [7],
            "more": [("k", {"x": 1})],
        },
        None,
    ]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("x", Schema.int64()),
        (300, Schema.int8()),
        ("x", Schema.struct({"a": Schema.int8()})),
        (1, Schema.time()),
        (Decimal("1.234"), Schema.decimal(2, precision=10)),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: object, schema: Schema) -> None:
    with pytest.raises(RecordError):
        to_array([value], schema)


def test_a_field_that_is_only_ever_null_has_no_shape_yet() -> None:
    shown = infer([{"a": 1, "b": None, "c": {"d": None}, "e": []}])
    assert shown is not None
    assert [field.name for field in shown.fields] == ["a"]
    assert infer([None, {}, {"a": None}]) is None


def test_a_shape_grows_with_what_is_seen() -> None:
    shape = widen(None, [{"a": 1}])
    shape = widen(shape, [{"a": 2.5, "b": "x"}])
    assert shape is not None
    assert {f.name: f.schema.type.value for f in shape.fields} == {
        "a": "FLOAT64",
        "b": "STRING",
    }
    assert widen(shape, [None]) == shape
    with pytest.raises(RecordError):
        widen(shape, [{"a": "x"}])


@given(st.lists(JSON, min_size=1, max_size=4))
def test_what_has_a_shape_can_be_held_in_it(values: list[object]) -> None:
    try:
        shape = infer(values)
    except RecordError:
        return
    if shape is not None:
        assert isinstance(to_array(values, shape), pa.Array)
        assert widen(shape, values) == shape
