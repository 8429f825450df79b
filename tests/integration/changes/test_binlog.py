"""How the binary logs of MariaDB and MySQL are followed."""

# ruff: noqa: S608 - names are made here

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest
from pymysql.constants import ER
from pymysql.err import OperationalError
from tests.integration.changes.binlog_reading import (
    brief,
    changes,
    changes_of,
    database_of,
    gives_no_rows,
    order,
    pieces,
    pieces_until,
    place_of,
    reading,
)
from tests.integration.databases.mysql_tables import run
from tests.mariadb_server import MariadbServer, connect
from tests.waiting import until

from headrace.sdk import ConfigError, DataLostError, RetriableError
from headrace_plugins.changes.log import Offset, Piece
from headrace_plugins.connectors.mysql.binlog_reader import BinlogReader
from headrace_plugins.connectors.mysql.binlog_settings import oldest_place

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))"


@pytest.fixture
def url(each_server: MariadbServer) -> Iterator[str]:
    with each_server.database() as url:
        yield url


@pytest.fixture
def mariadb_url(binlog_server: MariadbServer) -> Iterator[str]:
    with binlog_server.database() as url:
        yield url


def rows_of(found: list[Piece]) -> list[tuple[str, Any, Any]]:
    return brief(changes_of(found).get("t", []))


def test_changes_are_in_the_order_of_the_log(url: str) -> None:
    place = place_of(url)
    run(
        url,
        TABLE,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "START TRANSACTION",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (2, NULL)",
        "UPDATE t SET id = 3 WHERE id = 2",
        "COMMIT",
    )
    found = changes(url, place)["t"]
    assert brief(found) == [
        ("c", None, (1, "a")),
        ("c", None, (2, "b")),
        ("u", (1, "a"), (1, "c")),
        ("d", (2, "b"), None),
        ("c", None, (2, None)),
        ("u", (2, None), (3, None)),
    ]
    is_mariadb = found[0]["gtid"].startswith("0-7-")
    if is_mariadb:  # a transaction that MySQL has compressed has one place
        assert [each["row"] for each in found] == [0, 1, 0, 0, 0, 0]
    places = [(each["pos"], each["row"]) for each in found]
    assert places == sorted(set(places))
    assert {each["server_id"] for each in found} == {7}
    assert len({each["gtid"] for each in found}) == 2
    assert all(each["gtid"].startswith("0-7-") == is_mariadb for each in found)
    now = time.time() * 1e6
    assert all(now - 60e6 < each["ts_us"] <= now + 1e6 for each in found)


def test_what_is_undone_is_not_read(url: str) -> None:
    place = place_of(url)
    run(
        url,
        TABLE,
        "START TRANSACTION",
        "INSERT INTO t VALUES (1, 'a')",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (2, 'b')",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (3, 'c')",
        "COMMIT",
        "START TRANSACTION",
        "INSERT INTO t VALUES (4, 'd')",
        "ROLLBACK",
    )
    assert rows_of(pieces(url, place)) == [("c", None, (1, "a")), ("c", None, (3, "c"))]


def test_tables_without_transactions_are_read(mariadb_url: str) -> None:
    place = place_of(mariadb_url)
    run(
        mariadb_url,
        f"{TABLE} ENGINE=MyISAM",
        "CREATE TABLE own (id INT) ENGINE=InnoDB",
        "START TRANSACTION",
        "INSERT INTO own VALUES (1)",
        "INSERT INTO t VALUES (1, 'a')",
        "ROLLBACK",
        "INSERT INTO t VALUES (2, 'b')",
    )
    found = changes(mariadb_url, place)
    assert brief(found["t"]) == [("c", None, (1, "a")), ("c", None, (2, "b"))]
    assert found.get("own", []) == []


def test_only_tables_that_are_followed_are_read(url: str) -> None:
    place = place_of(url)
    run(url, TABLE, "CREATE TABLE other (id INT)", "INSERT INTO other VALUES (1)")
    run(url, "INSERT INTO t VALUES (1, 'a')")
    found = changes(url, place, follows=lambda name: name.name == "t")
    assert brief(found["t"]) == [("c", None, (1, "a"))]
    assert list(found) == ["t"]


