"""What ``headrace doctor`` finds of a database whose changes are to be followed."""

import time
from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest
from structlog.testing import capture_logs
from tests.integration.changes.change_reading import Following, run
from tests.postgresql_server import PostgresqlServer

from headrace.sdk import ConfigError
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, v int)"
SLOT = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
PUBLICATION = "CREATE PUBLICATION s FOR TABLE t"


def examined(url: str, **texts: str) -> Mapping[str, Finding]:
    props = {"connection.url": url, "slot.name": "s", "name": "c"}
    props |= {key.replace("_", "."): text for key, text in texts.items()}
    config = PostgresSource.config_def().parse(props)
    return {found.requirement: found for found in PostgresSource.examine(config)}


def errors(url: str, **texts: str) -> list[ConfigError]:
    props = {"connection.url": url, "slot.name": "s", "name": "c"}
    props |= {key.replace("_", "."): text for key, text in texts.items()}
    return list(PostgresSource.check(PostgresSource.config_def().parse(props)))


def statement(finding: Finding) -> str:
    """Return the first statement of what is to be done."""
    return finding.fix[finding.fix.index("ALTER ") :].partition(";")[0]


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server of the test's own, which is not set for following."""
    with PostgresqlServer.running(wal_level="replica", max_replication_slots="1") as made:
        yield made


def test_nothing_is_wrong_with_a_database_that_can_be_followed(url: str) -> None:
    run(url, TABLE)
    found = examined(url)
    assert {each.verdict for each in found.values()} == {Verdict.OK}
    assert found["the replication slot s"].found == "is created at the start"
    assert found["the publication s"].found == "is created at the start"
    assert not errors(url)
    run(url, PUBLICATION, SLOT)
    found = examined(url)
    assert {n for n, each in found.items() if each.verdict is not Verdict.OK} == {
        "a limit of the log that slots retain"
    }


def test_a_server_without_logical_decoding_is_set_up_by_what_it_says(
    server: PostgresqlServer,
) -> None:
    with server.database() as url:
        run(url, TABLE)
        found = examined(url)["wal_level = logical"]
        assert (found.verdict, found.found) == (Verdict.FAILED, "replica")
        assert [each.problem for each in errors(url)] == ["wal_level is replica."]
        assert found.fix.startswith("ALTER SYSTEM SET wal_level = logical;")
        # Settings of the command line, as this server has, go before those of ALTER SYSTEM.
        server.settings = {"wal_level": "logical", "max_replication_slots": "1"}
        with server.paused():
            pass
        assert examined(url)["wal_level = logical"].verdict is Verdict.OK

        requirement = "free capacity of max_replication_slots"
        run(url, "SELECT pg_create_physical_replication_slot('other')")
        found = examined(url)[requirement]
        assert (found.verdict, found.found) == (Verdict.FAILED, "0 free")
        assert "ALTER SYSTEM SET max_replication_slots = 20" in found.fix
        server.settings = {"wal_level": "logical", "max_replication_slots": "20"}
        with server.paused():
            pass
        assert examined(url)[requirement].verdict is Verdict.OK
        run(url, "SELECT pg_drop_replication_slot('other')")


@pytest.fixture
def user(postgresql: PostgresqlServer, url: str) -> Iterator[str]:
    """The URL of a user who owns nothing, but may read the table."""
    run(url, TABLE, 'CREATE ROLE "other user" LOGIN', 'GRANT SELECT ON t TO "other user"')
    yield url.replace("postgres@", "other%20user@")
    run(url, 'DROP OWNED BY "other user"', 'DROP ROLE "other user"')


def test_a_user_gets_the_rights_that_it_lacks(url: str, user: str) -> None:
    found = examined(user)
    requirement = "the right to replicate"
    assert (found[requirement].verdict, found[requirement].found) == (
        Verdict.FAILED,
        "other user",
    )
    run(url, statement(found[requirement]))
    found = examined(user)
    assert found[requirement].verdict is Verdict.OK

    requirement = "the publication s"
    assert found[requirement].verdict is Verdict.FAILED
    assert "does not own public.t" in found[requirement].found
    _, _, made = found[requirement].fix.partition("run: ")
    run(url, made)
    assert examined(user)[requirement].found == "has all tables"


def test_who_owns_the_tables_may_have_to_be_allowed_a_publication(url: str, user: str) -> None:
    run(url, 'ALTER TABLE t OWNER TO "other user"')
    found = examined(user)["the publication s"]
    assert (found.verdict, found.found) == (
        Verdict.FAILED,
        "The user may not create the publication.",
    )
    run(url, found.fix)
    found = examined(user)["the publication s"]
    assert (found.verdict, found.found) == (Verdict.OK, "is created at the start")


