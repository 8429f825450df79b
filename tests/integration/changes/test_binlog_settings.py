"""What MariaDB and MySQL need for its binary log to be followed, and the places of it."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.integration.changes.binlog_reading import (
    brief,
    changes,
    database_of,
    order,
    pieces,
    place_of,
    reading,
)
from tests.integration.databases.mysql_tables import run
from tests.mariadb_server import MariadbServer
from tests.mysql_server import MysqlServer, NewestMysqlServer
from tests.waiting import until

from headrace.sdk import ConfigError, RetriableError
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.connectors.mysql.binlog_dump import Dump
from headrace_plugins.connectors.mysql.binlog_settings import (
    committed_place,
    current_place,
    examine_binlog,
    examine_cascades,
    oldest_place,
)
from headrace_plugins.connectors.mysql.source import MysqlSource


@pytest.fixture
def url(each_server: MariadbServer) -> Iterator[str]:
    with each_server.database() as url:
        yield url


@contextmanager
def user(server: MariadbServer, url: str, *rights: str) -> Iterator[str]:
    """Give the URL of a user with some rights on all of a server."""
    server.execute("CREATE USER reader@'127.0.0.1'")
    for right in rights:
        server.execute(f"GRANT {right} ON *.* TO reader@'127.0.0.1'")
    parts = urlsplit(url)
    try:
        yield parts._replace(netloc=f"reader@{parts.hostname}:{parts.port}").geturl()
    finally:
        server.execute("DROP USER reader@'127.0.0.1'")


def client_right(server: MariadbServer) -> str:
    return "REPLICATION CLIENT" if isinstance(server, MysqlServer) else "BINLOG MONITOR"


def findings(url: str) -> dict[str, Finding]:
    with database_of(url).session() as session:
        return {each.requirement: each for each in examine_binlog(session)}


def test_a_server_that_is_set_up_has_all_that_is_needed(url: str) -> None:
    found = findings(url)
    assert {name: each for name, each in found.items() if each.verdict != Verdict.OK} == {}
    assert all(each.found and not each.fix for each in found.values())


@pytest.mark.parametrize(
    ("requirement", "verdict", "fix", "value"),
    [
        ("binlog_format = ROW", Verdict.FAILED, "binlog_format = 'ROW'", "'STATEMENT'"),
        ("binlog_row_image = FULL", Verdict.FAILED, "binlog_row_image = 'FULL'", "'MINIMAL'"),
        (
            *("binlog_row_metadata = FULL", Verdict.WARNING),
            *("binlog_row_metadata = 'FULL'", "'MINIMAL'"),
        ),
        (
            *("binary logs that are kept for a day or longer", Verdict.WARNING),
            *("binlog_expire_logs_seconds = 604800", "60"),
        ),
    ],
)
def test_a_setting_that_is_missing_has_the_statement_that_sets_it(
    each_server: MariadbServer, requirement: str, verdict: Verdict, fix: str, value: str
) -> None:
    url, name = each_server.url("mysql"), fix.partition(" ")[0]
    [(before,)] = run(url, f"SELECT @@global.{name}")
    each_server.execute(f"SET GLOBAL {name} = {value}")
    try:
        found = findings(url)[requirement]
        is_mysql = isinstance(each_server, MysqlServer)
        statement = f"SET {'PERSIST' if is_mysql else 'GLOBAL'} {fix};"
        assert found.verdict == verdict
        assert found.fix.startswith(statement)
        assert is_mysql or fix.replace("'", "") in found.fix.partition(" and add ")[2]
        each_server.execute(statement)
        assert findings(url)[requirement].verdict == Verdict.OK
    finally:
        each_server.execute(f"SET GLOBAL {name} = {before!r}")


def test_rights_that_are_missing_have_the_statement_that_grants_them(
    url: str, each_server: MariadbServer
) -> None:
    with user(each_server, url, "SELECT") as own:
        found = findings(own)
        for name in ("REPLICATION SLAVE", client_right(each_server)):
            finding = found[f"right {name}"]
            assert finding.verdict == Verdict.FAILED
            assert finding.fix == f"GRANT {name} ON *.* TO 'reader'@'127.0.0.1';"
            each_server.execute(finding.fix)
        found = findings(own)
        assert {each.verdict for each in found.values()} == {Verdict.OK}
        place = place_of(own)
        run(url, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        assert brief(changes(own, place)["t"]) == [("c", None, (1,))]


def test_a_user_without_the_right_to_follow_is_told_the_grant(
    url: str, each_server: MariadbServer
) -> None:
    with (
        user(each_server, url, "SELECT") as own,
        pytest.raises(
            ConfigError,
            match=rf"GRANT REPLICATION SLAVE, {client_right(each_server)} ON \*\.\* TO",
        ),
    ):
        pieces(own, place_of(url))


def test_a_source_is_told_what_it_needs_to_read_only(
    url: str, each_server: MariadbServer
) -> None:
    def examined(url: str) -> list[Finding]:
        config = MysqlSource.config_def().parse({"connection.url": url, "name": "c"})
        return list(MysqlSource.examine(config))

    run(url, "CREATE TABLE t (id INT PRIMARY KEY)")
    requirements = " ".join(each.requirement for each in examined(url))
    assert "LOAD DATA" not in requirements
    assert "rows of 16 MB" not in requirements
    with user(each_server, url) as own:
        [denied] = [each for each in examined(own) if each.verdict is Verdict.FAILED][:1]
    assert "GRANT SELECT ON" in denied.fix
    assert "REPLICATION SLAVE" in denied.fix
    assert "INSERT" not in denied.fix


def test_a_reader_with_the_id_of_another_is_told_the_key(
    url: str, each_server: MariadbServer
) -> None:
    dumps = [Dump(database_of(url), 4711, timedelta(seconds=1)) for _ in range(2)]
    try:
        place = place_of(url)
        for dump in dumps:
            dump.open()
            dump.request(place["file"], place["pos"], None)
        with pytest.raises(RetriableError) as raised:  # noqa: PT012 - what comes before it
            by = time.monotonic() + 30
            while time.monotonic() < by:
                dumps[0].receive(1.0)
                while (found := dumps[0].packet(0)) is not None:
                    del dumps[0].data[: found[1]]
        assert "database.server.id" in raised.value.fix
    finally:
        for dump in dumps:
            dump.close()


def test_a_server_without_a_log_is_refused(mariadb: MariadbServer) -> None:
    with mariadb.database() as url:
        assert findings(url)["log_bin = ON"].verdict == Verdict.FAILED
        database = database_of(url)
        for find in (current_place, committed_place, oldest_place):
            with database.session() as session, pytest.raises(ConfigError, match="log_bin"):
                find(session)


def test_the_oldest_place_is_the_begin_of_the_log(url: str) -> None:
    with database_of(url).session() as session:
        oldest = oldest_place(session)
    assert order(oldest) <= order(place_of(url))
    with reading(url, oldest) as reader:
        until(lambda: reader.read(1) is not None)


def test_a_place_has_the_gtids_before_it_while_others_write(
    url: str, each_server: MariadbServer
) -> None:
    if isinstance(each_server, MysqlServer):
        pytest.skip("MySQL tells them with the end of its log.")
    run(url, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    is_over = threading.Event()

    def write() -> None:
        with database_of(url).session() as session:
            while not is_over.is_set():
                session.execute("INSERT INTO t VALUES ()")
                session.commit()

    with ThreadPoolExecutor() as pool, database_of(url).session() as session:
        writers = [pool.submit(write) for _ in range(4)]
        places = list[Mapping[str, Any]]()
        while len(places) < 200 or len({place["pos"] for place in places}) <= 10:
            places.append(current_place(session))
        is_over.set()
        for writer in writers:
            writer.result()
        places += [current_place(session), committed_place(session)]
        for place in places:
            query = "SELECT BINLOG_GTID_POS(%s, %s)"
            assert place["gtid"] == session.value(query, [place["file"], place["pos"]])


def test_changes_by_foreign_keys_that_the_log_lacks_are_told(
    url: str, each_server: MariadbServer
) -> None:
    place = place_of(url)
    run(
        url,
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "CREATE TABLE plain (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (1, 1)",
        "DELETE FROM p",
    )
    database = database_of(url)
    with database.session() as session:
        names = database.tables(session)
        tables = list(database.describe(session, names).values())
        found = list(examine_cascades(session, tables))
        assert list(examine_cascades(session, [t for t in tables if t.name.name != "c"])) == []
    is_logged = brief(changes(url, place)["c"])[1:] == [("d", (1, 1), None)]
    assert is_logged == isinstance(each_server, NewestMysqlServer)
    assert [(each.verdict, "ON DELETE CASCADE" in each.found) for each in found] == (
        [] if is_logged else [(Verdict.WARNING, True)]
    )
