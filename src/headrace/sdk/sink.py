"""Base classes of sink tasks (the gears: frame, batch and record) and of sink connectors."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from headrace.sdk.connector import Connector, Task
from headrace.sdk.durability import Durability, durability, set_durability
from headrace.sdk.errors import ConfigError, HeadraceError, RecordError
from headrace.sdk.schema_evolution import EvolutionPolicy
from headrace.sdk.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk.config import Config
    from headrace.sdk.mark import Mark
    from headrace.sdk.position import Boundaries
    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema
    from headrace.sdk.tables import MappedTable, TableRows


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The batch that a frame belongs to.

    Args:
        mark: Identifies the batch; the same for every attempt except for the epoch.
        topic: The topic of the records; names the target's table if a sink writes several. For
            a sink that ``takes_many_topics``, the topic they come from.
        key_schema: The schema of the keys; None if the records have no keys.
        evolution: What the target does if the schema differs from its own.
        rows: The number of records in the frame, if known before they are computed.
        columns: For a sink that ``takes_columns``: the frame columns that contain the fields of
            a ``value`` with many fields, by field name; empty if there are few fields.
        continues: Whether the records continue data from an earlier batch, such as a table
            read in several batches; see ``StreamRows``.
    """

    mark: Mark
    topic: str
    schema: Schema
    key_schema: Schema | None = None
    evolution: EvolutionPolicy = field(default_factory=EvolutionPolicy)
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    continues: bool = False

    def field_sql(self, name: str) -> str:
        """Return the SQL for a field of the value, over the columns of the frame."""
        return self.columns.get(name) or f"value.{quote(name)}"


class StagedWrite(Protocol):
    """Data that is written but not yet visible in the target."""

    @property
    def rows(self) -> int:
        """Return the number of records that the staged data represents."""

    def commit(self, receipt: str) -> None:
        """Make the data visible, with its mark and ``receipt``, in one transaction.

        A second call by the same attempt must change nothing. Two attempts at a batch may
        overlap, for example when a disconnected worker wakes up: the target accepts one of
        them, and the other must fail without changing the target. So a sink checks, in the
        transaction that decides, whether the target already contains the batch:
        ``if mark.wrote(receipt in the target, or None): return``.

        On return the data must be durable. A sink that writes files calls
        ``headrace.sdk.durability.flush`` with the files of the attempt before the mark is
        visible, and with the files of the mark before it returns: a power failure must not
        leave a mark without its rows.
        Raises StaleEpochError: the target contains the batch from another attempt
        (``Mark.wrote`` raises it), or a newer batch.
        """

    def abort(self) -> None:
        """Remove the staged data. Must not raise if there is none.

        Called when the batch is not committed because another sink failed or too many records
        are bad. It is not called after a crash, nor for the data that ``write`` had staged
        when it raised. ``write`` must remove that data itself, and ``commit`` must remove the
        leftovers of older attempts at the batch (smaller epochs).
        """


@runtime_checkable
class WorkerCommit(StagedWrite, Protocol):
    """A StagedWrite whose commit can run in a Python worker, so that many commit in parallel.

    ``commit`` does the same on the driver, for one write.
    """

    @property
    def target(self) -> str:
        """The name of what is changed: writes with the same target are committed in turn."""

    def work(self, receipt: str) -> Callable[[], object] | None:
        """Return the commit as a callable; see ``StagedWrite.commit``.

        It is pickled, and may run twice. None if no worker is needed because everything is
        already done.
        """

    def finish(self) -> None:
        """Clean up after the commit."""


def run_in_workers(spark: SparkSession, works: Sequence[Callable[[], object]]) -> None:
    """Call each work in a Python worker, in parallel, and return when all are done.

    Raises the first HeadraceError of the works. A work may be called more than once, because
    Spark retries failed tasks, so it must be idempotent.
    """
    if not works:
        return
    context = spark.sparkContext
    run = partial(_run_all, durability())
    for failure in context.parallelize(works, len(works)).mapPartitions(run).collect():
        if failure is not None:
            # Pickled a moment ago by this application.
            raise pickle.loads(failure)  # noqa: S301


def _run_all(mode: Durability, works: Iterable[Callable[[], object]]) -> Iterator[bytes | None]:
    set_durability(mode)
    for work in works:
        try:
            work()
        except HeadraceError as error:
            yield pickle.dumps(error)
        else:
            yield None