def test_a_table_without_a_primary_key_is_told_of(url: str) -> None:
    run(url, TABLE, "CREATE TABLE k (v int)", "ALTER TABLE k REPLICA IDENTITY FULL")
    found = examined(url)
    assert "a primary key of public.t" not in found
    keyless = found["a primary key of public.k"]
    assert keyless.verdict is Verdict.WARNING
    run(url, f"{statement(keyless).replace('(…)', '(v)')}")
    assert "a primary key of public.k" not in examined(url)


def test_tables_whose_rows_the_log_does_not_tell_apart(url: str) -> None:
    run(url, TABLE, 'CREATE TABLE "no Key" (id int)')
    found = examined(url)["rows of public.no Key in the log"]
    assert found.verdict is Verdict.FAILED
    assert "rows identified in the log" not in examined(url)
    assert [each.field for each in errors(url)] == ["table.exclude.list"]
    run(url, statement(found))
    assert examined(url)["rows identified in the log"].verdict is Verdict.OK
    assert not errors(url)


def test_a_publication_that_lacks_tables_where_others_make_it(url: str) -> None:
    run(url, TABLE, "CREATE TABLE u (id int PRIMARY KEY)", PUBLICATION)
    texts = {"publication_autocreate_mode": "disabled", "table_include_list": "t, u"}
    found = examined(url, **texts)["the publication s"]
    assert found.verdict is Verdict.FAILED
    assert "publication.autocreate.mode" in found.found
    assert [each.fix for each in errors(url, **texts)] == [found.fix]
    run(url, found.fix)
    assert examined(url, **texts)["the publication s"].verdict is Verdict.OK
    assert not errors(url, **texts)


OBSTACLES = {
    "a table of another": [
        "CREATE TABLE u (id int PRIMARY KEY)",
        "GRANT SELECT ON u TO PUBLIC",
    ],
    "a publication of another": [
        "ALTER PUBLICATION s OWNER TO postgres",
        "CREATE TABLE u (id int PRIMARY KEY)",
        'ALTER TABLE u OWNER TO "other user"',
    ],
    "no key": ["CREATE TABLE u (id int)", 'ALTER TABLE u OWNER TO "other user"'],
    "a schema of another": [
        "CREATE SCHEMA v",
        "CREATE TABLE v.u (id int PRIMARY KEY)",
        'ALTER TABLE v.u OWNER TO "other user"',
    ],
}


@pytest.mark.parametrize("made", OBSTACLES)
def test_a_table_that_others_make_is_left_out_where_it_cannot_be_followed(
    url: str, user: str, follow: Callable[..., Following], made: str
) -> None:
    database = url.rpartition("/")[2]
    run(
        url,
        'ALTER TABLE t OWNER TO "other user"',
        'ALTER ROLE "other user" REPLICATION',
        f'GRANT CREATE ON DATABASE {database} TO "other user"',
        "INSERT INTO t VALUES (1, 1)",
    )
    following = follow(user)
    assert len(following.new()) == 1
    run(url, *OBSTACLES[made])
    with capture_logs() as logs:
        run(url, "INSERT INTO t VALUES (2, 2)")
        assert len(following.new()) == 1
        following.new()
    name = "v.u" if made == "a schema of another" else "public.u"
    [warning] = [each for each in logs if each["event"] == "table is skipped"]
    assert (warning["table"], warning["log_level"]) == (name, "warning")
    found = examined(user)
    assert found[f"changes of {name} in the log"].verdict is Verdict.WARNING
    assert warning["fix"] == found[f"changes of {name} in the log"].fix
    assert found["the publication s"].verdict is Verdict.OK
    assert not errors(user)

    # Named, it is refused before it is taken.
    named = {"table_include_list": f"public.t, {name}"}
    [error] = errors(user, **named)
    assert error.fix == warning["fix"]
    following.restart(**named)
    if made != "no key":
        with pytest.raises(ConfigError):
            following.new()
    run(url, warning["fix"].rpartition("run: ")[2].partition(";")[0])
    following.restart()
    following.new()


