"""Windows of every source that takes boundaries: together they are the whole, none is twice."""

# ruff: noqa: S608 - a test's own statements

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import structlog
from deltalake import DeltaTable, write_deltalake
from tests.integration.databases.source_reading import databases, open_database, run
from tests.jdbc_database import JdbcDatabase, drivers_load
from tests.task_doubles import Context

from headrace.control.connector_settings import source_def
from headrace.sdk import (
    Boundaries,
    BoundaryKind,
    FrameSource,
    Position,
    ReadLimit,
    SourceConnector,
    SplitSource,
)
from headrace.sdk.sources import ArrowParts, ReplayableSource, StreamFrameSource
from headrace_plugins.connectors.datagen.connector import DatagenSource
from headrace_plugins.connectors.delta.source import DeltaSource
from headrace_plugins.connectors.file.source import FileSource
from headrace_plugins.connectors.jdbc.source import JdbcSource
from headrace_plugins.databases import parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TIME, VALUE, SNAPSHOT = BoundaryKind.TIME, BoundaryKind.VALUE, BoundaryKind.SNAPSHOT
BERLIN = ZoneInfo("Europe/Berlin")
# The clocks are set back at 01:00Z: 02:00 to 03:00 is shown twice.
BACK = datetime(2024, 10, 27, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


@dataclass
class Whole:
    """A source, and where its rows lie: by their ids, None for a row that is in no window."""

    connector: type[SourceConnector]
    keys: dict[str, str]
    kind: BoundaryKind
    places: Mapping[int, Any]
    cuts: list[Any] = field(default_factory=list)
    """More places to cut at than those of the rows."""
    follows: bool = True
    """Whether it can go on in real time from a bound."""

    def expected(self, lower: Any, upper: Any) -> list[int]:
        return [
            row
            for row, place in self.places.items()
            if place is not None
            and (lower is None or lower <= place)
            and (upper is None or place < upper)
        ]

    def windows(self, seed: int, count: int) -> list[tuple[Any, Any]]:
        """Return windows between random cuts, in any order; some are where rows are."""
        random = Random(seed)  # noqa: S311 - nothing is to be secret
        known = {place for place in self.places.values() if place is not None}
        cuts = sorted(random.sample(sorted(known | set(self.cuts)), count))
        windows = list(zip([None, *cuts], [*cuts, None], strict=True))
        random.shuffle(windows)
        return windows


def text(place: Any) -> str | None:
    return (
        place.isoformat() if isinstance(place, date) else None if place is None else f"{place}"
    )


def ids(
    spark: SparkSession,
    whole: Whole,
    window: tuple[Any, Any],
    *,
    straight: bool,
    most: int = 7,
    follows: bool = False,
) -> list[int]:
    """Read a window to its end, in batches of ``most`` rows; or what is there to follow."""
    definition = whole.connector.config_def().merged(source_def())
    boundaries = Boundaries(whole.kind, *map(text, window))
    keys = {"name": "c", "connector.class": "c", **whole.keys}
    fill = whole.connector.follow_from if follows else whole.connector.fill_in_boundaries
    filled = fill(definition.parse(keys), boundaries)
    config = definition.parse(filled)
    assert list(whole.connector.check(config)) == []
    task = whole.connector.task(config)
    assert isinstance(task, ReplayableSource)
    task.start(Context())
    at, found = Position(), list[int]()
    try:
        while (end := task.latest(at, ReadLimit(rows=most, size_bytes=10_000_000))) != at:
            found += _ids(spark, task, at, end, straight=straight)
            task.acknowledge(end)
            at = end
        assert task.ended(at) is (not follows or "rows" in whole.keys)
    finally:
        task.stop()
    return found


def _ids(
    spark: SparkSession, task: ReplayableSource, at: Position, end: Position, *, straight: bool
) -> Iterator[int]:
    rows: list[ArrowParts | DataFrame]
    if isinstance(task, SplitSource):
        for split in task.splits(at, end):
            for batch in task.read(split):
                yield from batch["id"].to_pylist()
        return
    if isinstance(task, StreamFrameSource):
        rows = [stream.rows for stream in task.streams(spark, at, end)]
    else:
        assert isinstance(task, FrameSource)
        found = task.arrow_parts(spark, at, end) if straight else None
        rows = [task.read(spark, at, end) if found is None else found]
    for each in rows:
        if not isinstance(each, ArrowParts):
            yield from (row["id"] for row in each.select("value.id").collect())
            continue
        for part in each.parts:
            for batch, rejected in each.read(part):
                assert not rejected
                yield from batch["id"].to_pylist()


def check(
    spark: SparkSession, whole: Whole, *, straight: bool, seeds: int, count: int, most: int = 7
) -> None:
    for seed in range(seeds):
        seen = list[int]()
        for window in whole.windows(seed, count):
            found = ids(spark, whole, window, straight=straight, most=most)
            assert sorted(found) == sorted(whole.expected(*window)), window
            seen += found
            if window[1] is None and whole.follows:
                found = ids(spark, whole, window, straight=straight, most=most, follows=True)
                assert sorted(found) == sorted(whole.expected(*window)), window
        assert sorted(seen) == sorted(whole.expected(None, None))


def clocked(zone: ZoneInfo) -> dict[int, tuple[datetime, datetime]]:
    """Return what a clock shows around its setting back, and when that is for the last time."""
    shown = [datetime(2024, 10, 27) + QUARTER * n for n in range(20)]  # noqa: DTZ001
    later = (each.replace(tzinfo=zone, fold=1).astimezone(UTC) for each in shown)
    return dict(enumerate(zip(shown, later, strict=True)))


CUTS = [BACK + QUARTER / 3 * n for n in range(-20, 20)]


# --- files --------------------------------------------------------------------------


def _table(values: Mapping[int, Any], type_: pa.DataType) -> pa.Table:
    return pa.table(
        {"id": pa.array(values, pa.int64()), "at": pa.array(values.values(), type_)}
    )


def _files(folder: Path, table: pa.Table, form: str) -> dict[str, str]:
    """Write some files of rows, and return the keys that read them."""
    (folder / "in").mkdir(exist_ok=True)
    step = max(1, table.num_rows // 3)
    for start in range(0, table.num_rows, step):
        path, part = folder / f"in/{start}.{form}", table.slice(start, step)
        if form == "parquet":
            pq.write_table(part, path)
        elif form == "csv":
            pyarrow.csv.write_csv(part, path)
        else:
            rows = (json.dumps(row, default=str) for row in part.to_pylist())
            path.write_text("\n".join(rows))
    return {"path": str(folder / "in"), "settle.ms": "0", "window.column": "at"}


def moments(folder: Path, form: str) -> Whole:
    places = {
        n: None if n % 5 == 2 else BACK + timedelta(microseconds=n // 3) for n in range(24)
    }
    keys = _files(folder, _table(places, pa.timestamp("us", "UTC")), form)
    if form != "parquet":
        keys["schema"] = "id BIGINT, at TIMESTAMP"
    return Whole(FileSource, keys, TIME, places, [BACK + timedelta(microseconds=99)])


def clock_times(folder: Path, form: str) -> Whole:
    clock = clocked(BERLIN)
    shown = _table({n: each[0] for n, each in clock.items()}, pa.timestamp("us"))
    keys = _files(folder, shown, form) | {"time.zone": "Europe/Berlin"}
    if form != "parquet":
        keys["schema"] = "id BIGINT, at TIMESTAMP_NTZ"
    return Whole(FileSource, keys, TIME, {n: each[1] for n, each in clock.items()}, CUTS)


def days(folder: Path, form: str) -> Whole:
    shown = {n: date(2024, 10, 20) + timedelta(days=n // 2) for n in range(20)}
    keys = _files(folder, _table(shown, pa.date32()), form) | {"time.zone": "Europe/Berlin"}
    if form != "parquet":
        keys["schema"] = "id BIGINT, at DATE"
    places = {
        n: datetime(d.year, d.month, d.day, tzinfo=BERLIN).astimezone(UTC)
        for n, d in shown.items()
    }
    return Whole(FileSource, keys, TIME, places, CUTS)


def numbers(folder: Path, form: str) -> Whole:
    places = {n: None if n == 3 else n // 2 - 5 for n in range(24)}
    keys = _files(folder, _table(places, pa.int32()), form)
    if form != "parquet":
        keys["schema"] = "id BIGINT, at INT"
    return Whole(FileSource, keys, VALUE, places, [-(2**40), 2**62])


def amounts(folder: Path, form: str) -> Whole:
    places = {n: Decimal(n) / 4 for n in range(24)}
    keys = _files(folder, _table(places, pa.decimal128(6, 2)), form)
    if form != "parquet":
        keys["schema"] = "id BIGINT, at DECIMAL(6,2)"
    return Whole(FileSource, keys, VALUE, places, [Decimal("2.249"), Decimal("99999.001")])


def words(folder: Path, form: str) -> Whole:
    texts = ["0", "O'Hara", "a", "aa", "b", "é", "z\\", "日本", "`"]
    places = {n: None if n == 5 else texts[n % 9] for n in range(20)}
    keys = _files(folder, _table(places, pa.string()), form)
    if form != "parquet":
        keys["schema"] = "id BIGINT, at STRING"
    return Whole(FileSource, keys, VALUE, places, ["zz", "B"])


def changed_files(folder: Path) -> Whole:
    keys = _files(folder, _table(dict.fromkeys(range(30)), pa.int64()), "parquet")
    del keys["window.column"]
    places = dict[int, datetime]()
    for n, path in enumerate(sorted((folder / "in").iterdir(), key=lambda path: path.name)):
        at = BACK + timedelta(microseconds=n // 2)
        os.utime(path, ns=((ns := int(at.timestamp()) * 10**9 + at.microsecond * 1000 + 7), ns))
        places |= dict.fromkeys(pq.read_table(path)["id"].to_pylist(), at)
    return Whole(FileSource, keys, TIME, places, [BACK + timedelta(microseconds=5), *CUTS])


def named_files(folder: Path) -> Whole:
    places = dict[int, datetime | None]()
    for n, (shown, at) in clocked(BERLIN).items():
        path = folder / f"in/of-2020/dt={shown:%Y-%m-%d/%H-%M}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"id\n{n}\n")
        places[n] = at
    (folder / "in/of-2020/other-2024-13-01-00-00.csv").write_text("id\n999\n")
    keys = {
        "path": str(folder / "in"),
        "recursive": "true",
        "settle.ms": "0",
        "window.name.format": "%Y-%m-%d/%H-%M",
        "time.zone": "Europe/Berlin",
    }
    return Whole(FileSource, keys, TIME, places, CUTS)


COLUMNS = [moments, clock_times, days, numbers, amounts, words]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("made", COLUMNS)
def test_windows_of_a_column_of_files(
    spark: SparkSession, tmp_path: Path, made: Any, form: str
) -> None:
    is_text = form != "parquet"  # which Spark reads, more slowly
    seeds, count = (4, 5) if is_text else (1, 2)
    check(spark, made(tmp_path, form), straight=is_text, seeds=seeds, count=count)


@pytest.mark.parametrize("made", [changed_files, named_files])
def test_windows_of_files(
    spark: SparkSession, tmp_path: Path, made: Callable[[Path], Whole]
) -> None:
    check(spark, made(tmp_path), straight=True, seeds=2, count=3)


def test_files_without_a_time_in_their_names_are_told_of_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("one", "two", "2024-10-27"):
        (tmp_path / f"{name}.csv").write_text("id\n1\n")
    keys = {"path": str(tmp_path), "settle.ms": "0", "window.name.format": "%Y-%m-%d"}
    with structlog.testing.capture_logs() as logs:
        assert ids(spark, Whole(FileSource, keys, TIME, {}), (None, None), straight=True) == [1]
    told = [each for each in logs if "without a time" in each["event"]]
    assert len(told) == 1


# --- Delta --------------------------------------------------------------------------


def _versions(folder: Path) -> tuple[dict[str, str], dict[int, int]]:
    """Make a table whose version n has row n, but none in version 3; 0 makes it."""
    path = folder / "table"
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("day", pa.date32())])
    DeltaTable.create(path, schema, partition_by=["day"])
    places = dict[int, int]()
    for n in range(1, 8):
        rows = [{"id": n, "at": _shown(n), "day": _day(n)}][n == 3 :]
        write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append")
        if rows:
            places[n] = n
    for n in range(8):
        log = path / f"_delta_log/{n:020d}.json"
        ns = int((BACK + n * QUARTER).timestamp()) * 10**9 + 3_000_000
        os.utime(log, ns=(ns, ns))
    return {"path": str(path)}, places


def _shown(n: int) -> datetime | None:
    shown, _ = clocked(BERLIN)[n * 2]
    return None if n == 2 else shown


def _day(n: int) -> date | None:
    shown = _shown(n)
    return None if shown is None else shown.date()


def by_versions(folder: Path) -> Whole:
    keys, places = _versions(folder)
    return Whole(DeltaSource, keys, SNAPSHOT, places, [3])


def by_commits(folder: Path) -> Whole:
    keys, versions = _versions(folder)
    milli = timedelta(milliseconds=1)
    places = {row: BACK + n * QUARTER + 3 * milli for row, n in versions.items()}
    cuts = [place + milli / 2 for place in places.values()]
    return Whole(DeltaSource, keys, TIME, places, [*cuts, BACK - QUARTER, BACK + 99 * QUARTER])


def by_event_time(folder: Path) -> Whole:
    keys, versions = _versions(folder)
    more = {"window.column": "at", "time.zone": "Europe/Berlin", "starting.version": "0"}
    places = {n: _shown(n) and clocked(BERLIN)[n * 2][1] for n in versions}
    return Whole(DeltaSource, keys | more, TIME, places, CUTS)


def by_partition(folder: Path) -> Whole:
    keys, versions = _versions(folder)
    places = {n: _day(n) for n in versions}
    cuts = [date(2024, 10, day) for day in (1, 28, 29)]
    return Whole(DeltaSource, keys | {"window.column": "day"}, VALUE, places, cuts)


@pytest.mark.parametrize("made", [by_versions, by_commits, by_event_time, by_partition])
def test_windows_of_a_delta_table(
    spark: SparkSession, tmp_path: Path, made: Callable[[Path], Whole]
) -> None:
    check(spark, made(tmp_path), straight=True, seeds=2, count=2)


def test_a_window_without_an_upper_bound_ends_with_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = by_versions(tmp_path)
    assert sorted(ids(spark, whole, (None, None), straight=True)) == [1, 2, 4, 5, 6, 7]
    assert ids(spark, whole, (None, 1), straight=True) == []
    assert ids(spark, whole, (8, None), straight=True) == []
    whole = Whole(DeltaSource, whole.keys, TIME, whole.places)
    assert ids(spark, whole, (None, BACK - QUARTER), straight=True) == []


def test_rows_are_chosen_from_the_table_as_it_was_when_the_task_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_deltalake(path, pa.table({"id": [1, 2, 3]}))
    window = {"window.kind": "value", "window.column": "id", "window.from": "2"}
    config = DeltaSource.config_def().parse({"path": str(path)} | window)
    task = DeltaSource.task(config)
    assert isinstance(task, FrameSource)
    task.start(Context())
    end = task.latest(Position(), ReadLimit(rows=1))
    assert sorted(_ids(spark, task, Position(), end, straight=True)) == [2, 3]
    DeltaTable(path).update({"id": "id + 10"})
    assert task.ended(end)
    assert task.latest(end, ReadLimit(rows=1)) == end


# --- databases ----------------------------------------------------------------------


TYPES = {
    "postgresql": ("timestamp", "timestamptz", "numeric(6,2)"),
    "mariadb": ("datetime(6)", "timestamp(6) NULL", "decimal(6,2)"),
    "sqlite": ("TIMESTAMP", "TIMESTAMPTZ", "DECIMAL(6,2)"),
    "h2": ("timestamp(6)", "timestamp(6) with time zone", "decimal(6,2)"),
}
NAME = "o'f \"`t"
"""Of the column that tells what is quoted."""


def _quoted(kind: str, name: str) -> str:
    sign = "`" if kind in {"mariadb", "sqlite"} else '"'
    return sign + name.replace(sign, sign * 2) + sign


def _in(at: datetime, kind: str) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S.%f}" + ("+00:00" if kind != "mariadb" else "")


@pytest.fixture(scope="module", params=["postgresql", "mariadb", "sqlite", "h2"])
def database(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    session_settings: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, dict[str, str]]]:
    """A kind of database, and the keys of a table in it, with a row for each clock time."""
    kind = request.param
    with ExitStack() as stack:
        local, zoned, amount = TYPES[kind]
        if kind == "h2":
            stack.enter_context(drivers_load(spark, session_settings))
            made = JdbcDatabase.h2()
            keys, run = made.config, made.run
        else:
            url = stack.enter_context(databases(request, tmp_path_factory.mktemp("db")))
            keys = {"connection.url": url}
            opened = stack.enter_context(open_database(url)) if kind == "postgresql" else None
            opened = opened or open_database(url)
            stack.callback(opened.close)

            def run(*statements: str) -> None:
                for each in statements:
                    opened.cursor().execute(each)

        q = lambda name: _quoted(kind, name)  # noqa: E731
        if kind == "mariadb":
            run("SET time_zone = '+00:00'")
        names = ["id", NAME, "zoned", "day", "amount", "word"]
        types = ["bigint NOT NULL PRIMARY KEY", local, zoned, "date", amount, "varchar(20)"]
        columns = ", ".join(f"{q(n)} {t}" for n, t in zip(names, types, strict=True))
        run(f"CREATE TABLE {q('t')} ({columns})")
        for n, (shown, at) in clocked(BERLIN).items():
            t = "T" if kind == "sqlite" and n % 2 else " "
            values = [f"'{shown:%Y-%m-%d}{t}{shown:%H:%M:%S}.5'", f"'{_in(at, kind)}'"]
            values += [
                f"DATE '{shown:%Y-%m-%d}'".removeprefix("DATE " if kind == "sqlite" else "")
            ]
            values += [f"{n / 4}", f"'w{n % 7}'"]
            run(f"INSERT INTO {q('t')} VALUES ({n}, {', '.join(values)})")
        run(f"INSERT INTO {q('t')} ({q('id')}) VALUES (99)")
        yield kind, keys | {"db.timezone": "Europe/Berlin"}


HALF = timedelta(seconds=0.5)
CLOCK = clocked(BERLIN)
DATABASE_WHOLES: dict[str, tuple[str, BoundaryKind, dict[int, Any], list[Any]]] = {
    "local": (NAME, TIME, {n: at + HALF for n, (_, at) in CLOCK.items()}, CUTS),
    "zoned": ("zoned", TIME, {n: at for n, (_, at) in CLOCK.items()}, CUTS),
    "date": (
        "day",
        TIME,
        {n: datetime(s.year, s.month, s.day, tzinfo=BERLIN) for n, (s, _) in CLOCK.items()},
        [datetime(2024, 10, 27, 12, tzinfo=BERLIN)],
    ),
    "day": ("day", VALUE, {n: s.date() for n, (s, _) in CLOCK.items()}, [date(2024, 10, 28)]),
    "amount": ("amount", VALUE, {n: Decimal(n) / 4 for n in CLOCK}, [Decimal("1.001")]),
    "number": ("id", VALUE, {n: n for n in [*CLOCK, 99]}, [-1, 50, 10**12]),
    "word": ("word", VALUE, {n: f"w{n % 7}" for n in CLOCK}, ["w", "x'y"]),
}


@pytest.mark.parametrize(
    ("column", "query"),
    [*((column, False) for column in DATABASE_WHOLES), ("local", True), ("amount", True)],
)
def test_windows_of_a_database(
    spark: SparkSession, database: tuple[str, dict[str, str]], column: str, query: bool
) -> None:
    kind, keys = database
    name, boundary, places, cuts = DATABASE_WHOLES[column]
    keys = {**keys, "window.column": name}
    if query:
        keys["query"] = f"SELECT * FROM {_quoted(kind, 't')}"
    count = 1 if kind == "h2" or column in {"day", "date"} else 4
    check(
        spark,
        Whole(JdbcSource, keys, boundary, places, cuts, follows=False),
        straight=kind != "h2",
        seeds=1 if kind == "h2" else 3,
        count=count,
    )


@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_windows_of_a_large_table_are_read_side_by_side(
    spark: SparkSession, postgresql: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_SMALL", 100)
    with postgresql.database() as url:
        run(
            url,
            f"CREATE TABLE t (id bigint {key}, at integer, fill text)",
            "INSERT INTO t SELECT n, n % 100, repeat('x', 200) FROM generate_series(1, 4000) n",
            "ANALYZE t",
        )
        keys = {"connection.url": url, "window.column": "at", "split.rows": "1000"}
        places = {n: n % 100 for n in range(1, 4001)}
        whole = Whole(JdbcSource, keys, VALUE, places, follows=False)
        check(spark, whole, straight=True, seeds=1, count=2, most=2000)


@pytest.mark.parametrize(
    ("mode", "column"),
    [
        ("incrementing", "number"),
        *(("timestamp", column) for column in ("local", "zoned", "date")),
        *(("timestamp+incrementing", column) for column in ("local", "zoned", "date")),
    ],
)
def test_a_database_is_followed_from_every_bound_that_windows_may_have(
    spark: SparkSession, database: tuple[str, dict[str, str]], mode: str, column: str
) -> None:
    kind, keys = database
    name, boundary, places, cuts = DATABASE_WHOLES[column]
    keys = keys | {"mode": mode, "window.column": name, "validate.non.null": "false"}
    if "timestamp" in mode:
        keys["timestamp.column.name"] = name
    if "incrementing" in mode:
        keys["incrementing.column.name"] = "id"
    whole, straight = Whole(JdbcSource, keys, boundary, places), kind != "h2"
    # A row at a bound is in no window that ends there.
    bounds = sorted({*places.values(), *cuts[::5]})
    for bound in bounds[:: 1 if straight else 4]:
        windowed = ids(spark, whole, (None, bound), straight=straight, most=50)
        live = ids(spark, whole, (bound, None), straight=straight, follows=True)
        assert sorted(live) == sorted(whole.expected(bound, None)), bound
        assert sorted(windowed + live) == sorted(whole.expected(None, None)), bound


# --- generated rows -----------------------------------------------------------------


@pytest.mark.parametrize("gear", ["frame", "split"])
@pytest.mark.parametrize("kind", [VALUE, TIME])
def test_windows_of_generated_rows(spark: SparkSession, kind: BoundaryKind, gear: str) -> None:
    keys = {"rows": "30", "schema": "id BIGINT", "gear": gear, "partitions": "1"}
    start, milli = datetime(2025, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
    places = {n: n if kind is VALUE else start + n * milli for n in range(30)}
    cuts = (
        [0, 31, 99] if kind is VALUE else [start - milli, start + milli / 3, start + 99 * milli]
    )
    count = 4 if gear == "split" else 2
    check(
        spark,
        Whole(DatagenSource, keys, kind, places, cuts),
        straight=True,
        seeds=2,
        count=count,
    )
