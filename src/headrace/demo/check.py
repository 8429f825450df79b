"""Checks the demo's targets independently of Headrace, with DuckDB."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from deltalake import DeltaTable

from headrace.demo.folder import TABLES
from headrace.model import Counts, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    from headrace.model import Batch, TaskId


@dataclass(frozen=True)
class Finding:
    """The result of one target's check; ``differences`` is empty if it is correct."""

    target: str
    rows: int
    columns: int
    checksum: str
    differences: Sequence[str]


class Checker:
    """Compares targets with the CSV files that they were copied from. A context manager."""

    def __init__(self, data: Path, demo: Path) -> None:
        """Read the CSV files in ``data`` and the targets in the folder ``demo``."""
        import duckdb  # noqa: PLC0415 - only the demo needs it, and says so if it is missing

        self._demo = demo
        self._duck = duckdb.connect()
        for table in TABLES:
            file = _text(str(data / f"{table}.csv"))
            options = "header = true, all_varchar = true, nullstr = 'NA'"
            self._duck.execute(
                f"CREATE VIEW {table} AS SELECT * FROM read_csv({file}, {options})"  # noqa: S608 - names of our own
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._duck.close()

    def target(self, target: Target) -> Finding:
        """Compare one target: rows, columns, and checksums of each and of whole rows."""
        held = self._held(target)
        types = self._types(held)
        should = set(self._types(target.rows))
        differences = [f"column {name} is missing" for name in sorted(should - set(types))]
        differences += [f"column {name} is too many" for name in sorted(set(types) - should)]
        shared = {name: kind for name, kind in types.items() if name in should}
        found = self._sums(held, shared)
        expected = self._sums(target.rows, shared)
        for part, value in found.items():
            if value != expected[part]:
                differences.append(f"{part}: {value:,} instead of {expected[part]:,}")
        checksum = f"{found['checksum of rows'] % 2**64:016x}"
        return Finding(target.name, found["rows"], len(types), checksum, differences)

    def move(self, move: Move) -> Counts:
        """Return the expected counts of a connector."""
        filtered, rejected = f"({move.filtered})", f"({move.rejected})"
        read, dropped, refused = self._row(
            f"SELECT count(*), count_if{filtered}, count_if{rejected} FROM {move.table}"  # noqa: S608 - names of our own
        )
        return Counts(
            read=read, written=read - dropped - refused, filtered=dropped, rejected=refused
        )

    def lines(self, table: str) -> int:
        """Return the number of rows of a CSV file."""
        return self._row(f"SELECT count(*) FROM {table}")[0]  # noqa: S608 - names of our own

    def _held(self, target: Target) -> str:
        folder = target.folder(self._demo)
        if target.delta:
            files = DeltaTable(folder).file_uris()
        else:
            files = [str(path) for path in sorted(folder.rglob("*.parquet"))]
        names = ", ".join(_text(file) for file in files)
        parts = f"hive_partitioning = {not target.delta}"
        return f"SELECT {target.columns} FROM read_parquet([{names}], {parts})"  # noqa: S608 - names of our own

    def _types(self, rows: str) -> Mapping[str, str]:
        found = self._duck.execute(f"DESCRIBE {rows}").fetchall()
        return {row[0]: row[1] for row in found}

    def _sums(self, rows: str, types: Mapping[str, str]) -> dict[str, int]:
        """Return the number of rows, and sums of hashes, which do not depend on the order.

        Both sides are cast to the target's types first, as the CSV files contain only text.
        """
        cast = {name: f'CAST("{name}" AS {kind})' for name, kind in types.items()}
        sums = {"rows": "count(*)"}
        sums |= {f"nulls in {name}": f"count_if({sql} IS NULL)" for name, sql in cast.items()}
        sums |= {f"checksum of {name}": f"sum(hash({sql}))" for name, sql in cast.items()}
        sums["checksum of rows"] = f"sum(hash({', '.join(cast.values())}))"
        row = self._row(f"SELECT {', '.join(sums.values())} FROM ({rows})")  # noqa: S608 - names of our own
        return dict(zip(sums, row, strict=True))

    def _row(self, sql: str) -> list[int]:
        rows = self._duck.execute(sql).fetchall()
        return [int(value or 0) for value in rows[0]]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True)
