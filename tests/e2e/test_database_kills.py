"""Databases are copied while the worker, the source and the target are killed at random."""

# ruff: noqa: S608 - a test's own statements

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.usefixtures("quick_java")

HEADRACE = [sys.executable, "-m", "headrace"]
TABLES = """
CREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL, price numeric(12,2));
CREATE TABLE events
  (id bigserial PRIMARY KEY, item bigint, body text, at timestamptz DEFAULT now());
CREATE TABLE stock (id bigint PRIMARY KEY, level int NOT NULL, at timestamptz(6) NOT NULL);
INSERT INTO items SELECT n, 'item ' || n, n * 1.25 FROM generate_series(1, 50000) n;
INSERT INTO events (item, body) SELECT n, repeat('x', n % 50) FROM generate_series(1, 20000) n;
INSERT INTO stock SELECT n, n, clock_timestamp() FROM generate_series(1, 5000) n;
ANALYZE;
"""
CONNECTOR = """
name: {name}
poll.interval.ms: 200
batch.max.rows: 7000
source:
  connector: jdbc
  connection.url: {source}
  table.include.list: {table}
{keys}
sinks:
  - connector: postgres
    connection.url: {target}
    insert.mode: {mode}
"""
MODES = {
    "items": ("bulk", {}, "upsert"),
    "events": ("incrementing", {"incrementing.column.name": "id"}, "insert"),
    "stock": (
        "timestamp+incrementing",
        {
            "incrementing.column.name": "id",
            "timestamp.column.name": "at",
            "timestamp.delay.interval.ms": "2000",
        },
        "upsert",
    ),
}


@dataclass
class Copy:
    """A run of three connectors between two servers, and who changes the source meanwhile."""

    folder: Path
    source: PostgresqlServer
    target: PostgresqlServer
    stopped: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        for server in (self.source, self.target):
            server.execute("CREATE DATABASE shop")
        with psycopg.connect(self.source.url("shop"), autocommit=True) as database:
            database.execute(TABLES)
        for table, (mode, keys, into) in MODES.items():
            more = {"mode": mode, **keys}
            lines = "\n".join(f"  {key}: {value}" for key, value in more.items())
            part = CONNECTOR.format(
                name=table,
                table=table,
                keys=lines,
                mode=into,
                source=self.source.url("shop"),
                target=self.target.url("shop"),
            )
            (self.folder / f"{table}.yaml").write_text(part)

    @property
    def files(self) -> list[str]:
        return [str(self.folder / f"{table}.yaml") for table in MODES]

    def command(self, *words: str) -> list[str]:
        return [*HEADRACE, "--home", str(self.folder / "home"), *words]

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                self.command("run", *self.files, "--json"), stdout=log, stderr=log
            )

    def write(self) -> None:
        """Change the source until it is stopped, whatever happens to it."""
        while not self.stopped.is_set():
            with suppress(psycopg.Error), psycopg.connect(self.source.url("shop")) as database:
                while not self.stopped.is_set():
                    database.execute(
                        "INSERT INTO events (item, body) "
                        "SELECT n, md5(n::text) FROM generate_series(1, 200) n"
                    )
                    database.execute(
                        "UPDATE stock SET level = level + 1, at = clock_timestamp() "
                        "WHERE id % 100 = (random() * 99)::int"
                    )
                    database.commit()
                    time.sleep(0.05)
            time.sleep(0.1)

    @contextmanager
    def written(self) -> Iterator[None]:
        writer = threading.Thread(target=self.write)
        writer.start()
        try:
            yield
        finally:
            self.stopped.set()
            writer.join()

    def hurt(self, kills: int, seed: int) -> None:
        """Kill one of three at random moments, and start it again."""
        chance = random.Random(seed)  # noqa: S311 - no secret
        log = self.folder / "run.log"
        process = self.start()
        try:
            for _ in range(kills):
                before = log.stat().st_size if log.exists() else 0
                until = time.monotonic() + 90
                while time.monotonic() < until and b"batch" not in log.read_bytes()[before:]:
                    assert process.poll() is None, log.read_text()[-3000:]
                    time.sleep(0.05)
                time.sleep(chance.uniform(0, 2))
                victim = chance.choice(["worker", "source", "target"])
                if victim == "worker":
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process = self.start()
                else:
                    server = self.source if victim == "source" else self.target
                    server.kill()
                    time.sleep(chance.uniform(0, 1))
                    server.start()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def finish(self) -> None:
        time.sleep(2.1)  # the delay of times
        done = subprocess.run(
            self.command("run", "--once", *self.files),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def differences(self) -> list[str]:
        """Return the tables that are not the same on both sides, row by row."""
        found = []
        for table in MODES:
            sums = []
            for server in (self.source, self.target):
                with psycopg.connect(server.url("shop")) as database:
                    query = (
                        "SELECT count(*), sum(hashtextextended(t::text, 0)) "
                        f"FROM (SELECT * FROM {table}) t"
                    )
                    database.execute("SET TIME ZONE 'UTC'")
                    sums.append(database.execute(query).fetchone())
            if sums[0] != sums[1]:
                found.append(f"{table}: {sums}")
        return found

    def leftovers(self) -> list[str]:
        with psycopg.connect(self.target.url("shop")) as database:
            rows = database.execute(
                "SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_staged\\_%'"
            )
            return [name for (name,) in rows]


def check_kills(folder: Path, kills: int, seed: int) -> None:
    with PostgresqlServer.running() as source, PostgresqlServer.running() as target:
        copy = Copy(folder, source, target)
        copy.prepare()
        with copy.written():
            copy.hurt(kills, seed)
        copy.finish()
        assert copy.differences() == []
        assert copy.leftovers() == []
        for file in copy.files:
            verified = subprocess.run(
                copy.command("verify", file), capture_output=True, text=True, check=False
            )
            assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.spark
@pytest.mark.service
@pytest.mark.timeout(900)
def test_a_killed_copy_of_a_database_is_equal_to_its_source(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=4, seed=2)


@pytest.mark.spark
@pytest.mark.service
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_a_copy_of_a_database_leave_it_equal(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=100, seed=7)
