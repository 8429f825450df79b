"""Maps the records of a batch to the target tables of their stream."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, SinkError
from headrace.sdk.mark import require_same_records
from headrace.sdk.sparktypes import from_spark_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headrace.sdk import Schema, SinkBatch
    from headrace.sdk.sink import StagedWrite
    from headrace_plugins.target_table import TableSelection, TargetTable

_REASON = "table.mapping"
"""The filter reason of records that go to no table."""


def selection_of(target: TargetTable, frame: DataFrame, batch: SinkBatch) -> TableSelection:
    """Return what of a batch goes into a table, with all column types. Starts no Spark job.

    Raises ConfigError as ``TargetTable.select`` does, or if Spark cannot analyze an expression.
    """

    def types(columns: Sequence[str]) -> Schema:
        try:
            return from_spark_json(json.loads(frame.selectExpr(*columns).schema.json()))
        except AnalysisException as error:
            message = (error.getMessage() or str(error)).partition("\n")[0]
            raise ConfigError(problem=f"Spark cannot analyze it: {message}") from error

    return target.select(
        batch.schema, key=batch.key_schema, field_sql=batch.field_sql, types=types
    )


def renamed(
    batches: Iterator[pa.RecordBatch], renames: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches with the columns in ``TableSelection.renames``."""
    for batch in batches:
        yield batch.select(list(renames.values())).rename_columns(list(renames))


@dataclass(frozen=True, slots=True)
class TableWrite:
    """The write of a batch's records to one table.

    Args:
        table: The table's name.
        condition: SQL for the records that the table receives, never null; None for all.
        held: The receipt of the batch, if the table already contains the batch.
        stage: Stages these records.
    """

    table: str
    condition: str | None
    held: str | None
    stage: Callable[[DataFrame], StagedWrite]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTables:
    """The staged writes of a batch to its tables, in the order of priority.

    A crash between two commits leaves the batch in only some of the tables. The retry skips
    the tables that already contain the batch.

    Args:
        parts: The writes to tables that do not contain the batch yet.
        held: The receipts of tables that contain it, by table name.
        rows: The number of records that went to at least one table.
        left_out: The number of records that went to no table.
    """

    parts: Sequence[StagedWrite]
    held: Mapping[str, str] = field(default_factory=dict)
    rows: int
    left_out: int = 0

    @classmethod
    def of(
        cls, frame: DataFrame, batch: SinkBatch, tables: Sequence[TableWrite]
    ) -> StagedTables:
        """Stage the records table by table, with one pass over the frame per table."""
        held = {each.table: each.held for each in tables if each.held is not None}
        counts = _Counts.over(frame, [each.condition for each in tables])
        parts: list[StagedWrite] = []
        try:
            for number, each in enumerate(tables):
                if each.held is not None:
                    continue
                rows = frame if parts else counts.frame  # only the first pass counts
                taken = rows if each.condition is None else rows.where(each.condition)
                parts.append(each.stage(taken))
                _require_all(each.table, parts[-1].rows, counts.of(f"table{number}"))
            counts = counts if parts else counts.alone()
            written = counts.of("taken")
            left_out = counts.of("records") - written
        except BaseException:
            for part in parts:
                part.abort()
            raise
        return cls(parts=parts, held=held, rows=written, left_out=left_out)

    def filtered(self) -> Mapping[str, int]:
        """Return the count of records that go to no table: ``headrace.sdk.sink.Selective``."""
        return {_REASON: self.left_out}

    def commit(self, receipt: str) -> None:
        """Commit the tables one by one; see ``StagedWrite.commit``."""
        for table, before in self.held.items():
            require_same_records(before, receipt, table)
        for number, each in enumerate(self.parts):
            try:
                each.commit(receipt)
            except BaseException:
                for later in self.parts[number + 1 :]:
                    later.abort()
                raise

    def abort(self) -> None:
        """Abort all parts."""
        for each in self.parts:
            each.abort()


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts the records of each table during the write to the first table.

    Args:
        frame: The records; the first job over this frame counts them.
    """

    frame: DataFrame
    _uncounted: DataFrame
    _measures: Mapping[str, str]
    _seen: Observation | None

    @classmethod
    def over(cls, frame: DataFrame, conditions: Sequence[str | None]) -> _Counts:
        every = [condition or "true" for condition in conditions]
        measures = {
            "records": "count(1)",
            "taken": f"count_if({' OR '.join(every) or 'false'})",
            **{f"table{n}": f"count_if({each})" for n, each in enumerate(every)},
        }
        seen = Observation()
        columns = [F.expr(sql).alias(name) for name, sql in measures.items()]
        return cls(frame.observe(seen, *columns), frame, measures, seen)

    def alone(self) -> _Counts:
        """Return the same counts from separate jobs, if no job runs over the frame."""
        return replace(self, _seen=None)

    def of(self, name: str) -> int:
        """Return a count, after the first job."""
        if self._seen is not None:
            # If Spark can prove that there is nothing to write, no job runs and counts.
            with suppress(Py4JError):
                return int(self._seen.get[name])
        sql = f"{self._measures[name]} AS found"
        return int(self._uncounted.selectExpr(sql).collect()[0].found)


def _require_all(table: str, staged: int, expected: int) -> None:
    if staged != expected:
        raise SinkError(
            problem=f"{staged} of {expected} records were staged for {table}.",
            fix="The source returns other records when it is read again; put a topic between.",
        )