class Arrival:
    """The number of records that a connector had copied at a time of the tally's clock."""

    time: float
    rows: int


@dataclass
class Tally:
    """Listens to the worker's events of one run. Thread-safe.

    Args:
        clock: A monotonic clock in seconds.
        moved: Called after each batch with the connector and its records so far.
        began: Called when a task changes its state, so first when it starts.
        failed: Called when a task fails.
    """

    clock: Callable[[], float]
    moved: Callable[[str, int], None] = lambda _connector, _rows: None
    began: Callable[[], None] = lambda: None
    failed: Callable[[], None] = lambda: None
    counts: dict[str, Counts] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, list[Arrival]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, connector: str) -> Counts:
        return self.counts.get(connector, Counts())

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        now, connector = self.clock(), batch.task.connector
        with self._lock:
            counts = self.count(connector).plus(batch.counts)
            self.counts[connector] = counts
            self.batches[connector] = self.batches.get(connector, 0) + 1
            self.arrivals.setdefault(connector, []).append(Arrival(now, counts.read))
        self.moved(connector, counts.read)

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        self.began()
        if state is TaskState.FAILED:
            self.failed()

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """See headrace.worker.Events."""


@dataclass(frozen=True)
class Target:
    """A target, and SQL of its expected rows.

    ``path`` is within the demo's folder, ``tables/<name>`` if empty; without ``delta`` it
    contains plain Parquet files.
    """

    name: str
    rows: str
    path: str = ""
    delta: bool = True
    columns: str = "*"

    def folder(self, demo: Path) -> Path:
        return demo / (self.path or f"tables/{self.name}")


@dataclass(frozen=True)
class Move:
    """The rows of a CSV file that a connector should have filtered and rejected."""

    connector: str
    table: str
    filtered: str = "false"
    rejected: str = "false"


_CANCELLED, _NO_YEAR = "dep_time IS NULL", "year IS NULL"
_FLIGHTS = (
    "SELECT * EXCLUDE (hour, minute) RENAME (tailnum AS plane, dest AS destination) "
    "FROM flights WHERE dep_time IS NOT NULL"
)
_PLANES = "SELECT * EXCLUDE (speed) FROM planes WHERE year IS NOT NULL"
_WEATHER = (
    "SELECT * EXCLUDE (year, month, day, hour) RENAME (temp AS temp_f, dewp AS dewp_f) "
    "FROM weather"
)
_AIRPORTS = "SELECT *, 'US' AS country FROM airports"

TARGETS = (
    Target(
        "topic flights",
        "SELECT * FROM flights",
        path="home/topics/flights",
        columns="unnest(value)",
    ),
    Target("flights", _FLIGHTS),
    Target("planes", _PLANES),
    Target(
        "topic planes.dlq",
        "SELECT tailnum, year FROM planes WHERE year IS NULL",
        path="home/topics/planes.dlq",
        columns="value ->> 'tailnum' AS tailnum, nullif(value ->> 'year', 'NA') AS year",
    ),
    Target("weather", _WEATHER, delta=False),
    Target("airports", _AIRPORTS),
    Target("airports_parquet", _AIRPORTS, delta=False),
)
MOVES = (
    Move("airports", "airports"),
    Move("flights", "flights"),
    Move("flights-sink", "flights", filtered=_CANCELLED),
    Move("planes", "planes"),
    Move("planes-sink", "planes", rejected=_NO_YEAR),
    Move("weather", "weather"),
    Move("weather-sink", "weather"),
)
LIVE_TARGETS = (Target("flights_live", _FLIGHTS),)
LIVE_MOVES = (
    Move("flights-live", "flights"),
    Move("flights-live-sink", "flights", filtered=_CANCELLED),
)
