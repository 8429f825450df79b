"""Transforms and predicates as SQL expressions over the record columns.

A chain is compiled before any data is read: each transform turns one ``RecordExpr`` into
the next, in plain Python, and the runtime applies the result to the DataFrame as one
projection per step, which Spark merges into a single stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.config import Config, Configured
from headrace.sdk.errors import ConfigError, UnfitRecordError
from headrace.sdk.expressions import RecordExpr, ValueExpr
from headrace.sdk.sqltext import literal
from headrace.sdk.struct_exprs import java_class

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headrace.sdk.keyed_rows import KeyedRows
    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema


DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
"""The exception that Kafka Connect's transforms raise for most records they do not accept."""


class Transform(Configured, ABC):
    """A step that changes or drops records in flight."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it, without ``$Key`` or ``$Value``."""
    parts: ClassVar[bool] = True
    """Whether it has a variant for the key and one for the value (``$Key``, ``$Value``)."""
    uses_names: ClassVar[bool] = False
    """Whether its expressions contain the user's SQL, which refers to the value's fields."""
    routes: bool = False
    """Whether it may change the topic: tasks that read any topic then wait for its task."""

    ordered: ClassVar[bool] = False
    """Whether it depends on the order of records. The frame of a FrameTransform then has the
    column ``position`` if the source or topic knows the order."""

    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)
        self.of_key = of_key

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        """Return problems with resources that a valid configuration names, such as a file.

        Called when a definition is validated, after its paths and code were allowed. It must
        not start or change anything.
        """
        return ()

    @abstractmethod
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Return the shape after this step.

        Called once for each schema of the stream. Raises UnfitRecordError if the transform does
        not accept records of this shape, and ConfigError if the configuration is wrong for any
        records.
        """

    def keyed_rows(self, value: Schema) -> KeyedRows | None:
        """Return the Arrow equivalent of this step, for records that have only values.

        It must not drop or reject records, and its output must be rows with keys. Return None
        (the default) if the step is possible only in SQL.

        Args:
            value: The schema of the values.
        """
        return None

    @property
    def title(self) -> str:
        """The name shown in errors beside the alias: the name of the class."""
        return type(self).__name__

    def part(self, shape: RecordExpr) -> ValueExpr:
        """Return the part this transform works on."""
        return shape.key if self.of_key else shape.value

    def with_part(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        """Return ``shape`` with the part this transform works on replaced."""
        return replace(shape, key=part) if self.of_key else replace(shape, value=part)

    def struct(self, shape: RecordExpr, purpose: str) -> ValueExpr:
        """Return the part, which must have fields: a STRUCT, or a map without schema.

        Records whose part is null pass unchanged, as with most of Kafka Connect's transforms.
        ``purpose`` says what the fields are needed for, in the words of Kafka Connect's
        message. Raises UnfitRecordError: the part has another type.
        """
        part = self.part(shape)
        if part.is_struct or part.is_map:
            return part
        raise self.unstructured(part, purpose, where=f"NOT {part.is_null()}")

    def whole_struct(
        self, shape: RecordExpr, purpose: str
    ) -> tuple[RecordExpr, ValueExpr | None]:
        """Return the part, which must have fields and not be null, and reject other records.

        The part is None if no record can have fields: the returned shape is then the result of
        the step. The arguments are those of `struct`.
        """
        part = self.part(shape)
        nothing = part.is_null()
        if nothing != "false":
            error = self.unstructured(part, purpose, null=True, where=nothing)
            shape = self.refusing(shape, error)
        if part.is_struct or part.is_map:
            return shape, part
        error = self.unstructured(part, purpose, where=f"NOT {nothing}")
        return replace(self.refusing(shape, error), unfit=True), None

    def unstructured(
        self, part: ValueExpr, purpose: str, *, null: bool = False, where: str = "true"
    ) -> UnfitRecordError:
        """Return the error for a part without fields, in Kafka Connect's words.

        ``where`` is an SQL condition, never null, that matches these records. ``null`` says
        that their part is null, which is implied if the part's type has fields.
        """
        schema = None if null or part.is_struct or part.is_map else part.schema
        found = "null" if schema is None else java_class(schema, schemaless=part.schemaless)
        plain = part.schema is None or part.schemaless
        kind = (
            "Map objects supported in absence of schema"
            if plain
            else "Struct objects supported"
        )
        return UnfitRecordError(
            message=f"Only {kind} for [{purpose}], found: {found}", where=where
        )

    def rejecting(
        self,
        shape: RecordExpr,
        condition: str,
        message: str,
        *,
        exception: str = DATA_EXCEPTION,
    ) -> RecordExpr:
        """Reject the records for which ``condition`` is true, with this transform's name.

        ``message`` is an SQL expression of type STRING. The step's output for these records is
        ignored, but the step must not raise for them.
        """
        return shape.failing(
            condition,
            stage="TRANSFORMATION",
            plugin=f"{self.alias} ({self.title})",
            exception=exception,
            message=message,
        )

    def refusing(self, shape: RecordExpr, error: UnfitRecordError) -> RecordExpr:
        """Reject the records that an error applies to."""
        return self.rejecting(
            shape, error.where, literal(error.message), exception=error.exception
        )


Types = Callable[[Sequence[str]], "Schema"]
"""Returns the schema of a struct of named SQL expressions over the records of a step."""


class TypedTransform(Transform):
    """A transform with the user's SQL, whose type only Spark can determine.

    Like other SQL transforms, it is part of the single stage.
    """

    @abstractmethod
    def apply_typed(self, shape: RecordExpr, types: Types) -> RecordExpr:
        """Return the shape after this step, as ``apply`` does.

        ``types`` analyzes named expressions, such as ``a + 1 AS value``; it takes a few
        milliseconds, and an expression that Spark rejects becomes a ConfigError of this step.
        """

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Not supported, because the types need Spark: the runtime calls ``apply_typed``."""
        raise NotImplementedError


