"""A split whose system was busy is read again, as long as none of its rows was given."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from headrace.dataplane.sources import SPLIT_RETRIES, read_patiently
from headrace.model import Backoff
from headrace.sdk import RetriableError


class Busy:
    """A system that fails some times, and gives some pages before each failure."""

    def __init__(
        self, failures: int, *, pages_before: int = 0, after: float | None = None
    ) -> None:
        self.failures = failures
        self.pages_before = pages_before
        self.after = None if after is None else timedelta(seconds=after)
        self.waits: list[float] = []

    def read(self, split: str) -> Iterator[str]:
        fails, self.failures = self.failures > 0, self.failures - 1
        for page in range(3):
            if fails and page == self.pages_before:
                raise RetriableError(problem=f"{split} is busy.", after=self.after)
            yield f"page {page}"

    def rows(self, backoff: Backoff | None = None) -> Iterator[str]:
        used = backoff or Backoff()
        return read_patiently(self.read, "split 1", used, lambda _: None, self.waits.append)


def test_a_split_is_read_again_after_growing_waits() -> None:
    system = Busy(SPLIT_RETRIES)
    assert list(system.rows()) == ["page 0", "page 1", "page 2"]
    assert system.waits == [0.3, 0.6, 1.2, 2.4, 4.8]


def test_each_new_reading_is_counted() -> None:
    told: list[int] = []
    read = Busy(3).read
    rows = read_patiently(read, "split 1", Backoff(), told.append, lambda _: None)
    assert (len(list(rows)), told) == (3, [1, 1, 1])


def test_a_split_that_asks_for_a_wait_gets_it() -> None:
    system = Busy(1, after=7)
    assert len(list(system.rows())) == 3
    assert system.waits == [7]


@pytest.mark.parametrize(
    "system",
    [
        lambda: Busy(SPLIT_RETRIES + 1),
        lambda: Busy(1, after=3600),
    ],
    ids=["which fails again and again", "which asks for an hour"],
)
def test_a_split_is_left_to_the_batch(system: Callable[[], Busy]) -> None:
    with pytest.raises(RetriableError, match="split 1 is busy"):
        list(system().rows())


def test_a_split_that_has_given_rows_is_not_read_again() -> None:
    system = Busy(1, pages_before=1)
    rows = system.rows()
    assert next(rows) == "page 0"
    with pytest.raises(RetriableError):
        next(rows)
    assert system.waits == []
