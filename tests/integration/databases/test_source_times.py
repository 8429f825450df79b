"""What the source of databases reads by times, of clocks in other zones and of wrong ones."""

# ruff: noqa: S608 - a test's own statements

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.integration.databases.source_reading import (
    KINDS,
    Following,
    databases,
    open_database,
    run,
)
from tests.waiting import until
from typing_extensions import override

from headrace.sdk import ConfigError
from headrace.sdk.errors import ConfigErrors
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.databases.address import address_of
from headrace_plugins.databases.cursors import GrowingCursor, Rows
from headrace_plugins.databases.database import Session
from headrace_plugins.databases.sqlite import Sqlite

Follow = Callable[..., Following]
TOKYO, HONOLULU = "Asia/Tokyo", "Pacific/Honolulu"
TYPES = {"postgresql": "timestamp(6)", "mariadb": "datetime(6)", "sqlite": "TIMESTAMP"}
UTC_SESSION = {"postgresql": "SET TIME ZONE 'UTC'", "mariadb": "SET time_zone = '+00:00'"}
ZONED = {"postgresql": "timestamptz(6)", "mariadb": "timestamp(6)"}


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        yield made


@pytest.fixture(params=KINDS[:2])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with databases(request, tmp_path) as made:
        yield made


def kind(url: str, types: Mapping[str, str]) -> str:
    return types[{"mysql": "mariadb"}.get(url.partition(":")[0], url.partition(":")[0])]


def table(url: str, types: Mapping[str, str] = TYPES) -> None:
    run(url, f"CREATE TABLE t (id bigint NOT NULL PRIMARY KEY, at {kind(url, types)} NOT NULL)")


def stamped(number: int, at: datetime) -> str:
    return f"INSERT INTO t VALUES ({number}, '{at:%Y-%m-%d %H:%M:%S.%f}')"


def insert(url: str, number: int, seconds: float, zone: str) -> None:
    """Add a row that was stamped so many seconds from now, by a clock in a zone."""
    run(url, stamped(number, datetime.now(ZoneInfo(zone)) + timedelta(seconds=seconds)))


@pytest.mark.spark
@pytest.mark.parametrize("zone", [TOKYO, HONOLULU])
def test_times_without_a_zone_are_compared_with_the_clock_of_their_zone(
    follow: Follow, url: str, zone: str
) -> None:
    table(url)
    insert(url, 1, -3600, zone)
    keys = {"mode": "timestamp", "timestamp_column_name": "at", "db_timezone": zone}
    begun = follow(url, **keys, timestamp_initial="-1")
    assert begun.ids() == []
    late = follow(url, **keys, timestamp_delay_interval_ms="600000")
    hour_ago = int((time.time() - 1800) * 1000)
    dated = follow(url, **keys, timestamp_initial=str(hour_ago))
    insert(url, 2, -300, zone)
    insert(url, 3, 0, zone)
    insert(url, 4, 300, zone)
    time.sleep(1.1)  # of a second that goes on nothing is read, where columns name no digits
    assert begun.ids() == [3]
    assert dated.ids() == [2, 3]
    assert late.ids() == [1]


@pytest.mark.spark
@pytest.mark.parametrize("type_", ["timestamp", "date"])
@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_of_the_initial_time_itself_are_read(
    follow: Follow, url: str, mode: str, type_: str
) -> None:
    table(url, TYPES if type_ == "timestamp" else dict.fromkeys(TYPES, "date"))
    times = ["2025-12-31 23:59:59", *["2026-01-01 00:00:00"] * 2, "2026-01-02 00:00:00"]
    for number, time_ in enumerate(times):
        run(
            url,
            f"INSERT INTO t VALUES ({number}, '{time_[:10] if type_ == 'date' else time_}')",
        )
    keys = {"mode": mode, "timestamp_column_name": "at"}
    if "incrementing" in mode:
        keys["incrementing_column_name"] = "id"
    midnight = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    initial = follow(url, **keys, timestamp_initial=str(midnight))
    assert (sorted(initial.ids()), initial.ids()) == ([1, 2, 3], [])
    later = follow(url, **keys, timestamp_initial=str(midnight + 1))
    assert later.ids() == [3]
    if "incrementing" in mode:
        placed = follow(url, **keys, timestamp_initial=str(midnight), incrementing_initial="1")
        assert sorted(placed.ids()) == [2, 3]


