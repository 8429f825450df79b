"""Values of every type are the same from the log as from a snapshot."""

# ruff: noqa: S608 - tests write their own SQL

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
from tests.database_tables.postgresql import EVERY_TYPE, ODD_NAMES
from tests.database_tables.table import Table
from tests.integration.changes.change_reading import Following, quoted, run

pytestmark = pytest.mark.service
Follow = Callable[..., Following]


def rows_of(found: list[tuple[str, Any]], side: str) -> Mapping[int, str]:
    """Return what rows are in records, as texts: so NaN is itself, and 0 is not -0."""
    rows = [record[side] for _, record in found if record[side] is not None]
    return {row["id"]: repr(row) for row in rows}


def reasons(following: Following) -> set[str]:
    """Return why rows were rejected since it was asked last."""
    found = {why for _, why in following.rejected}
    following.rejected.clear()
    return found


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as database:
        database.execute("SET timezone = 'UTC'")
        for statement in statements:
            database.execute(statement.encode())


@pytest.mark.parametrize("table", [EVERY_TYPE.spread(), ODD_NAMES], ids=["types", "names"])
@pytest.mark.parametrize("invalid", ["reject", "null"])
def test_rows_are_the_same_from_the_log_as_from_a_snapshot(
    url: str, follow: Follow, table: Table, invalid: str
) -> None:
    makes = len(table.before) + 1
    statements = table.statements()
    execute(url, *statements[:makes])
    name = quoted(table.name)
    run(url, f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    following = follow(url, invalid_values=invalid)
    assert following.new() == []

    execute(url, *statements[makes:])
    inserted = rows_of(following.new(), "after")
    unfit = reasons(following)
    other = follow(url, slot_name="other", invalid_values=invalid)
    snapshot = rows_of(other.new(), "after")
    assert inserted == snapshot
    assert unfit == reasons(other)
    assert bool(unfit) == (invalid == "reject" and table is not ODD_NAMES)

    # Of what is stored apart the log has nothing new.
    run(url, f"UPDATE {name} SET id = id")
    updates = following.new()
    assert rows_of(updates, "after") == snapshot
    assert reasons(following) == unfit
    assert {each["op"] for _, each in updates} == {"u"}
    assert rows_of(updates, "before") == snapshot

    run(url, f"DELETE FROM {name}")
    deletes = following.new()
    assert {each["op"] for _, each in deletes} == {"d"}
    before = rows_of(deletes, "before")
    assert {number: before[number] for number in snapshot} == snapshot
    assert len(before) == table.length
    assert not reasons(following)


def test_a_row_goes_that_held_what_no_record_can(url: str, follow: Follow) -> None:
    run(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, day date)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, '2024-02-29'), (2, '2024-02-29')",
    )
    following = follow(url)
    following.new()
    run(url, "UPDATE t SET day = 'infinity'")
    assert following.new() == []
    assert len(following.rejected) == 2
    run(url, "DELETE FROM t WHERE id = 1", "UPDATE t SET day = '2024-03-01' WHERE id = 2")
    found = following.changes()
    assert [(op, before) for op, before, _ in found] == [
        ("d", {"id": 1, "day": None}),
        ("u", {"id": 2, "day": None}),
    ]
    assert len(following.rejected) == 2


@pytest.mark.parametrize("full", [False, True])
def test_a_time_of_day_may_be_a_key(url: str, follow: Follow, full: bool) -> None:
    run(url, "CREATE TABLE t (id time PRIMARY KEY)")
    if full:
        run(url, "ALTER TABLE t REPLICA IDENTITY FULL")
    following = follow(url)
    following.new()
    run(url, "INSERT INTO t VALUES ('01:02:03.000004')")
    assert len(following.new()) == 1
    run(url, "DELETE FROM t")
    assert [op for op, _, _ in following.changes()] == ["d"]
    run(url, "INSERT INTO t VALUES ('00:00')")
    run(url, "UPDATE t SET id = '00:00:01'")
    assert [op for op, _, _ in following.changes()] == ["c", "d", "c"]
