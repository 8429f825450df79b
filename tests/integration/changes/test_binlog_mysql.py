"""What only the binary log of MySQL has."""

# ruff: noqa: S608 - names are made here

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from urllib.parse import urlsplit

import pytest
from tests.integration.changes.binlog_reading import (
    brief,
    changes,
    changes_of,
    database_of,
    pieces,
    pieces_until,
    place_of,
    reading,
)
from tests.integration.changes.change_reading import Following
from tests.integration.databases.mysql_tables import read, run
from tests.mysql_server import Mysql8Server, MysqlServer, NewestMysqlServer

from headrace.sdk import ConfigError
from headrace_plugins.changes.log import Offset
from headrace_plugins.connectors.mysql.binlog_reader import BinlogReader
from headrace_plugins.connectors.mysql.binlog_settings import examine_binlog
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.mysql import Mysql

_users = count()


@pytest.fixture(params=["mysql8", "newest_mysql"])
def server(request: pytest.FixtureRequest) -> MysqlServer:
    server: MysqlServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def url(server: MysqlServer) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
def newest_url(newest_mysql: NewestMysqlServer) -> Iterator[str]:
    with newest_mysql.database() as url:
        yield url


JSON = (
    *("null", "true", "false", "0", "-1", "65535", "-2147483648", "18446744073709551615"),
    *("1.5", "1e300", "-0.1", '"é 🎉 \\\\ \\" \\u0001"', "[]", "{}", '[[], {"a": {"b": [1]}}]'),
    f'{{"long": "{"x" * 70_000}", "": "{"y" * 200}", "é": 70000}}',
)


def test_json_is_what_a_reader_of_the_table_gives(url: str) -> None:
    place = place_of(url)
    values = ["'" + each.replace("\\", "\\\\") + "'" for each in JSON]
    values += ["JSON_ARRAY(CAST('1.50' AS DECIMAL(9,4)), CAST('2024-02-29' AS DATE))"]
    values += ["JSON_OBJECT('t', CAST('-12:13:14.5' AS TIME(6)), 'b', CAST('x' AS BINARY))"]
    values += ["JSON_ARRAY(CAST('2024-02-29 01:02:03.5' AS DATETIME(6)), NULL)", "NULL"]
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    run(url, "CREATE TABLE t (id INT PRIMARY KEY, j JSON)", f"INSERT INTO t VALUES {rows}")
    expected, _ = read(database_of(url), "t")
    assert [each["after"] for each in changes(url, place)["t"]] == expected


def test_parts_of_json_values_are_refused(url: str, server: MysqlServer) -> None:
    place = place_of(url)
    run(
        url,
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
        f"""INSERT INTO t VALUES (1, '{{"a": 1, "b": "{"x" * 500}"}}')""",
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
        "UPDATE t SET j = JSON_SET(j, '$.a', 2)",
    )
    with pytest.raises(ConfigError, match="SET GLOBAL binlog_row_value_options = '';"):
        pieces(url, place)
    server.execute("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    try:
        with database_of(url).session() as session:
            found = {each.requirement: each for each in examine_binlog(session)}
        assert found["binlog_row_value_options = empty"].fix
    finally:
        server.execute("SET GLOBAL binlog_row_value_options = ''")


@pytest.mark.parametrize("tls", ["required", "disabled"])
def test_a_user_with_a_password_of_sha_256_follows(
    url: str, server: MysqlServer, tls: str
) -> None:
    name = f"follower_{next(_users)}"  # whose password no server has in its cache yet
    server.execute(
        f"CREATE USER {name}@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY 'p@ss'"
    )
    rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    server.execute(f"GRANT {rights} ON *.* TO {name}@'127.0.0.1'")
    parts = urlsplit(url)
    own = parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}", query=f"sslMode={tls}")
    database = Mysql(replace(address_of(own.geturl()), password="p@ss"))  # noqa: S106
    place = place_of(url)
    run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reader = BinlogReader(
        database, lambda name: name.name == "t", heartbeat=timedelta(seconds=1)
    )
    for _ in range(2):  # the second time by what the server has in its cache
        try:
            reader.start(place, None)
            found = list(pieces_until(reader, place_of(url)))
        finally:
            reader.stop()
        assert brief(changes_of(found)["t"]) == [("c", None, (1,))]


@pytest.mark.parametrize("checksum", ["NONE", "CRC32"])
def test_a_log_is_read_whether_it_has_checksums_or_none(
    url: str, server: MysqlServer, checksum: str
) -> None:
    server.execute(f"SET GLOBAL binlog_checksum = {checksum}")
    try:
        place = place_of(url)
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        run(url, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
        assert brief(changes(url, place)["t"]) == [("c", None, (1,)), ("c", None, (2,))]
    finally:
        server.execute("SET GLOBAL binlog_checksum = CRC32")


def test_an_index_of_an_expression_adds_no_column(newest_url: str) -> None:
    # 8.0.15 leaves the hidden column out of some images of a row, and is refused.
    place = place_of(newest_url)
    run(
        newest_url,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY k ((v * 2)))",
        "INSERT INTO t VALUES (1, 2)",
        "UPDATE t SET v = 3",
    )
    assert brief(changes(newest_url, place)["t"]) == [
        ("c", None, (1, 2)),
        ("u", (1, 2), (1, 3)),
    ]


