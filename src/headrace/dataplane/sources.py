"""Readers of frames between two positions for each kind of source, and of whole tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import structlog
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.packed import (
    Packed,
    PackedRows,
    packed_files,
    packed_source,
    packed_streams,
)
from headrace.dataplane.records import (
    ARROW_ERROR,
    ERROR,
    RecordFrame,
    constant_text,
    declaration,
    declared,
    over_parts,
    record_frame,
    rejection,
    with_variants,
)
from headrace.dataplane.topic_sinks import MOST_TOPICS
from headrace.model import Backoff
from headrace.sdk import (
    ArrowParts,
    ConfigError,
    FrameSource,
    HeadraceError,
    Lag,
    Position,
    ReadLimit,
    RetriableError,
    Schema,
    SourceError,
    Split,
    SplitSource,
    StreamFrameSource,
    StreamRows,
    StreamSplitSource,
    Type,
)
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.location import Location
from headrace.sdk.sources import ReplayableSource
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal, quote
from headrace.sdk.struct_exprs import is_variant
from headrace.sdk.tables import TableRows
from headrace.topics import PACKED, TopicReader, position_sql, stored_schema

log = structlog.get_logger(__name__)


SPLIT_RETRIES = 5
"""Retries of a split before its batch is retried; after 0.3, 0.6, 1.2, 2.4 and 4.8 s."""
_LONGEST = timedelta(seconds=30)
"""The longest wait of a split; for longer waits the task retries, without blocking a core."""

_Rows = TypeVar("_Rows")
_Source = TypeVar("_Source", bound=ReplayableSource)


def read_patiently(
    read: Callable[[Any], Iterator[_Rows]],
    split: Any,
    backoff: Backoff,
    retried: Callable[[int], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_Rows]:
    """Read a split; retry if it raises RetriableError before its first rows.

    Guarantee 2: yielded rows cannot be taken back, and a second read may divide and order the
    rows differently. So later errors fail the batch, of which nothing is visible yet.

    Args:
        read: The source's read function.
        split: The split.
        backoff: How long to wait, and when to stop.
        retried: Called with 1 before each retry.
        sleep: Waits for a number of seconds.
    """
    began = time.monotonic()
    for failures in count(1):
        yielded = False
        try:
            for rows in read(split):
                yielded = True
                yield rows
        except RetriableError as error:
            lasted = timedelta(seconds=time.monotonic() - began)
            wait = backoff.wait(failures, error.after, lasted)
            is_last = failures > SPLIT_RETRIES or wait > _LONGEST or backoff.expired(lasted)
            if yielded or is_last:
                raise
        except (HeadraceError, MemoryError, OSError):  # already specific
            raise
        except Exception as error:
            what, _, _ = str(error).partition("\n")
            problem = f"The source failed at {split}: {type(error).__name__}: {what}"
            raise SourceError(problem, fix="See the log for the full traceback.") from error
        else:
            return
        retried(1)
        sleep(wait.total_seconds())


class SplitRetries:
    """Lets executors retry splits, and counts the retries of all executors."""

    def __init__(self, timeout: timedelta | None) -> None:
        self._timeout = timeout
        self._counter: Accumulator[int] | None = None
        self._logged = 0

    def patient(
        self, spark: SparkSession, read: Callable[[Any], Iterator[_Rows]]
    ) -> Callable[[Any], Iterator[_Rows]]:
        """Return ``read`` with retries, for executors."""
        if self._counter is None:
            self._counter = spark.sparkContext.accumulator(0)
        counter, timeout = self._counter, self._timeout
        return lambda split: read_patiently(read, split, Backoff(timeout=timeout), counter.add)

    def log(self) -> None:
        """Log the number of retries since the last call, if any. Called after each batch."""
        total = self._counter.value if self._counter is not None else 0
        if total > self._logged:
            retries = total - self._logged
            log.warning("splits were retried after temporary errors", retries=retries)
        self._logged = total


@dataclass(frozen=True)
class SourceFrame:
    """The records of one range.

    Args:
        frame: Record columns; None if the range is empty or has many streams.
        packed: The rows of streams whose schemas are known only after reading.
        streams: The rows of streams whose schemas are known.
        size_bytes: Size of the input; 0 if unknown.
        rows: How many records there are, if the source knows without reading them.
        topic: The topic of the records; None for the task's own.
        only_sink: The name in marks of the only sink that gets the records; None for all sinks.
        arrow: The same records as Arrow, if executors read them in Python.
        reader: The reader and the reason for its choice, shown in previews.
        require_unchanged: Checks that the range has not changed; see ``FrameSource``.
    """

    frame: DataFrame | None
    packed: Packed | None = None
    streams: Sequence[StreamRows] = ()
    size_bytes: int = 0
    rows: int | None = None
    topic: str | None = None
    only_sink: str | None = None
    arrow: ArrowParts | None = None
    reader: str | None = None
    require_unchanged: Callable[[], None] = lambda: None

    def to_pack(self) -> PackedRows | None:
        """Return the rows for a topic of many streams; None for at most one stream."""
        return packed_streams(self.streams) if self.streams else self.packed


class SourceReader(Protocol):
    """The interface of sources for the batch loop and the flow."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """See ReplayableSource."""

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """See ReplayableSource."""

    def ended(self, position: Position) -> bool:
        """See SourceTask."""

    def acknowledge(self, position: Position) -> None:
        """See ReplayableSource."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """Return the frame of the range. Runs no job."""


class _Reader(Generic[_Source]):
    """The common base of the readers of plugins."""

    def __init__(self, source: _Source) -> None:
        self._source: _Source = source
        self.measured_lag = source.measured_lag
        self.latest = source.latest
        self.lag = source.lag
        self.ended = source.ended
        self.acknowledge: Callable[[Position], None] = source.acknowledge


class FrameReader(_Reader[FrameSource]):
    """Reads a frame source."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        try:
            return self._read(spark, start, end)
        except Exception:
            # Whatever the error was, a changed range must be planned again.
            self._source.require_unchanged(start, end)
            raise

    def _read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        arrow = self._source.arrow_parts(spark, start, end)
        if arrow is not None and not arrow.parts:
            return SourceFrame(None)
        if arrow is not None:
            frame = frame_of_parts(spark, arrow)
        else:
            frame = self._source.read(spark, start, end)
        size = self._source.size_bytes(start, end) or 0
        rows = self._source.rows(start, end)
        return SourceFrame(
            frame,
            size_bytes=size,
            rows=rows,
            arrow=arrow,
            reader=self._source.reader,
            require_unchanged=partial(self._source.require_unchanged, start, end),
        )


