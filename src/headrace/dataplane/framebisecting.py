"""Frame sinks that tell only by an error that their target refuses records."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.dataplane.bisecting import PartBisection
from headrace.dataplane.sinkfront import SinkFront
from headrace.sdk import RejectedError, SinkError
from headrace.sdk.sink import RECORD_ID, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import FrameSink, Mark, Refusal, Schema, SinkBatch, StagedWrite

__all__ = ["FrameGear"]

_NUMBER = "__headrace_number"
_PARTITION_BITS = 33
"""The lower bits of monotonically_increasing_id count the rows of a partition."""


class FrameGear(SinkFront):
    """A frame sink with ``rejects``, as one that verifies."""

    def __init__(self, sink: FrameSink) -> None:
        """Stand before ``sink``."""
        super().__init__(sink)
        self.verifies = True  # type: ignore[misc]
        self._sink = sink

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return self._sink.committed(mark, topic)

    @override
    def known_schema(self, topic: str) -> Schema | None:
        return self._sink.known_schema(topic)

    @override
    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        return self._sink.refusals(frame, batch)

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        return self._sink.write_mark(spark, mark, topic)

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        if RECORD_ID not in frame.columns:  # nothing is tolerated
            return self._sink.write(frame, batch)
        # Kept, as each attempt would compute the records anew, and count them again.
        kept = frame.selectExpr("*", f"monotonically_increasing_id() AS {_NUMBER}").persist()
        try:
            rows = _FrameRows.of(kept)
            attempts = _Attempts(self._sink, batch)
            bisection = PartBisection(self._sink, rows, attempts.write)
            try:
                staged = bisection.run()
            except BaseException:
                attempts.abort()
                raise
            return _Staged(staged, rows.refused(bisection.refused))
        finally:
            kept.unpersist()


class _Attempts:
    """Writes parts of a batch, of which only the last one is to stay."""

    def __init__(self, sink: FrameSink, batch: SinkBatch) -> None:
        self._sink, self._batch = sink, batch
        self._last: StagedWrite | None = None

    def write(self, frame: DataFrame) -> StagedWrite:
        self.abort()
        try:
            self._last = self._sink.write(frame, self._batch)
        except RejectedError as error:
            problem = "A frame sink has named the rows that it refuses by their numbers."
            fix = "Rows of a frame have none: raise an error that is in `rejects`."
            raise SinkError(problem, fix=fix) from error
        return self._last

    def abort(self) -> None:
        if self._last is not None:
            self._last.abort()
        self._last = None


@dataclass(frozen=True)
class _FrameRows:
    """The rows of a frame that is kept, numbered from 0."""

    frame: DataFrame
    partitions: Sequence[int]
    ends: Sequence[int]
    """For each of ``partitions``, how many rows there are up to its end."""

    @classmethod
    def of(cls, frame: DataFrame) -> _FrameRows:
        """Compute the frame, and count its rows."""
        number = f"shiftright({_NUMBER}, {_PARTITION_BITS}) AS p"
        rows = sorted(
            tuple(row) for row in frame.selectExpr(number).groupBy("p").count().collect()
        )
        return cls(frame, [p for p, _ in rows], list(accumulate(n for _, n in rows)))

    def first(self) -> DataFrame:
        return self._given("true")

    def finish(self) -> int:
        return self.ends[-1] if self.ends else 0

    def rows(self, start: int, end: int, without: Mapping[int, object]) -> DataFrame:
        if start >= end:
            return self._given("false")
        holes = [str(self._number(n)) for n in without if start <= n < end]
        rest = f" AND {_NUMBER} NOT IN ({', '.join(holes)})" if holes else ""
        low, high = self._number(start), self._number(end - 1)
        return self._given(f"{_NUMBER} BETWEEN {low} AND {high}{rest}")

    def refused(self, errors: Mapping[int, Exception]) -> list[Refused]:
        """Return the rows that are refused by the ids of their records."""
        if not errors:
            return []
        by_number = {self._number(n): error for n, error in errors.items()}
        which = f"{_NUMBER} IN ({', '.join(map(str, by_number))})"
        found = self.frame.where(which).select(_NUMBER, RECORD_ID).collect()
        return [Refused.by(record, by_number[number]) for number, record in found]

    def _given(self, condition: str) -> DataFrame:
        return self.frame.where(condition).drop(_NUMBER, RECORD_ID)

    def _number(self, row: int) -> int:
        place = bisect_right(self.ends, row)
        before = self.ends[place - 1] if place else 0
        return (self.partitions[place] << _PARTITION_BITS) + row - before


@dataclass(frozen=True)
class _Staged:
    """What is staged without the records that were refused."""

    write: StagedWrite
    found: Sequence[Refused]

    @property
    def rows(self) -> int:
        return self.write.rows

    def refused(self) -> Sequence[Refused]:
        return self.found

    def commit(self, receipt: str) -> None:
        self.write.commit(receipt)

    def abort(self) -> None:
        self.write.abort()
