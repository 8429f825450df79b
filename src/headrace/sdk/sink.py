"""The three gears of a sink: frame, batch and record."""

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

    from headrace.sdk.boundaries import Boundaries
    from headrace.sdk.config import Config
    from headrace.sdk.mapped_tables import MappedTable
    from headrace.sdk.mark import Mark
    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema
    from headrace.sdk.table_rows import TableRows


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The batch that a frame belongs to.

    Args:
        mark: Identifies the batch; the same for every attempt but for the epoch.
        topic: The topic that the records have; names the target's table where a sink
            writes many. For a sink that takes many at once, the one they come from.
        key_schema: The schema of their keys; None when they have none.
        evolution: What the target does when the schema is not its own.
        rows: How many records the frame has, where that is known before they are computed.
        columns: For a sink that ``takes_columns``: columns of the frame that hold the fields of
            a ``value`` with many of them, by the names of the fields; none for few.
        continues: Whether its records go on with what an earlier batch has begun, as a table
            does that is read in several, see ``StreamRows``.
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
        """Return SQL for a field of the value, over the columns of the frame."""
        return self.columns.get(name) or f"value.{quote(name)}"


class StagedWrite(Protocol):
    """Data that is written but not yet visible in the target."""

    @property
    def rows(self) -> int:
        """Return how many records the staged data stands for."""

    def commit(self, receipt: str) -> None:
        """Make the data visible, with its mark and ``receipt``, in one transaction.

        Called again by the same attempt it changes nothing. Two attempts at a batch may
        overlap, as when a worker that was cut off wakes up: the target takes one of them, and
        the other has to fail and to leave alone what the target holds. So a sink looks, in
        the transaction that decides, whether the target holds the batch already:
        ``if mark.wrote(receipt that it holds, or None): return``.

        What it stands for is durable on return. A sink that writes files calls
        ``headrace.sdk.durability.flush`` with those of the attempt before the mark is visible,
        and with the mark's before it returns: a loss of power must not leave a mark without
        its rows.
        Raises StaleEpochError: the target holds the batch from another attempt (``Mark.wrote``
        raises it), or a newer one.
        """

    def abort(self) -> None:
        """Remove the staged data. Must not raise when there is none.

        Called when the batch does not come to its commit, as another sink failed or too many
        records are bad. It is not called after a crash, nor for what ``write`` had staged when
        it raised: ``write`` removes that itself, and ``commit`` what older attempts at the
        batch, those of smaller epochs, have left.
        """


@runtime_checkable
class WorkerCommit(StagedWrite, Protocol):
    """A StagedWrite whose commit is work for a Python worker, so that many go side by side.

    ``commit`` does the same for one.
    """

    @property
    def target(self) -> str:
        """What is changed: one after the other is, where two writes change the same."""

    def work(self, receipt: str) -> Callable[[], object] | None:
        """Return the work; see ``StagedWrite.commit``. It is pickled, and may run twice.

        None where it has turned out that no worker is needed, and all is done.
        """

    def finish(self) -> None:
        """Clean up behind the work."""


def run_in_workers(spark: SparkSession, works: Sequence[Callable[[], object]]) -> None:
    """Call each in a worker, side by side, and return when all are done.

    Errors of Headrace are raised here, the first one. Each may be called more than once, as
    Spark repeats failed tasks: it must change nothing the second time.
    """
    if not works:
        return
    context = spark.sparkContext
    run = partial(_run_all, durability())
    for failure in context.parallelize(works, len(works)).mapPartitions(run).collect():
        if failure is not None:
            # Made a moment ago by this very application.
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
    """What writes the rows of a batch as Arrow.

    Args:
        write: Writes one part, on an executor: its number and its rows. Returns what it has
            written, such as the name of a file, or None for nothing. It is pickled. It may run
            more than once for a part, also at the same time, with the same rows, and a run
            that Spark has given up may end after the commit: so each writes to a place of its
            own, and changes nothing that another has written.
        staged: Returns what is staged, on the driver, of the results of ``write``: one for
            each part that has written anything, in their order. What has another name is of
            runs that do not count.
        abort: Removes what parts have written where not all of them were.
        raw: Writers like ``write`` of a part's bytes in a format, by the name of the format,
            see ``ArrowParts.raw``. Each returns what ``write`` does, and how many rows it has
            written, which is taken for how many were read.
    """

    write: Callable[[int, Iterator[pa.RecordBatch]], str | None]
    staged: Callable[[Sequence[str]], StagedWrite]
    abort: Callable[[], object]
    raw: Mapping[str, Callable[[int, Iterator[bytes]], tuple[str | None, int]]] = field(
        default_factory=dict
    )


