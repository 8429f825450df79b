"""One sink's part of a batch: its mark, what is staged of it, its counts, its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.dead_letters import DeadLetterPart, RejectedFrame, StagedDeadLetters
from headrace.dataplane.failures import REJECTED
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.refusals import record_id
from headrace.dataplane.sinks import sink_title
from headrace.evolution import Target
from headrace.model import Batch, Counts
from headrace.sdk import FrameSink, Mark, RecordExpr, Schema, SourceError, StateError
from headrace.sdk.sink import (
    RECORD_ID,
    Counting,
    Refused,
    Selective,
    StagedWrite,
    Verified,
    WorkerCommit,
)
from headrace.sdk.sqltext import literal, quote, selected

_FILTER = "filter:"


@dataclass(frozen=True, kw_only=True)
class SinkPart:
    """One sink's part of a batch, before anything is staged.

    Args:
        sink: What takes the records: the target's sink, or what divides them by topic for it.
        mark: The batch's in the sink.
    """

    sink: FrameSink
    target: Target
    mark: Mark
    letters: DeadLetterPart

    @property
    def title(self) -> str:
        """Return what dead letters call the sink."""
        return sink_title(self.sink)

    def receipt(self, batch: Batch) -> str | None:
        """Return the receipt of a batch that the sink holds, None for one to be written."""
        return held_receipt(self.sink, self.mark, self.target.topic, batch)

    def held(self, receipt: str, rows: int | None) -> Counts:
        """Return the counts of a batch that the sink holds, of ``rows`` records if known."""
        read = Counts.from_receipt(receipt).read
        if receipt and rows is not None and read != rows:
            raise StateError(
                problem=f"The target holds batch {self.mark.batch} of {self.mark.application} "
                f"with {read} records, and there are {rows} of them now: what decides "
                "which go together was changed while the batch was unfinished.",
                fix="Set the policy for changes of schemas back to what it was until the "
                "batch is finished.",
            )
        return self.letters.settled(receipt)


@dataclass(frozen=True, kw_only=True)
class StagedRows:
    """What a sink has staged.

    Args:
        write: The good records; None where there is nothing to commit.
        counts: What becomes of all records.
        rejected: Reads those that are rejected, as they came.
        schema: The schema that the sink was given; None where no record is good, and for
            packed rows, which have many.
    """

    write: StagedWrite | None
    counts: Counts
    rejected: Callable[[], RejectedFrame]
    schema: Schema | None = None


@dataclass(frozen=True)
class StagedPart:
    """One sink's part of a batch, staged: nothing of it is visible before ``commit``.

    Args:
        counts: What becomes of all records, with the causes that the letters have.
    """

    part: SinkPart
    rows: StagedRows
    letters: StagedDeadLetters
    counts: Counts

    @classmethod
    def of(cls, part: SinkPart, rows: StagedRows, letters: StagedDeadLetters) -> StagedPart:
        """Count as the letters do.

        Letters that are there already are those of an attempt whose records were all
        delivered, to a sink without marks: what it refused is what holds.
        """
        before, rejected = rows.counts, sum(letters.causes.values())
        written = before.written + before.rejected - rejected
        counts = replace(before, causes=letters.causes, rejected=rejected, written=written)
        return cls(part, rows, letters, counts)

    def commit(self) -> None:
        """Make it visible; return when the records and the letters are durable."""
        if self.rows.write is not None:
            # Guarantee 2: the sink keeps the mark, with the counts as its receipt, in the
            # transaction that makes the data visible.
            self.rows.write.commit(self.part.letters.receipt(self.counts, self.letters))
        # Without a sink's transaction the letters' own mark says whether they are there.
        self.part.letters.append(self.letters)

    def work(self) -> Callable[[], object] | None:
        """Return what a worker does to commit a ``WorkerCommit``; None if nothing is left."""
        assert isinstance(self.rows.write, WorkerCommit)
        return self.rows.write.work(self.part.letters.receipt(self.counts, self.letters))

    def finish(self) -> None:
        """Do what is left to do behind that."""
        assert isinstance(self.rows.write, WorkerCommit)
        self.rows.write.finish()
        self.part.letters.append(self.letters)

    def abort(self) -> None:
        if self.rows.write is not None:
            self.rows.write.abort()
        self.part.letters.discard()


@dataclass(frozen=True)
class RowCount:
    """The count of one write, taken as cheaply as its balance allows.

    Args:
        counting: Where the sink's count comes from.
        aliases: Those of the chain's transforms, for the counts of what they filter.
        seen: Spark's own count on the way, where those two are not enough.
        expected: How many records the sink gets, where that is known before.
    """

    known: int | None
    counting: Counting
    aliases: Sequence[str]
    seen: Observation | None
    expected: int | None = None

    @classmethod
    def of(
        cls,
        shape: RecordExpr,
        *,
        known: int | None,
        counting: Counting,
        aliases: Sequence[str],
        tolerant: bool,
    ) -> RowCount:
        """Choose how to count.

        Without dead letters a rejected record fails the job, so only a filter or a
        tolerated error can make a difference between what is read and what is written.
        """
        parts = shape.dropped is not None or (shape.error is not None and tolerant)
        enough = known is not None or counting is Counting.MEASURED
        seen = None if enough and not parts else Observation()
        return cls(known, counting, aliases, seen, expected=None if parts else known)

    def over(self, records: RecordFrame) -> RecordFrame:
        """Count the records by what the shape's expressions say of each."""
        if self.seen is None:
            return records
        # Spark copies each row to count it; flat rows are the cheapest to copy, unless it
        # takes longer to plan them.
        records = records if records.is_wide else records.named()
        measures = (F.expr(measure) for measure in _measures(records.shape, self.aliases))
        return replace(records, frame=records.frame.observe(self.seen, *measures))

    def counts(self, records: RecordFrame, write: StagedWrite, refused: int) -> Counts:
        """Return the counts after the job."""
        written, left_out = write.rows, filtered_of(write)
        found = Counts()
        if self.seen is not None:
            try:
                found = _counts(self.seen.get)
            except Py4JError:
                # Where Spark can prove that no record is good it runs nothing that counts.
                found = counted(records, self.aliases)
        read, rejected = found.read, found.rejected + refused
        filtered = found.filtered + sum(left_out.values())
        if self.seen is None:
            read = written + filtered + refused if self.known is None else self.known
        if self.counting is Counting.UNKNOWN:
            written = read - filtered - rejected
        return replace(
            found,
            read=read,
            written=written,
            rejected=rejected,
            filtered=filtered,
            filters={**found.filters, **left_out},
        )


