"""The process that reads a log, and its control by the process of the task.

``python -m headrace_plugins.changes.process`` reads the log. It receives pickled orders on its
standard input, and writes pickled messages to its standard output: an ``Entry`` for each piece,
None once connected and then each second as a heartbeat, and finally the error. It ends when its
parent ends.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headrace.sdk import HeadraceError, RetriableError, SourceError
from headrace_plugins.changes.spool import Entry, SpooledRun, SpoolFolder, SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace_plugins.changes.log import LogReader, Offset

_STOP_SECONDS = 5
_SILENT_SECONDS = 60
"""The timeout without progress toward a place that was reached before."""
_STILL_SECONDS, _START_SECONDS = 60, 300
"""The timeouts without a message of the process, which sends a heartbeat each second once
connected."""
_TRACE_BYTES = 1 << 20
"""The size of the trace file that triggers its rotation."""


class LogProcess:
    """Reads a log ahead of the batches, in a separate process.

    Not thread-safe, except for ``read_ahead``.

    Args:
        make: Creates the reader; pickled.
        order: Returns the sort key of a place in the log.
        folder: The folder of the spool files, and of ``reader.log`` with the stack traces.
        most_bytes: The maximum size of unconfirmed data in the folder.
    """

    def __init__(
        self,
        make: Callable[[], LogReader],
        order: Callable[[Offset], tuple[int, ...]],
        folder: Path,
        most_bytes: int,
    ) -> None:
        self._make, self._order = make, order
        self._parent, self._most_bytes = folder, most_bytes
        self._folder: SpoolFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._base: Offset = {}
        self._cut: Offset | None = None
        self._confirmed: Offset | None = None
        self._used_bytes, self._used_file = 0, ""
        self._size = 0
        self._changed = threading.Condition()
        # Changed by the thread that receives the process's messages.
        self._entries: deque[Entry] = deque()
        self._starts: deque[Offset] = deque()
        self._place: Offset = {}
        self._ready = False
        self._heard = 0.0
        self._error: Exception | None = None

    def follow(self, after: Offset, cut: Offset | None = None) -> None:
        """Read the log after a place, unless the process already does so.

        Args:
            after: The start of the next batch.
            cut: The end of a batch that was planned before; None for none.
        """
        goes_on = self._process is not None and self._order(after) == self._order(self._base)
        if goes_on and (cut is None or self._ends_at(cut)):
            return
        self.stop()
        self._start(after, cut)

    def _ends_at(self, cut: Offset) -> bool:
        """Return whether it is certain that no entry spans a place."""
        at = self._order(cut)
        if self._cut is not None and self._order(self._cut) == at:
            return True
        with self._changed:
            spans = zip(self._starts, self._entries, strict=True)
            is_within = any(
                self._order(start) < at < self._order(entry.end) for start, entry in spans
            )
            return at <= self._order(self._place) and not is_within

    def _start(self, after: Offset, cut: Offset | None) -> None:
        self._folder = SpoolFolder(self._parent)
        self._base, self._place, self._cut = after, after, cut
        self._used_bytes, self._used_file = 0, ""
        self._error, self._ready, self._size = None, False, 0
        self._heard = time.monotonic()
        self._entries.clear()
        self._starts.clear()
        path = self._parent / "reader.log"
        if path.exists() and path.stat().st_size > _TRACE_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as trace:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace_plugins.changes.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=trace,
            )
        self._process = process
        self._send(
            Order(self._make, after, cut, str(self._folder.path), self._most_bytes, self._order)
        )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        self.confirm(self._confirmed)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        error: Exception = RetriableError("The log reader process has ended.")
        while True:
            try:
                message = receive(process.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                message = error
            with self._changed:
                if process is not self._process:
                    return
                self._take(message)
                self._changed.notify_all()
                if self._error is not None:
                    return

    def _take(self, message: object) -> None:
        self._heard = time.monotonic()
        if isinstance(message, Exception):
            self._error = message
        elif isinstance(message, Entry):
            if message.runs:
                self._entries.append(message)
                self._starts.append(self._place)
            self._place = message.end
        else:
            self._ready = True

    def stop(self) -> None:
        """End the process. ``follow`` may be called again."""
        with self._changed:
            process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(0 if self._is_still() else _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if self._folder is not None:
            self._folder.remove()

    def _is_still(self) -> bool:
        """Return whether the process has sent no message for too long."""
        seconds = _STILL_SECONDS if self._ready else _START_SECONDS
        return time.monotonic() > self._heard + seconds

    def _send(self, message: object) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(OSError):  # the receiving thread detects the end
            send(process.stdin, message)

    def raise_error(self) -> None:
        """Raise the error of an ended process. The next ``follow`` starts another process."""
        with self._changed:
            error = self._error
            if error is None and self._process is not None and self._is_still():
                error = RetriableError(
                    problem="The log reader process does not respond.",
                    fix="No action needed: it is restarted.",
                )
        if error is None:
            return
        self.stop()
        if isinstance(error, HeadraceError):
            raise error
        raise SourceError(str(error))

    @property
    def is_ready(self) -> bool:
        """Whether the process is connected to the log."""
        with self._changed:
            return self._ready

    @property
    def place(self) -> Offset:
        """The place up to which all changes are in ``entries``."""
        with self._changed:
            return self._place

    def read_ahead(self) -> tuple[list[Entry], Offset]:
        """Return the unconfirmed entries and the reached place. Thread-safe."""
        with self._changed:
            return list(self._entries), self._place

    def entries(self) -> list[Entry]:
        """Return the unconfirmed entries. Raises the error of an ended process."""
        self.raise_error()
        with self._changed:
            return list(self._entries)

    def wait(self, seconds: float) -> None:
        """Wait for a message, at most ``seconds``."""
        with self._changed:
            self._changed.wait(seconds)

    def reached(self, place: Offset) -> list[Entry]:
        """Return the entries up to a place; wait until all of them are read.

        Raises RetriableError if there is no progress toward the place.
        """
        self._read_on(place, lambda: False)
        return [e for e in self.entries() if self._order(e.end) <= self._order(place)]

    def has_changes(self, place: Offset, stopping: Callable[[], bool]) -> bool:
        """Return whether there are changes up to a place, as soon as that is certain.

        This can take long in a long transaction. Raises as ``reached`` does.
        """
        self._read_on(place, lambda: stopping() or bool(self.entries()))
        return bool(self.entries())

    def _read_on(self, place: Offset, is_enough: Callable[[], bool]) -> None:
        """Wait until the log is read up to a place, or ``is_enough`` returns true."""
        began, last = time.monotonic(), self._order(self.place)
        while self._order(self.place) < self._order(place) and not is_enough():
            self.raise_error()
            now = self._order(self.place), len(self._entries)
            self.wait(1)
            if now != (self._order(self.place), len(self._entries)) or self._is_writing():
                began = time.monotonic()
            if time.monotonic() > began + _SILENT_SECONDS:
                raise RetriableError(
                    problem=f"The log reader does not reach {dict(place)}; it stays at "
                    f"{dict(self.place)}, after {last}."
                )

    def _is_writing(self) -> bool:
        """Return whether files have grown: a long transaction is only reported at its end."""
        size = sum(file.stat().st_size for file in self._files())
        known, self._size = self._size, size
        return size != known

    def _files(self) -> Iterable[Path]:
        return () if self._folder is None else self._folder.path.glob("*.arrow")

    def confirm(self, place: Offset | None) -> None:
        """Release everything up to a place, which is durable in the targets."""
        if place is None:
            return
        self._confirmed = place
        if self._process is None:
            return
        with self._changed:
            at = self._order(place)
            while self._entries and self._order(self._entries[0].end) <= at:
                entry = self._entries.popleft()
                self._starts.popleft()
                self._used_bytes += entry.size_bytes
                self._used_file = entry.runs[-1].file
            if at >= self._order(self._base):
                self._base = place
            first = min([self._used_file, *(r.file for e in self._entries for r in e.runs)])
        self._send(Confirmed(place, self._used_bytes))
        # File names increase with the log. Files after the last used one may belong to an
        # unfinished transaction, which is reported at its end.
        for file in self._files():
            if str(file) < first:
                file.unlink(missing_ok=True)


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
