"""A book that was told of connectors whose names are as hostile as may be."""

from datetime import UTC, datetime, timedelta

from headrace.metrics import WorkerMetrics
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
from headrace.sdk import Lag, Position, RetriableError

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = 'a"b\\c\nheadrace_forged 1\r\u2028{x="y"} é'
ZERO = Position()


def connector(name: str) -> Connector:
    config = {"connector.class": "FileStreamSource", "name": name}
    return Connector(name, f"uid-{name}", ConnectorKind.SOURCE, config, 1, TargetState.RUNNING)


def batch(task: TaskId, number: int = 1, **counts) -> Batch:
    return Batch(task, number, 1, ZERO, ZERO, AT, counts=Counts(**counts), finished=AT)


def run(book: WorkerMetrics, name: str, number: int = 0) -> TaskId:
    """Tell the book of a task that runs, with its connector."""
    task = TaskId(name, number)
    book.state_changed(task, TaskState.UNASSIGNED, None)
    book.state_changed(task, TaskState.RUNNING, None)
    book.started(task)
    book.connector_changed(connector(name), ConnectorState.RUNNING, range(number + 1))
    return task


def empty() -> WorkerMetrics:
    return WorkerMetrics(
        clock=lambda: AT, worker="w1", version="1.2.3", version_of=lambda _: "4.5"
    )


def told() -> WorkerMetrics:
    """Return a book with some value of every metric that workers tell."""
    book = empty()
    for name in ("orders", HOSTILE):
        task = run(book, name)
        book.expect_letters(task, "x.dlq")
        counts = {"written": 6, "filtered": 1, "rejected": 2, "size_bytes": 90}
        causes = {"TRANSFORMATION DataError": 1, "VALUE_CONVERTER DataError": 1}
        moved = batch(task, read=9, filters={"only": 1}, causes=causes, **counts)
        book.batch_finished(moved, timedelta(seconds=0.3))
        book.committed(task, timedelta(seconds=0.002))
        book.retrying(task, RetriableError("busy"), timedelta(seconds=1))
    book.measure_lags(lambda: {TaskId("orders", 0): Lag(rows=7, size_bytes=70)})
    return book