class SinkTask(Task):
    """A running part of a sink."""

    ordered: ClassVar[bool] = False
    """Whether records are needed in their order. Frames then have the column ``position``, and
    a batch or record sink gets each batch as one partition, in order."""
    takes_many_topics: ClassVar[bool] = False
    """Whether it looks at each record's own topic, so that one frame may hold many. For any
    other sink the runtime divides a batch whose topic depends on the data: the sink is given
    one topic after the other, each under its own mark."""

    rejects: ClassVar[tuple[type[Exception], ...]] = ()
    """The errors by which a sink says that the target refuses records, such as RecordError or a
    driver's own; RetriableError is never one.

    With ``errors.tolerance=all`` the runtime then finds the records concerned and dead-letters
    each with its error, and the others arrive. A RejectedError names them: a record sink has
    then taken all the others of the call, a batch sink none of the part. For any other error
    of these the runtime gives smaller and smaller pieces, on the executor: a record sink has
    then forgotten what it was given since the last ``flush``, which is called after each
    ``put``; a batch sink gets a new ``part`` each time. To refuse on ``commit`` is too late.
    A frame sink names no records: ``write`` is called with smaller and smaller frames, and
    what the call before has staged is aborted. Each is a Spark job, and each batch is kept
    for it: where the target's rules are known, ``refusals`` costs next to nothing.
    Without any, or where nothing is tolerated, every error ends the task."""

    def priority(self, topic: str) -> int:
        """Return the place of a stream among those of a batch: smaller ones are written first.

        For a target whose tables refer to each other: parents come before their children.
        """
        return 0


class Counting(Enum):
    """Where a sink's count of records comes from.

    The balance of a batch needs it. To count the records on their way costs a pass over
    each row, which a source that knows the length of a range and a sink that measures
    what it wrote make needless.
    """

    CLAIMED = "claimed"
    """The sink's own word: the runtime checks it against a count that it made itself."""
    MEASURED = "measured"
    """The written data, such as the footers of its files."""
    UNKNOWN = "unknown"
    """Nothing: the sink keeps nothing that could be counted, and ``rows`` is not read."""


