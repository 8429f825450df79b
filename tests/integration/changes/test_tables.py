"""What becomes of tables while they are followed: their columns, rows, names and parts."""

# ruff: noqa: S608 - tests write their own SQL

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs
from tests.integration.changes.change_reading import (
    Following,
    quoted,
    rows,
    run,
    transact,
)

from headrace.sdk import ConfigError, DataLostError, HeadraceError, SourceError

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLE = (
    "CREATE TABLE t (id bigint PRIMARY KEY, v int)",
    "INSERT INTO t VALUES (1, 10), (2, 20)",
)


def followed(url: str, follow: Follow, *statements: str, **texts: str) -> Following:
    """Return a source that has read the tables which statements make."""
    run(url, *(statements or TABLE))
    following = follow(url, **texts)
    following.new()
    return following


def transact_until_prepared(url: str, name: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        for each in ("BEGIN", statement, f"PREPARE TRANSACTION '{name}'"):
            database.execute(each.encode())


def of_table(url: str, table: str = "t") -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall()


# --- keys, truncations, transactions ----------------------------------------------------


def test_an_update_of_a_key_deletes_and_creates(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    run(url, "UPDATE t SET id = id + 10")
    assert [
        (op, before and before["id"], after and after["id"])
        for op, before, after in following.changes()
    ] == [("d", 1, None), ("c", None, 11), ("d", 2, None), ("c", None, 12)]


def test_a_truncation_comes_where_it_was_among_the_rows(url: str, follow: Follow) -> None:
    following = followed(url, follow, *TABLE, "CREATE TABLE u (id int PRIMARY KEY)")
    transact(
        url,
        "TRUNCATE t, u",
        "INSERT INTO t VALUES (3, 1), (4, 1)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (5, 1)",
    )
    found = [(table, record["op"]) for table, record in following.new()]
    assert [op for table, op in found if table == "t"] == ["t", "c", "c", "t", "c"]
    assert [op for table, op in found if table == "u"] == ["t"]
    assert following.replica.rows("t") == of_table(url)


def test_what_is_rolled_back_never_comes(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    with psycopg.connect(url) as database:
        database.execute("INSERT INTO t VALUES (3, 1)")
        database.rollback()
        database.execute("INSERT INTO t VALUES (4, 1)")
        database.execute("SAVEPOINT a")
        database.execute("INSERT INTO t VALUES (5, 1)")
        database.execute("SAVEPOINT b")
        database.execute("INSERT INTO t VALUES (6, 1)")
        database.execute("ROLLBACK TO SAVEPOINT b")
        database.execute("INSERT INTO t VALUES (7, 1)")
        database.execute("RELEASE SAVEPOINT a")
    assert [after["id"] for _, _, after in following.changes()] == [4, 5, 7]


def test_a_prepared_transaction_comes_once_when_it_is_committed(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    transact_until_prepared(url, "a", "INSERT INTO t VALUES (3, 30)")
    transact_until_prepared(url, "b", "INSERT INTO t VALUES (4, 40)")
    run(url, "UPDATE t SET v = 11 WHERE id = 1")
    assert [after["id"] for _, _, after in following.changes()] == [1]
    following.restart()
    run(url, "COMMIT PREPARED 'a'", "ROLLBACK PREPARED 'b'")
    assert following.changes() == [("c", None, {"id": 3, "v": 30})]
    following.restart()
    assert following.changes() == []


def test_nothing_is_lost_of_who_has_prepared_before_a_table_was_published(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow, table_include_list="*.t*")
    run(url, "CREATE TABLE t2 (id bigint PRIMARY KEY, v int)")
    with psycopg.connect(url) as late:
        late.execute("INSERT INTO t2 VALUES (1, 1)")
        following.batch()  # publishes it, and sees who writes it
        late.execute("PREPARE TRANSACTION 'late'")
        late.commit()
    for _ in range(3):
        following.batch()
    run(url, "COMMIT PREPARED 'late'")
    following.new()
    assert following.replica.rows("t2") == of_table(url, "t2")


def test_transactions_come_in_the_order_of_their_commits(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        first.execute("INSERT INTO t VALUES (3, 1)")
        second.execute("INSERT INTO t VALUES (4, 1)")
        first.execute("INSERT INTO t VALUES (5, 1)")
        second.commit()
    found = following.new()
    assert [record["after"]["id"] for _, record in found] == [4, 3, 5]
    assert len({record["source"]["txId"] for _, record in found}) == 2
    assert len({record["source"]["lsn"] for _, record in found}) == 3


# --- columns ----------------------------------------------------------------------------

ALTERATIONS = {
    "added": ["ALTER TABLE t ADD COLUMN w text"],
    "added with a default": ["ALTER TABLE t ADD COLUMN w text DEFAULT 'x'"],
    "dropped": ["ALTER TABLE t DROP COLUMN v"],
    "renamed": ["ALTER TABLE t RENAME COLUMN v TO w"],
    "widened": ["ALTER TABLE t ALTER COLUMN v TYPE bigint"],
    "replaced": ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v int"],
    "generated": ["ALTER TABLE t ADD COLUMN w bigint GENERATED ALWAYS AS (id * 2) STORED"],
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", ALTERATIONS)
def test_columns_may_change(url: str, follow: Follow, kind: str, at_once: bool) -> None:
    following = followed(url, follow)
    statements = [
        "INSERT INTO t VALUES (3)",
        "UPDATE t SET id = 30 WHERE id = 3",
        *ALTERATIONS[kind],
        "INSERT INTO t VALUES (4)",
        "UPDATE t SET id = 40 WHERE id = 4",
        "DELETE FROM t WHERE id = 1",
    ]
    if at_once:
        transact(url, *statements)
    else:
        run(url, *statements)
    found = following.changes()
    assert [op for op, _, _ in found] == ["c", "d", "c", "c", "d", "c", "d"]
    assert {row["id"] for row in following.replica.rows("t")} == {2, 30, 40}
    # And from another life on.
    following.restart()
    run(url, "INSERT INTO t VALUES (5)")
    [expected] = [row for row in of_table(url) if row["id"] == 5]
    [(_, _, after)] = following.changes()
    assert after == {k: v for k, v in expected.items() if kind != "generated" or k != "w"}


@pytest.mark.parametrize("at_once", [False, True])
def test_a_column_may_get_a_type_that_is_another(
    url: str, follow: Follow, at_once: bool
) -> None:
    following = followed(url, follow)
    statements = [
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t ALTER COLUMN v TYPE text USING 'v' || v",
        "INSERT INTO t VALUES (4, 'four')",
    ]
    if at_once:
        transact(url, *statements)
        with pytest.raises(ConfigError, match="type"):
            following.new()
        return
    run(url, *statements)
    assert [after["v"] for _, _, after in following.changes()] == [3, "four"]


# --- tables -----------------------------------------------------------------------------


def test_a_table_that_comes_later_is_followed_too(url: str, follow: Follow) -> None:
    following = followed(url, follow, *TABLE, table_include_list="t, u*")
    run(
        url,
        "CREATE TABLE u1 (id int PRIMARY KEY, v int)",
        "INSERT INTO u1 SELECT n, n FROM generate_series(1, 9) n",
        "CREATE TABLE other (id int PRIMARY KEY)",
    )
    following.new()
    assert len(following.replica.rows("u1")) == 9
    run(url, "UPDATE u1 SET v = -v", "DELETE FROM u1 WHERE id = 1", "UPDATE t SET v = 0")
    following.new()
    assert following.replica.rows("u1") == of_table(url, "u1")
    assert following.replica.rows("t") == of_table(url)
    assert "other" not in following.replica.tables


def test_a_table_that_comes_while_the_source_is_away_is_followed_too(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    following.task.stop()
    run(url, "CREATE TABLE u (id int PRIMARY KEY, v int)", "INSERT INTO u VALUES (1, 1)")
    following.restart()
    following.new()
    run(url, "UPDATE u SET v = 2")
    following.new()
    assert following.replica.rows("u") == [{"id": 1, "v": 2}]


@pytest.mark.parametrize("away", [False, True])
def test_nothing_is_lost_of_who_wrote_a_table_before_it_was_published(
    url: str, follow: Follow, away: bool
) -> None:
    following = followed(url, follow)
    run(url, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO u VALUES (2)")
        if away:
            following.restart()
        for _ in range(3):
            following.batch()
        open_one.execute("INSERT INTO u VALUES (3)")
    following.new()
    while not following.replica.tables.get("u"):
        following.new()
    assert following.replica.rows("u") == of_table(url, "u")


def test_nothing_is_lost_where_the_slot_was_there_before_the_table(
    url: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.postgres.slot_log._WRITERS_SECONDS", 60)
    run(
        url,
        *TABLE,
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE PUBLICATION s FOR TABLE other",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO t VALUES (3, 30)")
        following = follow(url)
        timer = threading.Timer(1, open_one.commit)
        timer.start()
        following.new()
        timer.join()
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_what_is_undone_before_a_table_is_read_does_not_come_back(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    run(url, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    keyless = ("CREATE TABLE w (id int)", "ALTER TABLE w REPLICA IDENTITY FULL")
    run(url, *keyless)
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO u VALUES (2)")
        open_one.execute("INSERT INTO w VALUES (2)")
        following.batch()  # from now on both are in the log, but not read
        run(url, "INSERT INTO u VALUES (3), (4)", "INSERT INTO w VALUES (3), (4)")
        run(url, "UPDATE t SET v = 0")
        following.batch()
    run(url, "DELETE FROM u WHERE id = 3", "DELETE FROM w WHERE id = 3")
    following.new()
    run(url, "DELETE FROM u WHERE id = 4")
    following.new()
    following.new()
    assert following.replica.rows("u") == of_table(url, "u")
    assert following.replica.counts("w") == {'{"id": 2}': 1, '{"id": 4}': 1}


def test_a_slot_of_ours_that_is_older_than_the_publication_is_made_anew(
    url: str, follow: Follow
) -> None:
    name = f"headrace_{url.rpartition('/')[2]}"
    run(url, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')", *TABLE)
    following = follow(url, slot_name=name)
    following.new()
    run(url, "UPDATE t SET v = 0")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_publication_that_was_made_anew_is_told_of(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    following.task.stop()
    run(
        url,
        "DROP PUBLICATION s",
        "UPDATE t SET v = 0",
        "CREATE PUBLICATION s FOR TABLE t",
    )
    following.restart()
    with pytest.raises(DataLostError, match="publication") as raised:
        following.new()
    statement, _, _ = raised.value.fix.partition(";")
    run(url, statement)
    following.restart(snapshot_mode="when_needed")
    following.new()
    run(url, "UPDATE t SET v = 1")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_large_table_that_comes_later_is_read_while_the_others_go_on(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow, *TABLE, snapshot_batch_rows="100")
    run(
        url,
        "CREATE TABLE u (id int PRIMARY KEY, v int)",
        "INSERT INTO u SELECT n, n FROM generate_series(1, 1000) n",
        "ANALYZE u",
    )
    for n in range(15):
        run(
            url,
            f"UPDATE t SET v = {n}",
            f"UPDATE u SET v = v + 1000 WHERE id % 15 = {n}",
            f"UPDATE u SET id = id + 5000 WHERE id % 50 = {n}",
            f"DELETE FROM u WHERE id % 60 = {n}",
        )
        following.batch()
        if n == 7:
            following.restart()
    following.new()
    assert following.replica.rows("u") == of_table(url, "u")
    assert following.replica.rows("t") == of_table(url)


def test_a_table_that_goes_is_no_matter_for_the_others(url: str, follow: Follow) -> None:
    following = followed(url, follow, *TABLE, "CREATE TABLE u (id int PRIMARY KEY)")
    run(url, "INSERT INTO u VALUES (1)", "DROP TABLE u", "INSERT INTO t VALUES (3, 1)")
    following.new()
    run(url, "INSERT INTO t VALUES (4, 1)")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_tables_and_a_busy_log_take_turns(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    process = following.task._process
    assert process is not None
    run(url, "CREATE TABLE u (id int PRIMARY KEY)")
    run(url, "INSERT INTO u SELECT n FROM generate_series(1, 100) n", "ANALYZE u")
    turns = []
    for n in range(20):
        run(url, f"UPDATE t SET v = {n} WHERE id = 1", f"UPDATE t SET v = {n} WHERE id = 2")
        while not process.entries():
            process.wait(0.1)
        turns.append({table for table, _ in following.batch(rows=1) or ()})
    tables = [turn for turn in turns if turn]
    assert len(tables) >= 18
    assert all(turn != after for turn, after in pairwise(tables))
    following.new()
    assert following.replica.rows("u") == of_table(url, "u")


def test_a_table_that_goes_before_its_batch_is_read_is_told_of(
    url: str, follow: Follow
) -> None:
    following = followed(url, follow)
    run(url, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    while (end := following.plan()).offset({"table": "public.u"}) is None:
        following.read(end)
        following.commit(end)
    run(url, "ALTER TABLE u RENAME TO away")
    with pytest.raises(SourceError, match=r"public\.u, which no longer exists"):
        following.read(end)
    run(url, "ALTER TABLE away RENAME TO u")
    assert ("u", {"id": 1}) in [(table, each["after"]) for table, each in following.read(end)]
    following.commit(end)


def test_a_table_that_goes_between_two_looks_is_no_matter_for_the_others(
    url: str, follow: Follow
) -> None:
    run(url, *TABLE, "CREATE TABLE u (id int PRIMARY KEY)")
    run(url, "INSERT INTO u SELECT n FROM generate_series(1, 100) n", "ANALYZE u")
    texts = {"snapshot_batch_rows": "10", "table_poll_interval_ms": "600000"}
    following = follow(url, **texts)
    while "after" not in (following.position.offset({"table": "public.u"}) or {}):
        following.batch()
    run(url, "DROP TABLE u", "UPDATE t SET v = 0")
    with pytest.raises(HeadraceError):
        following.plan()
    following.new()
    assert following.replica.rows("t") == of_table(url)
    assert following.position.offset({"table": "public.u"}) is None


def test_a_log_that_is_lost_during_the_first_reading_begins_anew_when_needed(
    url: str, follow: Follow
) -> None:
    run(url, *TABLE, "INSERT INTO t SELECT n, n FROM generate_series(3, 100) n", "ANALYZE t")
    following = follow(url, snapshot_batch_rows="10", snapshot_mode="when_needed")
    while "after" not in (following.position.offset({"table": "public.t"}) or {}):
        following.batch()
    following.stop_reading()
    run(url, "SELECT pg_drop_replication_slot('s')", "UPDATE t SET v = -v")
    following.new()
    run(url, "UPDATE t SET v = v - 1 WHERE id < 50")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_table_that_is_made_again_has_its_new_rows(url: str, follow: Follow) -> None:
    following = followed(url, follow)
    run(url, "DROP TABLE t", "CREATE TABLE t (id bigint PRIMARY KEY, w text)")
    following.new()
    run(url, "INSERT INTO t VALUES (5, 'x')")
    [(_, _, after)] = following.changes()
    assert after == {"id": 5, "w": "x"}


@pytest.mark.parametrize("away", [False, True])
def test_a_table_that_takes_the_place_of_another_is_read(
    url: str, follow: Follow, away: bool
) -> None:
    following = followed(url, follow, table_include_list="t")
    if away:
        following.task.stop()
    run(
        url,
        "CREATE TABLE new (LIKE t INCLUDING ALL)",
        "INSERT INTO new SELECT n, -n FROM generate_series(1, 5) n",
        "ALTER TABLE t RENAME TO old",
        "ALTER TABLE new RENAME TO t",
        "UPDATE old SET v = 7",
    )
    if away:
        following.restart()
    for _ in range(3):
        following.new()
    run(url, "UPDATE t SET v = v - 1 WHERE id = 5")
    following.new()
    assert following.replica.rows("t") == of_table(url)


def test_a_partitioned_table_is_one_table(url: str, follow: Follow) -> None:
    following = followed(
        url,
        follow,
        "CREATE TABLE t (id int, v int, PRIMARY KEY (id, v)) PARTITION BY LIST (v)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        # Its columns are in another order.
        "CREATE TABLE t2 (v int NOT NULL, gone text, id int NOT NULL, PRIMARY KEY (id, v))",
        "ALTER TABLE t2 DROP COLUMN gone",
        "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES IN (2)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    run(
        url,
        "INSERT INTO t VALUES (3, 1), (4, 2)",
        "UPDATE t SET v = 3 - v WHERE id = 1",
        "DELETE FROM t2 WHERE id = 2",
        "CREATE TABLE t9 PARTITION OF t FOR VALUES IN (9)",
        "INSERT INTO t VALUES (9, 9)",
        "UPDATE t9 SET id = 90",
    )
    following.new()
    assert set(following.replica.tables) == {"t"}
    assert following.replica.rows("t") == of_table(url)


def test_a_publication_without_the_roots_of_partitions_is_refused(
    url: str, follow: Follow
) -> None:
    run(
        url,
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
        "CREATE PUBLICATION s FOR TABLE t",
    )
    with pytest.raises(ConfigError) as raised:
        follow(url).new()
    assert "publish_via_partition_root" in str(raised.value)
    run(url, raised.value.fix)
    following = follow(url)
    following.new()
    run(url, "INSERT INTO t VALUES (1)")
    assert following.changes() == [("c", None, {"id": 1})]


@pytest.mark.parametrize("option", ["publish = 'insert'", "publish = 'insert, update'"])
def test_a_publication_without_all_changes_is_refused(
    url: str, follow: Follow, option: str
) -> None:
    run(url, *TABLE, f"CREATE PUBLICATION s FOR TABLE t WITH ({option})")
    with pytest.raises(ConfigError) as raised:
        follow(url).new()
    run(url, raised.value.fix)
    following = follow(url)
    following.new()
    run(url, "UPDATE t SET v = 1", "DELETE FROM t")
    assert len(following.new()) == 4


NAMES = [
    ("public", "Upper Case"),
    ("public", "a.b"),
    ("public", "50%s"),
    ("public", 'quo"te'),
    ("public", "it's\\"),
    ("dot.ted", "ünïcödé 表 🎉"),
    ("100% s", "select"),
]


def test_names_of_tables_may_be_any(url: str, follow: Follow) -> None:
    made = [quoted(*name) for name in NAMES]
    run(url, 'CREATE SCHEMA "dot.ted"', 'CREATE SCHEMA "100% s"')
    run(url, *(f'CREATE TABLE {each} (id int PRIMARY KEY, "v %s" int)' for each in made))
    run(url, *(f"INSERT INTO {each} VALUES (1, 1)" for each in made))
    following = follow(url)
    assert len(following.new()) == len(NAMES)
    run(url, *(f'UPDATE {each} SET "v %s" = 2' for each in made))
    found = following.new()
    assert [each["after"] for _, each in found] == [{"id": 1, "v %s": 2}] * len(NAMES)
    named = {(each["source"]["schema"], each["source"]["table"]) for _, each in found}
    assert named == set(NAMES)
    assert len({stream for stream, _ in found}) == len(NAMES)


def test_two_tables_whose_positions_would_be_one_are_refused(url: str, follow: Follow) -> None:
    run(
        url,
        'CREATE SCHEMA "a"',
        'CREATE SCHEMA "a.b"',
        'CREATE TABLE "a"."b.c" (id int PRIMARY KEY)',
        'CREATE TABLE "a.b"."c" (id int PRIMARY KEY)',
        'INSERT INTO "a"."b.c" VALUES (1)',
        'INSERT INTO "a.b"."c" VALUES (2)',
    )
    with pytest.raises(ConfigError, match=r"a\.b\.c") as raised:
        follow(url).new()
    key, _, name = raised.value.fix.removeprefix("Exclude one: ").partition("=")
    assert key == "table.exclude.list"
    following = follow(url, table_exclude_list=name.partition(",")[0])
    assert [record["after"]["id"] for _, record in following.new()] == [1]


# --- rows that the log tells apart ------------------------------------------------------


def test_a_table_that_identifies_no_row_is_refused(url: str, follow: Follow) -> None:
    run(url, 'CREATE TABLE "No Key" (id int)', 'INSERT INTO "No Key" VALUES (1)')
    with pytest.raises(ConfigError) as raised:
        follow(url).new()
    assert rows(url, "SELECT * FROM pg_publication") == []
    run(url, 'UPDATE "No Key" SET id = 2')  # as nobody is to be kept from
    statement, _, _ = raised.value.fix.partition(";")
    assert statement == 'ALTER TABLE "public"."No Key" REPLICA IDENTITY FULL'
    run(url, statement)
    following = follow(url)
    following.new()
    run(url, 'UPDATE "No Key" SET id = 3', 'DELETE FROM "No Key"')
    assert following.changes() == [("u", {"id": 2}, {"id": 3}), ("d", {"id": 3}, None)]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING"],
        ["CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)"],
        ["CREATE UNLOGGED TABLE t (id int PRIMARY KEY)"],
    ],
)
def test_tables_that_cannot_be_followed_are_refused(
    url: str, follow: Follow, statements: list[str]
) -> None:
    run(url, *statements)
    with pytest.raises(ConfigError, match=r"public\.t "):
        follow(url).new()


def test_tables_that_the_log_lacks_are_left_out_unless_they_are_named(
    url: str, follow: Follow
) -> None:
    run(url, *TABLE, "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    following = follow(url)
    with capture_logs() as told:
        assert {stream for stream, _ in following.new()} == {"t"}
        run(url, "CREATE UNLOGGED TABLE later (id int PRIMARY KEY)", "UPDATE t SET v = 1")
        assert {stream for stream, _ in following.new()} == {"t"}
    warned = [each["table"] for each in told if "skipped" in each["event"]]
    assert warned == ["public.u", "public.later"]
    run(url, "ALTER TABLE u SET LOGGED")
    assert [stream for stream, _ in following.new()] == ["u"]
    with pytest.raises(ConfigError, match=r"public\.later is .* unlogged"):
        follow(url, slot_name="other", table_include_list="public.*,later").new()


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("mode", ["initial", "no_data", "when_needed"])
def test_a_followed_table_that_leaves_the_publication_is_told_of(
    url: str, follow: Follow, mode: str, away: bool
) -> None:
    run(
        url,
        *TABLE,
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE PUBLICATION s FOR TABLE t, u",
    )
    texts = {"snapshot_mode": mode, "publication_autocreate_mode": "disabled"}
    following = follow(url, **texts)
    following.new()
    run(url, "CREATE TABLE later (id int PRIMARY KEY)", "UPDATE t SET v = 1")
    following.new()  # which no one has followed
    run(url, "ALTER PUBLICATION s DROP TABLE u", "INSERT INTO u VALUES (1)")
    for lost in ([], ["SELECT pg_drop_replication_slot('s')"] * (mode == "when_needed")):
        following.stop_reading()
        run(url, *lost)
        if away:
            following.restart()
        with pytest.raises(ConfigError, match="lacks followed tables"):
            following.new()
    run(url, "ALTER PUBLICATION s ADD TABLE u")
    run(url, "INSERT INTO t VALUES (3, 30)", "INSERT INTO u VALUES (2)")
    following.new()
    assert {"id": 3, "v": 30} in following.replica.rows("t")
    read = of_table(url, "u")
    assert following.replica.rows("u") == (read[1:] if mode == "no_data" else read)
    assert "later" not in following.replica.tables


def test_an_index_may_identify_rows(url: str, follow: Follow) -> None:
    following = followed(
        url,
        follow,
        "CREATE TABLE t (id int NOT NULL, v int, name text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_name_key",
        "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')",
    )
    run(url, "UPDATE t SET v = 5", "DELETE FROM t WHERE id = 2", "UPDATE t SET name = 'c'")
    found = [(op, (before or after)["name"]) for op, before, after in following.changes()]
    assert found == [("u", "a"), ("u", "b"), ("d", "b"), ("d", "a"), ("c", "c")]


def test_an_index_that_lacks_the_key_is_refused(url: str, follow: Follow) -> None:
    run(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_name_key",
    )
    with pytest.raises(HeadraceError) as raised:
        follow(url).new()
    statement, _, _ = raised.value.fix.partition(";")
    run(url, statement, "INSERT INTO t VALUES (1, 'a')")
    following = follow(url)
    following.new()
    run(url, "DELETE FROM t")
    assert [(op, before["id"]) for op, before, _ in following.changes()] == [("d", 1)]
