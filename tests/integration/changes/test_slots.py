"""Slots and servers that are lost, taken, restarted or other ones."""

# ruff: noqa: S608 - tests write their own SQL

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from tests.integration.changes.binlog_reading import place_of
from tests.integration.changes.change_reading import Following, rows, run
from tests.integration.databases.mysql_tables import run as run_mysql
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import ConfigError, DataLostError, Position, ReadLimit, RetriableError

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLE = ("CREATE TABLE t (id bigint PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
DROP = "SELECT pg_drop_replication_slot('s')"
CREATE = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server of the test's own."""
    with PostgresqlServer.running(max_slot_wal_keep_size="1MB") as made:
        yield made


def followed(url: str, follow: Follow, **texts: str) -> Following:
    run(url, *TABLE)
    following = follow(url, **texts)
    following.new()
    return following


def of_table(url: str) -> list[dict[str, int]]:
    return [{"id": a, "v": b} for a, b in rows(url, "SELECT * FROM t ORDER BY id")]


def patiently(following: Following, seconds: float = 60) -> None:
    """Go on as a worker does, which tries again what may be tried again."""
    by = time.monotonic() + seconds
    while True:
        try:
            following.new()
        except RetriableError:
            assert time.monotonic() < by
            time.sleep(0.2)
        else:
            return


# --- what is lost -----------------------------------------------------------------------

ADVANCE = "SELECT pg_replication_slot_advance('s', pg_current_wal_lsn())"
LOSSES = {
    "dropped": [DROP],
    "made anew": [DROP, CREATE],
    "read by others": [ADVANCE],
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("running", [False, True])
def test_a_slot_that_lost_changes_is_told_of(
    url: str, follow: Follow, loss: str, running: bool
) -> None:
    following = followed(url, follow)
    following.stop_reading()
    run(url, "UPDATE t SET v = 2", *LOSSES[loss])
    if not running:
        following.restart()
    with pytest.raises(DataLostError, match="slot s") as raised:
        following.new()
    assert "snapshot.mode=when_needed" in raised.value.fix
    with pytest.raises(DataLostError):
        following.new()

    # Which reads all again.
    following.restart(snapshot_mode="when_needed")
    run(url, "INSERT INTO t VALUES (2, 2)")
    following.new()
    assert following.replica.rows("t") == of_table(url)
    run(url, "UPDATE t SET v = 3")
    assert [op for op, _, _ in following.changes()] == ["u", "u"]
    assert following.replica.rows("t") == of_table(url)


def test_all_is_read_again_while_the_task_runs(url: str, follow: Follow) -> None:
    following = followed(url, follow, snapshot_mode="when_needed")
    following.stop_reading()
    run(url, "UPDATE t SET v = 2", *LOSSES["made anew"], "INSERT INTO t VALUES (2, 2)")
    assert [op for op, _, _ in following.changes()] == ["r", "r"]
    run(url, "UPDATE t SET v = 3")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def once(following: Following) -> None:
    """Go on as ``headrace run --once`` does: up to what was there when it began."""
    until = following.task.latest(following.position, ReadLimit())
    while True:
        end = following.task.latest(following.position, ReadLimit(rows=1000, until=until))
        if end == following.position:
            return
        following.read(end)
        following.commit(end)


@pytest.mark.parametrize("poll", ["0", "10000"])
def test_a_run_that_ends_reads_all_again_where_the_slot_was_lost(
    url: str, follow: Follow, poll: str
) -> None:
    texts = {"snapshot_mode": "when_needed", "table_poll_interval_ms": poll}
    following = followed(url, follow, **texts)
    following.restart()
    following.await_free_slot()
    run(url, DROP, "INSERT INTO t SELECT n, 0 FROM generate_series(10, 3000) n")
    once(following)
    assert following.replica.rows("t") == of_table(url)
    run(url, "UPDATE t SET v = v + 1")
    once(following)
    assert following.replica.rows("t") == of_table(url)


def test_a_run_that_ends_reads_all_again_where_the_binary_log_was_purged(
    binlog_url: str, follow: Follow
) -> None:
    run_mysql(binlog_url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    following = follow(binlog_url, snapshot_mode="when_needed")
    once(following)
    following.restart()
    run_mysql(binlog_url, "INSERT INTO t VALUES (2)", "FLUSH LOGS", "INSERT INTO t VALUES (3)")
    end, by = place_of(binlog_url), time.monotonic() + 30
    while run_mysql(binlog_url, "SHOW BINARY LOGS")[0][0] != end["file"]:
        assert time.monotonic() < by  # a reader of before may still have it open
        run_mysql(binlog_url, f"PURGE BINARY LOGS TO '{end['file']}'")
        time.sleep(0.2)
    once(following)
    [table] = following.replica.tables
    assert [row["id"] for row in following.replica.rows(table)] == [1, 2, 3]


def test_reset_offsets_read_all_again(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    following.stop_reading()
    run(url, "UPDATE t SET v = 2", *LOSSES["made anew"])
    following.position = Position()
    following.restart()
    following.new()
    run(url, "INSERT INTO t VALUES (2, 2)")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_slot_whose_log_was_removed_is_told_of(
    server: PostgresqlServer, follow: Follow
) -> None:
    with server.database() as url:
        following = followed(url, follow)
        following.stop_reading()
        run(url, "UPDATE t SET v = 2")
        for _ in range(4):
            run(url, "SELECT pg_logical_emit_message(false, 'x', '')", "SELECT pg_switch_wal()")
        run(url, "CHECKPOINT")
        assert following.slot["wal_status"] == "lost"
        with pytest.raises(DataLostError, match="max_slot_wal_keep_size"):
            following.new()
        following.restart(snapshot_mode="when_needed")
        following.new()
        assert following.replica.rows("t") == of_table(url)
        following.task.stop()


def test_another_server_is_told_of(server: PostgresqlServer, url: str, follow: Follow) -> None:
    following = followed(url, follow)
    with server.database() as other:
        run(other, *TABLE, CREATE)
        following.url = following.props["connection.url"] = other
        following.restart()
        with pytest.raises(DataLostError, match="is another server"):
            following.new()
        following.restart(snapshot_mode="when_needed")
        run(other, "UPDATE t SET v = 7")
        following.new()
        assert following.replica.rows("t") == of_table(other)
        following.task.stop()


def test_a_server_that_was_set_back_is_told_of(
    server: PostgresqlServer, follow: Follow, tmp_path: Path
) -> None:
    with server.database() as url:
        following = followed(url, follow)
        following.task.stop()
        server.stop()
        shutil.copytree(server.data, tmp_path / "backup", symlinks=True)
        server.start()
        following.restart()
        run(url, *(f"INSERT INTO t VALUES ({n}, 1)" for n in range(10, 20)))
        following.new()
        following.task.stop()
        server.stop()
        shutil.rmtree(server.data)
        shutil.copytree(tmp_path / "backup", server.data, symlinks=True)
        for each in (server.data, *server.data.rglob("*")):
            if server.user is not None:
                shutil.chown(each, server.user)
        server.start()
        run(url, "INSERT INTO t VALUES (2, 2)")
        following.restart()
        with pytest.raises(DataLostError, match="was restored from a backup"):
            following.new()
        following.restart(snapshot_mode="when_needed")
        following.new()
        assert {"id": 2, "v": 2} in following.replica.rows("t")
        following.task.stop()


def test_a_slot_of_another_plugin_or_database_is_refused(url: str, follow: Follow) -> None:
    run(url, *TABLE, "SELECT pg_create_logical_replication_slot('s', 'test_decoding')")
    with pytest.raises(ConfigError, match="plugin test_decoding") as raised:
        follow(url).new()
    assert "pg_drop_replication_slot('s')" in raised.value.fix


# --- what is idle -----------------------------------------------------------------------


def test_an_idle_source_lets_the_log_go(url: str, follow: Follow) -> None:
    following = followed(url, follow, heartbeat_interval_ms="1", table_include_list="t")
    run(url, "CREATE TABLE other (id int)")
    before, by = following.slot["confirmed"], time.monotonic() + 30
    run(url, "INSERT INTO other SELECT generate_series(1, 1000)")
    [(written,)] = rows(url, "SELECT pg_current_wal_lsn() - '0/0'")
    reading = following.task._process
    assert reading is not None
    process = reading._process
    while following.slot["confirmed"] < written:
        assert time.monotonic() < by
        assert not following.batch()
    assert following.slot["confirmed"] > before
    assert reading._process is process  # which takes a place that is not an entry's end
    place = following.position.offset({"slot": "s"})
    assert place is not None
    assert following.slot["confirmed"] <= place["lsn"]


def test_an_idle_source_does_not_move_at_once(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    run(url, "CREATE TABLE IF NOT EXISTS other (id int PRIMARY KEY)")
    following.new()
    at = following.position
    run(url, "SELECT pg_logical_emit_message(true, 'x', '')")
    following.new()
    assert following.position == at


def test_much_that_is_of_no_interest_moves_it_at_once(url: str, follow: Follow) -> None:
    following = followed(url, follow, table_include_list="t")
    at = following.position
    run(url, "CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
    by = time.monotonic() + 30
    while following.position == at:
        assert time.monotonic() < by
        following.batch()


def test_only_what_is_in_the_target_is_confirmed(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    before = following.slot["confirmed"]
    run(url, "UPDATE t SET v = 2")
    end = following.planned()
    following.read(end)
    time.sleep(1.5)
    assert following.slot["confirmed"] == before
    following.commit(end)
    place, by = end.offset({"slot": "s"}), time.monotonic() + 60
    assert place is not None
    while following.slot["confirmed"] < place["lsn"]:
        assert time.monotonic() < by
        following.plan()
    assert following.slot["confirmed"] == place["lsn"]


# --- what ends --------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_goes_on_after_the_server_was_away(
    server: PostgresqlServer, follow: Follow, how: signal.Signals
) -> None:
    with server.database() as url:
        following = followed(url, follow)
        run(url, "INSERT INTO t SELECT n, 0 FROM generate_series(10, 99) n")
        with (
            server.paused() if how == signal.SIGINT else server.killed(),
            pytest.raises(RetriableError),
        ):
            following.plan()
        run(url, "UPDATE t SET v = v + 1")
        patiently(following)
        assert following.replica.rows("t") == of_table(url)
        following.task.stop()


@pytest.mark.parametrize("most_bytes", ["1048576", "1000000000"])
def test_a_server_shuts_down_while_changes_are_not_confirmed(
    follow: Follow, most_bytes: str
) -> None:
    with PostgresqlServer.running() as server, server.database() as url:
        only = {"table_include_list": "public.t"}
        following = followed(url, follow, max_queue_size_in_bytes=most_bytes, **only)
        run(url, "CREATE TABLE other (id int)", "UPDATE t SET v = 2")
        end = following.planned()
        following.read(end)  # and the sinks go on taking it
        run(
            url,
            *(
                f"INSERT INTO t SELECT {n} * 9999 + x, 0 FROM generate_series(10, 9999) x"
                for n in range(9)
            ),
            "INSERT INTO other SELECT generate_series(1, 1000)",
        )
        time.sleep(1)
        began = time.monotonic()
        with server.paused():
            assert time.monotonic() < began + 20
            with pytest.raises(RetriableError):
                following.plan()
        following.commit(end)
        run(url, "UPDATE t SET v = v + 1")
        patiently(following)
        assert following.replica.rows("t") == of_table(url)
        following.task.stop()


def test_it_goes_on_after_the_reading_process_was_killed(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    process = following.task._process
    assert process is not None
    assert process._process is not None
    run(url, "INSERT INTO t VALUES (2, 1)")
    end = following.planned()
    process._process.kill()
    process._process.wait()
    run(url, "INSERT INTO t VALUES (3, 1)")
    with suppress(RetriableError):
        following.read(end)
        following.commit(end)
    patiently(following)
    assert following.replica.rows("t") == of_table(url)


def test_it_goes_on_after_its_walsender_was_ended(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    run(url, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    run(url, "INSERT INTO t VALUES (3, 1)")
    patiently(following)
    assert following.replica.rows("t") == of_table(url)


def test_of_two_tasks_on_a_slot_the_newer_has_it(url: str, follow: Follow) -> None:
    older = followed(url, follow)
    newer = follow(url)
    newer.position, newer.replica = older.position, older.replica
    run(url, "INSERT INTO t VALUES (3, 1)")
    patiently(newer)
    assert newer.replica.rows("t") == of_table(url)
    place, by = newer.position.offset({"slot": "s"}), time.monotonic() + 60
    assert place is not None
    while newer.slot["confirmed"] < place["lsn"]:
        assert time.monotonic() < by
        newer.plan()
    # The older one may not go back behind what the newer one has confirmed.
    with pytest.raises(DataLostError, match="read by another"):
        patiently(older)


def test_a_session_that_was_ended_is_opened_again(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    run(url, "INSERT INTO t VALUES (3, 1)")
    patiently(following)
    assert following.replica.rows("t") == of_table(url)


# --- what others have made ----------------------------------------------------------------

PLANTED = {
    "to_jsonb(pg_replication_slots)": "jsonb",
    "cardinality(name[])": "int",
    "concat(text)": "text",
    "unnest(text[])": "SETOF text",
    "pg_create_logical_replication_slot(text, text)": "TABLE (lsn pg_lsn)",
    "pg_create_logical_replication_slot(text, text, failover boolean)": "TABLE (lsn pg_lsn)",
    "pg_wal_lsn_diff(pg_lsn, text)": "numeric",
    "same(varchar, varchar)": "boolean",
    "same(oid, regclass)": "boolean",
}


def test_functions_and_operators_that_others_have_planted_are_not_called(
    url: str, follow: Follow
) -> None:
    run(
        url,
        *(
            f"CREATE FUNCTION public.{name} RETURNS {returned} LANGUAGE plpgsql "
            "AS $$ BEGIN RAISE EXCEPTION 'called'; END $$"
            for name, returned in PLANTED.items()
        ),
        "CREATE OPERATOR public.= "
        "(leftarg = varchar, rightarg = varchar, function = same, hashes, merges)",
        "CREATE OPERATOR public.= (leftarg = oid, rightarg = regclass, function = same)",
        "CREATE TABLE t (id varchar PRIMARY KEY, v int, w text)",
        "ALTER TABLE t ALTER w SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES ('a', 1, repeat('x', 9000))",
    )
    following = follow(url)
    following.new()
    run(url, "UPDATE t SET v = 2")
    following.restart()
    following.new()
    assert following.replica.rows("t") == [{"id": "a", "v": 2, "w": "x" * 9000}]


def test_rows_that_a_policy_hides_are_not_left_out_in_silence(url: str, follow: Follow) -> None:
    run(
        url,
        *TABLE,
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON t USING (v > 1)",
        "CREATE ROLE hidden LOGIN REPLICATION",
        "GRANT pg_monitor, pg_read_all_data TO hidden",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root)",
    )
    try:
        user = {"connection_user": "hidden", "publication_name": "p"}
        with pytest.raises(ConfigError, match="omit rows") as raised:
            follow(url, **user).new()
        assert raised.value.fix == 'ALTER ROLE "hidden" BYPASSRLS;'
        run(url, raised.value.fix)
        following = follow(url, **user)
        following.new()
        assert following.replica.rows("t") == of_table(url)
        following.task.stop()
        following.await_free_slot()
    finally:
        run(url, DROP, "DROP OWNED BY hidden", "DROP ROLE hidden")


def test_modules_in_the_working_directory_are_not_imported(
    url: str, follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace_plugins.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    following = followed(url, follow)
    run(url, "UPDATE t SET v = 2")
    following.new()
    assert following.replica.rows("t") == of_table(url)


@pytest.mark.parametrize("name", ["it's", 'a"b', "a\\b", "a\\'b, c", "%s äß"])
def test_a_publication_may_have_any_name(url: str, follow: Follow, name: str) -> None:
    following = followed(url, follow, publication_name=name)
    run(url, "INSERT INTO t VALUES (7, 7)")
    assert following.changes() == [("c", None, {"id": 7, "v": 7})]
