"""Windows of the log: what lies between two places, each change once."""

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.changes.change_reading import Following, rows
from tests.integration.changes.change_reading import run as run_postgres
from tests.integration.databases.mysql_tables import run

from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    ConfigError,
    DataLostError,
    Position,
    RetriableError,
)
from headrace_plugins.connectors.mysql.source import MysqlSource
from headrace_plugins.connectors.postgres.source import PostgresSource

pytestmark = pytest.mark.service
Follow = Callable[..., Following]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int)"
SLOT = {"slot.name": "windows"}


def filled(url: str, bounds: Boundaries, **more: str) -> dict[str, str]:
    kind = MysqlSource if url.startswith("mysql") else PostgresSource
    slot = {} if kind is MysqlSource else SLOT
    config = kind.config_def().parse({"connection.url": url, **slot, **more})
    return dict(kind.fill_in_boundaries(config, bounds))


def window(follow: Follow, url: str, bounds: Boundaries) -> Following:
    """Return a source that has begun with nothing but its bounds."""
    keys = {key.replace(".", "_"): text for key, text in filled(url, bounds).items()}
    return follow(url, **keys)


def read(following: Following, rows: int | None = 1_000_000) -> list[int]:
    """Return the ids that a window has, read to its end."""
    found, by = list[int](), time.monotonic() + 60
    while not following.task.ended(following.position):
        found += [each["after"]["id"] for _, each in following.batch(rows) or []]
        assert time.monotonic() < by
    assert following.batch(rows) is None
    return found


def offsets(url: str, lower: Any, upper: Any) -> Boundaries:
    """Return bounds of two places, as a person writes them."""
    kind = {"server": "any"} if url.startswith("mysql") else {"slot": "windows"}
    texts = (None if at is None else Position.of(kind, at).to_json() for at in (lower, upper))
    return Boundaries(BoundaryKind.OFFSET, *texts)


def place(url: str) -> dict[str, Any]:
    """Return where the log ends now."""
    if url.startswith("mysql"):
        [[file, pos, *_]] = run(url, "SHOW MASTER STATUS")
        return {"file": file, "pos": int(pos)}
    [[lsn]] = rows(url, "SELECT pg_current_wal_flush_lsn() - '0/0'")
    return {"lsn": int(lsn)}