@pytest.mark.spark
def test_rows_of_the_day_that_goes_on_wait_for_its_end(follow: Follow, url: str) -> None:
    table(url, dict.fromkeys(TYPES, "date"))
    while (at := datetime.now(ZoneInfo(HONOLULU))).hour == 23 and at.minute >= 58:
        time.sleep(1)  # the day is to go on
    today = at.date()
    keys = {"mode": "timestamp", "timestamp_column_name": "at"}
    begun = follow(url, **keys, db_timezone=HONOLULU, timestamp_initial="-1")
    assert begun.ids() == []
    for number, days in enumerate([-1, 0, 1, 2]):
        run(url, f"INSERT INTO t VALUES ({number}, '{today + timedelta(days=days)}')")
    assert follow(url, **keys, db_timezone=HONOLULU).ids() == [0]
    assert begun.ids() == []
    # Clocks there show the same time a day later.
    later = follow(url, **keys, db_timezone="Pacific/Kiritimati")
    later.position = begun.position
    assert later.ids() == [1]


@pytest.mark.spark
def test_times_without_a_zone_reach_records_as_they_are(follow: Follow, url: str) -> None:
    table(url)
    run(url, "INSERT INTO t VALUES (1, '2026-01-31 12:00:00.000001')")
    keys = {"mode": "timestamp", "timestamp_column_name": "at", "db_timezone": TOKYO}
    [row] = follow(url, **keys).new()
    assert row["at"].replace(tzinfo=None) == datetime(2026, 1, 31, 12, 0, 0, 1)  # noqa: DTZ001


@pytest.mark.spark
def test_times_that_have_a_zone_are_of_no_other(follow: Follow, server: str) -> None:
    table(server, ZONED)
    keys = {"mode": "timestamp", "timestamp_column_name": "at", "db_timezone": TOKYO}
    source = follow(server, **keys, timestamp_initial="-1")
    source.new()
    run(
        server,
        "INSERT INTO t VALUES (1, CURRENT_TIMESTAMP - INTERVAL '1' HOUR)",
        "INSERT INTO t VALUES (2, CURRENT_TIMESTAMP(6))",
        "INSERT INTO t VALUES (3, CURRENT_TIMESTAMP + INTERVAL '1' HOUR)",
    )
    assert source.ids() == [2]


@pytest.mark.spark
def test_columns_with_and_without_a_zone_together_are_of_utc_only(
    follow: Follow, server: str
) -> None:
    run(
        server,
        "CREATE TABLE t (id bigint PRIMARY KEY, "
        f"at {kind(server, TYPES)} NULL, made {kind(server, ZONED)} NULL)",
    )
    keys = {"mode": "timestamp", "timestamp_column_name": "at,made"}
    assert follow(server, **keys).ids() == []
    with pytest.raises(ConfigError, match="at, made") as raised:
        follow(server, **keys, db_timezone=TOKYO).new()
    assert raised.value.field == "db.timezone"


@pytest.mark.parametrize("zone", ["Europe/Pariss", "/etc/passwd", "", "+01:00"])
def test_a_zone_that_nobody_knows_is_an_error(zone: str) -> None:
    props = {"connection.url": "postgresql:///x", "db.timezone": zone}
    with pytest.raises(ConfigErrors) as raised:
        JdbcSource.config_def().parse(props)
    [error] = raised.value.errors
    assert error.field == "db.timezone"
    assert "Europe/Paris" in error.fix


class Clock(Sqlite):
    """A database with a clock that a test sets."""

    at = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)

    @override
    def now(self, session: Session) -> datetime:
        return self.at