@pytest.mark.parametrize("mode", ["initial", "no_data"])
def test_a_table_that_is_left_out_gives_no_changes_though_the_log_has_them(
    url: str, user: str, follow: Callable[..., Following], mode: str
) -> None:
    run(
        url,
        'ALTER ROLE "other user" REPLICATION',
        "CREATE SCHEMA v",
        "CREATE TABLE v.u (id int PRIMARY KEY)",
        'GRANT SELECT ON ALL TABLES IN SCHEMA public, v TO "other user"',
        "CREATE PUBLICATION s FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    following = follow(user, snapshot_mode=mode)
    following.new()
    run(url, "INSERT INTO t VALUES (1, 1)", "INSERT INTO v.u VALUES (1)")
    assert [stream for stream, _ in following.new()] == ["t"]
    run(url, 'GRANT USAGE ON SCHEMA v TO "other user"')
    following.new()
    run(url, "INSERT INTO v.u VALUES (2)")
    following.new()
    expected = [1, 2] if mode == "initial" else [2]
    assert [row["id"] for row in following.replica.rows("v.u")] == expected


def test_a_publication_that_was_dropped_says_at_once_that_all_is_read_again(
    url: str, user: str, follow: Callable[..., Following]
) -> None:
    run(url, 'ALTER ROLE "other user" REPLICATION', PUBLICATION)
    following = follow(user)
    following.new()
    run(url, "DROP PUBLICATION s", "INSERT INTO t VALUES (2, 2)")
    with pytest.raises(ConfigError) as raised:
        following.new()
    assert "CREATE PUBLICATION" in raised.value.fix
    assert "reading the tables again" in raised.value.fix
    assert "pg_drop_replication_slot" in raised.value.fix


def test_who_may_not_make_a_publication_is_told_the_same_by_a_run(url: str, user: str) -> None:
    run(url, 'ALTER TABLE t OWNER TO "other user"')
    found = examined(user)["the publication s"]
    [error] = errors(user)
    assert found.fix == error.fix
    assert error.fix.startswith("GRANT CREATE ON DATABASE")


@pytest.mark.parametrize(
    "made",
    [
        f"{PUBLICATION} WITH (publish = 'insert')",
        "CREATE PUBLICATION s FOR ALL TABLES WITH (publish = 'insert, update, delete')",
    ],
)
def test_a_publication_that_leaves_changes_out(url: str, made: str) -> None:
    run(url, TABLE, made)
    found = examined(url)["the publication s"]
    assert (found.verdict, found.found) == (Verdict.FAILED, "It omits changes.")
    run(url, statement(found))
    assert examined(url)["the publication s"].verdict is Verdict.OK


def test_a_publication_that_tells_of_parts_only(url: str) -> None:
    run(
        url,
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t DEFAULT",
        PUBLICATION,
    )
    found = examined(url)["the publication s"]
    assert found.verdict is Verdict.FAILED
    run(url, statement(found))
    assert examined(url)["the publication s"].verdict is Verdict.OK


def test_an_index_that_lacks_the_key(url: str) -> None:
    run(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_name_key",
    )
    found = examined(url)["rows of public.t in the log"]
    assert found.verdict is Verdict.FAILED
    run(url, statement(found))
    assert examined(url)["rows identified in the log"].verdict is Verdict.OK


def test_a_transaction_that_is_open_for_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.postgres.examination._LONG_SECONDS", 1)
    run(url, TABLE)
    requirement = "no long-running transaction"
    with psycopg.connect(url) as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        open_one.execute("SELECT pg_sleep(1.6)")
        found = examined(url)[requirement]
        assert found.verdict is Verdict.WARNING
        assert found.found.startswith("the oldest is open for")
        open_one.execute("PREPARE TRANSACTION 'it''s'")
    time.sleep(1.6)
    found = examined(url)[requirement]
    assert found.verdict is Verdict.WARNING
    rollback = found.fix[found.fix.index("ROLLBACK") :].partition(";")[0]
    run(url, rollback)
    assert examined(url)[requirement].verdict is Verdict.OK


def test_tables_that_the_log_lacks_are_told_of(url: str) -> None:
    run(url, TABLE, "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    found = examined(url)["changes of public.u in the log"]
    assert found.verdict is Verdict.WARNING
    assert not errors(url)
    run(url, statement(found))
    assert "changes of public.u in the log" not in examined(url)


def test_a_slot_that_is_in_use_is_warned_of(url: str, follow: Callable[..., Following]) -> None:
    run(url, TABLE)
    following = follow(url)
    following.new()
    found = examined(url)["the replication slot s for this connector alone"]
    assert found.verdict is Verdict.WARNING
    assert f"PID {following.slot['active_pid']} of the application headrace" in found.found


def test_a_slot_that_keeps_much_of_the_log(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_plugins.connectors.postgres.examination._MUCH_BYTES", 1000)
    run(url, TABLE, PUBLICATION, SLOT, "INSERT INTO t SELECT generate_series(1, 1000)")
    requirement = "the replication slot s"
    found = examined(url)[requirement]
    assert found.verdict is Verdict.WARNING
    assert "not in use" in found.found
    run(url, "SELECT" + found.fix.partition("SELECT")[2])
    assert examined(url)[requirement].verdict is Verdict.OK


def test_a_slot_that_the_server_gave_up() -> None:
    running = PostgresqlServer.running(max_slot_wal_keep_size="1MB")
    with running as server, server.database() as url:
        run(url, TABLE, PUBLICATION, SLOT)
        found = examined(url)["a limit of the log that slots retain"]
        assert found.verdict is Verdict.OK
        assert found.found.startswith("1MB, ")
        for _ in range(4):
            run(url, "SELECT pg_logical_emit_message(false, 'x', '')")
            run(url, "SELECT pg_switch_wal()")
        run(url, "CHECKPOINT")
        found = examined(url)["the replication slot s"]
        assert found.verdict is Verdict.FAILED
        assert "has removed the log" in found.found
