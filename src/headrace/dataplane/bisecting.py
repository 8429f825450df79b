"""Finds the records that a target refuses, where a sink cannot tell.

What is given again is what the sink's gear allows: records that were put may arrive twice, as
a record sink says of itself, and a part whose write has failed was never there.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from headrace.sdk import RejectedError, RetriableError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.sdk import Record, RecordSink, SinkTask

__all__ = ["KeptRows", "PartBisection", "Spool", "put_records"]


def put_records(sink: RecordSink, records: Sequence[Record]) -> dict[int, Exception]:
    """Put records, and return what the target says of those that it refuses, by number.

    All others are durable. Any other error of the sink is raised.
    """
    try:
        sink.put(records)
        sink.flush()
    except Exception as error:
        if not _is_refusal(sink, error):
            raise
        if isinstance(error, RejectedError):
            sink.flush()
            return _checked(error, len(records))
        if len(records) == 1:
            return {0: error}
    else:
        return {}
    half = len(records) // 2
    found = put_records(sink, records[:half])
    return found | {half + n: e for n, e in put_records(sink, records[half:]).items()}


class Spool:
    """The rows of a Spark partition, which Spark gives once, to be given again.

    They are kept in a file of the executor's, for as long as the context lasts.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Keep ``batches``, which have ``schema``."""
        self._batches = batches
        self._schema = schema
        self._lengths: list[int] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Make the file."""
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory("-headrace")))
        self._path = folder / "rows.arrow"
        self._writer = self._open.enter_context(pa.ipc.new_file(self._path, self._schema))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self._open.close()

    def first(self) -> Iterator[pa.RecordBatch]:
        """Give the rows as they come."""
        for batch in self._batches:
            self._writer.write_batch(batch)
            self._lengths.append(batch.num_rows)
            yield batch

    def finish(self) -> int:
        """Keep what ``first`` has not come to; return how many rows there are."""
        for _ in self.first():
            pass
        self._writer.close()
        return sum(self._lengths)

    def rows(
        self, start: int, end: int, without: Mapping[int, object]
    ) -> Iterator[pa.RecordBatch]:
        """Give rows again, without some."""
        holes = sorted(n for n in without if start <= n < end)
        with pa.memory_map(str(self._path)) as file, pa.ipc.open_file(file) as reader:
            at = 0
            for number, length in enumerate(self._lengths):
                low, high = max(start, at), min(end, at + length)
                if low < high:
                    batch = reader.get_batch(number)
                    cuts = [low - 1, *(n for n in holes if low <= n < high), high]
                    for before, after in pairwise(cuts):
                        if after - before > 1:
                            yield batch.slice(before + 1 - at, after - before - 1)
                at += length


_Rows = TypeVar("_Rows")
_Rows_co = TypeVar("_Rows_co", covariant=True)
_Done = TypeVar("_Done")


class KeptRows(Protocol[_Rows_co]):
    """Rows that can be given again, numbered from 0."""

    def first(self) -> _Rows_co:
        """Give all of them; called first."""

    def finish(self) -> int:
        """Return how many there are; called next."""

    def rows(self, start: int, end: int, without: Mapping[int, object]) -> _Rows_co:
        """Give those from ``start`` to before ``end`` again, without some."""


class PartBisection(Generic[_Rows, _Done]):
    """Writes one part without the rows that the target refuses.

    Every attempt is a part of its own, and only the last one counts: the sink's transaction
    never learns of the others.
    """

    def __init__(
        self,
        sink: SinkTask,
        spool: KeptRows[_Rows],
        write: Callable[[_Rows], _Done],
    ) -> None:
        """Write by calling ``write`` with the rows of an attempt; it returns its message."""
        self._sink, self._spool, self._write = sink, spool, write
        self.refused: dict[int, Exception] = {}

    def run(self) -> _Done:
        """Return the message of the part; then ``refused`` has what it is without."""
        done = self._attempt(self._spool.first())
        rows = self._spool.finish()
        while isinstance(done, Exception):
            if len(self.refused) == rows:
                raise done  # not even a part without rows is taken
            known = len(self.refused)
            self._halve(0, rows, done)
            if len(self.refused) == known:
                # Each half by itself is good: they refuse each other, as equal keys do.
                last = self._first_refused(rows)
                self.refused[last] = done
            done = self._part(0, rows)
        return done

    def _attempt(self, rows: _Rows) -> _Done | Exception:
        try:
            return self._write(rows)
        except Exception as error:
            if _is_refusal(self._sink, error):
                return error
            raise

    def _part(self, start: int, end: int) -> _Done | Exception:
        return self._attempt(self._spool.rows(start, end, self.refused))

    def _halve(self, start: int, end: int, error: Exception) -> None:
        """Find refused rows in a range whose part was refused."""
        good = [n for n in range(start, end) if n not in self.refused]
        if isinstance(error, RejectedError):
            found = _checked(error, len(good))
            self.refused |= {good[n]: each for n, each in found.items()}
            return
        if len(good) == 1:
            self.refused[good[0]] = error
            return
        middle = good[len(good) // 2]
        for low, high in ((start, middle), (middle, end)):
            done = self._part(low, high)
            if isinstance(done, Exception):
                self._halve(low, high, done)

    def _first_refused(self, rows: int) -> int:
        """Return the first row that is refused after those before it."""
        low, high = 0, rows
        while high - low > 1:
            middle = (low + high) // 2
            if isinstance(self._part(0, middle), Exception):
                high = middle
            else:
                low = middle
        return high - 1


def _is_refusal(sink: SinkTask, error: Exception) -> bool:
    """Return whether an error is about records; an outage never is."""
    return not isinstance(error, RetriableError) and isinstance(
        error, (RejectedError, *sink.rejects)
    )


def _checked(error: RejectedError, count: int) -> dict[int, Exception]:
    if not error.rows or not all(0 <= row < count for row in error.rows):
        problem = f"A sink rejects the rows {sorted(error.rows)} of {count}."
        raise SinkError(
            problem,
            fix="RejectedError counts the records of the call, from 0.",
        ) from error
    return dict(error.rows)
