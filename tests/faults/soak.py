"""A server under random faults, and what is looked at meanwhile and at the end."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.faults.pipelines import Pipelines
from tests.faults.served import ServedProcess, ServerGoneError
from tests.faults.volumes import Volume, may_mount, volume
from tests.faults.workload import Feeder
from tests.postgresql_server import PostgresqlServer

CATCH_UP_SECONDS = 240
"""Within this all that was made must have arrived once no fault is made any more."""
LEASE_SECONDS = 6
SPRING = "rows"
"""The source that gives without end, and is paused while all is compared."""
_SETTINGS = {
    "HEADRACE_LEASE": f"PT{LEASE_SECONDS}S",
    "HEADRACE_RESTART_FAILED": "true",
    "HEADRACE_RESTART_DELAY": "PT1S",
    "HEADRACE_RESTART_DELAY_MAX": "PT5S",
    "HEADRACE_RESTART_ATTEMPTS": "-1",
    "HEADRACE_TASK_SHUTDOWN_GRACEFUL_TIMEOUT": "PT5S",
    "HEADRACE_MASTER": "local[2]",
}


@dataclass
class Seen:
    """What one kind of fault led to."""

    times: int = 0
    recoveries: list[float] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    log_lines: int = 0


@dataclass
class Soak:
    """One server with its pipelines, and the faults that it met.

    Args:
        folder: Where everything is.
        seed: Decides on all that is random.
        volumes: The mounted file systems, by name; empty where mounting is not permitted.
        database: The PostgreSQL server that has the store; None for SQLite.
    """

    folder: Path
    seed: int
    volumes: dict[str, Volume]
    database: PostgresqlServer | None = None
    database_url: str = ""
    seen: defaultdict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    failures: list[str] = field(default_factory=list)
    traces: Counter[str] = field(default_factory=Counter)
    stuck: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Make the folders and the pipelines; nothing runs yet."""
        self.chance = random.Random(self.seed)  # noqa: S311 - no secret
        self.home, self.topics, self.targets = (
            self.folder / name for name in ("home", "topics", "targets")
        )
        for each in (self.home, self.topics, self.targets):
            each.mkdir(exist_ok=True)
        self.feeder = Feeder(self.folder / "sources", random.Random(self.seed))  # noqa: S311
        self.pipelines = Pipelines(self.feeder, self.topics, self.targets)
        settings = {**_SETTINGS, "HEADRACE_TOPICS_DIR": str(self.topics)}
        if self.database_url:
            settings["HEADRACE_STORE_URL"] = self.database_url
        self.server = ServedProcess(self.home, self.folder / "server.err", settings)
        self.log = LogReader(self.home / "logs" / "headrace.log")
        self._pending: list[tuple[str, float]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.went_wrong: Counter[str] = Counter()
        self.file_descriptors: list[int] = []

    def open(self) -> None:
        """Start the server, the connectors and the feeder."""
        self.server.start()
        self.feeder.start()
        for name, config in self.pipelines.configs().items():
            self.server.settled("PUT", f"/connectors/{name}/config", config)
        self.make_extra()
        self._watcher = threading.Thread(target=self._watch, name="watcher")
        self._watcher.start()

    def make_extra(self) -> None:
        """Delete the connector that comes and goes, and make it anew with another name."""
        before, name, config = self.pipelines.next_extra()
        if before is not None:
            self.server.settled("DELETE", f"/connectors/{before}")
        self.server.settled("PUT", f"/connectors/{name}/config", config)

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        self.feeder.end()
        if hasattr(self, "_watcher"):
            self._watcher.join()
        self.server.kill()

    def run(
        self, kinds: list[tuple[str, float, Callable[[Soak], str | None]]], until: float
    ) -> None:
        """Make one fault after the other until a moment of the monotonic clock."""
        names = [kind[0] for kind in kinds]
        weights = [kind[1] for kind in kinds]
        while time.monotonic() < until:
            number = self.chance.choices(range(len(names)), weights)[0]
            self.fault(names[number], kinds[number][2])
            time.sleep(self.chance.uniform(0.2, 2.5))

    def fault(self, name: str, make: Callable[[Soak], str | None]) -> None:
        """Make one fault, and take note of what came of it."""
        began = time.monotonic()
        seen = self.seen[name]
        seen.times += 1
        try:
            note = make(self)
        except (ServerGoneError, ValueError, psutil.Error, OSError) as error:
            note = f"{type(error).__name__}: {str(error)[:160]}"
        if note:
            seen.notes[note] += 1
        with self._lock:
            self._pending.append((name, time.monotonic()))
        _say(f"{name} {time.monotonic() - began:.1f} s {note or ''}")
        self.ensure_served()

    def ensure_served(self) -> None:
        """Start the server if it is gone."""
        if not self.server.alive:
            if self.server.process is not None and self.server.process.returncode is not None:
                self.went_wrong[
                    f"the server ended by itself: {self.server.process.returncode}"
                ] += 1
            self.start_again()

    def start_again(self) -> None:
        """Start the server, which may fail while a fault lasts, but not for long."""
        end = time.monotonic() + CATCH_UP_SECONDS
        while True:
            try:
                self.server.start()
            except ServerGoneError as error:
                if time.monotonic() > end:
                    raise
                self.went_wrong[f"a start failed: {str(error).strip()[-160:]}"] += 1
                time.sleep(1)
            else:
                return

    def statuses(self) -> dict[str, Any]:
        """Return the state of each connector and each task."""
        shown: dict[str, Any] = self.server.ask("GET", "/connectors?expand=status", seconds=10)
        return {
            name: [
                each["status"]["connector"]["state"],
                *(f"{t['state']}{_why(t)}" for t in each["status"]["tasks"]),
            ]
            for name, each in shown.items()
        }

    def _watch(self) -> None:
        """Find out when everything runs again after each fault."""
        while not self._ended.wait(0.5):
            with self._lock:
                pending = list(self._pending)
            if not pending:
                continue
            began = time.monotonic()
            try:
                states = self.statuses()
            except (ServerGoneError, ValueError):
                continue
            if all(set(each) == {"RUNNING"} and len(each) > 1 for each in states.values()):
                with self._lock:
                    for name, at in pending:
                        if at < began:
                            self.seen[name].recoveries.append(began - at)
                            self._pending.remove((name, at))

    def checkpoint(self, *, last: bool = False) -> None:
        """Let all arrive that was made, and compare it."""
        self.feeder.pause()
        self.ensure_served()
        self.server.settled("PUT", f"/connectors/{SPRING}/pause")
        began = time.monotonic()
        wrong = self._differences_in_time()
        helped = ""
        if wrong:
            helped = self._help()
            wrong = self._differences_in_time() if helped else wrong
        if helped:
            self.stuck[helped] += 1
        self.failures += [each for each in wrong if each not in self.failures]
        self._look_at_left()
        self.balance()
        self.read_log()
        assert self.server.process is not None
        self.file_descriptors.append(psutil.Process(self.server.process.pid).num_fds())
        took = time.monotonic() - began
        _say(f"checkpoint after {took:.0f} s: {wrong or 'all there'} {helped}")
        if not last:
            self.server.settled("PUT", f"/connectors/{SPRING}/resume")
            self.feeder.resume()

    def _differences_in_time(self) -> list[str]:
        end = time.monotonic() + CATCH_UP_SECONDS
        look = time.monotonic() + 30
        while True:
            targets = self.pipelines.all_targets()
            behind = False
            wrong = []
            for target in targets:
                try:
                    if told := target.difference():
                        wrong.append(told)
                        behind = behind or "missing" in told
                except (OSError, ValueError, KeyError) as error:
                    wrong.append(f"{target.name}: {error!r}")
                    behind = True
            if not behind or time.monotonic() > end:
                return wrong
            self.ensure_served()
            if time.monotonic() > look:
                look = time.monotonic() + 30
                _say(f"still to come: {'; '.join(wrong)} {self._not_running()}")
            time.sleep(2)

    def _not_running(self) -> dict[str, Any]:
        try:
            states = self.statuses()
        except (ServerGoneError, ValueError) as error:
            return {"server": str(error)}
        return {name: found for name, found in states.items() if not _runs(name, found)}

    def _help(self) -> str:
        """Restart what has failed, as a person would; return what it was."""
        try:
            states = self.statuses()
        except (ServerGoneError, ValueError) as error:
            self.server.kill()
            self.start_again()
            return f"the server did not answer: {error}"
        told = []
        for name, found in states.items():
            if not _runs(name, found):
                told.append(f"{name} {found}")
                self.server.settled("PUT", f"/connectors/{name}/resume")
                self.server.settled("POST", f"/connectors/{name}/restart?includeTasks=true")
        if not told:
            self.server.kill()
            self.start_again()
            return "all RUNNING, but nothing moved until the server was started again"
        return "; ".join(told)

    def _look_at_left(self) -> None:
        for target in self.pipelines.left_targets():
            if (told := target.difference()) and told not in self.failures:
                self.failures.append(told)

    def balance(self) -> None:
        """Guarantee 4: every record that was read is written, filtered or rejected."""
        for name, number, batch, counts in self._batches():
            told = json.loads(counts)
            if told["read"] != told["written"] + told["filtered"] + told["rejected"]:
                self.failures.append(f"batch {batch} of {name}-{number}: {counts}")

    def _batches(self) -> list[Any]:
        query = "SELECT connector, number, id, counts FROM batches WHERE counts IS NOT NULL"
        if self.database_url:
            with psycopg.connect(self.database_url) as connection:
                return connection.execute(query).fetchall()
        with closing(sqlite3.connect(self.home / "store.db", timeout=30)) as db:
            return db.execute(query).fetchall()

    def read_log(self) -> None:
        """Collect the tracebacks of the log since the last look."""
        for line in self.log.lines():
            trace = line.get("exception")
            if trace:
                last = str(trace).strip().rpartition("\n")[2][:200]
                self.traces[f"{line.get('event')} | {last}"] += 1

    def report(self) -> str:
        """Return what happened, as a table."""
        lines = [
            f"seed {self.seed}",
            f"{'fault':34}{'times':>6}{'median':>9}{'slowest':>9}  seen",
        ]
        for name, seen in sorted(self.seen.items()):
            times = seen.recoveries or [float("nan")]
            notes = "; ".join(f"{n} x {t}" for t, n in seen.notes.most_common(3))
            middle, slowest = statistics.median(times), max(times)
            lines.append(f"{name:34}{seen.times:6}{middle:8.1f}s{slowest:8.1f}s  {notes}")
        total = sum(seen.times for seen in self.seen.values())
        lines.append(f"{total} faults of {len(self.seen)} kinds")
        lines += [f"needed a hand, {n} x: {what}" for what, n in self.stuck.items()]
        lines += [f"{n} x {what}" for what, n in self.went_wrong.items()]
        lines += [f"traceback, {n} x: {what}" for what, n in self.traces.most_common(30)]
        lines.append(f"file descriptors at each checkpoint: {self.file_descriptors}")
        lines += [
            f"lines {self.feeder.lines}, rows {self.feeder.rows}, files {self.feeder.files}"
        ]
        lines += [f"WRONG: {each}" for each in self.failures]
        return "\n".join(lines)


@dataclass
class LogReader:
    """Reads the lines of a server's log that were added since the last look."""

    file: Path
    _inode: int = 0
    _at: int = 0

    def lines(self) -> list[dict[str, Any]]:
        """Return the new lines. A log that was put aside since is read to its end first."""
        if not self.file.exists():
            return []
        found: list[dict[str, Any]] = []
        older = self.file.with_name(self.file.name + ".1")
        if self._inode and self.file.stat().st_ino != self._inode and older.exists():
            found += self._parsed(older.read_bytes()[self._at :])
            self._at = 0
        text = self.file.read_bytes()
        found += self._parsed(text[self._at :])
        self._inode, self._at = self.file.stat().st_ino, len(text)
        return found

    @staticmethod
    def _parsed(text: bytes) -> list[dict[str, Any]]:
        found = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # cut off by a full disk, or by a kill
                continue
        return found


def _runs(name: str, states: list[str]) -> bool:
    """Return whether a connector does what it is to do while all is compared."""
    return name == SPRING or (set(states) == {"RUNNING"} and len(states) > 1)


def _say(text: str) -> None:
    """Tell whoever watches, as a soak takes long."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


def _why(task: dict[str, Any]) -> str:
    trace = str(task.get("trace") or "")
    return f" ({trace.strip().splitlines()[0][:160]})" if trace else ""


def opened_volumes(folder: Path, opened: ExitStack) -> dict[str, Volume]:
    """Mount what can be filled up, if that is permitted."""
    if not may_mount():
        return {}
    sizes = {"home": 400, "topics": 400, "targets": 600}
    return {
        name: opened.enter_context(volume(folder / name, size)) for name, size in sizes.items()
    }
