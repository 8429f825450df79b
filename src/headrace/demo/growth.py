"""Appends to a file line by line, and measures the latency of the lines."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import islice
from statistics import quantiles
from typing import TYPE_CHECKING

from headrace.demo.check import Arrival

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path

_TICK = 0.05


@dataclass
class Growth:
    """Appends the lines of one file to another at a constant rate, in a thread.

    The first line of ``source`` is the header, which ``lines`` does not count.
    """

    source: Path
    target: Path
    duration: timedelta
    lines: int
    appended: list[Arrival] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Write the header, so that the file exists before it is read."""
        with self.source.open("rb") as source:
            self.target.write_bytes(source.readline())

    def start(self) -> None:
        self._thread = threading.Thread(target=self._grow, name="demo-growth", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _grow(self) -> None:
        began = time.monotonic()
        rate = self.lines / self.duration.total_seconds()
        written = 0
        with self.source.open("rb") as source, self.target.open("ab") as target:
            next(source)
            while written < self.lines and not self._stop.wait(_TICK):
                due = min(self.lines, int((time.monotonic() - began) * rate))
                target.writelines(islice(source, due - written))
                target.flush()
                if due > written:
                    self.appended.append(Arrival(time.monotonic(), due))
                    written = due


@dataclass(frozen=True)
class Latency:
    """Seconds from a line's append to the commit in the table."""

    median: float
    p95: float
    longest: float


def latency(appended: Sequence[Arrival], arrived: Sequence[Arrival]) -> Latency | None:
    """Return the latency of lines; both lists count the same lines in the same order.

    Each append is one sample: the wait of its last line. None if nothing arrived.
    """
    rows = [arrival.rows for arrival in arrived]
    waits = [
        arrived[place].time - each.time
        for each in appended
        if (place := bisect_left(rows, each.rows)) < len(rows)
    ]
    if not waits:
        return None
    cuts = quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else waits * 19
    return Latency(median=cuts[9], p95=cuts[18], longest=max(waits))
