"""Smaller batches, for a while, where one was too large for the memory that there is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from headrace.model import SparkMemoryError
from headrace.sdk import SinkError

if TYPE_CHECKING:
    from headrace.sdk import RetriableError
    from headrace.worker.loop import BatchLoop

log = structlog.get_logger(__name__)

_PART = 4
"""A batch that was too large is planned anew with this part of its rows."""
_GOOD = 10
"""After so many batches in a row as many rows as those that were too many are tried."""
_TRIES = 5
"""How often in a row a batch is tried that can get no smaller."""


@dataclass
class Pieces:
    """How many rows the batches of one task may have, beside what its configuration says.

    It outlives the loop, which is made anew when Spark is.
    """

    _configured: int | None = None
    _rows: int | None = None
    _too_many: int = 0
    _good: int = 0
    _failures: int = 0

    def begin(self, loop: BatchLoop) -> None:
        """Bound the batches of a loop that begins."""
        self._configured = loop.limit.rows
        self._bound(loop)

    def failed(self, loop: BatchLoop, error: RetriableError) -> None:
        """Let less be planned than the batch that has failed, if none of it can be written.

        Raises SinkError when a batch that cannot get smaller has failed too often.
        """
        had = loop.withdraw()
        if had is not None:
            self._rows, self._too_many = max(1, had // _PART), had
            self._good = self._failures = 0
            log.warning("batch is planned anew with fewer rows", rows=self._rows)
            self._bound(loop)
            return
        self._failures += 1
        if isinstance(error, SparkMemoryError) and self._failures >= _TRIES:
            self._failures = 0
            raise SinkError(error.problem, fix=error.fix) from error

    def finished(self, loop: BatchLoop) -> None:
        """Let more rows through again: twice as many, and in the end as many as before."""
        self._failures = 0
        if self._rows is None:
            return
        self._good += 1
        if self._rows >= self._too_many:
            # They were not too many: Java has died of something else. What has gathered
            # meanwhile may come at once.
            self._rows = None
        elif 2 * self._rows < self._too_many or self._good >= _GOOD:
            self._rows = min(2 * self._rows, self._too_many)
        self._bound(loop)

    def _bound(self, loop: BatchLoop) -> None:
        rows = self._configured if self._rows is None else self._rows
        loop.limit = replace(loop.limit, rows=rows)