@pytest.mark.parametrize("delay", [timedelta(), timedelta(minutes=20)])
def test_rows_of_the_hour_that_comes_twice_are_read_once_each(
    tmp_path: Path, delay: timedelta
) -> None:
    database, paris = Clock(address_of(f"sqlite:///{tmp_path}/a.db")), ZoneInfo("Europe/Paris")
    run(f"sqlite:///{tmp_path}/a.db", "CREATE TABLE t (id integer PRIMARY KEY, at TIMESTAMP)")
    found, place, number = list[int](), dict[str, Any](), 0
    cursor = GrowingCursor(("at",), delay=delay, zone=paris)
    with (
        database.session() as session,
        closing(open_database(f"sqlite:///{tmp_path}/a.db")) as c,
    ):
        [described] = database.describe(session, database.tables(session)).values()
        columns = {each.name: each for each in described.columns}
        rows = Rows(
            database=database, source="t", columns=columns, key=(), count=None, title="t"
        )
        session.rollback()
        for number in range(1, 200):  # from 1:30 to 3:48, by 2:59:59 and 2:00
            text = database.at.astimezone(paris).strftime("%Y-%m-%d %H:%M:%S")
            c.execute(f"INSERT INTO t VALUES ({number}, '{text}')")
            database.at += timedelta(minutes=1)
            latest = cursor.latest(session, rows, place or None, most=None)
            if latest is not None:
                where = cursor.range(rows, place or None, latest[0]).where(rows)
                found += [each for (each,) in session.rows(f"SELECT id FROM t WHERE {where}")]
                place = dict(latest[0])
            session.rollback()
    late = int(delay / timedelta(minutes=1))
    assert sorted(found) == list(range(1, number + 1 - late))


@pytest.mark.spark
def test_rows_of_the_second_that_goes_on_wait_in_sqlite(follow: Follow, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    table(url)
    source, found = follow(url, mode="timestamp", timestamp_column_name="at"), []
    for number in range(1, 30):
        run(url, f"INSERT INTO t VALUES ({number}, CURRENT_TIMESTAMP)")
        found += source.ids()
        time.sleep(0.05)
    time.sleep(1.1)
    assert sorted(found + source.ids()) == list(range(1, 30))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "types"),
    [("timestamp", ZONED), ("timestamp+incrementing", TYPES)],
    ids=["zoned", "local"],
)
def test_rows_of_clocks_that_are_off_and_of_late_commits_are_read_once_each(
    follow: Follow, server: str, mode: str, types: Mapping[str, str]
) -> None:
    table(server, types)
    keys = {"incrementing_column_name": "id"} if "+" in mode else {}
    delay = {"timestamp_delay_interval_ms": "6000"}
    source = follow(server, mode=mode, timestamp_column_name="at", **keys, **delay)
    with closing(open_database(server, autocommit=False)) as late:
        cursor = late.cursor()
        cursor.execute(kind(server, UTC_SESSION))
        at = datetime.now(UTC)
        cursor.execute(stamped(1, at))
        ahead = at + timedelta(seconds=3)
        run(
            server,
            kind(server, UTC_SESSION),
            stamped(2, at),
            stamped(3, ahead),
            stamped(4, at - timedelta(seconds=60)),
        )
        assert source.ids() == [4]
        time.sleep(2)
        behind = datetime.now(UTC) - timedelta(seconds=1)
        run(server, kind(server, UTC_SESSION), stamped(5, behind))
        assert source.ids() == []
        late.commit()
    found = list[int]()

    def read() -> bool:
        found.extend(source.ids())
        return len(found) >= 4

    until(read)
    time.sleep(1)
    found += source.ids()
    assert sorted(found) == [1, 2, 3, 5]


@pytest.mark.spark
def test_rows_of_one_time_are_not_divided_by_the_bound_of_a_batch(
    follow: Follow, server: str
) -> None:
    table(server)
    moment = "2026-01-31 12:00:00.000001"
    run(server, *(f"INSERT INTO t VALUES ({n}, '{moment}')" for n in range(1, 8)))
    run(server, "INSERT INTO t VALUES (8, '2026-01-31 12:00:00.000002')")
    source = follow(server, mode="timestamp", timestamp_column_name="at")
    assert [row["id"] for row in source.new(rows=3)] == [*range(1, 9)]
