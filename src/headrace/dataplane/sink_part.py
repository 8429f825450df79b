"""One sink's part of a batch: its mark, staged rows, counts, refused records and letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.dead_letters import DeadLetterPart, RejectedFrame, StagedDeadLetters
from headrace.dataplane.failures import REJECTED
from headrace.dataplane.json_sql import json_sql
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.sinks import sink_title
from headrace.evolution import Target
from headrace.model import Batch, Counts
from headrace.sdk import (
    FrameSink,
    Mark,
    RecordExpr,
    Refusal,
    Schema,
    SourceError,
    StateError,
    Type,
    ValueExpr,
)
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
from headrace.sdk.struct_exprs import has_variant

STAGE = "TASK_PUT"
_REFUSED = "refused"
_FILTERED = "left_out"
_ERROR, _DROPPED, _REASONS = "__error", "__dropped", "__refused"


def without_refused(
    rows: DataFrame, refusals: Sequence[Refusal]
) -> tuple[DataFrame, list[Refused]]:
    """Return the rows that a sink accepts, and the refused records. May run a job."""
    if not refusals:
        return rows, []
    whens = " ".join(f"WHEN {each.condition} THEN {n}" for n, each in enumerate(refusals))
    which = f"CASE {whens} END"
    bad = rows.where(f"{which} IS NOT NULL").selectExpr(RECORD_ID, f"{which} AS which")
    found = [
        Refused(record, refusals[n].exception, refusals[n].message)
        for record, n in bad.collect()
    ]
    return rows.where(f"{which} IS NULL"), found


def receipt_with(receipt: str, refused: Sequence[Refused], filtered: Mapping[str, int]) -> str:
    """Return the receipt with the refused and the filtered records of its topic added."""
    if not refused and not filtered:
        return receipt
    figures = json.loads(receipt) if receipt else {}
    own = {_REFUSED: [astuple(each) for each in refused], _FILTERED: dict(filtered)}
    return json.dumps(figures | {k: each for k, each in own.items() if each}, sort_keys=True)


def refused_in(receipt: str) -> list[Refused]:
    """Return the refused records that ``receipt_with`` stored."""
    figures = json.loads(receipt) if receipt else {}
    return [Refused(*each) for each in figures.get(_REFUSED, ())]


def filtered_in(receipt: str) -> dict[str, int]:
    """Return the counts of filtered records that ``receipt_with`` stored."""
    figures = json.loads(receipt) if receipt else {}
    return dict(figures.get(_FILTERED, {}))


def refusing(records: RecordFrame, refusals: Sequence[Refusal], title: str) -> RecordFrame:
    """Return the same records; those that the sink refuses get an error in its name."""
    if not refusals:
        return records
    records = _whole(records)
    shape = records.shape
    for refusal in refusals:
        shape = shape.failing(
            refusal.condition,
            stage=STAGE,
            plugin=title,
            exception=refusal.exception,
            message=literal(refusal.message),
        )
    return replace(records, shape=shape).settled()


def record_id(records: RecordFrame) -> str:
    """Return the SQL of the ``record_id`` of records, over the columns that sinks get.

    The id is a hash of all parts of a record only, so that a recomputed record has the same
    id in any partition.
    """
    shape = records.shape
    schemas = {"key": shape.key.schema, "value": shape.value.schema}
    parts = [_hashed(name, schema) for name, schema in schemas.items() if schema is not None]
    parts += ["headers", "timestamp", "topic", "partition"]
    parts += [] if records.position is None else ["position"]
    return f"xxhash64({', '.join(parts)})"


def with_refused(records: RecordFrame, refused: Sequence[Refused], title: str) -> RecordFrame:
    """Return the rejected records, including those that the sink refused.

    For each refusal, one record with its id is rejected; equal records share an id.
    """
    if not refused:
        return records
    numbered = record_id(records)
    whole = _whole(records)
    frame = whole.frame.selectExpr("*", f"{numbered} AS {RECORD_ID}")
    before = frame.where(f"{_ERROR} IS NOT NULL").drop(RECORD_ID)
    alive = frame.where(f"{_ERROR} IS NULL AND {_DROPPED} IS NULL")
    reasons = F.broadcast(_reasons(frame, refused))
    # Two equal records have two entries in the list of reasons of their id.
    turn = f"row_number() OVER (PARTITION BY {RECORD_ID} ORDER BY {RECORD_ID})"
    found = alive.join(reasons, RECORD_ID).selectExpr("*", f"{turn} AS __turn")
    found = found.where(f"__turn <= size({_REASONS})")
    said = f"element_at({_REASONS}, __turn)"
    error = (
        f"named_struct('stage', {literal(STAGE)}, 'plugin', {literal(title)}, "
        f"'exception', {said}.exception, 'message', {said}.message, "
        f"'raw', CAST(NULL AS STRING)) AS {_ERROR}"
    )
    columns = [error if name == _ERROR else name for name in before.columns]
    return replace(whole, frame=before.unionByName(found.selectExpr(*columns)))


def _reasons(frame: DataFrame, refused: Sequence[Refused]) -> DataFrame:
    by_id: dict[int, list[tuple[str, str]]] = {}
    for each in refused:
        by_id.setdefault(each.record, []).append((each.exception, each.message))
    kind = f"{RECORD_ID} bigint, {_REASONS} array<struct<exception:string,message:string>>"
    return frame.sparkSession.createDataFrame(list(by_id.items()), kind)


def _whole(records: RecordFrame) -> RecordFrame:
    """Return the same records with the columns that sinks get, under their names."""
    shape = records.shape
    frame = records.frame.selectExpr(
        *records.columns(),
        *(f"{sql} AS __{name}" for name, sql in records.outcome().items()),
        *records.carried,
    )
    whole = RecordExpr(
        key=_part("key", shape.key),
        value=_part("value", shape.value),
        topic="topic",
        partition="partition",
        headers="headers",
        timestamp="timestamp",
        dropped=_DROPPED,
        error=_ERROR,
        unfit=shape.unfit,
    )
    position = None if records.position is None else "position"
    return RecordFrame(frame, whole, position, records.carried)


def _part(column: str, part: ValueExpr) -> ValueExpr:
    if part.schema is None:
        return part
    return ValueExpr.of(column, part.schema, schemaless=part.schemaless)


def _hashed(column: str, schema: Schema) -> str:
    """Return SQL that Spark can hash; it cannot hash maps and variants."""
    has_map = any(each.type is Type.MAP for each in schema.walk())
    return json_sql(column, schema) if has_map or has_variant(schema) else column


_FILTER = "filter:"


@dataclass(frozen=True, kw_only=True)
class SinkPart:
    """One sink's part of a batch, before anything is staged.

    Args:
        sink: The target's sink, or a wrapper that divides the records by topic.
        mark: The batch's mark in the sink.
    """

    sink: FrameSink
    target: Target
    mark: Mark
    letters: DeadLetterPart

    @property
    def title(self) -> str:
        """Return the sink's name in dead letters."""
        return sink_title(self.sink)

    def receipt(self, batch: Batch) -> str | None:
        """Return the receipt of a batch that the sink has; None if it must be written."""
        return held_receipt(self.sink, self.mark, self.target.topic, batch)

    def held(self, receipt: str, rows: int | None) -> Counts:
        """Return the counts of a batch that the sink already has.

        Args:
            receipt: The batch's receipt.
            rows: How many records the batch has now, if known.

        Raises:
            StateError: The receipt has another number of records.
        """
        read = Counts.from_receipt(receipt).read
        if receipt and rows is not None and read != rows:
            raise StateError(
                problem=f"The target has batch {self.mark.batch} of {self.mark.application} "
                f"with {read} records, but the batch now has {rows}: the settings that group "
                "records were changed while the batch was unfinished.",
                fix="Restore the previous schema evolution policy until the batch is finished.",
            )
        return self.letters.settled(receipt)


