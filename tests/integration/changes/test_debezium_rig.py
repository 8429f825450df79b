"""Debezium itself, as the judge of change capture: its events give what the tables hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.debezium.comparing import differences
from tests.debezium.engine import DebeziumError, connection_properties, debezium_events
from tests.debezium.events import normalised
from tests.debezium.replay import column_kinds, replayed, table_rows, topic_of, unmatched
from tests.integration.changes.histories import END, History, history_of, run_statements
from tests.postgresql_server import PostgresqlServer

if TYPE_CHECKING:
    from headrace.settings import Settings

DROP_SLOTS = """SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE database = current_database()"""

pytestmark = [pytest.mark.long, pytest.mark.service]


@pytest.fixture(scope="module")
def logical() -> Iterator[PostgresqlServer]:
    with PostgresqlServer.running(wal_level="logical") as server:
        yield server


@pytest.fixture
def url(logical: PostgresqlServer) -> Iterator[str]:
    with logical.database() as url:
        yield url
        run_statements(url, [DROP_SLOTS])


def is_end(event: dict[str, Any]) -> bool:
    return str(event["topic"]).endswith(f".{END}")


def check_tables(url: str, history: History, changes: list[dict[str, Any]]) -> None:
    kinds, found = column_kinds(changes), replayed(changes)
    for table in history.tables:
        topic = topic_of("headrace", table)
        rows = table_rows(url, table, kinds.get(topic, {}))
        assert unmatched(found.get(topic, []), rows) == ([], []), table


@pytest.mark.parametrize("precision", ["adaptive_time_microseconds", "isostring"])
@pytest.mark.parametrize("seed", range(3))
def test_replaying_the_events_gives_what_the_tables_hold(
    seed: int, precision: str, url: str, tmp_path: Path, session_settings: Settings
) -> None:
    """Half of the history is in the snapshot, the other half is streamed."""
    history = history_of(seed, transactions=60)
    half = len(history.transactions) // 2
    run_statements(url, history.setup)
    for statements in history.transactions[:half]:
        run_statements(url, statements)
    properties = connection_properties(url, tmp_path, time_precision_mode=precision)
    with debezium_events(properties, settings=session_settings) as events:
        events.wait_for_streaming(url)
        for statements in history.transactions[half:]:
            run_statements(url, statements)
        changes = [normalised(event) for event in events.until(is_end)]
    assert {change["op"] for change in changes} >= {"r", "c", "u", "d"}
    check_tables(url, history, changes)


def test_streamed_changes_are_what_one_side_of_a_comparison_is(
    url: str, tmp_path: Path, session_settings: Settings
) -> None:
    """Of a whole history without a snapshot, and a change that is lost is found to be."""
    history = history_of(7, transactions=60)
    run_statements(url, history.setup)
    properties = connection_properties(url, tmp_path, snapshot_mode="no_data")
    with debezium_events(properties, settings=session_settings) as events:
        events.wait_for_streaming(url)
        run_statements(url, history.statements)
        changes = [normalised(event) for event in events.until(is_end)]
    check_tables(url, history, changes)
    full = {topic_of("headrace", table) for table in history.full}
    assert differences(changes, changes, full=full, source=["txId", "lsn"]) == []
    lost = changes[len(changes) // 2]
    [*_, last] = differences([each for each in changes if each is not lost], changes, full=full)
    assert (last.topic, last.field, last.ours) == (lost["topic"], "change", None)


def test_a_second_engine_goes_on_where_a_killed_one_was(
    url: str, tmp_path: Path, session_settings: Settings
) -> None:
    """Some events may come again, as Debezium gives each at least once."""
    run_statements(url, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (0)"])
    properties = connection_properties(url, tmp_path)
    with debezium_events(properties, settings=session_settings, schemas=False) as events:
        assert [event["value"]["op"] for event in events.take(1)] == ["r"]
        events.wait_for_streaming(url)
        run_statements(url, ["INSERT INTO t VALUES (1)"])
        assert [event["key"] for event in events.take(1)] == [{"id": 1}]
        events.process.kill()
    run_statements(
        url, ["INSERT INTO t VALUES (2)", "CREATE TABLE the_end (id int PRIMARY KEY)"]
    )
    with debezium_events(properties, settings=session_settings, schemas=False) as events:
        run_statements(url, ["INSERT INTO the_end VALUES (1)"])
        found = [(event["key"]["id"], event["value"]["op"]) for event in events.until(is_end)]
    assert found in ([(2, "c")], [(1, "c"), (2, "c")])


def test_debezium_says_why_it_does_not_run(
    url: str, tmp_path: Path, session_settings: Settings
) -> None:
    properties = connection_properties(url, tmp_path, database_dbname="no_such_database")
    with (
        debezium_events(properties, settings=session_settings) as events,
        pytest.raises(DebeziumError, match="no_such_database"),
    ):
        events.take(1)