@dataclass(frozen=True, slots=True)
class ArrowWrite:
    """Functions that write the rows of a batch as Arrow.

    Args:
        write: Writes one part, on an executor; takes the part's number and rows. Returns what
            was written, such as a file name, or None if nothing was. Pickled. It may run more
            than once for a part, also concurrently, with the same rows, and a run that Spark
            has abandoned may end after the commit. So each run must write to its own location
            and must not change the output of another run.
        staged: Builds the StagedWrite, on the driver, from the results of ``write``: one for
            each part that has written anything, in part order. Output with any other name
            belongs to abandoned runs.
        abort: Removes the output of the parts if not all of them were written.
        raw: Writers that take a part's bytes in a format, by format name; see
            ``ArrowParts.raw``. Each returns the result of ``write`` and the number of rows
            written, which also counts as the number of rows read.
    """

    write: Callable[[int, Iterator[pa.RecordBatch]], str | None]
    staged: Callable[[Sequence[str]], StagedWrite]
    abort: Callable[[], object]
    raw: Mapping[str, Callable[[int, Iterator[bytes]], tuple[str | None, int]]] = field(
        default_factory=dict
    )


class SinkTask(Task):
    """A running task of a sink."""

    ordered: ClassVar[bool] = False
    """Whether the sink needs records in order. Frames then have the column ``position``, and a
    batch or record sink receives each batch as one partition, in order."""
    takes_many_topics: ClassVar[bool] = False
    """Whether the sink reads the topic of each record, so that one frame may contain many. For
    any other sink, the runtime splits a batch whose topic depends on the data: the sink
    receives the topics one after the other, each with its own mark."""

    rejects: ClassVar[tuple[type[Exception], ...]] = ()
    """The exception types that mean the target rejected records, such as RecordError or a
    database driver's own errors; never RetriableError.

    With ``errors.tolerance=all`` the runtime then finds the rejected records and dead-letters
    each with its error; the others are written. A RejectedError names the records: a record
    sink must then have written all other records of the call, a batch sink none of the part.
    For any other of these errors the runtime retries with smaller and smaller pieces, on the
    executor: a record sink must then have dropped the records since the last ``flush``, which
    is called after each ``put``; a batch sink gets a new ``part`` each time. Rejecting in
    ``commit`` is too late.
    A frame sink cannot name records: ``write`` is called with smaller and smaller frames, and
    the data staged by the previous call is aborted. Each call is a Spark job, and each batch is
    cached for it. If the target's rules are known, ``refusals`` is nearly free.
    Without any exception types, or with no tolerance, every error fails the task."""

    def priority(self, topic: str) -> int:
        """Return the priority of a stream within a batch: smaller numbers are written first.

        For a target with foreign keys: parent tables come before child tables.
        """
        return 0


class Counting(Enum):
    """Where a sink's record count comes from.

    The balance of a batch needs this count. Counting the records in flight costs a pass over
    each row; it is not needed if the source knows the length of a range and the sink measures
    the written data.
    """

    CLAIMED = "claimed"
    """The sink reports it: the runtime checks it against its own count."""
    MEASURED = "measured"
    """Measured from the written data, such as file footers."""
    UNKNOWN = "unknown"
    """Unknown: the sink stores nothing that can be counted, and ``rows`` is not read."""