class StreamFrameReader(_Reader[StreamFrameSource]):
    """Reads a source of many streams with known schemas."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        given = self._source.streams(spark, start, end)
        twice = [name for name, times in Counter(s.stream for s in given).items() if times > 1]
        if twice:
            # Guarantee 2: both would have the same mark.
            problem = f"The source returned the stream {twice[0]} more than once in a range."
            raise SourceError(problem, fix="The source plugin must combine the rows.")
        full = [s for s in given if not isinstance(s.rows, ArrowParts) or s.rows.parts]
        size = self._source.size_bytes(start, end) or 0
        return SourceFrame(None, streams=full, size_bytes=size)


def frame_of_rows(spark: SparkSession, rows: ArrowParts | DataFrame) -> DataFrame:
    """Return the rows of a stream as records."""
    return frame_of_parts(spark, rows) if isinstance(rows, ArrowParts) else rows


def frame_of_parts(spark: SparkSession, arrow: ArrowParts) -> DataFrame:
    """Return the rows of Arrow parts as records; records that are not rows have an error.

    Arrow parts contain variants as JSON texts.
    """
    is_row = arrow.schema.type is Type.STRUCT
    rows_of = arrow.schema if is_row else Schema.struct({"value": arrow.schema})
    schema, read, plugin = to_arrow(rows_of), arrow.read, arrow.plugin
    # A value that could not be read lacks all fields, including the required ones.
    fields = {field.name: field.schema.replaced(optional=True) for field in rows_of.fields}
    columns = T.StructType.fromJson(to_spark_json(Schema.struct(fields)))
    value = T.StructField("value", columns, False, declaration(arrow.schema))  # noqa: FBT003
    if not is_row:
        value = T.StructField("value", columns["value"].dataType)
    error = T.StructField("error", T.StructType.fromJson(to_spark_json(ERROR)))
    types = T.StructType([value, error])

    def rows(part: Any) -> Iterator[pa.RecordBatch]:
        for batch, rejected in read(part):
            if batch.num_rows:
                good = conform(batch, schema)
                yield _records(good, pa.nulls(batch.num_rows, ARROW_ERROR), is_row=is_row)
            if rejected:
                errors = [rejection(plugin, *each) for each in rejected]
                none = pa.RecordBatch.from_arrays(
                    [pa.nulls(len(errors), field.type) for field in schema], schema.names
                )
                yield _records(none, pa.array(errors, ARROW_ERROR), is_row=is_row)

    return with_variants(over_parts(spark, arrow.parts, rows, types), arrow.schema)


def _records(rows: pa.RecordBatch, errors: pa.Array, *, is_row: bool) -> pa.RecordBatch:
    if not is_row:
        return pa.RecordBatch.from_arrays([rows.column(0), errors], ["value", "error"])
    value = pa.StructArray.from_arrays(
        rows.columns, fields=[pa.field(f.name, f.type) for f in rows.schema]
    )
    return pa.RecordBatch.from_arrays([value, errors], ["value", "error"])


class _RetryingReader(_Reader[_Source]):
    """The common base of the two readers of splits."""

    def __init__(self, source: _Source, *, retry_timeout: timedelta | None = None) -> None:
        super().__init__(source)
        self._retries = SplitRetries(retry_timeout)
        self.acknowledge = self._acknowledge

    def _acknowledge(self, position: Position) -> None:
        self._retries.log()
        self._source.acknowledge(position)


class SplitReader(_RetryingReader[SplitSource]):
    """Reads a split source: one Spark partition per split."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        source, schema = self._source, self._source.schema()
        splits, arrow = list(source.splits(start, end)), to_arrow(schema)
        read = self._retries.patient(spark, source.read)

        def rows(split: Split) -> Iterator[pa.RecordBatch]:
            return (conform(batch, arrow) for batch in read(split))

        types = T.StructType.fromJson(to_spark_json(schema))
        frame = over_parts(spark, splits, rows, types).selectExpr("struct(*) AS value")
        size = source.size_bytes(start, end) or 0
        return SourceFrame(frame, size_bytes=size, rows=source.rows(start, end))


