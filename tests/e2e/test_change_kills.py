"""Changes are followed while the worker, its processes and the servers are killed at random."""

# ruff: noqa: S608 - a test's own statements

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil
import psycopg
import pyarrow.compute as pc
import pymysql
import pytest
from deltalake import DeltaTable
from tests.database_server import DatabaseServer
from tests.mariadb_server import MariadbServer, connect
from tests.postgresql_server import PostgresqlServer, _program
from typing_extensions import override

pytestmark = pytest.mark.usefixtures("quick_java")

SECONDS = int(os.environ.get("HEADRACE_CHAOS_SECONDS", "600"))
"""How long the long test goes on."""
SHORT_SECONDS = 40
SEED = int(os.environ.get("HEADRACE_KILLS_SEED", "7"))
HEADRACE = [sys.executable, "-m", "headrace"]
TABLES = {
    "pgbench_accounts": ("aid", "bid", "abalance", "filler"),
    "pgbench_branches": ("bid", "bbalance", "filler"),
    "pgbench_tellers": ("tid", "bid", "tbalance", "filler"),
    "pgbench_history": ("id", "tid", "bid", "aid", "delta", "mtime", "filler"),
}
"""The columns of pgbench's tables, the key first."""
_CONNECTOR = """
name: bank
poll.interval.ms: 200
errors.retry.timeout: -1
source:
  connector: {kind}
  connection.url: {source}
  snapshot.batch.rows: 20000
  table.include.list: pgbench_*
transforms:
  - {{type: Unwrap}}
sinks:
  - {{connector: delta, path: "{lake}/${{table}}", mode: upsert, delete.enabled: true}}
  - {{connector: postgres, connection.url: {postgresql}, insert.mode: upsert,
     delete.enabled: true}}
  - {{connector: mysql, connection.url: {mariadb}, insert.mode: upsert, delete.enabled: true}}
"""
_JOURNAL = """
name: journal
poll.interval.ms: 200
errors.retry.timeout: -1
source:
  connector: {kind}
  connection.url: {source}
  {apart}
  table.include.list: pgbench_*
topic: journal
"""
"""The same changes, kept in a topic."""
_REPLAY = """
name: replay
topic: journal
transforms:
  - {{type: Unwrap}}
sinks:
  - {{connector: delta, path: "{folder}/replayed/${{topic}}", mode: upsert,
     delete.enabled: true}}
---
name: changes
topic: journal
sinks:
  - {{connector: delta, path: "{folder}/changes/${{topic}}"}}
"""
"""What makes tables of the topic, and what shows all that is in it."""