@pytest.mark.parametrize("compression", ["ON", "OFF"])
def test_a_transaction_is_read_compressed_and_plain(newest_url: str, compression: str) -> None:
    place = place_of(newest_url)
    own = f"SET SESSION binlog_transaction_compression = {compression}"
    values = ", ".join(f"({number}, '{'x' * 300}')" for number in range(20_000))
    run(
        newest_url,
        own,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(400))",
        "START TRANSACTION",
        f"INSERT INTO t VALUES {values}",
        "UPDATE t SET v = 'y' WHERE id = 5",
        "DELETE FROM t WHERE id = 6",
        "COMMIT",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (1, NULL)",
    )
    found = changes(newest_url, place)["t"]
    assert [each["after"]["id"] for each in found[:20_000]] == list(range(20_000))
    assert brief(found[20_000:]) == [
        ("u", (5, "x" * 300), (5, "y")),
        ("d", (6, "x" * 300), None),
        ("t", None, None),
        ("c", None, (1, None)),
    ]
    places = [(each["pos"], each["row"]) for each in found]
    assert places == sorted(set(places))
    assert len({each["gtid"] for each in found}) == 3


def test_a_key_that_the_server_makes_is_the_key(newest_url: str) -> None:
    place = place_of(newest_url)
    run(
        newest_url,
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE t (v INT)",
        "INSERT INTO t VALUES (7), (7)",
        "DELETE FROM t LIMIT 1",
    )
    found = pieces(newest_url, place)
    assert brief(changes_of(found)["t"]) == [
        ("c", None, (1, 7)),
        ("c", None, (2, 7)),
        ("d", (1, 7), None),
    ]
    assert {run.shape.key for piece in found for run in piece.runs} == {("my_row_id",)}


def test_invisible_columns_and_vectors_are_read(newest_url: str) -> None:
    place = place_of(newest_url)
    run(
        newest_url,
        "CREATE TABLE t (id INT PRIMARY KEY, hidden INT INVISIBLE, v VECTOR(3))",
        "INSERT INTO t (id, hidden, v) VALUES (1, 5, STRING_TO_VECTOR('[1, 2.5, -3]'))",
        "INSERT INTO t (id) VALUES (2)",
        "ALTER TABLE t ALTER COLUMN hidden SET VISIBLE",
        "INSERT INTO t VALUES (3, 6, NULL)",
    )
    expected, _ = read(database_of(newest_url), "t")
    assert [each["after"] for each in changes(newest_url, place)["t"]] == expected
    assert expected[0]["hidden"] == 5


def test_gtids_with_tags_are_read_and_begun_behind(newest_url: str) -> None:
    place = place_of(newest_url)
    run(
        newest_url,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "SET gtid_next = 'AUTOMATIC:own'",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
    )
    end = place_of(newest_url)
    [*_, last] = found = pieces(newest_url, place)
    gtids = [each["gtid"] for each in changes_of(found)["t"]]
    assert [each.partition(":")[2] for each in gtids] == ["own:1", "own:2"]
    assert last.end is not None
    # Untagged transactions that the server had before stand in front, under the same UUID.
    assert last.end["gtid"].split(",")[-1].startswith(gtids[0].partition(":")[0])
    assert last.end["gtid"].endswith(":own:1-2")
    run(newest_url, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3)")
    with reading(newest_url, {**end, "file": "", "pos": 0}) as reader:
        found = list(pieces_until(reader, place_of(newest_url)))
    assert brief(changes_of(found)["t"]) == [("c", None, (3,))]


def test_gtids_come_into_places_when_the_log_gets_them_and_go_with_them(
    follow: Callable[..., Following],
) -> None:
    log = {"log_bin": "binlog", "server_id": "7", "binlog_row_metadata": "FULL"}
    enforced = {"enforce_gtid_consistency": "ON"}
    with Mysql8Server.running(**log, **enforced) as server, server.database() as url:
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        following = follow(url, connect_keep_alive_interval_ms="100")

        def place_after(number: int, *modes: str) -> Offset:
            run(url, *(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))
            run(url, f"INSERT INTO t VALUES ({number})")
            following.new()
            found = following.position.offset(following.task._log.partition)
            assert found is not None
            return found

        assert "gtid" not in place_after(2)
        on = place_after(3, "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
        [[executed]] = run(url, "SELECT @@global.gtid_executed")
        assert on["gtid"] == executed.replace("\n", "")
        following.restart()
        assert place_after(4)["gtid"].endswith(":1-2")
        assert "gtid" not in place_after(5, "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
        assert len(following.replica.rows("t")) == 5