def test_definitions_change_in_the_stream(url: str) -> None:
    place = place_of(url)
    run(
        url,
        TABLE,
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 5 FIRST",
        "INSERT INTO t VALUES (6, 2, 'b')",
        "ALTER TABLE t DROP COLUMN v, CHANGE n m BIGINT",
        "INSERT INTO t VALUES (7, 3)",
        "RENAME TABLE t TO old, old TO older, older TO t",
        "UPDATE t SET m = 8 WHERE id = 3",
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE INDEX i ON t (id)",
        "INSERT INTO t VALUES (2)",
    )
    found = pieces(url, place)
    assert rows_of(found) == [
        ("c", None, (1, "a")),
        ("c", None, (6, 2, "b")),
        ("c", None, (7, 3)),
        ("u", (7, 3), (8, 3)),
        ("c", None, (1,)),
        ("c", None, (2,)),
    ]
    for piece in found:  # a run a table, and another piece for another shape
        names = [run.shape.table for run in piece.runs]
        assert len(names) == len(set(names))
    shapes = [run.shape for piece in found for run in piece.runs if run.shape.table.name == "t"]
    assert [[each.name for each in shape.columns] for shape in shapes] == [
        ["id", "v"],
        ["n", "id", "v"],
        ["m", "id"],
        ["id"],
    ]


def test_a_table_that_is_made_of_rows_has_them(mariadb_url: str) -> None:
    place = place_of(mariadb_url)
    run(
        mariadb_url,
        TABLE,
        "INSERT INTO t VALUES (1, 'a')",
        "CREATE TABLE made AS SELECT * FROM t",
    )
    assert brief(changes(mariadb_url, place)["made"]) == [("c", None, (1, "a"))]


@pytest.mark.parametrize(
    "statement",
    [
        *(
            "TRUNCATE TABLE t",
            "/* why */ truncate  `t`",
            "TRUNCATE {name}.t",
            "-- x\nTRUNCATE t",
        ),
        *("TRUNCATE TABLE /* all */ t", "TRUNCATE -- x\n t", "/*!40000 TRUNCATE TABLE t */"),
    ],
)
def test_a_table_is_emptied(url: str, statement: str) -> None:
    place = place_of(url)
    name = database_of(url).default_schema
    run(
        url,
        TABLE,
        "INSERT INTO t VALUES (1, 'a')",
        statement.format(name=name),
        "INSERT INTO t VALUES (2, 'b')",
    )
    assert rows_of(pieces(url, place)) == [
        ("c", None, (1, "a")),
        ("t", None, None),
        ("c", None, (2, "b")),
    ]
    behind = pieces(url, place)[0].end
    run(url, "TRUNCATE TABLE t")
    assert behind is not None
    assert rows_of(pieces(url, behind))[-1] == ("t", None, None)


def test_a_table_is_emptied_with_variables_or_made_anew(mariadb_url: str) -> None:
    place = place_of(mariadb_url)
    run(
        mariadb_url,
        TABLE,
        "INSERT INTO t VALUES (1, 'a')",
        "SET STATEMENT max_statement_time = 5 FOR TRUNCATE TABLE t",
        "INSERT INTO t VALUES (2, 'b')",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (3)",
    )
    assert rows_of(pieces(mariadb_url, place)) == [
        ("c", None, (1, "a")),
        ("t", None, None),
        ("c", None, (2, "b")),
        ("t", None, None),
        ("c", None, (3,)),
    ]


@pytest.mark.parametrize("action", ["TRUNCATE", "DROP"])
def test_rows_that_go_with_their_partition_are_told(url: str, action: str) -> None:
    place = place_of(url)
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN (99))",
        "INSERT INTO t VALUES (1)",
        f"ALTER TABLE t {action} PARTITION p0",
    )
    with pytest.raises(DataLostError, match=r"adds or removes rows of \w+\.t .*DELETE"):
        pieces(url, place)
    assert changes(url, place, follows=lambda name: name.name == "u") == {}


