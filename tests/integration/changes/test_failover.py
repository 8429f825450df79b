"""A primary that is lost, and the standby that is promoted in its place."""

# ruff: noqa: S608 - tests write their own SQL

import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.integration.changes.change_reading import Following, rows, run
from tests.integration.changes.test_log_examination import examined
from tests.integration.changes.test_slots import TABLE, followed, of_table, patiently
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import DataLostError, RetriableError
from headrace.sdk.connector import Verdict
from headrace.sdk.errors import SetupError
from headrace.settings import load_settings
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]
Follow = Callable[..., Following]
LOCK = Path(__file__).with_name("postgresql_17.toml")
DROP_AND_CREATE = [
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
]
SYNCED = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = 's'"


@pytest.fixture(scope="session")
def postgresql_17() -> Iterator[type[PostgresqlServer]]:
    """PostgreSQL 17, the first whose slots go over to standbys."""
    settings = load_settings()
    java = find_java(settings.java_home)
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    try:
        [jar] = cache.resolve(locked_jars(lock=LOCK))
    except SetupError as error:
        pytest.skip(f"PostgreSQL 17 cannot be had: {error}")
    with tempfile.TemporaryDirectory(prefix="headrace-postgresql-17-") as folder:
        Path(folder).chmod(0o755)  # for the user that it runs as
        with (
            ZipFile(jar) as files,
            files.open("postgres-linux-x86_64.txz") as archive,
            tarfile.open(fileobj=archive, mode="r:xz") as programs,
        ):
            # Python before 3.11.4 has no filters.
            programs.extraction_filter = getattr(tarfile, "data_filter", None)
            programs.extractall(folder)  # noqa: S202 - filtered

        class Postgresql17Server(PostgresqlServer):
            programs = Path(folder) / "bin"

        yield Postgresql17Server


@pytest.fixture(params=["of this machine", "17"])
def server_class(request: pytest.FixtureRequest) -> type[PostgresqlServer]:
    if request.param == "17":
        made: type[PostgresqlServer] = request.getfixturevalue("postgresql_17")
        return made
    return PostgresqlServer


