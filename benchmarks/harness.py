"""What the benchmarks share: pairs of runs, medians, the machine, memory."""

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from headrace.model import Batch, Definition, TaskId, TaskState
from headrace.runtime.app import Runtime
from headrace.settings import load_settings
from headrace.worker import BatchLoop, Outcome

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # for the servers of the tests, and Debezium

PAIRS = 5
"""How many pairs of warm runs the medians are of, at least."""
MOST_PAIRS = 25
MEASURED_SECONDS = 20
"""Short cases are measured in more pairs, up to the most, until they took so long."""
WARM_UPS = 3
"""How many pairs are thrown away between the cold one and the first that counts: what is
run first would else be compared with what finds the JVM's code compiled."""


@dataclass
class Quiet:
    """Learns what happens and keeps the batches."""

    batches: list[tuple[float, Batch]] = field(default_factory=list)

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Keep when it finished."""
        self.batches.append((time.time(), batch))

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Say why a task failed."""
        if error is not None:
            print(f"{task} {state}: {error}", file=sys.stderr)

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """Say that a task waits."""
        print(f"{task} waits: {error}", file=sys.stderr)


@dataclass
class Until(Quiet):
    """Stops the run when so many records have been written."""

    records: int = 0
    stop: Callable[[], None] = lambda: None
    written: int = 0

    @override
    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Count, and stop at the number."""
        super().batch_finished(batch, took)
        self.written += batch.counts.written
        if self.written >= self.records:
            self.stop()


@dataclass
class Bench:
    """A runtime in a folder of its own, with helpers to run definitions."""

    folder: Path
    runtime: Runtime
    runs: int = 0

    def run(self, definition: Mapping[str, object], *, until: int | None = None) -> Outcome:
        """Run a definition given as the YAML would have it, under a new name.

        It runs for what is there now, or with ``until`` as a stream that is stopped when so
        many records have been written.
        """
        self.runs += 1
        definitions = self._definitions(f"run{self.runs}", definition)
        if until is None:
            outcome = self.runtime.run(definitions, Quiet(), once=True)
        else:
            events = Until(records=until, stop=self.runtime.stop)
            outcome = self.runtime.run(definitions, events, once=False)
        if outcome.failed:
            raise SystemExit(str(dict(outcome.errors)))
        return outcome

    def loop(self, definition: Mapping[str, object], name: str = "loop") -> BatchLoop:
        """Return the batch loop of a definition's first task, warm and under a lease."""
        (first, *_) = self._definitions(name, definition)
        return self.runtime.parts(first).loop

    def _definitions(self, name: str, definition: Mapping[str, object]) -> Sequence[Definition]:
        path = self.folder / f"{name}.yaml"
        # JSON is YAML as well, and quickly written: a user has the file already.
        path.write_text(json.dumps({"name": name, **definition}))
        return self.runtime.definitions([path])

    def target(self) -> Path:
        """Return a new folder to write to."""
        return Path(tempfile.mkdtemp(dir=self.folder)) / "target"


@contextmanager
def bench(**settings: Any) -> Iterator[Bench]:
    """Open a runtime in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with Runtime(load_settings(home=folder / "home", **settings)) as runtime:
            runtime.state  # noqa: B018 - makes the store, which is missed where topics are
            yield Bench(folder, runtime)


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Pair:
    """Ours beside theirs, in turn in the same process; the first of each is the cold one."""

    name: str
    rows: int
    cold: tuple[float, float]
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Return the median of our time over theirs, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(mine / other for mine, other in pairs)

    def figures(self) -> dict[str, object]:
        """Return what is kept of it: seconds and the ratio."""
        return {
            "ratio": self.ratio,
            "ours_s": self.ours,
            "by_hand_s": self.theirs,
            "cold_s": self.cold,
        }

    def line(self) -> str:
        """Return the row of the report."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return (
            f"| {self.name} | {self.rows / ours:,.0f} | {self.rows / theirs:,.0f} "
            f"| {self.ratio:.2f} | {self.cold[0]:.1f} s | {self.cold[1]:.1f} s |"
        )


def compare(
    name: str, rows: int, ours: Callable[[], object], theirs: Callable[[], object]
) -> Pair:
    """Time both once cold, then in turn, each first in every other pair; print the row."""
    cold = (timed(ours), timed(theirs))
    for _ in range(WARM_UPS):
        ours(), theirs()
    mine: list[float] = []
    others: list[float] = []
    while len(mine) < PAIRS or (
        len(mine) < MOST_PAIRS and sum(mine) + sum(others) < MEASURED_SECONDS
    ):
        turns = [(ours, mine), (theirs, others)]
        for work, times in turns if len(mine) % 2 else reversed(turns):
            times.append(timed(work))
    pair = Pair(name, rows, cold, mine, others)
    print(pair.line(), flush=True)
    return pair


HEADER = (
    "| case | Headrace rows/s | by hand rows/s | time ratio | cold | cold, by hand |\n"
    "|---|---|---|---|---|---|"
)


def machine() -> str:
    """Say where the figures come from."""
    memory = psutil.virtual_memory().total / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, Python {python}"


def processes() -> list[psutil.Process]:
    """Return this process and all below it: the JVM, Python workers, plugin hosts."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """Return the CPU time of all processes so far."""
    total = 0.0
    for process in processes():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class Memory:
    """The peak of the memory of this process and its JVM, sampled in a thread."""

    def __init__(self) -> None:
        """Start to sample."""
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stop.wait(0.2):
            total = 0
            for process in processes():
                try:
                    if process.name() == "java" or process.pid == os.getpid():
                        total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak = max(self.peak, total)

    def stop(self) -> int:
        """Return the peak in bytes."""
        self._stop.set()
        self._thread.join()
        return self.peak


def save(name: str, figures: dict[str, object]) -> None:
    """Keep the figures beside the benchmarks."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **figures}, indent=2)
    (folder / f"{name}.json").write_text(text + "\n")


def remove(folder: Path) -> None:
    """Remove a target between runs."""
    shutil.rmtree(folder, ignore_errors=True)
