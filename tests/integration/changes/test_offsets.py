"""What a person may not set as the offset of a source of changes, and what is said of it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.integration.changes.change_reading import Following, run
from tests.integration.databases.mysql_tables import run as run_mysql

from headrace.sdk import ConfigError, Position, SourceConnector
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Json = Mapping[str, Any]
SLOT, SERVER, TABLE = {"slot": "s"}, {"server": "c"}, {"table": "public.t"}
FILE = "binlog.000001"
UUID = "5aa72a7f-44a8-11ea-947f-0242ac190002"


def alter(
    source: type[SourceConnector], url: str, partition: Json, offset: Json
) -> ConfigError | None:
    """Set an offset; return what is said of it."""
    texts = {"slot.name": "s"} if source is PostgresSource else {}
    config = source.config_def().parse({"name": "c", "connection.url": url, **texts})
    try:
        source.alter_offsets(config, Position.of(partition, offset))
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("partition", "offset", "field"),
    [
        (SLOT, {}, "lsn"),
        (SLOT, {"lsn": "5"}, "lsn"),
        (SLOT, {"lsn": True}, "lsn"),
        (SLOT, {"lsn": -1}, "lsn"),
        (SLOT, {"lsn": 1 << 64}, "lsn"),
        (SLOT, {"lsn": 5, "timeline": "1"}, "timeline"),
        (SLOT, {"lsn": 5, "system": 7}, "system"),
        (SLOT, {"lsn": 5, "initial": 0}, "initial"),
        (SLOT, {"lsn": 5, "more": 0}, "more"),
        ({"slot": 5}, {"lsn": 5}, "slot"),
        (TABLE, {}, "round"),
        (TABLE, {"round": "1"}, "round"),
        (TABLE, {"round": True}, "round"),
        (TABLE, {"round": 1, "after": 5, "upto": [9]}, "after"),
        (TABLE, {"round": 1, "after": [5]}, "upto"),
        (TABLE, {"round": 1, "after": [[]], "upto": [9]}, "after"),
        (TABLE, {"round": 1, "after": [5, 6], "upto": [9, 9]}, "after"),
        (TABLE, {"round": 1, "seen": "7"}, "seen"),
        (TABLE, {"round": 1, "seen": "a:b:"}, "seen"),
        (TABLE, {"round": 1, "until": 7}, "until"),
        (TABLE, {"round": 1, "until": {"lsn": "x"}}, "lsn"),
        ({"table": 5}, {"round": 1}, "table"),
        ({"tables": "t"}, {"round": 1}, "table"),
        ({**TABLE, "where": 5}, {"round": 0}, "where"),
        ({**TABLE, "where": "id = 5"}, {"round": 1}, "round"),
        ({"since": "2024-01-01T00:00:00Z"}, {"tables": ["t"], "at": 5}, "at"),
    ],
)
def test_each_wrong_field_of_postgresql_is_named(
    url: str, partition: Json, offset: Json, field: str
) -> None:
    run(url, "CREATE TABLE t (id int PRIMARY KEY)")
    found = alter(PostgresSource, url, partition, offset)
    assert found is not None
    assert (found.field, found.fix != "") == ("offsets", True)
    assert field in found.problem.rpartition("}: ")[2]


@pytest.mark.parametrize(
    ("partition", "offset", "field"),
    [
        (SERVER, {}, "file"),
        (SERVER, {"file": FILE}, "pos"),
        (SERVER, {"file": "", "pos": 0}, "gtid"),
        (SERVER, {"file": 5, "pos": 4}, "file"),
        (SERVER, {"file": "binlog", "pos": 4}, "file"),
        (SERVER, {"file": FILE, "pos": "4"}, "pos"),
        (SERVER, {"file": FILE, "pos": 0}, "pos"),
        (SERVER, {"file": FILE, "pos": 4, "gtid": 5}, "gtid"),
        (SERVER, {"file": FILE, "pos": 4, "gtid": "abc"}, "gtid"),
        (SERVER, {"file": FILE, "pos": 4, "gtid": f"{UUID}:"}, "gtid"),
        (SERVER, {"file": FILE, "pos": 4, "failovers": "1"}, "failovers"),
        (SERVER, {"file": FILE, "pos": 4, "server": 1}, "server"),
        ({"since": "2024-01-01T00:00:00Z"}, {"tables": ["d.t"], "at": {"pos": 4}}, "file"),
    ],
)
def test_each_wrong_field_of_mysql_is_named(
    binlog_url: str, partition: Json, offset: Json, field: str
) -> None:
    found = alter(MysqlSource, binlog_url, partition, offset)
    assert found is not None
    assert (found.field, found.fix != "") == ("offsets", True)
    assert field in found.problem.rpartition("}: ")[2]


@pytest.mark.parametrize(
    "gtid", ["0-1-77", "0-1-77,1-4-3", f"{UUID}:1-5:9", f"{UUID}:1-5:tag:1,\n{UUID}:7"]
)
def test_gtids_as_servers_write_them_are_taken(binlog_url: str, gtid: str) -> None:
    place = {"file": FILE, "pos": 4, "server": "1", "gtid": gtid}
    assert alter(MysqlSource, binlog_url, SERVER, place) is None
    by_gtid = {"file": "", "pos": 0, "gtid": gtid, "failovers": 1, "initial": True}
    assert alter(MysqlSource, binlog_url, SERVER, by_gtid) is None


def test_the_offset_of_another_log_is_refused(url: str, binlog_url: str) -> None:
    place = {"file": FILE, "pos": 4, "server": "1"}
    for found in (
        alter(PostgresSource, url, {"slot": "other"}, {"lsn": 5}),
        alter(MysqlSource, binlog_url, {"server": "other"}, place),
    ):
        assert found is not None
        assert "does not follow the log 'other'" in found.problem


def test_what_a_source_has_stored_itself_is_taken(
    url: str, binlog_url: str, follow: Callable[..., Following]
) -> None:
    run(url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1,9)")
    run_mysql(
        binlog_url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"
    )
    for each in (url, binlog_url):
        following = follow(each)
        for _ in range(6):
            for partition, offset in following.position.items():
                assert alter(following.connector, each, partition, offset) is None
            following.batch(1)


@pytest.mark.parametrize("source", [PostgresSource, MysqlSource])
def test_a_condition_that_the_table_cannot_have_is_refused(
    source: type[SourceConnector], url: str, binlog_url: str
) -> None:
    schema = "public"
    if source is PostgresSource:
        run(url, "CREATE TABLE t (id int PRIMARY KEY)")
    else:
        url, schema = binlog_url, binlog_url.rpartition("/")[2]
        run_mysql(url, "CREATE TABLE t (id int PRIMARY KEY)")

    def asked(where: str) -> ConfigError | None:
        return alter(source, url, {"table": f"{schema}.t", "where": where}, {"round": 0})

    assert asked("id > 4000 AND id % 2 = 1") is None
    found = asked("idd > 4000")
    assert found is not None
    assert (found.field, "idd" in found.problem) == ("offsets", True)
    found = asked("id > ")
    assert found is not None


def test_a_stored_condition_that_fails_tells_how_to_take_it_back(
    url: str, follow: Callable[..., Following]
) -> None:
    run(url, "CREATE TABLE t (id int PRIMARY KEY, v int)")
    following = follow(url)
    following.new()
    asked = {**TABLE, "where": "v > 5"}
    following.commit(following.position.moved(asked, {"round": 0}))
    run(url, "ALTER TABLE t DROP COLUMN v")
    with pytest.raises(ConfigError, match="v > 5") as raised:
        following.new()
    shown = raised.value.fix.partition(" FILE of ")[2].removesuffix(".")
    assert json.loads(shown) == [{"partition": asked, "offset": None}]
    following.commit(following.position.without(asked))
    following.new()