@dataclass
class Pair:
    """A primary with a standby."""

    primary: PostgresqlServer
    standby: PostgresqlServer

    @property
    def url(self) -> str:
        """Return the URL that leads to the one of them that is the primary."""
        hosts = ",".join(f"127.0.0.1:{e.port}" for e in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.execute("SELECT pg_promote()")

    def await_standby(self) -> None:
        """Wait until the standby has all that is committed."""
        [(now,)] = rows(self.primary.url(), "SELECT pg_current_wal_flush_lsn()::text")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{now}'"
        await_true(lambda: rows(self.standby.url(), query) == [(True,)])


def await_true(holds: Callable[[], bool]) -> None:
    by = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < by
        time.sleep(0.1)


@contextmanager
def pair(server_class: type[PostgresqlServer], **settings: str) -> Iterator[Pair]:
    with server_class.running(**settings) as primary:
        primary.execute("SELECT pg_create_physical_replication_slot('standby', true)")
        own = {"hot_standby_feedback": "on", "primary_slot_name": "standby"}
        if server_class.programs is not None:
            own["sync_replication_slots"] = "on"
        with primary.standby(**own) as standby:
            yield Pair(primary, standby)


def await_slot(following: Following, servers: Pair) -> None:
    """Go on until the standby has the slot for good."""
    by = time.monotonic() + 60
    while rows(servers.standby.url(), SYNCED) != [(True,)]:
        assert time.monotonic() < by
        following.new()
        time.sleep(0.2)


def inserted(*numbers: int) -> list[str]:
    return [f"INSERT INTO t VALUES ({n}, 0)" for n in numbers]


# --- what goes on -----------------------------------------------------------------------


@pytest.mark.parametrize("life", ["goes on", "is another"])
def test_it_goes_on_at_the_standby_that_is_promoted(
    postgresql_17: type[PostgresqlServer], follow: Follow, life: str
) -> None:
    with pair(postgresql_17, synchronized_standby_slots="standby") as servers:
        following = followed(servers.url, follow)
        await_slot(following, servers)
        seen = Counter[int]()
        run(servers.url, *inserted(*range(10, 20)))
        seen.update(after["id"] for _, _, after in following.changes())
        run(servers.url, *inserted(*range(20, 30)))  # which nobody has read yet
        servers.await_standby()
        servers.fail_over()
        if life == "is another":
            following.restart()
        run(servers.url, *inserted(*range(30, 40)))
        by = time.monotonic() + 60
        while set(seen) != set(range(10, 40)):
            assert time.monotonic() < by
            try:
                seen.update(record["after"]["id"] for _, record in following.batch() or ())
            except RetriableError:
                time.sleep(0.2)
        run(servers.url, *inserted(40))
        seen.update(after["id"] for _, _, after in following.changes())
        assert seen == Counter(range(10, 41))
        assert following.replica.rows("t") == of_table(servers.url)
        [place] = [offset for p, offset in following.position.items() if "slot" in p]
        assert place["timeline"] == 2
        following.task.stop()


def test_it_waits_for_the_standby_that_the_slot_goes_over_to(
    postgresql_17: type[PostgresqlServer], follow: Follow
) -> None:
    with pair(postgresql_17, synchronized_standby_slots="standby") as servers:
        following = followed(servers.url, follow)
        with servers.standby.paused():
            run(servers.url, *inserted(2))
            assert not following.batch()
        assert [after["id"] for _, _, after in following.changes()] == [2]
        following.task.stop()


def test_a_slot_that_is_there_goes_over_from_now_on(
    postgresql_17: type[PostgresqlServer], follow: Follow
) -> None:
    with postgresql_17.running() as server, server.database() as url:
        following = followed(url, follow, slot_failover="false")
        assert not following.slot["failover"]
        following.restart(slot_failover="true")
        following.new()
        assert following.slot["failover"]
        following.task.stop()


def test_a_doctor_says_what_a_failover_would_do(
    server_class: type[PostgresqlServer],
) -> None:
    requirement = "a slot that survives a failover"
    with pair(server_class) as servers:
        url = servers.primary.url()
        run(url, TABLE[0])
        found = examined(url)[requirement]
        assert found.verdict is Verdict.WARNING
        if server_class.programs is None:
            assert "does not synchronize slots" in found.found
        else:
            assert "synchronized_standby_slots" in found.fix
            run(
                url,
                "ALTER SYSTEM SET synchronized_standby_slots = standby",
                "SELECT pg_reload_conf()",
            )
            await_true(lambda: examined(url)[requirement].verdict is Verdict.OK)
            off = examined(url, slot_failover="false")[requirement]
            assert off.fix.startswith("Set slot.failover=true")
            run(url, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
            assert "not synchronized" in examined(url)[requirement].found
        servers.await_standby()
        primary = examined(servers.standby.url())["a primary"]
        assert primary.verdict is Verdict.FAILED
        assert "target_session_attrs" in primary.fix


# --- what is lost -----------------------------------------------------------------------


def test_a_standby_is_not_followed(
    server_class: type[PostgresqlServer], follow: Follow
) -> None:
    with pair(server_class) as servers:
        following = followed(servers.primary.url(), follow)
        if server_class.programs is not None:
            await_slot(following, servers)
        following.url = following.props["connection.url"] = servers.standby.url()
        following.restart()
        servers.await_standby()
        for _ in range(2):
            with pytest.raises(RetriableError, match="is a standby") as raised:
                following.plan()
            assert "target_session_attrs=read-write" in raised.value.fix
        following.task.stop()


def test_a_slot_that_is_not_at_the_new_primary_is_told_of(
    server_class: type[PostgresqlServer], follow: Follow
) -> None:
    with pair(server_class) as servers:
        following = followed(servers.url, follow, slot_failover="false")
        servers.await_standby()
        servers.fail_over()
        run(servers.url, *inserted(2))
        with pytest.raises(DataLostError, match="no replication slot s") as raised:
            patiently(following)
        assert "snapshot.mode=when_needed" in raised.value.fix
        following.restart(snapshot_mode="when_needed")
        following.new()
        assert following.replica.rows("t") == of_table(servers.url)
        run(servers.url, *inserted(3))
        assert [after["id"] for _, _, after in following.changes()] == [3]
        following.task.stop()


def lose(servers: Pair, *statements: str) -> None:
    """Fail over to a standby that lacks what was committed since it was stopped."""
    servers.primary.kill()
    servers.standby.start()
    servers.standby.execute("SELECT pg_promote()")
    # So that its log is longer than the one that was lost.
    run(servers.url, *statements, *inserted(7), "SELECT pg_switch_wal()", *inserted(8))


@pytest.mark.parametrize("slot", ["of the standby", "made by hand"])
def test_what_the_new_primary_never_had_is_told_of(
    server_class: type[PostgresqlServer], follow: Follow, slot: str
) -> None:
    with pair(server_class) as servers:
        following = followed(servers.url, follow)
        if server_class.programs is not None:
            await_slot(following, servers)
        servers.standby.stop()
        run(servers.url, *inserted(2))
        following.new()
        made = [] if slot == "of the standby" else DROP_AND_CREATE
        lose(servers, *made)
        for _ in range(2):
            with pytest.raises(DataLostError, match="was failed over") as raised:
                patiently(following)
            assert "when_needed" in raised.value.fix
            assert "verify --repair" in raised.value.fix
            following.restart()
        following.restart(snapshot_mode="when_needed")
        following.new()
        run(servers.url, *inserted(3))
        assert [after["id"] for _, _, after in following.changes()] == [3]
        following.task.stop()


def test_a_batch_that_the_new_primary_never_had_does_not_run_again(
    postgresql_17: type[PostgresqlServer], follow: Follow
) -> None:
    with pair(postgresql_17) as servers:
        following = followed(servers.url, follow)
        await_slot(following, servers)
        servers.await_standby()
        servers.standby.stop()
        run(servers.url, *inserted(2))
        end = following.planned()
        lose(servers)
        for _ in range(2):
            following.restart()
            with pytest.raises(DataLostError, match="was failed over"):
                following.read(end)
        following.task.stop()


def test_rows_that_the_new_primary_never_had_are_told_of(
    postgresql_17: type[PostgresqlServer], follow: Follow
) -> None:
    with pair(postgresql_17) as servers:
        run(servers.url, *TABLE)
        following = follow(servers.url)
        following.plan()  # which makes the slot
        await_true(lambda: bool(rows(servers.standby.url(), SYNCED)))
        servers.standby.stop()
        run(servers.url, *inserted(2))
        following.restart()
        following.batch()
        assert len(following.replica.rows("t")) == 2
        lose(servers)
        with pytest.raises(DataLostError, match="was failed over"):
            patiently(following)
        following.task.stop()