@dataclass
class Bank:
    """pgbench on a source, and connectors that follow it into three targets and a topic."""

    kind: ClassVar[str] = "postgres"
    apart: ClassVar[str] = "slot.name: journal"

    folder: Path
    source: DatabaseServer
    target: PostgresqlServer
    mariadb: MariadbServer
    mariadb_url: str
    chance: random.Random
    killed: Counter[str] = field(default_factory=Counter)
    _worker: subprocess.Popen[bytes] | None = None
    _pgbench: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the tables of the source, and say what follows them."""
        self.source.execute("CREATE DATABASE bank")
        self.target.execute("CREATE DATABASE bank")
        self.make_tables()
        (self.folder / "bank.yaml").write_text(
            _CONNECTOR.format(
                kind=self.kind,
                source=self.source.url("bank"),
                postgresql=self.target.url("bank"),
                mariadb=self.mariadb_url,
                lake=self.folder / "lake",
            )
        )
        (self.folder / "journal.yaml").write_text(
            _JOURNAL.format(kind=self.kind, source=self.source.url("bank"), apart=self.apart)
        )
        (self.folder / "replay.yaml").write_text(_REPLAY.format(folder=self.folder))

    def make_tables(self) -> None:
        """Make pgbench's tables; its history gets a key."""
        self._run_pgbench("--initialize", "--quiet", "--scale=1")
        with psycopg.connect(self.source.url("bank"), autocommit=True) as database:
            database.execute("ALTER TABLE pgbench_history ADD id bigserial PRIMARY KEY")

    def _run_pgbench(self, *options: str) -> None:
        command = [_program("pgbench"), *options, self.source.url("bank")]
        subprocess.run(command, check=True, capture_output=True)

    @contextmanager
    def clients(self) -> Iterator[None]:
        """Let eight clients of pgbench change the source, who come again when it is back."""
        try:
            yield
        finally:
            self._stop(self._pgbench)

    def keep_clients(self) -> None:
        """Start the clients again who were cut off."""
        if self._pgbench is None or self._pgbench.poll() is not None:
            rate, clients = ["--rate=300", "--no-vacuum"], ["--client=8", "--time=100000"]
            with (self.folder / "pgbench.log").open("ab") as log:
                self._pgbench = subprocess.Popen(
                    [_program("pgbench"), *rate, *clients, self.source.url("bank")],
                    stdout=log,
                    stderr=log,
                )

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Have a worker run."""
        try:
            yield
        finally:
            self._stop(self._worker)

    def keep_worker(self) -> None:
        """Start the worker again, as whoever looks after it does."""
        if self._worker is not None and self._worker.poll() is None:
            return
        with (self.folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [*HEADRACE, "run", "--home", "home", "bank.yaml", "journal.yaml"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @staticmethod
    def _stop(process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            everyone = [psutil.Process(process.pid)]
            everyone += everyone[0].children(recursive=True)
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        process.wait()

    def strike(self) -> None:
        """Kill something, or let it stand still for a while."""
        [victim] = self.chance.choices(
            ["worker", "reader", "java", "still worker", "still reader", "source", "target"],
            [4, 4, 1, 2, 2, 2, 2],
        )
        if victim in {"source", "target"}:
            server = self.source if victim == "source" else self.target
            server.kill()
            time.sleep(self.chance.uniform(0, 2))
            server.start()
        elif (found := self._process(victim.split()[-1])) is None:
            return
        elif victim.startswith("still"):
            with suppress(psutil.NoSuchProcess):
                found.send_signal(signal.SIGSTOP)
                time.sleep(self.chance.uniform(1, 8))
                found.send_signal(signal.SIGCONT)
        else:
            with suppress(psutil.NoSuchProcess):
                found.kill()
        self.killed[victim] += 1

    def _process(self, name: str) -> psutil.Process | None:
        if self._worker is None or self._worker.poll() is not None:
            return None
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self._worker.pid)
            if name == "worker":
                return worker
            word = "java" if name == "java" else "changes.process"
            found = [
                each
                for each in worker.children(recursive=True)
                if word in (each.name() if name == "java" else " ".join(each.cmdline()))
            ]
            return self.chance.choice(found) if found else None
        return None

    def finish(self, *definitions: str) -> str:
        """Copy what is left; return what the command says."""
        done = subprocess.run(
            [*HEADRACE, "run", "--home", "home", "--once", *definitions],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return done.stdout

    # --- what is there ----------------------------------------------------------------

    def rows(self, table: str) -> dict[str, list[tuple[object, ...]]]:
        """Return the rows of a table in the source and in each target, by its key."""
        columns = TABLES[table]
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}"
        found: dict[str, list[tuple[object, ...]]] = {}
        urls = {
            "source": self.source.url("bank"),
            "PostgreSQL": self.target.url("bank"),
            "MariaDB": self.mariadb_url,
        }
        for title, url in urls.items():
            found[title] = [self._plain(row) for row in _rows(url, query)]
        for title, name in (("Delta", "lake"), ("the topic", "replayed")):
            delta = DeltaTable(self.folder / name / table)
            rows = delta.to_pyarrow_table(columns=list(columns)).sort_by(columns[0])
            found[title] = [self._plain(tuple(row.values())) for row in rows.to_pylist()]
        return found

    def created(self) -> Counter[tuple[int, str]]:
        """Return how often the topic has that a row of the history was made, by id and way.

        What is added while the table is read may be read, and then comes by the log too, where
        the reading was interrupted: in MySQL by anything, in PostgreSQL by an end of its
        server or of the worker, and with it of the snapshot.
        """
        return Counter(self._creations())

    def _creations(self) -> Iterator[tuple[int, str]]:
        changes = DeltaTable(self.folder / "changes" / "pgbench_history").to_pyarrow_table()
        made = changes.filter(pc.field("op").isin(["c", "r"]))
        ids = pc.struct_field(made.column("after"), "id")
        return zip(ids.to_pylist(), made.column("op").to_pylist(), strict=True)

    @staticmethod
    def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
        # MariaDB gives a text without the blanks that fill it up.
        plain = (
            str(v.replace(tzinfo=None))
            if hasattr(v, "replace") and not isinstance(v, str)
            else v.rstrip()
            if isinstance(v, str)
            else v
            for v in row
        )
        return tuple(plain)


_MARIADB_TABLES = """
CREATE TABLE pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler CHAR(84));
CREATE TABLE pgbench_branches (bid INT PRIMARY KEY, bbalance INT, filler CHAR(88));
CREATE TABLE pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT, filler CHAR(84));
CREATE TABLE pgbench_history (id BIGINT AUTO_INCREMENT PRIMARY KEY, tid INT, bid INT, aid INT,
  delta INT, mtime DATETIME(6), filler CHAR(22));
