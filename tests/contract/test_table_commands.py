"""`headrace connector tables`, against the real API over a store, and a real database."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from tests.contract.commands import Commands
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer

pytestmark = [pytest.mark.timeout(120), pytest.mark.service]
OFFSETS = {
    "public.t": {"round": 1, "after": [5], "upto": [9]},
    "public.u": {"round": 1},
}


@pytest.fixture
def tables(
    terminal: Commands, postgresql: PostgresqlServer, tmp_path: Path
) -> Iterator[Commands]:
    """The commands for a connector `a`, which is reading `t` and has read `u`."""
    connector = terminal.of("connector")
    with postgresql.database() as url:
        with psycopg.connect(url) as database:
            for table in "tuw":
                database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)".encode())
        config = {"connector.class": "postgres", "connection.url": url, "topic": "shop"}
        sets = [part for each in config.items() for part in ("--set", "=".join(each))]
        connector("create", "--name", "a", *sets, "--wait")
        offsets = [{"partition": {"table": t}, "offset": each} for t, each in OFFSETS.items()]
        (tmp_path / "offsets.json").write_text(json.dumps(offsets))
        connector("offsets", "set", "a", "offsets.json", "--stop")
        connector.server.await_state("RUNNING", "a")
        yield terminal.of("connector", "tables")


@pytest.fixture(scope="session")
def binlog_server(_no_leaked_process: None) -> Iterator[MariadbServer]:
    """A server with a binary log."""
    settings = {"log_bin": "log", "binlog_format": "ROW", "binlog_row_metadata": "FULL"}
    with MariadbServer.running(**settings, server_id="1") as server:
        yield server


def states(tables: Commands) -> dict[str, str]:
    return {each["table"]: each["state"] for each in tables.json("list", "a")}


def test_the_reading_of_tables_is_paused_and_resumed(tables: Commands) -> None:
    assert states(tables) == {"public.t": "being read", "public.u": "read"}
    assert tables("pause", "a", "t", "public.w") == (
        "a: pauses the snapshot of t\na: pauses the snapshot of public.w\n"
    )
    assert states(tables) == {"public.t": "paused", "public.u": "read", "public.w": "paused"}
    assert tables.json("resume", "a", "t")["done"] == ["a: resumes the snapshot of t"]
    assert states(tables) == {
        "public.t": "being read",
        "public.u": "read",
        "public.w": "paused",
    }
    tables("resume", "a", "t", code=2)
    assert "Paused tables: public.w." in tables.err


def test_the_reading_of_all_tables_is_paused_and_resumed(
    tables: Commands, terminal: Commands
) -> None:
    tables("pause", "a")
    assert states(tables)["public.t"] == "paused"
    assert "paused" in tables("list", "a")
    tables("resume", "a")
    assert states(tables) == {"public.t": "being read", "public.u": "read"}
    config = terminal.of("connector").json("config", "a")
    assert "snapshot.paused.list" not in config


def test_a_table_to_pause_that_is_not_there_is_refused(tables: Commands) -> None:
    tables("pause", "a", "v", code=2)
    assert "No such table, or no permission to read it: v" in tables.err
    assert states(tables)["public.t"] == "being read"


def test_tables_that_are_to_be_read_again_count_as_being_read(tables: Commands) -> None:
    tables("resync", "a", "u")
    assert states(tables)["public.u"] == "being read"


def test_only_the_place_in_its_own_log_is_set(
    tables: Commands, terminal: Commands, tmp_path: Path
) -> None:
    connector = terminal.of("connector")
    for slot, code in (("other", 2), ("headrace_a", 0)):
        place = {"partition": {"slot": slot}, "offset": {"lsn": 1}}
        (tmp_path / "place.json").write_text(json.dumps([place]))
        connector("offsets", "set", "a", "place.json", "--stop", code=code)
        assert ("does not follow the log" in connector.err) == bool(code)


def test_changes_that_postgresql_no_longer_has_are_not_replayed(tables: Commands) -> None:
    tables("replay", "a", "u", "--since", "2024-02-29T12:00Z", code=2)
    assert "slot only moves forward" in tables.err
    assert "tables resync" in tables.err
    tables("replay", "a", "v", "--since", "2024-02-29T12:00Z", code=2)
    assert "a has not read table v." in tables.err
    tables("replay", "a", "u", "--since", "soon", code=2)
    assert "Invalid time 'soon'" in tables.err
    tables.server.await_state("RUNNING", "a")
    assert states(tables)["public.u"] == "read"


def test_changes_are_replayed(
    terminal: Commands, binlog_server: MariadbServer, tmp_path: Path
) -> None:
    connector = terminal.of("connector")
    tables = terminal.of("connector", "tables")
    with binlog_server.database() as url:
        with connect(url) as database, database.cursor() as cursor:
            for table in "tu":
                cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        config = {"connector.class": "mysql", "connection.url": url, "topic": "shop"}
        sets = [part for each in config.items() for part in ("--set", "=".join(each))]
        connector("create", "--name", "a", *sets, "--wait")
        schema = url.rpartition("/")[2]
        names = [f"{schema}.{table}" for table in "tu"]
        offsets = [{"partition": {"table": t}, "offset": {"round": 1}} for t in names]
        (tmp_path / "offsets.json").write_text(json.dumps(offsets))
        connector("offsets", "set", "a", "offsets.json", "--stop")
        since = datetime.now(UTC).replace(microsecond=0)
        tables("replay", "a", "t", "--since", since.isoformat())
        assert states(tables) == {names[0]: "replayed", names[1]: "read"}
        tables("replay", "a", "u", "--since", since.isoformat())
        assert states(tables) == dict.fromkeys(names, "replayed")
        tables("replay", "a", "--since", "2020-01-01", code=2)
        assert "The binary log begins at" in tables.err
