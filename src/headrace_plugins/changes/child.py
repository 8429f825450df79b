"""The process that reads a log: ``python -m headrace_plugins.changes.child``.

It receives pickled orders on its standard input, and writes pickled messages to its standard
output: an ``Entry`` for each piece, None once connected and then each second as a heartbeat,
and finally the error. It ends when its parent ends.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headrace.sdk import HeadraceError, SourceError
from headrace_plugins.changes.spool import Entry, SpooledRun, SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_plugins.changes.log import LogReader, Offset

BEAT_SECONDS = 1.0
"""The interval of heartbeats."""
_WAIT_SECONDS = 0.2
"""The timeout of one read of the log."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of what a process must read.

    Args:
        make: Creates the reader.
        after: The place to start after.
        cut: A place where an entry must end; None for none.
        folder: The folder of the spool files.
        most_bytes: The maximum size of unconfirmed data in the folder. A transaction may be
            larger, and so may a batch that was planned before.
        order: Returns the sort key of a place in the log.
    """

    make: Callable[[], LogReader]
    after: Offset
    cut: Offset | None
    folder: str
    most_bytes: int
    order: Callable[[Offset], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Confirms that everything up to a place is durable: ``size_bytes`` of files in total."""

    place: Offset
    size_bytes: int


def send(pipe: IO[bytes], message: object) -> None:
    """Send a message."""
    pipe.write(pickle.dumps(message))
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Return the next message from a pipe. Raises EOFError at its end."""
    return pickle.load(pipe)  # noqa: S301 - our own process at the other end of a pipe


class _Child:
    def __init__(self, order: Order, to: IO[bytes]) -> None:
        self._order = order
        self._to = to
        self._reader = order.make()
        self._spool = SpoolWriter(Path(order.folder))
        self._written = self._used = 0
        self._beat = -float("inf")
        self._is_before_cut = order.cut is not None
        self.confirmed: queue.SimpleQueue[Confirmed] = queue.SimpleQueue()

    def run(self) -> None:
        """Read until the parent ends, or the log cannot be read."""
        try:
            self._reader.start(self._order.after, self._order.cut)
            while True:
                self._confirm()
                self._step()
        except BrokenPipeError:
            return
        except HeadraceError as error:
            send(self._to, error)
        except Exception as error:
            what = f"Reading the log failed: {type(error).__name__}: {error}"
            send(self._to, SourceError(what, fix="The full stack trace is in the log."))
            raise
        finally:
            self._reader.stop()

    def _confirm(self) -> None:
        if time.monotonic() > self._beat + BEAT_SECONDS:
            self._beat = time.monotonic()
            send(self._to, None)
        found = None
        while not self.confirmed.empty():
            found = self.confirmed.get()
        if found is not None:
            self._used = found.size_bytes
            self._reader.confirm(found.place)

    def _step(self) -> None:
        """Read a piece up to the end of its last transaction, and report it."""
        if self._written - self._used > self._order.most_bytes and not self._is_before_cut:
            self._reader.idle()
            time.sleep(_WAIT_SECONDS / 4)
            return
        runs, piece = list[SpooledRun](), self._reader.read(_WAIT_SECONDS)
        if piece is None:
            return
        while True:
            if piece is not None:
                for run in piece.runs:
                    runs.append(self._spool.write(run))
                    self._written += runs[-1].size_bytes
                if piece.end is not None:
                    cut, order = self._order.cut, self._order.order
                    self._is_before_cut = cut is not None and order(piece.end) < order(cut)
                    send(self._to, Entry(runs, piece.end, piece.ts_us))
                    return
            self._confirm()
            piece = self._reader.read(_WAIT_SECONDS)


def main() -> None:
    """Execute the order in the first message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    orders, to = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # keep other output out of the messages
    child = _Child(receive(orders), to)

    def listen() -> None:
        try:
            while True:
                child.confirmed.put(receive(orders))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)  # the parent has ended, or has closed the pipe to end this process

    threading.Thread(target=listen, daemon=True).start()
    child.run()


if __name__ == "__main__":
    main()
