"""How long a scrape takes: 200 connectors of two tasks, all idle, a quarter busy, all busy."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta

from headrace.metrics import Exposition, WorkerMetrics
from headrace.model import (
    Batch,
    Connector,
    ConnectorKind,
    ConnectorState,
    Counts,
    TargetState,
    TaskId,
    TaskState,
)
from headrace.sdk import Position

CONNECTORS = 200
ROUNDS = 50
OPEN = "application/openmetrics-text;version=1.0.0"


def now() -> datetime:
    """Return the present."""
    return datetime.now(UTC)


def started() -> tuple[WorkerMetrics, list[TaskId]]:
    """Return a book of connectors that run, and their tasks."""
    book, tasks = WorkerMetrics(clock=now, worker="w", version="1"), []
    for number in range(CONNECTORS):
        name, config = f"connector-{number}", {"connector.class": "FileStreamSource"}
        made = Connector(name, name, ConnectorKind.SOURCE, config, 1, TargetState.RUNNING)
        for task in (TaskId(name, 0), TaskId(name, 1)):
            tasks.append(task)
            book.state_changed(task, TaskState.UNASSIGNED, None)
            book.state_changed(task, TaskState.RUNNING, None)
            book.started(task)
        book.connector_changed(made, ConnectorState.RUNNING, [0, 1])
    return book, tasks


def move(book: WorkerMetrics, tasks: list[TaskId]) -> None:
    """Tell of a batch of each task."""
    here, at = Position(), now()
    counts = Counts(read=10, written=10, size_bytes=100)
    for task in tasks:
        batch = Batch(task, 1, 1, here, here, at, counts=counts, finished=at)
        book.batch_finished(batch, timedelta(seconds=0.2))
        book.committed(task, timedelta(milliseconds=2))


def main() -> None:
    """Measure, and print milliseconds."""
    book, tasks = started()
    exposition = Exposition(book)
    move(book, tasks)
    began = time.perf_counter()
    body, _ = exposition.render(OPEN)
    first = (time.perf_counter() - began) * 1000
    series = sum(not line.startswith("#") for line in body.decode().splitlines())
    print(f"{CONNECTORS} connectors, {len(tasks)} tasks: {series} series, {len(body)} bytes")
    print(f"first scrape      {first:6.1f} ms")
    for title, busy in (
        ("idle", 0),
        ("a quarter busy", len(tasks) // 4),
        ("all busy", len(tasks)),
    ):
        took = []
        for _ in range(ROUNDS):
            move(book, tasks[:busy])
            began = time.perf_counter()
            exposition.render(OPEN)
            took.append((time.perf_counter() - began) * 1000)
        worst = statistics.quantiles(took, n=20)[-1]
        print(f"{title:<17} {statistics.median(took):6.1f} ms, p95 {worst:.1f} ms")
    began = time.perf_counter()
    for _ in range(ROUNDS):
        move(book, tasks)
    told = (time.perf_counter() - began) / ROUNDS / len(tasks) * 1e6
    print(f"telling of a batch {told:5.1f} µs")


if __name__ == "__main__":
    main()