class StreamReader(_RetryingReader[StreamSplitSource]):
    """Reads a split source with many streams, as packed rows."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        read = self._retries.patient(spark, self._source.read)
        packed = packed_source(list(self._source.splits(start, end)), read)
        size = self._source.size_bytes(start, end) or 0
        return SourceFrame(None, packed, size_bytes=size)


class TopicSource:
    """Reads a topic, as the source of a sink's task."""

    def __init__(self, reader: TopicReader, *, ordered: bool) -> None:
        """Read through ``reader``; ``ordered`` adds ``position`` for sinks that need it."""
        self._reader = reader
        self._ordered = ordered
        self._files: list[Location] = []
        self.latest = reader.latest
        self.lag = reader.lag
        self.acknowledge = reader.acknowledge

    def ended(self, position: Position) -> bool:
        """See SourceTask; only the worker knows whether a topic gets more records."""
        return False

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        files = self._reader.files(start, end)
        if not files:
            return SourceFrame(None)
        schema = self._reader.schema(end)
        within = self._reader.rows(start, end)
        names = [field.name for field in schema.fields if field.name != "offset"]
        folder = self._reader.topic.location
        self._files = [folder / file.file.path for file in files]
        size = sum(file.file.size_bytes for file in files)
        if PACKED in names:
            return SourceFrame(None, packed_files(self._files, within), size_bytes=size)
        types = T.StructType.fromJson(to_spark_json(stored_schema(schema)))
        frame = spark.read.schema(types).parquet(*(each.spark_path for each in self._files))
        if any(file.segment for file in files):
            frame = frame.where(within.sql())
        order = [f"{position_sql(files)} AS position"] if self._ordered else []
        rows = self._reader.count(start, end)
        frame = frame.selectExpr(*names, *order)
        if (value := schema.field("value")) is not None:
            key = schema.field("key")
            frame = with_variants(frame, value.schema, key.schema if key else None)
        return SourceFrame(frame, size_bytes=size, rows=rows)

    def explain(self, spark: SparkSession, start: Position, end: Position) -> None:
        """Raise RetriableError if files of the range were deleted while they were read.

        Their rows are in other files now. A topic's upkeep knows only the readers of its own
        store. Raises DataLostError if retention has removed the rows.
        """
        if all(path.exists() for path in self._files):
            return
        self._reader.files(start, end)
        name = self._reader.topic.name
        problem = f"Files of topic {name} were compacted while they were read."
        raise RetriableError(problem)


