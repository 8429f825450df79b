"""What the tests of the command line share."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

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
        sinks: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Batch:
        filtered = sum((filters or {}).values())
        counts = Counts(
            read=read,
            written=read - filtered - rejected,
            filtered=filtered,
            rejected=rejected,
            size_bytes=size_bytes,
            filters=filters or {},
            sinks=sinks or {},
        )
        begun = Batch(TaskId(task, number), batch_id, 1, Position(), Position(), START)
        return begun.done(counts, START + timedelta(seconds=1))

    return make
