"""How old changes are when they are in a target: from their commit to the target's.

A thousand changes a second, inserts and updates by key in transactions of ten, over twenty
tables of PostgreSQL. Source, target and Headrace share the machine. What arrives in the first
seconds, while the JVM compiles, is left out.

    python benchmarks/bench_change_ages.py [--tables 20] [--rate 1000] [--seconds 60]
"""

# ruff: noqa: S608 - statements of our own

from __future__ import annotations

import argparse
import bisect
import json
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import Quiet, bench, machine, save
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer
from typing_extensions import override

TRANSACTION = 10
ROWS = 5_000
"""How many keys a table has at the most: then all changes are updates."""
WARM_UP_SECONDS = 30.0
POLL_SECONDS = 0.05


@dataclass
class Load:
    """Changes tables at a steady rate, and knows when each change was made.

    Args:
        dsn: The source.
        tables: How many.
        rate: Changes a second, over all tables.
        made: The time of each transaction, by table.
    """

    dsn: str
    tables: int
    rate: int
    made: dict[str, list[float]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the tables."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for number in range(self.tables):
                columns = (
                    "id bigint PRIMARY KEY, amount numeric(12,2), word text, at timestamptz"
                )
                connection.execute(f"CREATE TABLE t{number} ({columns})")
                connection.execute(f"INSERT INTO t{number} VALUES (0, 0, '', 'epoch')")

    def run(self, seconds: float) -> None:
        """Change the tables, each in its turn."""
        statement = """INSERT INTO t{} SELECT n %% {}, n, repeat(n::text, 5), clock_timestamp()
            FROM generate_series(%s::bigint, %s::bigint) n
            ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, word = excluded.word,
            at = excluded.at RETURNING at"""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            began = time.monotonic()
            for turn in range(int(seconds * self.rate / TRANSACTION)):
                time.sleep(max(0.0, began + turn * TRANSACTION / self.rate - time.monotonic()))
                table, first = turn % self.tables, turn // self.tables * TRANSACTION
                sql = statement.format(table, ROWS)
                rows = connection.execute(sql, [first, first + TRANSACTION - 1]).fetchall()
                latest = max(at for (at,) in rows)
                self.made.setdefault(f"t{table}", []).append(latest.timestamp())


class Watch(ABC):
    """Learns when a target had which changes."""

    @property
    @abstractmethod
    def sink(self) -> Mapping[str, object]:
        """The sink's configuration."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the target meanwhile, where it does not remember."""
        yield

    @abstractmethod
    def seen(self) -> Mapping[str, list[tuple[float, float]]]:
        """By table, in order: the newest change that was there, and since when."""


@dataclass
class Lake(Watch):
    """Tables of Delta, whose log remembers."""

    folder: Path

    @property
    @override
    def sink(self) -> Mapping[str, object]:
        path = f"{self.folder}/${{table}}"
        return {"connector": "delta", "path": path, "mode": "upsert", "delete.enabled": True}

    @override
    def seen(self) -> Mapping[str, list[tuple[float, float]]]:
        return {table.name: list(self._versions(table)) for table in self.folder.iterdir()}

    @staticmethod
    def _versions(table: Path) -> Iterator[tuple[float, float]]:
        for entry in sorted((table / "_delta_log").glob("*.json")):
            for line in entry.read_text().splitlines():
                if (added := json.loads(line).get("add")) is not None:
                    column = pq.read_table(table / unquote(added["path"]), columns=["at"])["at"]
                    if newest := pc.max(column).as_py():
                        yield newest.timestamp(), entry.stat().st_mtime


@dataclass
class Tables(Watch):
    """Tables of MariaDB, looked at again and again."""

    url: str
    tables: int
    found: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    @override
    def sink(self) -> Mapping[str, object]:
        return {
            "connector": "mysql",
            "connection.url": self.url,
            "insert.mode": "upsert",
            "delete.enabled": True,
        }

    @contextmanager
    @override
    def watching(self) -> Iterator[None]:
        with connect(self.url) as connection, connection.cursor() as cursor:
            for number in range(self.tables):
                cursor.execute(f"CREATE INDEX newest ON t{number} (at)")
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(self._look, over)
            try:
                yield
            finally:
                over.set()
                looking.result()

    def _look(self, over: threading.Event) -> None:
        each = (f"SELECT 't{n}', max(at) FROM t{n}" for n in range(self.tables))
        query = " UNION ALL ".join(each)
        with connect(self.url) as connection, connection.cursor() as cursor:
            while not over.wait(POLL_SECONDS):
                cursor.execute(query)
                rows, now = cursor.fetchall(), time.time()
                connection.commit()
                for table, newest in rows:
                    seen = self.found.setdefault(table, [])
                    at = newest.replace(tzinfo=UTC).timestamp()
                    if not seen or at > seen[-1][0]:
                        seen.append((at, now))

    @override
    def seen(self) -> Mapping[str, list[tuple[float, float]]]:
        return self.found


def ages(load: Load, watch: Watch, since: float) -> list[float]:
    """Return how old each transaction made since then was when the target had it, in s."""
    found, seen = [], watch.seen()
    for table, made in load.made.items():
        newest = [at for at, _ in seen[table]]
        for at in made:
            if at >= since:
                # Times are kept in microseconds.
                place = bisect.bisect_left(newest, at - 1e-6)
                found.append(seen[table][place][1] - at)
    return found


def measure(watch: Watch, load: Load, seconds: float) -> Mapping[str, float]:
    """Follow the changes of a load; return what is known of their ages."""
    source = {
        "connector": "postgres",
        "connection.url": load.dsn,
        "table.include.list": ",".join(f"t{n}" for n in range(load.tables)),
    }
    definition = {
        "name": "ages",
        "poll.interval.ms": 50,
        "source": source,
        "transforms": [{"type": "Unwrap"}],
        "sinks": [watch.sink],
    }
    events = Quiet()
    with bench() as run, ThreadPoolExecutor(1) as pool:
        path = run.folder / "ages.yaml"
        path.write_text(json.dumps(definition))
        definitions = run.runtime.definitions([path])
        run.runtime.run(definitions, Quiet(), once=True)
        running = pool.submit(run.runtime.run, definitions, events, once=False)
        try:
            with watch.watching():
                since = time.time() + WARM_UP_SECONDS
                load.run(WARM_UP_SECONDS + seconds)
                by = time.monotonic() + 60
                while not running.done() and time.monotonic() < by:
                    time.sleep(1.0)
                    if all(
                        watch.seen()[t][-1][0] >= made[-1] - 1e-6
                        for t, made in load.made.items()
                    ):
                        break
        finally:
            run.runtime.stop()
        outcome = running.result()
    if outcome.failed:
        raise SystemExit(str(dict(outcome.errors)))
    found = sorted(ages(load, watch, since))
    batches = [at for at, _ in events.batches if at >= since]
    between = [later - sooner for sooner, later in pairwise(batches)]
    return {
        "transactions": len(found),
        "p50": found[len(found) // 2],
        "p95": found[len(found) * 95 // 100],
        "most": found[-1],
        "between batches": statistics.median(between),
    }


def main(tables: int, rate: int, seconds: float, only: str) -> None:
    """Measure, and print and keep the figures."""
    print(f"{rate:,} changes/s over {tables} tables; {machine()}; seconds\n")
    print("| to | p50 | p95 | most | between batches |\n|---|---|---|---|---|")
    figures: dict[str, object] = {"tables": tables, "rate": rate}
    with (
        PostgresqlServer.running(shared_buffers="256MB") as server,
        MariadbServer.running() as mariadb,
        mariadb.database() as url,
        bench() as folder,
    ):
        targets: Mapping[str, Watch] = {
            "Delta": Lake(folder.folder / "lake"),
            "MariaDB": Tables(url, tables),
        }
        for name, watch in targets.items():
            if only not in name:
                continue
            with server.database() as dsn:
                load = Load(dsn, tables, rate)
                load.prepare()
                found = measure(watch, load, seconds)
            print(
                f"| {name} | " + " | ".join(f"{n:.2f}" for n in list(found.values())[1:]) + " |"
            )
            figures[name] = found
    save("change_ages", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    main(given.tables, given.rate, given.seconds, given.only)