KEPT, FILTERED, REJECTED, NO_VALUE = range(4)
"""The outcome of a row: the chain keeps it, drops it, rejects it, or sets its value to null,
which deletes the row."""


@dataclass(frozen=True)
class Expected:
    """The rows of one stream that a target should contain.

    Args:
        topic: The topic that the chain sends the rows to.
        read: Reads the source and applies the chain. Called again to check rows that differed.
        read_at_once: The same with a consistent snapshot of the rows.
        divided: Whether the chain sends other rows of the stream to other topics.
    """

    stream: str
    topic: str
    read: Callable[[SparkSession], RecordFrame]
    read_at_once: Callable[[SparkSession], RecordFrame]
    divided: bool = False

    def records(self, spark: SparkSession, *, at_once: bool = False) -> RecordFrame:
        """Return the records of the topic."""
        records = self.read_at_once(spark) if at_once else self.read(spark)
        if not self.divided:
            return records
        of_topic = records.frame.where(f"{records.shape.topic} <=> {literal(self.topic)}")
        return replace(records, frame=of_topic)


def table_records(spark: SparkSession, table: TableRows, topic: str) -> RecordFrame:
    """Return the rows of a table as records. Input that is not a row has an error."""
    found = table.read(spark)
    if isinstance(found, ArrowParts):
        records = frame_of_parts(spark, found)
        names, more = [field.name for field in found.schema.fields], ["value", "error"]
    else:
        records = found.selectExpr(
            f"struct({', '.join(_with_variants(found, table))}) AS value"
        )
        names, more = found.columns, ["value"]
    own = {name.lower(): name for name in names}
    key = [f"value.{quote(own[name.lower()])}" for name in table.key] if table.keyed else []
    if key:
        records = records.selectExpr(*more, f"struct({', '.join(key)}) AS key")
    if table.schema is not None:
        records = declared(records, "value", table.schema)
    return record_frame(records, topic, timestamp="current_timestamp()")


def _with_variants(frame: DataFrame, table: TableRows) -> list[str]:
    """Return the columns of a table; parses JSON columns whose schema is a Variant."""
    fields = table.schema.fields if table.schema is not None else ()
    variants = {field.name for field in fields if is_variant(field.schema)}
    texts = {f.name for f in frame.schema.fields if f.dataType.typeName() == "string"}
    columns = []
    for name in frame.columns:
        sql = quote(name)
        if name in variants & texts:
            sql = f"coalesce(try_parse_json({sql}), CAST({sql} AS VARIANT)) AS {sql}"
        columns.append(sql)
    return columns


def topics_of(spark: SparkSession, records: RecordFrame) -> tuple[list[str], bool]:
    """Return the topics of records, and whether they depend on the data (then runs a job).

    Raises ConfigError: there are too many topics.
    """
    topic = constant_text(records.frame, records.shape.topic)
    if topic is not None:
        return [topic], False
    alive = records.frame.where(f"{fate_sql(records)} = {KEPT}")
    rows = alive.selectExpr(f"{records.shape.topic} AS topic").distinct().limit(MOST_TOPICS + 1)
    found = sorted(row[0] for row in rows.collect() if row[0] is not None)
    if len(found) > MOST_TOPICS:
        problem = f"The transforms send rows to more than {MOST_TOPICS} topics."
        raise ConfigError(problem, field="transforms", fix="Compare the tables in parts.")
    return found, True


def fate_sql(records: RecordFrame) -> str:
    """Return SQL of the outcome of each record: a number, see ``KEPT`` and the others."""
    outcome, missing = records.outcome(), records.shape.value.is_null()
    return (
        f"CASE WHEN {outcome['error']} IS NOT NULL THEN {REJECTED} "
        f"WHEN {outcome['dropped']} IS NOT NULL THEN {FILTERED} "
        f"WHEN {missing} THEN {NO_VALUE} ELSE {KEPT} END"
    )