INSERT INTO pgbench_accounts SELECT seq, 1, 0, 'x' FROM seq_1_to_100000;
INSERT INTO pgbench_branches VALUES (1, 0, 'x');
INSERT INTO pgbench_tellers SELECT seq, 1, 0, 'x' FROM seq_1_to_10"""
_MARIADB_WORK = """
SET @delta = %s, @teller = %s, @account = %s;
UPDATE pgbench_accounts SET abalance = abalance + @delta WHERE aid = @account;
UPDATE pgbench_tellers SET tbalance = tbalance + @delta WHERE tid = @teller;
UPDATE pgbench_branches SET bbalance = bbalance + @delta;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
  VALUES (@teller, 1, @account, @delta, now(6));
DELETE FROM pgbench_accounts WHERE aid = @account - 1 AND mod(@delta, 10) = 0;
UPDATE pgbench_accounts SET aid = aid + 1000000
  WHERE aid = @account AND mod(@delta, 10) = 1"""


class MariadbBank(Bank):
    """The same tables in MariaDB, and clients that do what pgbench does, and more."""

    kind = "mysql"
    apart = "database.server.id: 7654"

    @override
    def make_tables(self) -> None:
        for statement in _MARIADB_TABLES.split(";"):
            with connect(self.source.url("bank")) as database, database.cursor() as cursor:
                cursor.execute(statement)
                database.commit()

    @override
    @contextmanager
    def clients(self) -> Iterator[None]:
        over = threading.Event()
        threads = [threading.Thread(target=self._work, args=(n, over)) for n in range(8)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            over.set()
            for each in threads:
                each.join()

    @override
    def keep_clients(self) -> None:
        """Do nothing: they connect again."""

    def _work(self, number: int, over: threading.Event) -> None:
        chance = random.Random(SEED + number)  # noqa: S311 - no secret
        while not over.is_set():
            with (
                suppress(pymysql.Error, OSError),
                connect(self.source.url("bank")) as database,
                database.cursor() as cursor,
            ):
                while not over.is_set():
                    account, delta = chance.randint(1, 100_000), chance.randint(-5000, 5000)
                    teller = chance.randint(1, 10)
                    first, *others = _MARIADB_WORK.split(";")
                    cursor.execute(first, (delta, teller, account))
                    for statement in others:
                        cursor.execute(statement)
                    database.commit()
                    time.sleep(0.02)
            time.sleep(0.1)


def _rows(url: str, query: str) -> list[tuple[object, ...]]:
    if url.startswith("postgresql"):
        with psycopg.connect(url) as database:
            return database.execute(query.encode()).fetchall()
    with connect(url) as other, other.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def _go_through(bank: Bank, seconds: float) -> None:
    bank.prepare()
    by = time.monotonic() + seconds
    with bank.clients(), bank.worker():
        while time.monotonic() < by:
            bank.keep_clients()
            bank.keep_worker()
            time.sleep(bank.chance.uniform(0.5, 6))
            bank.strike()
        bank.keep_clients()
    bank.finish("bank.yaml", "journal.yaml")
    bank.finish("replay.yaml")
    assert bank.killed
    assert set(bank.created().values()) == {1}
    for table in TABLES:
        found = bank.rows(table)
        source = found.pop("source")
        assert source, table
        for target, rows in found.items():
            lost = set(source) - set(rows)
            more = set(rows) - set(source)
            assert rows == source, (
                f"{table} in {target}: {len(rows)} rows of {len(source)}, lost or old "
                f"{sorted(map(str, lost))[:3]}, twice or wrong {sorted(map(str, more))[:3]}"
            )


@pytest.fixture(params=["postgresql", "mariadb"])
def bank(
    tmp_path: Path, mariadb: MariadbServer, request: pytest.FixtureRequest
) -> Iterator[Bank]:
    chance = random.Random(SEED)  # noqa: S311 - no secret
    with ExitStack() as until:
        target = until.enter_context(PostgresqlServer.running())
        url = until.enter_context(mariadb.database())
        if request.param == "postgresql":
            source = until.enter_context(PostgresqlServer.running())
            yield Bank(tmp_path, source, target, mariadb, url, chance)
        else:
            settings = {"log_bin": "log", "server_id": "1", "binlog_format": "ROW"}
            logging = MariadbServer.running(**settings, binlog_row_metadata="FULL")
            other = until.enter_context(logging)
            yield MariadbBank(tmp_path, other, target, mariadb, url, chance)


def test_changes_arrive_once_whatever_is_killed(bank: Bank) -> None:
    _go_through(bank, SHORT_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS + 900)
def test_changes_arrive_once_whatever_is_killed_for_long(bank: Bank) -> None:
    _go_through(bank, SECONDS)