@dataclass(frozen=True, kw_only=True)
class StagedRows:
    """The records that a sink has staged.

    Args:
        write: The staged write of the good records; None if there is nothing to commit.
        counts: How many records were read, written, filtered and rejected.
        rejected: Reads the rejected records as they came.
        schema: The schema that the sink was given; None if no record is good, and for
            packed rows, which have several schemas.
        needed: Releases what ``rejected`` needs.
    """

    write: StagedWrite | None
    counts: Counts
    rejected: Callable[[], RejectedFrame]
    schema: Schema | None = None
    needed: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True)
class StagedPart:
    """One sink's part of a batch, staged: nothing of it is visible before ``commit``.

    Args:
        counts: The counts of all records, with the causes from the letters.
    """

    part: SinkPart
    rows: StagedRows
    letters: StagedDeadLetters
    counts: Counts

    @classmethod
    def of(cls, part: SinkPart, rows: StagedRows, batch: Batch) -> StagedPart:
        """Stage the letters, and return the part with the number of rejected records from them.

        If the letters were already appended, an earlier attempt has delivered all records to
        a sink without marks, and the letters of that attempt are authoritative.
        """
        before, letters = rows.counts, StagedDeadLetters()
        with rows.needed:
            if before.rejected:
                letters = part.letters.stage(rows.rejected(), before.rejected, batch)
        rejected = sum(letters.causes.values())
        written = before.written + before.rejected - rejected
        counts = replace(before, causes=letters.causes, rejected=rejected, written=written)
        return cls(part, rows, letters, counts)

    def commit(self) -> None:
        """Make the part visible; return when the records and the letters are durable."""
        if self.rows.write is not None:
            # Guarantee 2: the sink stores the mark, with the counts as its receipt, in the
            # transaction that makes the data visible.
            self.rows.write.commit(self.part.letters.receipt(self.counts, self.letters))
        # Without a sink transaction, the letters' own mark shows whether they were appended.
        self.part.letters.append(self.letters)

    def work(self) -> Callable[[], object] | None:
        """Return the worker's part of a ``WorkerCommit``; None if nothing is left to do."""
        assert isinstance(self.rows.write, WorkerCommit)
        return self.rows.write.work(self.part.letters.receipt(self.counts, self.letters))

    def finish(self) -> None:
        """Finish the commit after the work is done."""
        assert isinstance(self.rows.write, WorkerCommit)
        self.rows.write.finish()
        self.part.letters.append(self.letters)

    def abort(self) -> None:
        if self.rows.write is not None:
            self.rows.write.abort()
        self.part.letters.discard()


