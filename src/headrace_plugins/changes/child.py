"""The process that reads a log: ``python -m headrace_plugins.changes.child``.

Pickled messages on its standard input say what to read, and those on its standard output what
was read: an ``Entry`` for each piece, None once it is connected and each second after that, and
at the end the error. It ends when its parent does.
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
"""How often it tells that it goes on."""
_WAIT_SECONDS = 0.2
"""How long one look at the log waits."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to read.

    Args:
        make: Makes the reader.
        after: The place to begin behind.
        cut: A place where an entry has to end; None for none.
        folder: Where the files go.
        most_bytes: How much may lie there that is not confirmed; a transaction may be more, and
            what a batch has that was planned before.
        order: Makes of a place what grows with the log.
    """

    make: Callable[[], LogReader]
    after: Offset
    cut: Offset | None
    folder: str
    most_bytes: int
    order: Callable[[Offset], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Everything up to a place is durable, which are so many bytes of files in all so far."""

    place: Offset
    size_bytes: int


def send(pipe: IO[bytes], message: object) -> None:
    """Send a message."""
    pipe.write(pickle.dumps(message))
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Return the next message of the process at the other end. Raises EOFError."""
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
        """Read until the parent has gone, or the log cannot be read."""
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
            send(self._to, SourceError(what, fix="Its whole trace is in the log."))
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
        """Read a piece, with all of its last transaction, and report it."""
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
    """Do what the first message says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    orders, to = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write between the messages
    child = _Child(receive(orders), to)

    def listen() -> None:
        try:
            while True:
                child.confirmed.put(receive(orders))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)  # the parent has gone, or wants it to end

    threading.Thread(target=listen, daemon=True).start()
    child.run()


if __name__ == "__main__":
    main()
