"""Transforms and predicates as SQL expressions over the record columns.

A chain is compiled before any data moves: each transform turns one ``RecordExpr`` into
the next, in plain Python, and the runtime lays the result over the DataFrame as one
projection a step, which Spark merges into a single stage.
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
"""What Kafka Connect's transforms raise for most records that do not fit."""


class Transform(Configured, ABC):
    """Changes or drops a record in flight."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it, without ``$Key`` or ``$Value``."""
    parts: ClassVar[bool] = True
    """Whether it exists for the key and for the value (``$Key``, ``$Value``)."""
    uses_names: ClassVar[bool] = False
    """Whether its expressions hold SQL of the user's, which names the value's fields."""
    routes: bool = False
    """Whether it may change the topic: tasks that read any topic then wait for its task."""

    ordered: ClassVar[bool] = False
    """Whether it looks at the order of records. The frame of a FrameTransform then has the
    column ``position`` wherever a source or a topic knows the order."""

    def __init__(self, alias: str, config: Config, *, of_key: bool = False) -> None:
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)
        self.of_key = of_key

    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        """Return what is wrong with what a valid configuration names, such as a missing file.

        Called where a definition is checked, once its paths and code are allowed. Looks, but
        starts and changes nothing.
        """
        return ()

    @abstractmethod
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Return the shape after this step.

        Called once for each schema the stream has had. Raises UnfitRecordError when records
        of this shape cannot go through, and ConfigError when the configuration is wrong
        whatever the records are.
        """

    def keyed_rows(self, value: Schema) -> KeyedRows | None:
        """Return what does the same in Arrow, for records that have only values.

        It drops and rejects nothing, and what it makes are rows with keys. None, the default,
        where only SQL can.

        Args:
            value: The schema of the values.
        """
        return None

    @property
    def title(self) -> str:
        """What errors call it beside its alias: the name of its class."""
        return type(self).__name__

    def part(self, shape: RecordExpr) -> ValueExpr:
        """Return the part this transform works on."""
        return shape.key if self.of_key else shape.value

    def with_part(self, shape: RecordExpr, part: ValueExpr) -> RecordExpr:
        """Return ``shape`` with the part this transform works on replaced."""
        return replace(shape, key=part) if self.of_key else replace(shape, value=part)

    def struct(self, shape: RecordExpr, purpose: str) -> ValueExpr:
        """Return the part, which must have fields: a STRUCT, or a map without schema.

        Records whose part is null are let pass, as by most of Kafka Connect's transforms.
        ``purpose`` is what the fields are needed for, in the words of Kafka Connect's message.
        Raises UnfitRecordError: the part is of another type.
        """
        part = self.part(shape)
        if part.is_struct or part.is_map:
            return part
        raise self.unstructured(part, purpose, where=f"NOT {part.is_null()}")

    def whole_struct(
        self, shape: RecordExpr, purpose: str
    ) -> tuple[RecordExpr, ValueExpr | None]:
        """Return the part, which must have fields and not be null, and reject other records.

        The part is None when no record can have fields: the shape is then the outcome.
        Arguments as in `struct`.
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
        """Return the error for a part that has no fields, as Kafka Connect words it.

        ``where`` is an SQL condition, never null, for the records concerned; ``null`` says that
        the part is null in them, as it always is for a part that has fields.
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
        """Reject the records for which ``condition`` is true, in this transform's name.

        ``message`` is an SQL expression of type STRING. What the step makes of these records
        does not matter, but it must not raise.
        """
        return shape.failing(
            condition,
            stage="TRANSFORMATION",
            plugin=f"{self.alias} ({self.title})",
            exception=exception,
            message=message,
        )

    def refusing(self, shape: RecordExpr, error: UnfitRecordError) -> RecordExpr:
        """Reject the records that an error is about."""
        return self.rejecting(
            shape, error.where, literal(error.message), exception=error.exception
        )


Types = Callable[[Sequence[str]], "Schema"]
"""Gives the schema of a struct of named SQL expressions over the records of a step."""


class TypedTransform(Transform):
    """A transform with SQL of the user's, whose type only Spark can tell.

    It is SQL all the same, and part of the one stage.
    """

    @abstractmethod
    def apply_typed(self, shape: RecordExpr, types: Types) -> RecordExpr:
        """Return the shape after this step, as ``apply`` does.

        ``types`` analyses expressions, each with a name, such as ``a + 1 AS value``; it takes
        some milliseconds, and what Spark refuses becomes a ConfigError of this step.
        """

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Without Spark nothing can be said: the runtime calls ``apply_typed``."""
        raise NotImplementedError