class Predicate(Configured, ABC):
    """A condition that decides which records a transform applies to."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    uses_names: ClassVar[bool] = False
    """Whether its condition is the user's SQL, which refers to the value's fields."""

    def __init__(self, alias: str, config: Config) -> None:
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)

    @abstractmethod
    def condition(self, shape: RecordExpr) -> str:
        """Return an SQL condition over the record that is never null."""


@dataclass(frozen=True, slots=True)
class TransformContext:
    """The runtime services for a transform between ``start`` and ``stop``.

    Args:
        task: The task number, from 0; -1 for the task that replays dead letters.
        state: A folder for this transform in this task only; it survives restarts. It may not
            exist yet. Driver and executors see the same folder.
    """

    connector: str
    task: int
    state: Path


@dataclass(frozen=True, slots=True)
class TransformBatch:
    """The batch that records belong to.

    A batch may be computed many times: for each sink, for its dead letters, and again after
    a crash, with the same id and the same records. Therefore store state by batch id: batch n
    reads the state of earlier batches, writes its own state under n, and replaces the state
    that an earlier attempt at n wrote. When batch n is computed, each earlier batch is either
    durable in every target, so its state is no longer needed separately and may be merged, or
    was dropped; see ``CodeTransform.begin``.

    If the schema of a stream changes within a batch, each part between two changes is computed
    separately, in order; a part also reads the state of the parts before it.

    Args:
        id: The batch id; it only grows.
        stream: The topic of the incoming records. State must be separate for each stream.
        begun: The time of the batch's intent; the same each time the batch is computed.
        part: The number of the part, from 0.
    """

    id: int
    stream: str
    begun: datetime
    part: int = 0


_DRIVER = {"context", "running"}


class CodeTransform(Transform):
    """Base class of transforms that run Python code, on DataFrames, Arrow batches or records.

    Call order: ``start``, batches, ``stop``, all on the driver. ``begin`` is called before each
    attempt at a batch. Executors get a pickled copy without the context.
    """

    parts = False
    repeatable: ClassVar[bool] = False
    """Whether the output is deterministic: the same records always give the same output.
    Without that promise, output that might be computed again is cached, as for dead letters."""

    @cached_property
    def running(self) -> CodeTransform:
        """The transform that runs, from ``runner``: this one or a replacement."""
        return self.runner()

    def start(self, context: TransformContext) -> None:
        """Initialize. Raises ConfigError if the transform cannot run as configured."""
        self.context = context

    def begin(self, batch: int, after: int | None) -> None:
        """Prepare for an attempt at a batch, also for a batch without records.

        ``after`` is the id of the newest batch that finished before it, 0 if there is none, and
        None if earlier batches are unknown. Batches between the two were dropped: their records
        come again, and the state that they wrote, for any stream, must be ignored.
        """

    def stop(self) -> None:
        """Release all resources. Called once, also after a failed start."""

    def runner(self) -> CodeTransform:
        """Return the transform that runs instead, if the configuration decides on the gear.

        Called once, before ``start``; all other methods are then called on the returned
        transform. Raises ConfigError if there is nothing to run.
        """
        return self

    def output(self, value: Schema) -> Schema:
        """Return the schema of values after this step, given the schema before it.

        Called on the driver for each schema of a stream. By default the schema is unchanged. A
        value may be null after any step. With a predicate, only nullable fields may be added,
        because skipped records have them too. Raises ConfigError or UnfitRecordError as
        ``apply`` does.
        """
        return value

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Return the shape unchanged: the runtime runs the code instead of expressions."""
        return shape

    @override
    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in _DRIVER}