class FrameSink(SinkTask):
    """Writes whole DataFrames in two steps, so that nothing half-done is visible."""

    counting: ClassVar[Counting] = Counting.CLAIMED
    """Where ``StagedWrite.rows`` comes from, so that nothing is counted twice."""
    takes_columns: ClassVar[bool] = False
    """Whether ``write`` takes the fields of a value from ``SinkBatch.columns`` where they are
    there. To take a struct of a thousand fields apart takes Spark longer to plan than all else:
    it writes out the whole struct for each of them."""
    verifies: ClassVar[bool] = False
    """Whether its staged writes are ``Verified``: they say which records the target refuses,
    and are without them. Where errors are tolerated its frames have the column ``record_id``;
    where they are not the first refused record has to raise."""

    @abstractmethod
    def committed(self, mark: Mark, topic: str) -> str | None:
        """Return the receipt of the batch if the target already holds it, as it was given.

        Called before each attempt at a batch that may have run before. A receipt that the
        target has forgotten is empty. A sink whose target holds a newer batch of the same
        application raises StateError: batches never go back.
        """

    def known_schema(self, topic: str) -> Schema | None:
        """Return the schema of the values that the target holds, if it is known exactly.

        Called before each batch, so it has to be quick. By default None: the runtime then
        remembers the schema of the last batch that the target has taken.
        """
        return None

    @abstractmethod
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        """Run the Spark job that stages the records of ``frame``.

        Columns: ``key``, ``value``, ``headers``, ``timestamp``, ``topic``,
        ``partition`` and, for an ordered sink, ``position``; a null ``value`` is a
        tombstone. Each batch is written as a whole or not at all.
        """

    def arrow_write(self, frame: DataFrame, batch: SinkBatch) -> ArrowWrite | None:
        """Return what writes a batch whose records have values only, as Arrow, on executors.

        Called with what ``write`` would be. No job may run. None, the default, where only
        ``write`` can.
        """
        return None

    def keyed_write(self, spark: SparkSession, batch: SinkBatch) -> ArrowWrite | None:
        """Return what writes few rows, of which each key is there once, as Arrow.

        The rows have the fields of the batch's values, and ``headrace.sdk.keyed_rows.DELETED``
        as the last column; its key names fields of them. All rows come as one part. The
        StagedWrite's ``rows`` are then those that were written. No job may run, and what only
        ``write`` can do, such as to make a table, is left to it: None, the default, where it is
        needed, or where it would not do the same. RecordError raised on an executor leaves the
        batch to ``write`` too.
        """
        return None

    def refusals(self, frame: DataFrame, batch: SinkBatch) -> Sequence[Refusal]:
        """Return conditions for records that the target cannot take. No job may run.

        Called before ``write`` with the same arguments where errors are tolerated: such records
        are dead-lettered, and ``write`` does not get them. Where nothing is tolerated ``write``
        gets them, and has to raise RecordError. The default is none.
        """
        return ()

    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        """Stage a batch without records: its commit adds the mark and the receipt only.

        Called instead of ``write`` when a step of the chain has refused every record, so that
        the schema that good ones would have is unknown. A sink must not make a target for
        it, nor change one. The default is None, for a target that is not there yet or that
        keeps no such marks: the batch changes nothing there, however often it runs.
        """
        return None

    def finish(self, spark: SparkSession, topic: str) -> None:
        """Do what is left to do when a task has come to the end of what it reads.

        Called behind the last batch, also where there was none, and perhaps again; by each task
        of a connector for itself, while others may still write. ``topic`` is the one that its
        records have, or would have. By default there is nothing to do. Raises RetriableError to
        be called again.
        """


class BatchSink(SinkTask):
    """Writes Arrow batches from each Spark partition, then commits on the driver.

    The task object is pickled to the executors after ``start``.
    """

    @abstractmethod
    def write(
        self, rows: Iterator[pa.RecordBatch], batch: SinkBatch, part: str
    ) -> Mapping[str, object]:
        """Stage the rows of one partition, on an executor; return a JSON message.

        ``part`` names this attempt of this partition; a part that is not among the
        messages given to ``commit`` was lost and must leave no trace.
        """

    @abstractmethod
    def commit(
        self, messages: Sequence[Mapping[str, object]], batch: SinkBatch, receipt: str
    ) -> None:
        """Make the parts visible with their mark in one transaction, on the driver.

        See ``StagedWrite.commit`` for when the target holds the batch already.
        """

    @abstractmethod
    def committed(self, mark: Mark, topic: str) -> str | None:
        """Return the receipt of the batch if the target already holds it."""

    def abort(self, messages: Sequence[Mapping[str, object]], batch: SinkBatch) -> None:
        """Remove all that was staged under the batch's mark and its epoch.

        Called as ``StagedWrite.abort`` is, and also when ``write`` failed for any partition:
        ``messages`` is then empty, as those of the others are lost, so a sink finds their
        parts by the mark. A newer epoch is another owner's, whose parts must stay. Must not
        raise when there is nothing. What it misses, as after a crash, ``commit`` removes.
        """