def workload(url: str, chance: random.Random, statements: int) -> None:
    """Change tables at random, and begin new files of the log now and then."""
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20))")
        cursor.execute("CREATE TABLE u (k VARCHAR(9), n INT)")
        rest = ", ".join(["('a')"] * 6)
        for number in range(statements):
            cursor.execute(
                chance.choice(
                    [
                        *[f"INSERT INTO t (v) VALUES ('a{number}'), {rest}"] * 4,
                        *[f"INSERT INTO u VALUES ('{number}', NULL), ('b', {number})"] * 2,
                        f"UPDATE t SET v = 'u{number}' WHERE id % 5 = {number % 5}",
                        f"DELETE FROM t WHERE id % 7 = {number % 7}",
                        "START TRANSACTION",
                        "COMMIT",
                        "FLUSH LOGS",
                        f"ALTER TABLE u COMMENT '{number}'",
                    ]
                )
            )


def test_from_each_place_on_the_same_transactions_are_read(url: str) -> None:
    chance = random.Random(os.urandom(8))  # noqa: S311
    place = place_of(url)
    workload(url, chance, 120)
    end = place_of(url)
    everything = changes(url, place)
    ends = [None, *_places(url, place, end)]
    for start in chance.sample(ends, 5):
        found = list[Piece]()
        at: Offset | None = start
        if start is not None:
            found = pieces(url, place, start, cut=start)
            assert found[-1].end is not None
            assert order(found[-1].end) == order(start)
        while at is None or order(at) < order(end):  # another life after each piece
            with reading(url, at or place) as reader:
                piece = next(iter(pieces_until(reader, end)))
                for _ in range(chance.randrange(3)):
                    reader.idle()
            assert piece.end is not None
            found.append(piece)
            at = piece.end
        assert changes_of(found) == everything


def _places(url: str, after: Offset, end: Offset) -> list[Offset]:
    """Return where transactions end, by the server's own list of its events."""
    files = [row[0] for row in run(url, "SHOW BINARY LOGS") if row[0] >= after["file"]]
    found: list[Offset] = []
    for file in files:
        for row in run(url, f"SHOW BINLOG EVENTS IN '{file}'"):
            place = {"file": row[0], "pos": row[4]}
            if row[2] == "Xid" and order(after) < order(place) <= order(end):
                found.append(place)
    assert len(found) > 20
    return found


def test_a_piece_ends_at_the_cut(url: str) -> None:
    place = place_of(url)
    run(url, TABLE, "INSERT INTO t VALUES (1, 'a')")
    cut = place_of(url)
    run(url, "INSERT INTO t VALUES (2, 'b')", "INSERT INTO t VALUES (3, 'c')")
    with reading(url, place, cut) as reader:
        found = list(pieces_until(reader, place_of(url)))
    assert order(cut) in {order(piece.end) for piece in found if piece.end is not None}
    until = [each for each in found if each.end and order(each.end) <= order(cut)]
    assert rows_of(until) == [("c", None, (1, "a"))]
    assert rows_of(found)[1:] == [("c", None, (2, "b")), ("c", None, (3, "c"))]
    with reading(url, cut, cut) as reader:  # which has been reached before
        assert rows_of(list(pieces_until(reader, place_of(url)))) == rows_of(found)[1:]


def test_the_place_moves_where_nothing_is_followed(
    url: str, each_server: MariadbServer
) -> None:
    run(url, TABLE)
    place = place_of(url)
    with reading(url, place) as reader:
        with each_server.database() as other:
            run(other, TABLE, "INSERT INTO t VALUES (1, 'a')")
        end = place_of(url)
        found = list(pieces_until(reader, end))
        assert rows_of(found) == []
        assert is_at(found[-1].end, end)
        assert gives_no_rows(reader, 0.1)
        run(url, "FLUSH LOGS")
        assert list(pieces_until(reader, place_of(url)))[-1].runs == ()


def test_heartbeats_keep_a_reader_that_has_nothing_to_read(mariadb_url: str) -> None:
    place = place_of(mariadb_url)
    with reading(mariadb_url, place) as reader:
        assert not [piece for piece in iter(lambda: reader.read(2), None) if piece.runs]
        since = time.monotonic()
        heard = reader._dump._heard
        while time.monotonic() - since < 3:
            assert gives_no_rows(reader, 0.5)
        assert reader._dump._heard > heard


