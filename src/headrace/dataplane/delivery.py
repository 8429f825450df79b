"""One sink's part of a batch: what is good is written, what is not is dead-lettered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headrace.dataplane.deadletters import RejectedFrame, Whose
from headrace.dataplane.failures import REJECTED
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.refusing import record_id, refused_of, refusing, with_refused
from headrace.dataplane.rejects import Rejects
from headrace.dataplane.sink_receipts import held_receipt
from headrace.dataplane.sinkfront import sink_title
from headrace.dataplane.tally import Tally
from headrace.model import Counts
from headrace.sdk import SourceError, StateError
from headrace.sdk.refusal import RECORD_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.deadletters import DeadLetters, Letters
    from headrace.model import Batch
    from headrace.sdk import FrameSink, Mark, Refusal, SinkBatch, StagedWrite

__all__ = ["Delivery", "Prepared", "Rejected", "check_balance"]

Rejected: TypeAlias = Callable[[Callable[[RecordFrame], RecordFrame]], RejectedFrame]
"""Gives the rejected records as they came, and asks which those of a sink are."""


@dataclass(frozen=True)
class Prepared:
    """One sink's part of a batch, staged: nothing of it is visible before ``commit``.

    Args:
        staged: The good records; None where there is nothing to commit.
        counts: What becomes of all of them.
        letters: The rejected ones.
        rejects: Where these go.
        committed: Called once all of it is durable.
    """

    staged: StagedWrite | None
    counts: Counts
    letters: Letters
    rejects: Rejects
    committed: Callable[[], None] = lambda: None

    def commit(self) -> Counts:
        """Make it visible; return the counts when both parts are durable."""
        if self.staged is not None:
            # Guarantee 2: the sink keeps the mark, with the counts as its receipt, in the
            # transaction that makes the data visible.
            self.staged.commit(self.rejects.receipt(self.counts, self.letters))
        # Without a sink's transaction the letters' own mark says whether they are there.
        self.rejects.append(self.letters)
        self.committed()
        return self.counts

    def then(self, committed: Callable[[], None]) -> Prepared:
        """Return the same part, which calls ``committed`` once all of it is durable."""
        return replace(self, committed=committed)

    def abort(self) -> None:
        """Remove what is staged."""
        if self.staged is not None:
            self.staged.abort()
        self.rejects.discard()


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
    otherwise: list[str] = field(default_factory=list)
    """Sinks that hold the batch as another chain made it."""

    def held(self, topic: str) -> Counts | None:
        """Return the counts of the batch if the sink holds it already."""
        receipt = held_receipt(self.sink, self.rejects.mark, topic, self.batch)
        if receipt is None:
            return None
        read = Counts.from_receipt(receipt).read
        if receipt and self.known is not None and read != self.known:
            mark = self.rejects.mark
            raise StateError(
                problem=f"The target holds batch {mark.batch} of {mark.application} with "
                f"{read} records, and there are {self.known} of them now: what decides "
                "which go together was changed while the batch was unfinished.",
                fix="Set the policy for changes of schemas back to what it was until the "
                "batch is finished.",
            )
        if self.rejects.is_of_other_chain(receipt):
            self.otherwise.append(sink_title(self.sink))
        return self.rejects.settled(receipt)

    def stage(self, fitted: RecordFrame, to: SinkBatch, rejected: Rejected) -> Prepared:
        """Stage the good records, and what is to be told of the others.

        Args:
            fitted: The records.
            to: Their batch.
            rejected: Gives the rejected records as they came; it is given what rejects those
                that only the sink does.
        """
        sink, title = self.sink, sink_title(self.sink)
        refusals = self._refusals(fitted, to)
        taken = refusing(fitted, refusals, title)
        shape = taken.shape
        tally = Tally.of(
            shape, known=self.known, counting=sink.counting, tolerant=self.tolerant
        )
        staged = sink.write(self._good(taken, tally), replace(to, rows=tally.expected))
        try:
            refused = refused_of(staged)
            counts = tally.counts(
                staged.rows, taken.frame, shape, self.aliases, refused=len(refused)
            )
            check_balance(counts, self.batch)
        except BaseException:
            staged.abort()
            raise

        def judged(records: RecordFrame) -> RecordFrame:
            return with_refused(refusing(records, refusals, title), refused, title)

        return self._prepared(staged, counts, partial(rejected, judged))

    def leave(
        self,
        spark: SparkSession,
        counts: Counts,
        topic: str,
        rejected: Rejected,
    ) -> Prepared:
        """Pass a batch of which no record is good: the sink gets its mark at most."""
        check_balance(counts, self.batch)
        staged = self.sink.write_mark(spark, self.rejects.mark, topic)
        return self._prepared(staged, counts, partial(rejected, lambda records: records))

    def _refusals(self, records: RecordFrame, to: SinkBatch) -> Sequence[Refusal]:
        if not self.tolerant:
            return ()
        return self.sink.refusals(records.frame.selectExpr(*records.columns()), to)

    def _prepared(
        self, staged: StagedWrite | None, counts: Counts, rejected: Callable[[], RejectedFrame]
    ) -> Prepared:
        try:
            letters = self.rejects.stage(counts, rejected, self.batch)
        except BaseException:
            if staged is not None:
                staged.abort()
            self.rejects.discard()
            raise
        return Prepared(staged, self._as_told(counts, letters), letters, self.rejects)

    def _as_told(self, counts: Counts, letters: Letters) -> Counts:
        """Return the counts with the causes that the letters have.

        Letters that are there already are those of an attempt whose records were all
        delivered, to a sink without marks: what it refused is what holds.
        """
        rejected = sum(letters.causes.values())
        written = counts.written + counts.rejected - rejected
        return replace(counts, causes=letters.causes, rejected=rejected, written=written)

    def _good(self, records: RecordFrame, tally: Tally) -> DataFrame:
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
        if self.aliases and shape.value.is_struct:
            frame = _kept_flat(frame)
        given = records
        if self.sink.ordered and records.position is None:
            given = replace(records, position="array(monotonically_increasing_id())")
        frame = frame.selectExpr(*given.columns())
        if self.tolerant and self.sink.verifies:
            frame = frame.selectExpr("*", f"{record_id(records)} AS {RECORD_ID}")
        return frame

    def _tolerated(self, error: str) -> str:
        if self.tolerant:
            return f"{error} IS NULL"
        # Failing the job itself leaves nothing of the batch written, in any sink.
        failure = f"raise_error(concat('{REJECTED}', to_json({error})))"
        return f"IF({error} IS NULL, true, CAST({failure} AS BOOLEAN))"


def _kept_flat(frame: DataFrame) -> DataFrame:
    """Keep Spark from moving what was computed into the struct that sinks get.

    A sink that takes the struct apart would else have it made for each record.
    """
    numbered = frame.selectExpr("*", "monotonically_increasing_id() AS __row")
    return numbered.where("__row >= 0")


def held_by_all(
    sinks: Sequence[tuple[int, FrameSink, Mark]],
    batch: Batch,
    dead_letters: DeadLetters | None,
    writer: str,
    topic: str,
) -> Counts | None:
    """Return the counts of a batch that all sinks hold; None if any may not, or none has.

    Such a batch need not be read again.
    """
    if not batch.again:
        return None
    each: list[Counts] = []
    for number, sink, mark in sinks:
        receipt = held_receipt(sink, mark, topic, batch)
        if receipt is None:
            return None
        each.append(
            Rejects(dead_letters, mark, writer, Whose(number, first=not each)).settled(receipt)
        )
    return Counts.of_sinks(each)


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