class FrameSink(SinkTask):
    """A sink that writes DataFrames in two phases, so that partial writes are never visible."""

    counting: ClassVar[Counting] = Counting.CLAIMED
    """Where ``StagedWrite.rows`` comes from, so that records are not counted twice."""
    takes_columns: ClassVar[bool] = False
    """Whether ``write`` reads the fields of a value from ``SinkBatch.columns``. Otherwise
    a struct of a thousand fields dominates Spark's planning time, because the plan repeats the
    whole struct for each field."""
    verifies: ClassVar[bool] = False
    """Whether its staged writes are ``Verified``: they report the records that the target
    rejects, and leave them out. If errors are tolerated, its frames have the column
    ``record_id``; otherwise the first rejected record must raise an error."""

    @abstractmethod
    def committed(self, mark: Mark, topic: str) -> str | None:
        """Return the unchanged receipt of the batch if the target already contains the batch.

        Called before each attempt at a batch that may have run before. Return an empty receipt
        if the target no longer has it. Raise ``mark.newer`` if the target contains a newer
        batch of the same application: batches never go back.
        """

    def known_schema(self, topic: str) -> Schema | None:
        """Return the schema of the values in the target, if it is known exactly.

        Called before each batch, so it must be fast. If it returns None (the default), the
        runtime uses the schema of the last batch that the target accepted.
        """
        return None

    @abstractmethod
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        """Run the Spark job that stages the records of ``frame``.

        Columns: ``key``, ``value``, ``headers``, ``timestamp``, ``topic``,
        ``partition`` and, for an ordered sink, ``position``; a null ``value`` is a
        tombstone. Each batch is written completely or not at all.
        """

    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        """Return the functions that write the batch as Arrow on executors.

        Called with the arguments of ``write`` if the records have only values. It must not run
        a Spark job. Return None (the default) if only ``write`` can write the batch.
        """
        return None

    def keyed_write(self, spark: SparkSession, batch: SinkBatch) -> ArrowWrite | None:
        """Return the functions that write a small batch with unique keys as Arrow.

        The rows have the fields of the batch's values, and ``headrace.sdk.keyed_rows.DELETED``
        as the last column; the batch's key schema names key fields among them. All rows come as
        one part. ``StagedWrite.rows`` is then the number of rows written. It must not run a
        Spark job. Return None (the default) if the batch needs something that only ``write``
        does, such as creating a table, or if the result would differ from that of ``write``. If
        a RecordError is raised on an executor, the runtime also falls back to ``write``.
        """
        return None

    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        """Return the conditions under which the target rejects a record.

        Called before ``write`` with the same arguments if errors are tolerated: matching
        records are dead-lettered and not passed to ``write``. If errors are not tolerated,
        ``write`` receives them and must raise RecordError. It must not run a Spark job. The
        default is no conditions.
        """
        return ()

    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        """Stage a batch without records: its commit adds only the mark and the receipt.

        Called instead of ``write`` if a step of the chain rejected every record, so that the
        schema of valid records is unknown. A sink must not create or change a target for such
        a batch. Return None (the default) if the target does not exist yet or does not store
        such marks: the batch then changes nothing there, however often it runs.
        """
        return None

    def finish(self, spark: SparkSession, topic: str) -> None:
        """Do the final work after a task has read all of its input.

        Called after the last batch, also if there was no batch, and possibly more than once; by
        each task of a connector on its own, while other tasks may still write. ``topic`` is the
        topic that the records have, or would have. By default it does nothing. Raise
        RetriableError to be called again.
        """


class BatchSink(SinkTask):
    """A sink that writes Arrow batches from each Spark partition, then commits on the driver.

    The task object is pickled to the executors after ``start``.
    """

    @abstractmethod
    def write(
        self, rows: Iterator[pa.RecordBatch], batch: SinkBatch, part: str
    ) -> Mapping[str, object]:
        """Stage the rows of one partition, on an executor; return a JSON message.

        ``part`` identifies this attempt at this partition; a part whose message is not passed
        to ``commit`` was lost and must leave no trace.
        """

    @abstractmethod
    def commit(
        self, messages: Sequence[Mapping[str, object]], batch: SinkBatch, receipt: str
    ) -> None:
        """Make the parts visible with their mark in one transaction, on the driver.

        See ``StagedWrite.commit`` for the case that the target already contains the batch.
        """

    @abstractmethod
    def committed(self, mark: Mark, topic: str) -> str | None:
        """Return the receipt of the batch if the target already contains the batch."""

    def abort(self, messages: Sequence[Mapping[str, object]], batch: SinkBatch) -> None:
        """Remove everything staged under the batch's mark and epoch.

        Called when ``StagedWrite.abort`` is, and also if ``write`` failed for any partition:
        ``messages`` is then empty, because the messages of the other partitions are lost, so a
        sink finds their parts by the mark. Parts of a newer epoch belong to another owner and
        must stay. Must not raise if there is nothing to remove. ``commit`` removes what was
        not aborted, for example after a crash.
        """


