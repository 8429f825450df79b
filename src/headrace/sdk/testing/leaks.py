"""What a process holds: threads, files, connections and children."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from headrace.sdk.sources import SourceConnector
from headrace.sdk.testing.promise import BrokenPromiseError

if TYPE_CHECKING:
    from collections.abc import Callable

_CYCLES = 4
"""A leak grows with each start and stop; what a library keeps for good does not. So that
many more threads, files or children after as many cycles are a leak, and fewer are not."""
_SETTLE_SECONDS = 5.0
"""How long what was let go of may take to be gone: closing is not always at once."""


@dataclass(frozen=True)
class _Held:
    threads: frozenset[threading.Thread]
    files: int
    children: frozenset[int]

    @classmethod
    def now(cls) -> _Held:
        gc.collect()
        process = psutil.Process()
        children = frozenset(child.pid for child in process.children())
        # Connections have a file descriptor each.
        return cls(frozenset(threading.enumerate()), process.num_fds(), children)

    def more_than(self, before: _Held) -> str:
        """Say what is held beyond ``before``, or nothing."""
        threads = sorted(thread.name for thread in self.threads - before.threads)
        children = self.children - before.children
        files = self.files - before.files
        found = []
        if len(threads) >= _CYCLES:
            found.append(f"{len(threads)} threads ({', '.join(threads[:3])}, ...)")
        if files >= _CYCLES:
            found.append(f"{files} open files or connections")
        if len(children) >= _CYCLES:
            found.append(f"{len(children)} child processes")
        return " and ".join(found)


def check_leaks(cycle: Callable[[], None]) -> None:
    """Check that what ``cycle`` starts is gone once it has stopped.

    Run once before counting, as libraries keep pools and caches from their first use.
    """
    cycle()
    before = _Held.now()
    for _ in range(_CYCLES):
        cycle()
    deadline = time.monotonic() + _SETTLE_SECONDS
    while more := _Held.now().more_than(before):
        if time.monotonic() > deadline:
            raise BrokenPromiseError(
                promise="After stop nothing is left of a connector and its tasks.",
                seen=f"{_CYCLES} starts and stops left {more}.",
                read=SourceConnector.stop,
            )
        time.sleep(0.1)
