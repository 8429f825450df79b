"""What the tests of the command line share."""

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from headrace.model import Batch, Counts, TaskId
from headrace.sdk import Position

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """Make finished batches that are worth counting."""

    def make(
        task: str = "flights",
        number: int = 0,
        *,
        batch_id: int = 1,
        read: int = 0,
        filters: Mapping[str, int] | None = None,
        rejected: int = 0,
        size_bytes: int = 0,
    ) -> Batch:
        filtered = sum((filters or {}).values())
        counts = Counts(
            read=read,
            written=read - filtered - rejected,
            filtered=filtered,
            rejected=rejected,
            size_bytes=size_bytes,
            filters=filters or {},
        )
        begun = Batch(TaskId(task, number), batch_id, 1, Position(), Position(), START)
        return begun.done(counts, START + timedelta(seconds=1))

    return make


@pytest.fixture(autouse=True)
def logging_put_back() -> Iterator[None]:
    """Undo what a command does to the process's logging."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in before:
            handler.close()
    root.handlers, root.level = before, level
    logging.captureWarnings(capture=False)
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    structlog.reset_defaults()
