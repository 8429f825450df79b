"""Changes as records in Debezium's envelope."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk import Schema
from headrace.sdk.arrow import to_arrow, to_arrow_type
from headrace_plugins.changes.envelope import Envelope, row_schema
from headrace_plugins.changes.log import Shape
from headrace_plugins.databases.catalog import Column, TableName

Row = Mapping[str, Any]

COLUMNS = (
    Column(name="a", type="bigint", schema=Schema.int64(optional=True)),
    Column(name="b", type="text", schema=Schema.string(optional=True)),
    Column(name="v", type="text", schema=Schema.string(optional=True)),
)
KIND = pa.struct([(each.name, to_arrow_type(each.schema)) for each in COLUMNS])


def envelope(*key: str) -> Envelope:
    shape = Shape(TableName("public", "t"), COLUMNS, key)
    facts, details = {"table": "t"}, {"lsn": Schema.int64()}
    return Envelope(row_schema("postgresql", shape), key, facts, details)


def records(
    key: Sequence[str], *changes: tuple[str, Row | None, Row | None]
) -> list[dict[str, Any]]:
    """Return the records of changes, committed at 1 001 001 µs and each one behind it."""
    ops, before, after = zip(*changes, strict=True)
    count = len(changes)
    made = envelope(*key).records(
        pa.array(ops),
        pa.array(before, KIND),
        pa.array(after, KIND),
        pa.array(range(1_001_001, 1_001_001 + count), pa.int64()),
        {"lsn": pa.array(range(count), pa.int64())},
    )
    assert made.schema == to_arrow(envelope(*key).schema)
    found: list[dict[str, Any]] = made.to_pylist()
    return found


def brief(found: Sequence[Row]) -> list[tuple[str, Row | None, Row | None, int]]:
    return [(r["op"], r["before"], r["after"], r["source"]["lsn"]) for r in found]


def row(a: int | None, b: str | None = None, v: str | None = None) -> Row:
    return {"a": a, "b": b, "v": v}


def test_a_record_says_what_and_where_and_when() -> None:
    [found] = records(["a"], ("c", None, row(1, "x", "y")))
    assert found == {
        "before": None,
        "after": {"a": 1, "b": "x", "v": "y"},
        "source": {
            "table": "t",
            "ts_ms": 1001,
            "ts_us": 1_001_001,
            "ts_ns": 1_001_001_000,
            "snapshot": "false",
            "lsn": 0,
        },
        "op": "c",
        "ts_ms": 1001,
        "ts_us": 1_001_001,
        "ts_ns": 1_001_001_000,
    }


def test_an_update_that_keeps_its_key_is_one_record() -> None:
    change = ("u", row(1, "x", "old"), row(1, "x", "new"))
    assert brief(records(["a"], change)) == [(*change, 0)]


def test_an_update_that_changes_its_key_deletes_and_creates() -> None:
    found = records(
        ["a"],
        ("c", None, row(1)),
        ("u", row(1), row(2, "x")),
        ("u", None, row(2, "y")),
        ("u", row(2), row(3, "z")),
    )
    assert brief(found) == [
        ("c", None, row(1), 0),
        ("d", row(1), None, 1),
        ("c", None, row(2, "x"), 1),
        ("u", None, row(2, "y"), 2),
        ("d", row(2), None, 3),
        ("c", None, row(3, "z"), 3),
    ]
    assert [each["ts_us"] - 1_001_001 for each in found] == [0, 1, 1, 2, 3, 3]


def test_a_part_of_a_key_is_enough_to_change_it() -> None:
    found = records(["a", "b"], ("u", row(1, "x"), row(1, "y")))
    assert brief(found) == [("d", row(1, "x"), None, 0), ("c", None, row(1, "y"), 0)]


def test_without_a_key_an_update_is_one_record() -> None:
    change = ("u", row(1, "x"), row(2, "y"))
    assert brief(records([], change)) == [(*change, 0)]


def test_a_key_that_is_not_known_before_has_not_changed() -> None:
    change = ("u", row(None, "x"), row(2, "x"))
    assert brief(records(["a"], change)) == [(*change, 0)]


def test_deletions_and_truncations_are_never_two_records() -> None:
    changes = [("d", row(1), None), ("t", None, None), ("u", row(1, "x"), row(1, "y"))]
    assert brief(records(["a"], *changes)) == [(*c, n) for n, c in enumerate(changes)]


def test_rows_of_a_snapshot_are_read_and_not_created() -> None:
    rows = pa.RecordBatch.from_pylist([row(1, "x"), row(None)], pa.schema(list(KIND)))
    made = envelope("a").read_rows(rows, 2_000, {"lsn": 7})
    assert made.schema == to_arrow(envelope("a").schema)
    found = made.to_pylist()
    assert brief(found) == [("r", None, row(1, "x"), 7), ("r", None, row(None), 7)]
    assert {each["source"]["snapshot"] for each in found} == {"true"}
    assert {each["ts_ms"] for each in found} == {2}


def test_rows_of_a_snapshot_are_the_same_made_anew_or_like_those_before() -> None:
    kind = pa.schema(list(KIND))
    many = pa.RecordBatch.from_pylist([row(1, "x"), row(None), row(3)], kind)
    few = pa.RecordBatch.from_pylist([row(4, "y")], kind)
    made = envelope("a")
    for rows, before in ((few, many), (many, few), (many, many)):
        like = made.read_rows(before, 2_000, {"lsn": 7})
        found = made.read_rows(rows, 2_000, {"lsn": 7}, like)
        assert found == made.read_rows(rows, 2_000, {"lsn": 7})


def test_a_detail_that_a_snapshot_has_not_is_null() -> None:
    rows = pa.RecordBatch.from_pylist([row(1)], pa.schema(list(KIND)))
    [found] = envelope("a").read_rows(rows, 0, {}).to_pylist()
    assert found["source"]["lsn"] is None


def test_no_change_is_no_record() -> None:
    nothing = envelope("a").records(
        pa.array([], pa.string()),
        pa.array([], KIND),
        pa.array([], KIND),
        pa.array([], pa.int64()),
        {"lsn": pa.array([], pa.int64())},
    )
    assert nothing.num_rows == 0
    assert nothing.schema == to_arrow(envelope("a").schema)


keys = st.tuples(st.integers(0, 2) | st.none(), st.sampled_from(["", "x"]) | st.none())
some_rows = st.builds(lambda key, v: row(key[0], key[1], v), keys, st.sampled_from(["p", "q"]))
some_changes = st.lists(
    st.one_of(
        st.tuples(st.just("c"), st.none(), some_rows),
        st.tuples(st.just("u"), st.none() | some_rows, some_rows),
        st.tuples(st.just("d"), some_rows, st.none()),
        st.tuples(st.just("t"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=10,
)


@given(st.sampled_from([(), ("a",), ("b",), ("a", "b")]), some_changes)
def test_each_change_is_one_record_or_two(
    key: tuple[str, ...], changes: list[tuple[str, Row | None, Row | None]]
) -> None:
    expected: list[tuple[str, Row | None, Row | None, int]] = []
    for number, (op, before, after) in enumerate(changes):
        both = [] if before is None or after is None else [(before[n], after[n]) for n in key]
        if any(a is not None and b is not None and a != b for a, b in both):
            expected += [("d", before, None, number), ("c", None, after, number)]
        else:
            expected.append((op, before, after, number))
    assert brief(records(key, *changes)) == expected
