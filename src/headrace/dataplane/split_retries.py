"""Reads splits on executors, and again those whose system was busy."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from headrace.model import Backoff
from headrace.sdk import RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import Accumulator
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

SPLIT_RETRIES = 5
"""How often a split is read again before its batch is; after 0.3, 0.6, 1.2, 2.4 and 4.8 s."""
_LONGEST = timedelta(seconds=30)
"""A system that asks for more is waited for by the task, which holds no core meanwhile."""

_Rows = TypeVar("_Rows")


def read_patiently(
    read: Callable[[Any], Iterator[_Rows]],
    split: Any,
    backoff: Backoff,
    retried: Callable[[int], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_Rows]:
    """Read a split, and again when it raises RetriableError before its first rows.

    Guarantee 2: rows that were given stay given, and a second reading may cut and order them
    otherwise. So later errors are left to the batch, of which nothing is visible yet.

    Args:
        read: The source's.
        split: What to read.
        backoff: How long to wait, and when to give up.
        retried: Called with 1 before each new reading.
        sleep: Waits for so many seconds.
    """
    began = time.monotonic()
    for failures in count(1):
        given = False
        try:
            for rows in read(split):
                given = True
                yield rows
        except RetriableError as error:
            lasted = timedelta(seconds=time.monotonic() - began)
            wait = backoff.wait(failures, error.after, lasted)
            is_last = failures > SPLIT_RETRIES or wait > _LONGEST or backoff.expired(lasted)
            if given or is_last:
                raise
        else:
            return
        retried(1)
        sleep(wait.total_seconds())


class SplitRetries:
    """Lets executors read splits again, and counts over all of them how often."""

    def __init__(self, timeout: timedelta | None) -> None:
        """Give up splits after ``timeout``."""
        self._timeout = timeout
        self._counter: Accumulator[int] | None = None
        self._logged = 0

    def patient(
        self, spark: SparkSession, read: Callable[[Any], Iterator[_Rows]]
    ) -> Callable[[Any], Iterator[_Rows]]:
        """Return ``read`` with patience, for executors."""
        if self._counter is None:
            self._counter = spark.sparkContext.accumulator(0)
        counter, timeout = self._counter, self._timeout
        return lambda split: read_patiently(read, split, Backoff(timeout=timeout), counter.add)

    def log(self) -> None:
        """Log how many there were since the last call, if any. Called after each batch."""
        total = self._counter.value if self._counter is not None else 0
        if total > self._logged:
            retries = total - self._logged
            log.warning("splits were read again as their system was busy", retries=retries)
        self._logged = total