@dataclass(frozen=True)
class RowCount:
    """Counts the records of one write in the cheapest way that still checks the balance.

    Args:
        known: How many records the batch has, if known beforehand.
        counting: Where the sink's count comes from.
        aliases: The aliases of the chain's transforms, to count the records that each filters.
        seen: Spark's own count during the job, if ``known`` and ``counting`` do not suffice.
        expected: How many records the sink gets, if known beforehand.
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

        Without dead letters a rejected record fails the job, so only filters and tolerated
        errors can make the number of written records differ from that of read records.
        """
        parts = shape.dropped is not None or (shape.error is not None and tolerant)
        enough = known is not None or counting is Counting.MEASURED
        seen = None if enough and not parts else Observation()
        return cls(known, counting, aliases, seen, expected=None if parts else known)

    def over(self, records: RecordFrame) -> RecordFrame:
        """Return the records, observed by ``seen`` through the expressions of their shape."""
        if self.seen is None:
            return records
        # Spark copies each row to count it. Flat rows are the cheapest to copy, but wide ones
        # take too long to plan.
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
                # If Spark can prove that no record is good, it does not run the observation.
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
    """Count records in a separate job; nothing is written yet."""
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
    """Return the sink's columns of the records that are neither dropped nor bad.

    Also returns the names of the columns that contain the value's fields, see SinkBatch.

    Args:
        records: The records.
        sink: The sink.
        tolerant: Whether bad records are dead-lettered; otherwise the first fails the job.
        transformed: Whether a chain has transformed the records.
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
        # Keeps Spark from inlining computed fields into the value struct: otherwise a sink
        # that reads single fields makes Spark build the struct for each record.
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
    """Return the records that the target of a staged write refuses."""
    return staged.refused() if isinstance(staged, Verified) else ()


def filtered_of(staged: object) -> Mapping[str, int]:
    """Return how many records a staged write has left out, by reason."""
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
    raise SourceError(
        problem, fix="A plugin returned a wrong count, or the data changed in the meantime."
    )


def held_receipt(sink: FrameSink, mark: Mark, topic: str, batch: Batch) -> str | None:
    """Return the receipt of a batch that the target has; None if it must be written.

    Guarantee 2: an existing mark belongs to this batch only if the batch ran before, over
    the same range. Any other mark was written by another worker, or before the store was
    restored to an earlier state; treating it as success would lose the rows of this batch.

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
    """Return each sink of a task with its number and its mark for a batch.

    Marks use names, since a sink's number may change while a batch is in doubt.
    """
    applications = [f"{application}-{name}" if name else application for name in names]
    return [
        (number, sink, Mark(of, batch.id, batch.epoch, batch.range))
        for number, (sink, of) in enumerate(zip(sinks, applications, strict=True))
    ]
