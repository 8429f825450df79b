"""Positions are values: canonical, immutable, equal by content."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk.errors import StateError
from headrace.sdk.position import Position, ReadLimit

FILE = {"filename": "/p"}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
POSITIONS = st.lists(st.tuples(OBJECTS, OBJECTS), max_size=4).map(Position)


@given(POSITIONS)
def test_a_position_is_the_same_after_a_way_through_json(position: Position) -> None:
    assert Position.from_json(position.to_json()) == position
    assert Position.from_json(position.to_json()).to_json() == position.to_json()


@given(POSITIONS)
def test_a_position_survives_pickling(position: Position) -> None:
    assert pickle.loads(pickle.dumps(position)) == position  # noqa: S301 - our own bytes


@given(POSITIONS, OBJECTS, OBJECTS)
def test_moving_sets_one_offset_and_keeps_the_others(
    position: Position, partition: dict[str, Any], offset: dict[str, Any]
) -> None:
    moved = position.moved(partition, offset)
    assert json.dumps(moved.offset(partition)) == json.dumps(
        Position.of(partition, offset).offset(partition)
    )
    assert moved.without(partition) == position.without(partition)


@given(POSITIONS, POSITIONS)
def test_merging_takes_the_other_where_both_have_an_offset(a: Position, b: Position) -> None:
    merged = a.merged(b)
    assert all(merged.offset(partition) == offset for partition, offset in b.items())
    assert {json.dumps(p, sort_keys=True) for p, _ in merged.items()} == {
        json.dumps(p, sort_keys=True) for p, _ in [*a.items(), *b.items()]
    }


def test_the_json_is_the_form_of_kafkas_rest() -> None:
    assert json.loads(Position.of(FILE, {"position": 9}).to_json()) == [
        {"partition": {"filename": "/p"}, "offset": {"position": 9}}
    ]


def test_order_of_keys_and_partitions_does_not_count() -> None:
    a = Position([({"x": 1, "y": 2}, {"o": 1}), ({"z": 1}, {"o": 2})])
    b = Position([({"z": 1}, {"o": 2}), ({"y": 2, "x": 1}, {"o": 1})])
    assert a == b
    assert hash(a) == hash(b)
    assert a.to_json() == b.to_json()


def test_the_empty_position_has_no_offsets() -> None:
    assert not Position()
    assert Position().offset(FILE) is None


def test_what_a_reader_does_to_an_offset_does_not_change_the_position() -> None:
    position = Position.of(FILE, {"list": [1]})
    offset: Any = position.offset(FILE)
    offset["list"].append(2)
    assert position.offset(FILE) == {"list": [1]}
    with pytest.raises(AttributeError):
        position._offsets = {}  # type: ignore[misc]


def test_true_and_one_are_different_offsets() -> None:
    assert Position.of(FILE, {"o": True}) != Position.of(FILE, {"o": 1})


@pytest.mark.parametrize(
    "bad", [{1: "x"}, {"x": (1,)}, {"x": b"y"}, {"x": float("nan")}, [1], {"x": [{2: 1}]}]
)
def test_what_json_lacks_is_refused(bad: Any) -> None:
    with pytest.raises(StateError):
        Position.of(FILE, bad)


@pytest.mark.parametrize("text", ["", "{", "{}x", "[1]", '[{"partition": {}}]', '{"a": 1}'])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(StateError):
        Position.from_json(text)


@pytest.mark.parametrize("limit", [{"rows": 0}, {"size_bytes": -1}])
def test_a_limit_that_lets_nothing_through_is_refused(limit: dict[str, int]) -> None:
    with pytest.raises(StateError):
        ReadLimit(**limit)  # type: ignore[arg-type]