def test_a_long_transaction_takes_no_more_memory(mariadb_url: str) -> None:
    run(mariadb_url, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200), w VARCHAR(200))")
    place = place_of(mariadb_url)
    run(
        mariadb_url,
        "INSERT INTO t SELECT seq, REPEAT(seq, 20), REPEAT('x', 100) FROM seq_1_to_1200000",
    )
    process, rows, most, last = psutil.Process(), 0, 0, None
    with reading(mariadb_url, place) as reader:
        before = 0
        for number, piece in enumerate(pieces_until(reader, place_of(mariadb_url))):
            size = sum(run.rows.nbytes for run in piece.runs)
            rows += sum(run.rows.num_rows for run in piece.runs)
            most, last = max(most, size), piece
            before = before or (number == 5 and process.memory_info().rss)
            if piece.end is None:
                assert piece.runs
    assert rows == 1_200_000
    assert last is not None
    assert last.end is not None
    assert most < 16 << 20
    assert process.memory_info().rss - before < 64 << 20


def test_a_server_that_has_purged_its_log_has_lost_data(url: str) -> None:
    place = place_of(url)
    run(url, TABLE, "INSERT INTO t VALUES (1, 'a')", "FLUSH LOGS", "FLUSH LOGS")
    end = place_of(url)
    by = time.monotonic() + 30
    while run(url, "SHOW BINARY LOGS")[0][0] != end["file"]:
        # A file stays that a reader of before still has open, for all that the server knows.
        assert time.monotonic() < by
        run(url, f"PURGE BINARY LOGS TO '{end['file']}'")
        time.sleep(0.2)
    with pytest.raises(DataLostError, match="snapshot"):
        pieces(url, place)
    with database_of(url).session() as session:
        assert oldest_place(session) == {"file": end["file"], "pos": 4}


def test_a_place_behind_the_end_of_the_log_has_lost_data(url: str) -> None:
    place = dict(place_of(url))
    place["pos"] += 10_000_000
    with pytest.raises(DataLostError):
        pieces(url, place)


@pytest.mark.parametrize(
    ("setting", "statement", "fix"),
    [
        ("binlog_format = 'STATEMENT'", "UPDATE t SET v = 'x'", "binlog_format = 'ROW';"),
        ("binlog_row_image = 'MINIMAL'", "UPDATE t SET v = 'x'", "binlog_row_image = 'FULL';"),
        ("binlog_row_image = 'NOBLOB'", "UPDATE t SET v = 'x'", "binlog_row_image = 'FULL';"),
    ],
)
def test_a_log_without_whole_rows_is_refused(
    url: str, setting: str, statement: str, fix: str
) -> None:
    place = place_of(url)
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), b TEXT)",
        "INSERT INTO t VALUES (1, 'a', 'b')",
        f"SET SESSION {setting}",
        statement,
    )
    with pytest.raises(ConfigError, match=f"SET GLOBAL {fix}"):
        pieces(url, place)


def test_statements_for_other_tables_are_passed_over(url: str) -> None:
    place = place_of(url)
    run(
        url,
        TABLE,
        "CREATE TABLE other (id INT)",
        "SET SESSION binlog_format = 'STATEMENT'",
        "INSERT INTO other VALUES (1)",
        "SET SESSION binlog_format = 'ROW'",
        "INSERT INTO t VALUES (1, 'a')",
    )
    found = changes(url, place, follows=lambda name: name.name == "t")
    assert brief(found["t"]) == [("c", None, (1, "a"))]