class RecordSink(SinkTask):
    """Kafka Connect's SinkTask: ``put`` and ``flush``, one record at a time.

    It runs on executors and stores no marks, so it delivers at least once.
    """

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Write records, in order. Raises RetriableError if the system is busy."""

    def flush(self) -> None:
        """Return only when everything put so far is durable."""


class SinkConnector(Connector):
    """A connector that writes to a system. It has no instances: its tasks do all the work."""

    @classmethod
    def target(cls, config: Config) -> str:
        """Return what a configuration writes to, such as a path or the address of a table.

        It is part of the names of the sink's marks, and never shown. It must stay the same as
        long as the target is the same: leave out tuning, network routes and credentials.
        Override it if a task may have several sinks of this connector, with different targets;
        the default, an empty string, is enough for one sink.
        """
        return ""

    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that writes the records of an offline job's window.

        A sink that can replace a window's rows learns the window here. By default the
        configuration is unchanged. Raises ConfigError: a setting is not possible with such
        bounds.
        """
        return {**config.originals}

    @classmethod
    def repeatable(cls, config: Config) -> bool:
        """Return whether a window may be written again from the beginning.

        The target must then contain each row once, for example through upserts. False by
        default.
        """
        return False

    @classmethod
    def takes_overlaps(cls, config: Config) -> bool:
        """Return whether runs may write overlapping windows, in any order and interleaved.

        The target must then contain the rows of the overlap once, for example through upserts,
        also if one run is retried after the other. Return False if a run may delete rows that
        another run wrote; the default is ``repeatable``.
        """
        return cls.repeatable(config)

    @classmethod
    def table_rows(
        cls, config: Config, topic: str, schema: Schema
    ) -> Sequence[TableRows] | None:
        """Return the tables that contain the records of a topic now, for ``verify``.

        Together they contain the topic's rows, each row in one table; return an empty sequence
        if no table exists yet. Topics that share a table must return it with the same title.
        The columns have the names of the records' fields; the key is the target's unique key,
        or else the key in the schema. ``schema`` is the schema of the records' values. Return
        None (the default) if the target cannot be read or does not store records as rows.
        """
        return None

    @classmethod
    def check_tables(
        cls, config: Config, tables: Callable[[], Sequence[TableRows]]
    ) -> Iterable[ConfigError]:
        """Yield the problems with source tables whose rows reach the sink unchanged.

        Called when source and sink are validated together, with the sink's valid configuration,
        in its own thread; it may connect. ``tables`` queries the source; its errors may be
        raised.
        """
        return ()

    @classmethod
    def table_rules(cls, config: Config) -> Sequence[str]:
        """Return the display name of each stream rule, in order; none by default."""
        return ()

    @classmethod
    def mapped_tables(
        cls, config: Config, topic: str, schema: Schema | None
    ) -> Sequence[MappedTable] | None:
        """Return the tables that records of a topic or stream go to, for ``headrace mapping``.

        Called before anything runs, for each existing topic; it must not connect. ``schema`` is
        the schema of the records' values, or None if unknown. Return None (the default) if the
        sink has no tables, and an empty sequence if the sink leaves the records out.

        Raises ConfigError: such records cannot be written as configured.
        """
        return None

    @classmethod
    @abstractmethod
    def task(cls, config: Config) -> FrameSink | BatchSink | RecordSink:
        """Create the task for a parsed configuration."""


RECORD_ID = "record_id"
"""A BIGINT column in the frames of a sink that verifies. Records that are equal in all their
parts share an id, and one rejection then applies to any one of them."""


def class_name(kind: type) -> str:
    """Return the name of a class in the form of dead letters."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A condition under which a target rejects a record.

    Args:
        condition: SQL over the columns of the frame of ``FrameSink.write``; never null.
        exception: The class of the error, in the form of dead letters.
    """

    condition: str
    problem: str
    fix: str = ""
    field: str | None = None
    exception: str = class_name(RecordError)

    @property
    def message(self) -> str:
        """The text of the error in dead letters."""
        return f"{self.field}: {self.problem}" if self.field else self.problem


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that a target has rejected.

    Args:
        record: The ``RECORD_ID`` of the record.
    """

    record: int
    exception: str
    message: str

    @classmethod
    def by(cls, record: int, error: Exception) -> Refused:
        """Return the rejected record for an error."""
        problem = getattr(error, "problem", None) or str(error)
        return cls(record, class_name(type(error)), problem)


@runtime_checkable
class Verified(Protocol):
    """A staged write of a sink that verifies; see ``FrameSink.verifies``."""

    def refused(self) -> Sequence[Refused]:
        """Return the records that the target rejects, which are not in the staged data."""


@runtime_checkable
class Selective(Protocol):
    """A staged write of a sink whose configuration leaves records out."""

    def filtered(self) -> Mapping[str, int]:
        """Return the number of records left out, by the configuration key that excludes them.

        They count as filtered and are not included in ``rows``.
        """
