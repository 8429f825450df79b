"""A worker's side of plugin hosts, over a real store, with real processes."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.waiting import until

import headrace
from headrace.capture import CaptureSpec, HostSupervisor, Pace, Targets
from headrace.model import Backoff, Lease, TaskId
from headrace.sdk.location import Location
from headrace.store import Store
from headrace.topics import Topics
from headrace.worker.capture_task import CaptureKeeping, CaptureTask

ROOT = Path(__file__).parents[3]
SOURCE = Path(headrace.__file__).parents[1]
VARIABLES = {**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}"}
SOURCES = "tests.integration.capture.host_sources"


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Bench:
    """Everything that a capture needs, and eyes to see what it did."""

    folder: Path
    store: Store
    hosts: HostSupervisor
    appended: list[str] = field(default_factory=list)

    @property
    def topics_dir(self) -> Path:
        return self.folder / "topics"

    def spec(self, name: str = "counter", **told: Any) -> CaptureSpec:
        config = {key: str(value) for key, value in told.pop("config", {}).items()}
        values = {
            "connector": name,
            "task": 0,
            "class_path": f"{SOURCES}.Counter",
            "config": config,
            "application": f"{name}-uid-0",
            "topics_dir": str(self.topics_dir),
            "topic": "numbers",
            "scratch": str(self.folder / "scratch" / name),
            "pace": Pace(linger_ms=1, poll_interval_ms=100),
        }
        return CaptureSpec(**{**values, **told})

    def task(self, spec: CaptureSpec, **told: Any) -> CaptureTask:
        keeping = CaptureKeeping(
            store=self.store,
            hosts=self.hosts,
            targets=lambda s: Targets(Location.of(Path(s.topics_dir)), s.topic, s.application),
            appended=self.appended.append,
            clock=now,
        )
        told.setdefault("backoff", Backoff(longest=timedelta(milliseconds=300)))
        return CaptureTask(TaskId(spec.connector, spec.task), spec, keeping, **told)

    def lease(self, task: CaptureTask) -> Lease:
        return self.store.lease(task.id, "worker", now(), timedelta(minutes=1))

    def start(self, spec: CaptureSpec, *, once: bool = False, **told: Any) -> CaptureTask:
        task = self.task(spec, **told)
        task.start(self.lease(task), once=once, bounded=True)
        return task

    def run(self, spec: CaptureSpec, **told: Any) -> CaptureTask:
        """Run a capture until it has nothing more to do, or fails."""
        task = self.start(spec, once=True, **told)
        until(lambda: task.completed or task.failure is not None)
        task.stop()
        return task

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Return what a topic holds, in order, as its readers see it."""
        log = Topics(Location.of(self.topics_dir)).get(topic).log
        rows: list[dict[str, Any]] = []
        for version in range(log.newest() + 1):
            for file in log.commit(version).added:
                table = pq.ParquetFile(self.topics_dir / topic / file.path).read()
                rows += table.sort_by("offset").to_pylist()
        return rows

    def numbers(self, topic: str = "numbers") -> list[int]:
        return [row["value"]["n"] for row in self.rows(topic)]

    def check_moved_once(self, task: CaptureTask, kind: str, limit: int) -> None:
        """Check that each number of a counter is there once, and that the store says so."""
        topics = ["numbers"] if kind == "batch" else ["even", "odd"]
        found = [number for topic in topics for number in self.numbers(topic)]
        assert sorted(found) == list(range(limit))
        totals = self.store.totals(task.id)
        assert (totals.read, totals.written) == (limit, limit)