class FrameTransform(CodeTransform):
    """A transform of whole DataFrames."""

    @abstractmethod
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        """Return the records after this step. Builds a plan; may run jobs for its state.

        Columns are ``key`` and ``value`` if the records have them, ``headers``,
        ``timestamp``, ``topic``, ``partition``, ``dropped`` and ``error``, others that must
        stay unchanged, and ``applies``: whether the step applies to the record. It is false if
        the predicate skips the record or an earlier step dropped or rejected it.

        Where ``applies`` is false, set the fields that ``output`` adds to null. Return exactly
        one row for each row, with all columns. ``value`` must have the type from ``output``. To
        drop a record, set ``dropped`` to this transform's alias; to reject it, set ``error``,
        see ``rejection``. Removing a row breaks the counts.
        """

    def rejection(self, exception: str, message: str) -> str:
        """Return the SQL for ``error``; ``message`` is an expression of type STRING."""
        shape = RecordExpr(key=ValueExpr(None), value=ValueExpr(None), topic="''")
        failing = self.rejecting(shape, "true", message, exception=exception)
        return f"({failing.error})"


class _WorkerTransform(CodeTransform):
    """Base class of transforms in Spark's Python workers, which call only the methods below."""

    def open(self) -> None:
        """Initialize on an executor. Called before the first batch of each partition.

        A worker process handles many partitions, of this batch and of later ones: store
        expensive resources, such as connections, in the module.
        """

    def close(self) -> None:
        """Release what ``open`` acquired. Called once after it, also if a batch failed."""


class ArrowTransform(_WorkerTransform):
    """A transform of Arrow batches, in Spark's Python workers."""

    @abstractmethod
    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch after this step; it contains no records that a predicate skips.

        Columns are ``key`` and ``value`` if the records have them, ``headers``,
        ``timestamp``, ``topic``, ``partition``, and ``row``, which numbers the rows. A column
        that is not returned stays unchanged. A row whose number is not returned is dropped;
        without ``row`` the row count and order must be unchanged.

        An exception rejects only the records that cause it: a failed batch is retried in
        halves to find them. RetriableError fails the batch, which is retried later.
        """


class RecordTransform(_WorkerTransform):
    """A transform of one record at a time, in Spark's Python workers: the slowest gear."""

    @abstractmethod
    def transform(self, record: Record) -> Record | None:
        """Return the record after this step; None drops it.

        The value must fit the schema from ``output``; a mapping is accepted for a Struct. The
        key keeps its schema. An exception rejects this record; RetriableError fails the batch,
        which is retried later.
        """