def counted(records: RecordFrame, aliases: Sequence[str]) -> Counts:
    """Count records by a job of its own; nothing is written yet."""
    row = records.frame.selectExpr(*_measures(records.shape, aliases)).collect()[0]
    return _counts(row.asDict())


def _counts(found: Mapping[str, int]) -> Counts:
    filters = {
        name.removeprefix(_FILTER): int(rows)
        for name, rows in found.items()
        if name.startswith(_FILTER) and rows
    }
    return Counts(
        read=int(found.get("read", 0)),
        filtered=sum(filters.values()),
        rejected=int(found.get("rejected", 0)),
        filters=filters,
    )


def _measures(shape: RecordExpr, aliases: Sequence[str]) -> list[str]:
    measures = ["count(1) AS read"]
    if shape.dropped is not None:
        measures += [
            f"count_if({shape.dropped} = {literal(alias)}) AS {quote(_FILTER + alias)}"
            for alias in aliases
        ]
    if shape.error is not None:
        measures.append(f"count_if({shape.error} IS NOT NULL) AS rejected")
    return measures


def good_rows(
    records: RecordFrame, sink: FrameSink, *, tolerant: bool, transformed: bool
) -> tuple[DataFrame, dict[str, str]]:
    """Return the columns that a sink gets, of the records that are neither dropped nor bad.

    Beside them it returns the names of columns that hold the value's fields, see SinkBatch.

    Args:
        records: The records.
        sink: The sink.
        tolerant: Whether bad records are dead-lettered; else the first fails the job.
        transformed: Whether a chain made them.
    """
    shape, frame = records.shape, records.frame
    keep = [f"{shape.dropped} IS NULL"] if shape.dropped is not None else []
    if shape.error is not None and tolerant:
        keep.append(f"{shape.error} IS NULL")
    elif shape.error is not None:
        # Failing the job itself leaves nothing of the batch written, in any sink.
        failure = f"raise_error(concat('{REJECTED}', to_json({shape.error})))"
        keep.append(f"IF({shape.error} IS NULL, true, CAST({failure} AS BOOLEAN))")
    if keep:
        frame = frame.where(" AND ".join(keep))
    fields = records.fields() if sink.takes_columns and records.is_wide else {}
    if transformed and shape.value.is_struct and not fields:
        # Keeps Spark from moving what was computed into the struct that sinks get: a sink
        # that takes the struct apart would else have it made for each record.
        numbered = frame.selectExpr("*", "monotonically_increasing_id() AS __row")
        frame = numbered.where("__row >= 0")
    placed = records
    if sink.ordered and records.position is None:
        placed = replace(records, position="array(monotonically_increasing_id())")
    names = {name: f"__field{number}" for number, name in enumerate(fields)}
    own = [f"{sql} AS {names[name]}" for name, sql in fields.items()]
    frame = selected(frame, [*placed.columns(), *own])
    if tolerant and sink.verifies:
        frame = frame.selectExpr("*", f"{record_id(records)} AS {RECORD_ID}")
    return frame, names


def refused_of(staged: object) -> Sequence[Refused]:
    """Return the records that a staged write says its target refuses."""
    return staged.refused() if isinstance(staged, Verified) else ()


def filtered_of(staged: object) -> Mapping[str, int]:
    """Return how many records a staged write says it has left out, by the reason."""
    found = staged.filtered() if isinstance(staged, Selective) else {}
    return {reason: rows for reason, rows in found.items() if rows}


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


def held_receipt(sink: FrameSink, mark: Mark, topic: str, batch: Batch) -> str | None:
    """Return the receipt of a batch that the target holds, None for one to be written.

    Guarantee 2: a mark that is found stands for this batch only if the batch ran before, over
    the same range. Anything else was written by another worker, or before the store was set
    back, and to take it for success would lose the rows of this batch.

    Raises:
        StaleEpochError: The target is ahead of the store.
    """
    if not (batch.again or batch.resumed):
        return None
    receipt = sink.committed(mark, topic)
    if receipt is None:
        return None
    mark.require_range(receipt)
    if not batch.again:
        raise mark.ahead()
    return receipt


def sink_marks(
    application: str, sinks: Sequence[FrameSink], names: Sequence[str], batch: Batch
) -> list[tuple[int, FrameSink, Mark]]:
    """Give each sink of a task its number and its mark of a batch.

    Marks go by names, as a sink may get another number while a batch is in doubt.
    """
    applications = [f"{application}-{name}" if name else application for name in names]
    return [
        (number, sink, Mark(of, batch.id, batch.epoch, batch.range))
        for number, (sink, of) in enumerate(zip(sinks, applications, strict=True))
    ]