class Predicate(Configured, ABC):
    """Decides which records a transform applies to."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other systems' class names for it."""
    uses_names: ClassVar[bool] = False
    """Whether its condition is SQL of the user's, which names the value's fields."""

    def __init__(self, alias: str, config: Config) -> None:
        self.alias = alias
        self.config = config
        self.settings = self.settings_class().from_config(config)

    @abstractmethod
    def condition(self, shape: RecordExpr) -> str:
        """Return an SQL condition over the record that is never null."""


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What the runtime offers a transform between ``start`` and ``stop``.

    Args:
        task: The number of the task, from 0; -1 of the one that replays dead letters.
        state: A folder of this transform in this task alone, which stays over restarts. It
            need not exist. Driver and executors see the same folder.
    """

    connector: str
    task: int
    state: Path


@dataclass(frozen=True, slots=True)
class TransformBatch:
    """The batch that records belong to.

    A batch may be computed many times: for each sink, for its dead letters, and again after
    a crash, with the same id and the same records. State that moves with the batch is
    therefore kept by batch id: batch n reads what the batches before it left, writes what it
    leaves itself under n, and replaces what an earlier attempt at n left there. When batch n is
    computed, all batches before it are durable in every target, so their state will not be
    asked for by itself any more and may be merged; or they were dropped, see
    ``CodeTransform.begin``.

    Where the schema of a stream changes within a batch, each part between two changes is
    computed by itself, in order; a part also reads what the parts before it left.

    Args:
        id: Only grows.
        stream: The topic that the records came with; state of one is not that of another.
        begun: The time of the batch's intent, the same whenever it is computed.
        part: The number of the part, from 0.
    """

    id: int
    stream: str
    begun: datetime
    part: int = 0


_DRIVER = {"context", "running"}


class CodeTransform(Transform):
    """What the gears share. Call order: ``start``, batches, ``stop``, all on the driver.

    ``begin`` is called before each attempt at a batch. Executors get a pickled copy without
    the context.
    """

    parts = False
    repeatable: ClassVar[bool] = False
    """Whether the same records give the same however often they are computed. What does not
    promise that is kept where it might be computed again, as for dead letters."""

    @cached_property
    def running(self) -> CodeTransform:
        """What runs, itself or another; the runtime's way to ``runner``."""
        return self.runner()

    def start(self, context: TransformContext) -> None:
        """Get ready. Raises ConfigError when the transform cannot work as configured."""
        self.context = context

    def begin(self, batch: int, after: int | None) -> None:
        """Get ready for an attempt at a batch, also one that brings no records.

        ``after`` is the id of the newest batch that was finished before it, 0 if there is none,
        and None where nothing is known of earlier ones. Batches between the two were dropped:
        their records come again, and what they left, in any stream, counts for nothing.
        """

    def stop(self) -> None:
        """Let go of everything. Called once, also after a failed start."""

    def runner(self) -> CodeTransform:
        """Return what runs in its place, where the configuration decides on the gear.

        It is called once, before ``start``, and raises ConfigError when there is nothing that
        can run; all other methods are then called on what it returns.
        """
        return self

    def output(self, value: Schema) -> Schema:
        """Return the schema of values after this step, given that before it.

        Called on the driver for each schema of a stream. By default nothing changes. A value
        may be null after any step. With a predicate it may only add fields that may be null:
        spared records have them too. Raises ConfigError or UnfitRecordError as ``apply`` does.
        """
        return value

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        """Change nothing: the runtime runs the code in the place of expressions."""
        return shape

    @override
    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in _DRIVER}


class FrameTransform(CodeTransform):
    """Changes a whole DataFrame."""

    @abstractmethod
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        """Return the records after this step. Builds a plan; may run jobs for its state.

        Columns are ``key`` and ``value`` where records have them, ``headers``,
        ``timestamp``, ``topic``, ``partition``, ``dropped`` and ``error``, others that must
        be kept as they are, and ``applies``: whether the step is meant for the record, which
        is false where a predicate spares it or an earlier step dropped or rejected it.

        Give null to fields that ``output`` adds where it is false. Return exactly one row for
        each row, with all columns. ``value`` must be of the type
        that ``output`` says. To drop a record, set ``dropped`` to this transform's alias; to
        reject it, set ``error``, see ``rejection``. A row that vanishes breaks the counts.
        """

    def rejection(self, exception: str, message: str) -> str:
        """Return SQL for ``error``; ``message`` is an expression of type STRING."""
        shape = RecordExpr(key=ValueExpr(None), value=ValueExpr(None), topic="''")
        failing = self.rejecting(shape, "true", message, exception=exception)
        return f"({failing.error})"


class _WorkerTransform(CodeTransform):
    """What runs in Spark's Python workers: ``open``, ``transform`` and ``close``, no more."""

    def open(self) -> None:
        """Get ready on an executor. Called before the first batch of each partition.

        A worker process takes many partitions, of this batch and of later ones: keep what is
        dear, such as connections, in the module.
        """

    def close(self) -> None:
        """Let go of what ``open`` took. Called once after it, also when a batch failed."""


class ArrowTransform(_WorkerTransform):
    """Changes Arrow batches, in Spark's Python workers."""

    @abstractmethod
    def transform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what becomes of a batch of records, none of them spared by a predicate.

        Columns are ``key`` and ``value`` where records have them, ``headers``,
        ``timestamp``, ``topic``, ``partition``, and ``row``, which numbers the rows. A column
        that is not returned stays as it was. A row whose number is not returned is dropped;
        without ``row`` there must be as many rows as before, in their order.

        What it raises rejects the records, and they alone: a batch that fails is tried again
        by halves. RetriableError fails the batch, which is run again later.
        """


class RecordTransform(_WorkerTransform):
    """Changes one record at a time, in Spark's Python workers: the slowest gear."""

    @abstractmethod
    def transform(self, record: Record) -> Record | None:
        """Return the record after this step; None drops it.

        The value must fit what ``output`` says, a mapping will do for a Struct. The key keeps
        its schema. What it raises rejects this record; RetriableError fails the batch, which
        is run again later.
        """
