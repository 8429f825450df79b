"""The gears of transforms that are code: of a frame, of Arrow batches, or of one record.

What SQL can say belongs into ``Transform``, which costs no stage and no Python. These are
for the rest. They stand in a chain like any other: with predicates, counts and errors.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk.expressions import RecordExpr, ValueExpr
from headrace.sdk.transform import Transform

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headrace.sdk.record import Record
    from headrace.sdk.schema import Schema

__all__ = [
    "ArrowTransform",
    "CodeTransform",
    "FrameTransform",
    "RecordTransform",
    "TransformBatch",
    "TransformContext",
]


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What the runtime offers a transform between ``start`` and ``stop``.

    Args:
        connector: The connector's name.
        task: The task's number within its connector.
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
    therefore kept by batch id: batch n reads what the batches before n left, writes what it
    leaves itself under n, and replaces what an earlier attempt at n left there. When batch n
    is computed, all batches before n are durable in every target, so their state will not be
    asked for by itself any more and may be merged.

    Args:
        id: Only grows.
        stream: The topic that the records came with; state of one is not that of another.
        begun: The time of the batch's intent, the same whenever it is computed.
    """

    id: int
    stream: str
    begun: datetime


_DRIVER = {"context", "running"}


class CodeTransform(Transform):
    """What the gears share. Call order: ``start``, batches, ``stop``, all on the driver.

    Executors get a pickled copy without the context.
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

        Called on the driver for each schema of a stream. The default is no change. A value
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


class ArrowTransform(CodeTransform):
    """Changes Arrow batches, in Spark's Python workers.

    Nothing of the transform is called there but ``open``, ``transform`` and ``close``.
    """

    def open(self) -> None:
        """Get ready on an executor. Called before the first batch of each partition.

        A worker process takes many partitions, of this batch and of later ones: keep what is
        dear, such as connections, in the module.
        """

    def close(self) -> None:
        """Let go of what ``open`` took. Called once after it, also when a batch failed."""

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


class RecordTransform(CodeTransform):
    """Changes one record at a time, in Spark's Python workers: the slowest gear.

    Nothing of the transform is called there but ``open``, ``transform`` and ``close``.
    """

    def open(self) -> None:
        """See ArrowTransform."""

    def close(self) -> None:
        """See ArrowTransform."""

    @abstractmethod
    def transform(self, record: Record) -> Record | None:
        """Return the record after this step; None drops it.

        The value must fit what ``output`` says, a mapping will do for a Struct. The key keeps
        its schema. What it raises rejects this record; RetriableError fails the batch, which
        is run again later.
        """