def test_a_prepared_transaction_is_refused(url: str) -> None:
    place = place_of(url)
    run(url, TABLE)
    run(
        url,
        "XA START 'one'",
        "INSERT INTO t VALUES (1, 'a')",
        "XA END 'one'",
        "XA COMMIT 'one' ONE PHASE",
    )
    assert rows_of(pieces(url, place)) == [("c", None, (1, "a"))]
    run(
        url,
        "XA START 'x'",
        "INSERT INTO t VALUES (2, 'b')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA ROLLBACK 'x'",
    )
    with pytest.raises(ConfigError, match=r"XA PREPARE.* of test_\w+\.t,"):
        pieces(url, place)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_prepared_transaction_of_other_tables_is_passed_over(url: str, end: str) -> None:
    run(url, TABLE, "CREATE TABLE other (id bigint PRIMARY KEY)")
    place = place_of(url)
    run(url, "XA START 'x'", "INSERT INTO other VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
    run(url, "INSERT INTO t VALUES (1, 'a')")

    def ended() -> bool:
        try:
            run(url, f"XA {end} 'x'")
        except OperationalError as error:
            if error.args[0] != ER.XAER_NOTA:
                raise
            return False  # the server still sees it in the connection that has ended
        return True

    until(ended)
    run(url, "INSERT INTO t VALUES (2, 'b')")
    with reading(url, place, follows=lambda name: name.name == "t") as reader:
        found = list(pieces_until(reader, place_of(url)))
    assert rows_of(found) == [("c", None, (1, "a")), ("c", None, (2, "b"))]


def test_the_server_going_away_is_retriable(url: str, each_server: MariadbServer) -> None:
    place = place_of(url)
    run(url, TABLE)
    with reading(url, place) as reader:
        list(pieces_until(reader, place_of(url)))
        with each_server.killed(), pytest.raises(RetriableError):
            read_on(reader)
        run(url, "INSERT INTO t VALUES (1, 'a')")
        reader.start(place, None)
        assert rows_of(list(pieces_until(reader, place_of(url)))) == [("c", None, (1, "a"))]


def test_a_silent_server_is_given_up(
    mariadb_url: str, binlog_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.mysql.binlog_dump._SILENT_SECONDS", 0)
    with (
        reading(mariadb_url, place_of(mariadb_url)) as reader,
        binlog_server.suspended(),
        pytest.raises(RetriableError, match="heartbeat"),
    ):
        read_on(reader)


def read_on(reader: BinlogReader) -> None:
    """Read until it fails."""
    for _ in range(60):
        reader.read(0.5)


def is_at(place: Offset | None, expected: Offset) -> bool:
    """Return whether places differ at most by an event of the server itself between them."""
    assert place is not None
    assert place["pos"] >= expected["pos"]
    return {**place, "pos": 0} == {**expected, "pos": 0}


def test_a_reader_can_begin_behind_a_gtid(url: str) -> None:
    run(url, TABLE, "INSERT INTO t VALUES (1, 'a')")
    place = place_of(url)
    run(url, "INSERT INTO t VALUES (2, 'b')")
    run(url, "FLUSH LOGS", "INSERT INTO t VALUES (3, 'c')")
    end = place_of(url)
    with reading(url, {**place, "file": "", "pos": 0}) as reader:
        found = list(pieces_until(reader, end))
    assert rows_of(found) == [("c", None, (2, "b")), ("c", None, (3, "c"))]
    assert is_at(found[-1].end, end)


def test_a_place_without_a_gtid_is_its_file_and_pos(url: str) -> None:
    place = place_of(url)
    run(url, TABLE, "INSERT INTO t VALUES (1, 'a')")
    bare = {name: place[name] for name in ("file", "pos")}
    found = pieces(url, bare)
    assert rows_of(found) == [("c", None, (1, "a"))]
    assert found[-1].end is not None
    assert set(found[-1].end) == {"file", "pos", "server"}


def test_a_place_too_far_for_the_protocol_is_that_of_its_gtid(url: str) -> None:
    place = {**place_of(url), "pos": 1 << 33}
    run(url, TABLE, "INSERT INTO t VALUES (1, 'a')")
    assert rows_of(pieces(url, place)) == [("c", None, (1, "a"))]
    with pytest.raises(DataLostError, match="32 bits"):
        pieces(url, {name: place[name] for name in ("file", "pos")})


def test_two_readers_follow_one_server(url: str) -> None:
    place = place_of(url)
    run(url, TABLE)
    with reading(url, place) as one, reading(url, place) as other:
        run(url, "INSERT INTO t VALUES (1, 'a')")
        end = place_of(url)
        assert rows_of(list(pieces_until(one, end))) == [("c", None, (1, "a"))]
        assert rows_of(list(pieces_until(other, end))) == [("c", None, (1, "a"))]


def test_what_comes_while_it_waits_is_given_at_once(url: str) -> None:
    run(url, TABLE)
    with reading(url, place_of(url)) as reader:
        while reader.read(0.5) is not None:
            pass
        thread = threading.Timer(0.5, run, [url, "INSERT INTO t VALUES (1, 'a')"])
        thread.start()
        since, found = time.monotonic(), None
        while found is None or not found.runs:
            found = reader.read(30)
        assert time.monotonic() - since < 20
        thread.join()
    assert rows_of([found]) == [("c", None, (1, "a"))]
