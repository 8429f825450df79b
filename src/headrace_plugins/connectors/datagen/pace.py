"""How fast rows may flow, and how they are divided among tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_ROWS = 10_000
"""Tasks take turns at blocks of so many rows."""


class Rate:
    """Lets at most so many rows a second through, counted from its first use.

    What was not used is kept for later, but never more than one second's worth, so that
    a generator that fell behind does not flood what follows it.
    """

    def __init__(self, rows_per_second: float, clock: Callable[[], float]) -> None:
        """Use ``clock``, which gives seconds and never goes back; a rate of 0 is no limit."""
        self._rate = rows_per_second
        self._clock = clock
        self._asked: float | None = None
        self._saved = 0.0
        self._granted = 0

    def grant(self, row: int, wanted: int) -> int:
        """Return how many of the ``wanted`` rows that follow ``row`` may be read now.

        Rows that were granted before and not read are taken back: asking twice for the
        same rows uses the budget once.
        """
        if self._rate <= 0:
            return wanted
        now = self._clock()
        since = 0.0 if self._asked is None else now - self._asked
        unread = max(self._granted - row, 0) if self._asked is not None else 0
        budget = min(self._saved, self._rate) + unread + since * self._rate
        granted = min(wanted, math.floor(budget))
        self._asked, self._saved, self._granted = now, budget - granted, row + granted
        return granted


@dataclass(frozen=True, slots=True)
class Lane:
    """The rows of one task of several: every ``of``-th block, from block ``part`` on.

    Args:
        part: The task's number, from 0.
        of: How many tasks there are.
    """

    part: int = 0
    of: int = 1

    def length(self, rows: int) -> int:
        """Return how many of the first ``rows`` rows are this task's."""
        rounds, rest = divmod(rows, BLOCK_ROWS * self.of)
        return rounds * BLOCK_ROWS + min(max(rest - self.part * BLOCK_ROWS, 0), BLOCK_ROWS)

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the row numbers, as half-open ranges, of this task's rows start to end."""
        if self.of == 1:
            if start < end:
                yield start, end
            return
        while start < end:
            block, offset = divmod(start, BLOCK_ROWS)
            size = min(BLOCK_ROWS - offset, end - start)
            first = (block * self.of + self.part) * BLOCK_ROWS + offset
            yield first, first + size
            start += size

    def sql(self, column: str) -> str:
        """Return the SQL of the row number of this task's ``column``-th row."""
        if self.of == 1:
            return column
        block = f"({column} DIV {BLOCK_ROWS}L * {self.of}L + {self.part}L)"
        return f"{block} * {BLOCK_ROWS}L + {column} % {BLOCK_ROWS}L"
