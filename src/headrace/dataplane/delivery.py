"""One sink's part of a batch: what is good is written, what is not is dead-lettered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.dataplane.failures import REJECTED
from headrace.dataplane.tally import Tally
from headrace.sdk import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.deadletters import RejectedFrame
    from headrace.dataplane.records import RecordFrame
    from headrace.dataplane.rejects import Rejects
    from headrace.model import Batch, Counts
    from headrace.sdk import FrameSink, SinkBatch, StagedWrite

__all__ = ["Delivery", "check_balance"]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One sink's part of a batch.

    Args:
        sink: Where the records go.
        rejects: What becomes of those that are rejected; it has the batch's mark.
        batch: The batch.
        known: How many records the source says there are; None when it does not know.
        aliases: Those of the chain's transforms, for the counts of what they filter.
        tolerant: Whether rejected records are dead-lettered; else the first ends the task.
    """

    sink: FrameSink
    rejects: Rejects
    batch: Batch
    known: int | None
    aliases: Sequence[str]
    tolerant: bool

    def held(self, topic: str) -> Counts | None:
        """Return the counts of the batch if the sink holds it already."""
        if not self.batch.again:
            return None
        receipt = self.sink.committed(self.rejects.mark, topic)
        return None if receipt is None else self.rejects.settled(receipt)

    def write(
        self, fitted: RecordFrame, to: SinkBatch, rejected: Callable[[], RejectedFrame]
    ) -> Counts:
        """Write the good records and dead-letter the others; return when both are durable."""
        sink, shape = self.sink, fitted.shape
        tally = Tally.of(
            shape, known=self.known, counting=sink.counting, tolerant=self.tolerant
        )
        staged = sink.write(self._good(fitted, tally, ordered=sink.ordered), to)
        try:
            counts = tally.counts(staged.rows, fitted.frame, shape, self.aliases)
            check_balance(counts, self.batch)
        except BaseException:
            staged.abort()
            raise
        return self._commit(staged, counts, rejected)

    def leave(
        self,
        spark: SparkSession,
        counts: Counts,
        topic: str,
        rejected: Callable[[], RejectedFrame],
    ) -> Counts:
        """Pass a batch of which no record is good: the sink gets its mark at most."""
        check_balance(counts, self.batch)
        staged = self.sink.write_mark(spark, self.rejects.mark, topic)
        return self._commit(staged, counts, rejected)

    def _commit(
        self, staged: StagedWrite | None, counts: Counts, rejected: Callable[[], RejectedFrame]
    ) -> Counts:
        try:
            letters = self.rejects.stage(counts, rejected, self.batch)
        except BaseException:
            if staged is not None:
                staged.abort()
            self.rejects.discard()
            raise
        counts = replace(counts, causes=letters.causes)
        if staged is not None:
            # Guarantee 2: the sink keeps the mark, with the counts as its receipt, in the
            # transaction that makes the data visible.
            staged.commit(self.rejects.receipt(counts, letters))
        # Without a sink's transaction the letters' own mark says whether they are there.
        self.rejects.append(letters)
        return counts

    def _good(self, records: RecordFrame, tally: Tally, *, ordered: bool) -> DataFrame:
        """Count everything that must be, and let only good records through."""
        if tally.seen is not None:
            # Spark copies each row to count it; flat rows are the cheapest to copy.
            records = records.named()
        shape = records.shape
        frame = tally.over(records.frame, shape, self.aliases)
        keep = [f"{shape.dropped} IS NULL"] if shape.dropped is not None else []
        if shape.error is not None:
            keep.append(self._tolerated(shape.error))
        if keep:
            frame = frame.where(" AND ".join(keep))
        if ordered and records.position is None:
            records = replace(records, position="array(monotonically_increasing_id())")
        return frame.selectExpr(*records.columns())

    def _tolerated(self, error: str) -> str:
        if self.tolerant:
            return f"{error} IS NULL"
        # Failing the job itself leaves nothing of the batch written, in any sink.
        failure = f"raise_error(concat('{REJECTED}', to_json({error})))"
        return f"IF({error} IS NULL, true, CAST({failure} AS BOOLEAN))"


def check_balance(counts: Counts, batch: Batch) -> None:
    """Raise unless every record is accounted for, before any of it becomes visible."""
    # Guarantee 4: every record read is written, filtered or rejected.
    if counts.balanced:
        return
    problem = (
        f"Batch {batch.id} of {batch.task} read {counts.read} records but wrote "
        f"{counts.written}, filtered {counts.filtered} and rejected {counts.rejected}."
    )
    raise SourceError(problem, fix="A plugin counts wrongly, or the data changed meanwhile.")