@pytest.fixture(params=["PostgreSQL", "MariaDB"])
def each_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind with an empty table, whose log is kept from now on."""
    if request.param == "MariaDB":
        made: str = request.getfixturevalue("binlog_url")
        run(made, TABLE)
        return made
    made = request.getfixturevalue("url")
    run_postgres(
        made,
        TABLE,
        "CREATE PUBLICATION windows FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('windows', 'pgoutput')",
    )
    return made


def insert(url: str, *ids: int) -> None:
    execute = run if url.startswith("mysql") else run_postgres
    execute(url, *(f"INSERT INTO t SELECT {each}, 0" for each in ids))


def test_windows_of_places_have_each_change_once(each_url: str, follow: Follow) -> None:
    places = [place(each_url)]
    for begin in (0, 10, 20):
        insert(each_url, *range(begin, begin + 10))
        places.append(place(each_url))
    insert(each_url, 99)
    for number, begin in enumerate((0, 10, 20)):
        bounds = offsets(each_url, places[number], places[number + 1])
        following = window(follow, each_url, bounds)
        assert read(following, rows=3) == [*range(begin, begin + 10)]
        following.task.stop()


def test_a_window_without_a_lower_bound_begins_where_the_log_does(
    each_url: str, follow: Follow
) -> None:
    insert(each_url, 1, 2)
    upper = place(each_url)
    insert(each_url, 3)
    assert read(window(follow, each_url, offsets(each_url, None, upper))) == [1, 2]


def test_a_window_in_which_nothing_happened_ends(each_url: str, follow: Follow) -> None:
    insert(each_url, 1)
    lower = place(each_url)
    execute = run if each_url.startswith("mysql") else run_postgres
    execute(each_url, "CREATE TABLE other (id int PRIMARY KEY)", "DROP TABLE other")
    assert read(window(follow, each_url, offsets(each_url, lower, place(each_url)))) == []


def test_a_window_goes_on_where_another_life_has_left_it(each_url: str, follow: Follow) -> None:
    lower = place(each_url)
    insert(each_url, *range(20))
    following = window(follow, each_url, offsets(each_url, lower, place(each_url)))
    found: list[int] = []
    while not following.task.ended(following.position):
        found += [each["after"]["id"] for _, each in following.batch(4) or []]
        following.restart()
    assert found == [*range(20)]


def test_a_window_without_an_upper_bound_goes_on_with_what_comes(
    each_url: str, follow: Follow
) -> None:
    lower = place(each_url)
    insert(each_url, 1)
    kind = MysqlSource if each_url.startswith("mysql") else PostgresSource
    slot = {} if kind is MysqlSource else SLOT
    config = kind.config_def().parse({"connection.url": each_url, **slot})
    keys = kind.follow_from(config, offsets(each_url, lower, None))
    following = follow(each_url, **{key.replace(".", "_"): text for key, text in keys.items()})
    assert [after["id"] for _, _, after in following.changes()] == [1]
    insert(each_url, 2)
    assert [after["id"] for _, _, after in following.changes()] == [2]
    assert not following.task.ended(following.position)


def test_what_a_window_is_refused_for(each_url: str) -> None:
    kind = MysqlSource if each_url.startswith("mysql") else PostgresSource
    here: dict[str, Any] = {"lsn": 8}
    later: dict[str, Any] = {"lsn": 16}
    if kind is MysqlSource:
        here, later = {"file": "binlog.000001", "pos": 4}, {"file": "binlog.000002", "pos": 4}

    def errors(bounds: Boundaries, **more: str) -> list[str | None]:
        keys = filled(each_url, bounds) | {
            key.replace("_", "."): text for key, text in more.items()
        }
        found = kind.config_def().validate(keys)
        if problems := [e for value in found for e in value.errors]:
            return [error.field for error in problems]
        return [error.field for error in kind.check(kind.config_def().parse(keys))]

    assert errors(offsets(each_url, here, later)) == []
    assert errors(offsets(each_url, later, here)) == ["window.to"]
    assert errors(Boundaries(BoundaryKind.OFFSET, "[]", None)) == ["window.from"]
    wrong = Position.of({"server": "a"} if kind is MysqlSource else {"slot": "a"}, {"x": 1})
    assert errors(Boundaries(BoundaryKind.OFFSET, None, wrong.to_json())) == ["window.to"]
    assert errors(offsets(each_url, here, later), snapshot_mode="initial") == ["snapshot.mode"]


def test_postgresql_has_a_window_once_and_says_so(url: str, follow: Follow) -> None:
    run_postgres(
        url,
        TABLE,
        "CREATE PUBLICATION windows FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('windows', 'pgoutput')",
    )
    lower = place(url)
    insert(url, 1, 2, 3)
    bounds = offsets(url, lower, place(url))
    insert(url, 4)
    first = window(follow, url, bounds)
    assert read(first) == [1, 2, 3]
    reached = first.position.offset({"slot": "windows"})
    assert reached is not None
    by = time.monotonic() + 30
    while first.slot["confirmed"] < reached["lsn"]:
        assert time.monotonic() < by
        time.sleep(0.1)
    first.task.stop()
    with pytest.raises(DataLostError, match="windows"):
        read(window(follow, url, bounds))


def test_postgresql_needs_a_slot_and_has_no_times(url: str) -> None:
    run_postgres(url, TABLE)
    config = PostgresSource.config_def().parse({"connection.url": url})
    with pytest.raises(ConfigError) as raised:
        PostgresSource.fill_in_boundaries(config, offsets(url, None, {"lsn": 16}))
    assert raised.value.field == "slot.name"
    times = {"window.from": "2026-01-01T00:00:00Z", "snapshot.mode": "no_data"}
    config = PostgresSource.config_def().parse({"connection.url": url, **SLOT, **times})
    [error] = PostgresSource.check(config)
    assert (error.field, "offset" in error.fix) == ("window.kind", True)


def second(url: str) -> datetime:
    """Wait for the next whole second of the server's clock, and return it."""
    [[before]] = run(url, "SELECT unix_timestamp()")
    while run(url, "SELECT unix_timestamp()") == [(before,)]:
        time.sleep(0.02)
    return datetime.fromtimestamp(int(before) + 1, UTC)


def test_windows_of_times_have_each_change_once_in_whatever_order(
    binlog_url: str, follow: Follow
) -> None:
    run(binlog_url, TABLE)
    bounds, stopping, written = [second(binlog_url)], threading.Event(), list[int]()

    def write() -> None:
        while not stopping.is_set():
            insert(binlog_url, len(written))
            written.append(len(written))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(4):
        bounds.append(second(binlog_url))
        if len(bounds) == 3:
            run(binlog_url, "FLUSH BINARY LOGS")
    stopping.set()
    writer.join()
    last = second(binlog_url)  # behind which nothing was written
    pairs = [*zip(bounds, [*bounds[1:], last], strict=False)]
    found: dict[datetime, list[int]] = {}
    for lower, upper in random.Random(7).sample(pairs, len(pairs)):  # noqa: S311
        following = window(follow, binlog_url, Boundaries.between(lower, upper))
        found[lower] = read(following)
        following.task.stop()
    assert [each for lower in bounds for each in found[lower]] == written
    assert all(found[lower] for lower in bounds[:-1])
    again = window(follow, binlog_url, Boundaries.between(bounds[1], bounds[2]))
    assert read(again) == found[bounds[1]]


def test_a_window_waits_for_the_servers_clock(binlog_url: str, follow: Follow) -> None:
    run(binlog_url, TABLE)
    lower = second(binlog_url)
    following = window(follow, binlog_url, Boundaries.between(lower, lower + timedelta(days=1)))
    with pytest.raises(RetriableError, match="is in the future"):
        read(following)


def test_a_window_of_which_the_log_is_gone_says_so(binlog_url: str, follow: Follow) -> None:
    run(binlog_url, TABLE)
    lower = datetime(2001, 1, 1, tzinfo=UTC)
    following = window(follow, binlog_url, Boundaries.between(lower, lower + timedelta(days=1)))
    with pytest.raises(ConfigError, match="The binary log begins at") as raised:
        read(following)
    assert raised.value.field == "window.from"