class RecordSink(SinkTask):
    """Kafka Connect's SinkTask: ``put`` and ``flush``, one record at a time.

    It runs on executors and keeps no mark, so it delivers at least once.
    """

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Take records, in order. Raises RetriableError when the system is busy."""

    def flush(self) -> None:
        """Return only when everything put so far is durable."""


class SinkConnector(Connector):
    """A connector that writes to a system. It is never made: its tasks do all the work."""

    @classmethod
    def target(cls, config: Config) -> str:
        """Return what a configuration writes to, such as a path or the address of a table.

        It is part of the names that the sink's marks have, and never shown. It must say the
        same as long as the target is the same: what is tuned, or how one gets there and logs
        in, is not part of it. A connector that a task may have more than once, for several
        targets, should say it; the default is nothing, which is enough for one.
        """
        return ""

    @classmethod
    def fill_in_boundaries(cls, config: Config, boundaries: Boundaries) -> Mapping[str, str]:
        """Return a configuration that writes what an offline job has read between boundaries.

        A sink that can replace a window's rows is told of the window here. By default the
        configuration as it is. Raises ConfigError: it asks for what such bounds do not allow.
        """
        return {**config.originals}

    @classmethod
    def repeatable(cls, config: Config) -> bool:
        """Return whether a window may be written again from the beginning.

        The target then holds each of its rows once, as by an upsert. By default it may not.
        """
        return False

    @classmethod
    def takes_overlaps(cls, config: Config) -> bool:
        """Return whether runs may write windows that share a part, in any order and by turns.

        The target then holds the rows of that part once, as by an upsert, also where one of the
        runs is tried again behind the other. A sink whose runs take rows away that others have
        written says no; by default it is as ``repeatable``.
        """
        return cls.repeatable(config)

    @classmethod
    def table_rows(
        cls, config: Config, topic: str, schema: Schema
    ) -> Sequence[TableRows] | None:
        """Return the tables that records of a topic are in now, for ``verify``.

        Together they have the topic's rows, each row in one of them; none where no table is
        there yet. Topics that share a table give it the same title. Its columns have the names
        of the records' fields; the key is what the target keeps unique, or else what the schema
        says. ``schema`` is that of the records' values. None, the default, for a target that
        cannot be read, or that does not keep records as rows.
        """
        return None

    @classmethod
    def check_tables(
        cls, config: Config, tables: Callable[[], Sequence[TableRows]]
    ) -> Iterable[ConfigError]:
        """Yield what is wrong with tables of a source whose rows reach the sink as they are.

        Called by a check of both, with the sink's valid configuration, in a thread of its own;
        it may connect. ``tables`` asks the source, and its errors may be passed on.
        """
        return ()

    @classmethod
    def table_rules(cls, config: Config) -> Sequence[str]:
        """Return what a person calls each rule for streams, in their order; none by default."""
        return ()

    @classmethod
    def mapped_tables(
        cls, config: Config, topic: str, schema: Schema | None
    ) -> Sequence[MappedTable] | None:
        """Return the tables that records of a topic or stream go to, for ``headrace mapping``.

        Called before anything runs, for each topic that is there; it connects to nothing. The
        schema is that of the records' values, None where it is not known. None, the default,
        for a sink that has no tables; none in the sequence where the records are left out.

        Raises ConfigError: such records cannot be written as configured.
        """
        return None

    @classmethod
    @abstractmethod
    def task(cls, config: Config) -> FrameSink | BatchSink | RecordSink:
        """Make the task of a parsed configuration."""


RECORD_ID = "record_id"
"""A BIGINT column of the frames of a sink that verifies. Records that are equal in all their
parts share one, and one refusal is about one of them, no matter which."""


def class_name(kind: type) -> str:
    """Return the name of a class as dead letters show it."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A condition for records that a target cannot take.

    Args:
        condition: SQL over the columns that ``FrameSink.write`` gets, never null.
        exception: The class of the error, as dead letters show it.
    """

    condition: str
    problem: str
    fix: str = ""
    field: str | None = None
    exception: str = class_name(RecordError)

    @property
    def message(self) -> str:
        """The text of the error, as dead letters show it."""
        return f"{self.field}: {self.problem}" if self.field else self.problem


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that a target has refused.

    Args:
        record: Its ``RECORD_ID``.
    """

    record: int
    exception: str
    message: str

    @classmethod
    def by(cls, record: int, error: Exception) -> Refused:
        """Return a record that was refused by an error."""
        problem = getattr(error, "problem", None) or str(error)
        return cls(record, class_name(type(error)), problem)


@runtime_checkable
class Verified(Protocol):
    """A staged write of a sink that verifies; see ``FrameSink.verifies``."""

    def refused(self) -> Sequence[Refused]:
        """Return the records that the target refuses, which the staged data is without."""


@runtime_checkable
class Selective(Protocol):
    """A staged write of a sink that leaves records out, as its configuration says."""

    def filtered(self) -> Mapping[str, int]:
        """Return how many records it was given and is without, by the key that says so.

        They count as filtered, and are not among its ``rows``.
        """
