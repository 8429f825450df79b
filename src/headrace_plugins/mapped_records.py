"""The records of a batch as the tables of their stream are to have them."""

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
"""What the records that no table gets are filtered by."""


def selection_of(target: TargetTable, frame: DataFrame, batch: SinkBatch) -> TableSelection:
    """Return what of a batch goes into a table, with the types of all columns. No job runs.

    Raises ConfigError: as ``TargetTable.select``, or Spark cannot understand an expression.
    """

    def types(columns: Sequence[str]) -> Schema:
        try:
            return from_spark_json(json.loads(frame.selectExpr(*columns).schema.json()))
        except AnalysisException as error:
            message = (error.getMessage() or str(error)).partition("\n")[0]
            raise ConfigError(problem=f"Spark cannot run it: {message}") from error

    return target.select(
        batch.schema, key=batch.key_schema, field_sql=batch.field_sql, types=types
    )


def renamed(
    batches: Iterator[pa.RecordBatch], renames: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches with the columns of ``TableSelection.renames``."""
    for batch in batches:
        yield batch.select(list(renames.values())).rename_columns(list(renames))


@dataclass(frozen=True, slots=True)
class TableWrite:
    """What writes the records of a batch that one table gets.

    Args:
        table: What the table is called.
        condition: SQL for the records that it gets, never null; None for all.
        held: The receipt of the batch, if the table holds it already.
        stage: Stages these records.
    """

    table: str
    condition: str | None
    held: str | None
    stage: Callable[[DataFrame], StagedWrite]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTables:
    """What a batch has staged for each of its tables, in the order of their priority.

    A process that ends between two commits leaves the batch in some of them: it runs again, and
    those that hold it are left as they are.

    Args:
        parts: The writes of the tables that do not hold the batch.
        held: The receipts of those that do, by their names.
        rows: How many records went to at least one table.
        left_out: How many went to none.
    """

    parts: Sequence[StagedWrite]
    held: Mapping[str, str] = field(default_factory=dict)
    rows: int
    left_out: int = 0

    @classmethod
    def of(
        cls, frame: DataFrame, batch: SinkBatch, tables: Sequence[TableWrite]
    ) -> StagedTables:
        """Stage records for tables, one after the other: each is a pass over the frame."""
        held = {each.table: each.held for each in tables if each.held is not None}
        counts = _Counts.over(frame, [each.condition for each in tables])
        parts: list[StagedWrite] = []
        try:
            for number, each in enumerate(tables):
                if each.held is not None:
                    continue
                rows = frame if parts else counts.frame  # the first pass counts for all
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
        """Return the records that no table gets: ``headrace.sdk.sink.Selective``."""
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
        """Remove what is staged for all of them."""
        for each in self.parts:
            each.abort()


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts the records of a batch by the tables that get them, on their way to the first.

    Args:
        frame: The records; the first job over it counts them.
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
        """Return the same counts, by jobs of their own: no pass is made over the frame."""
        return replace(self, _seen=None)

    def of(self, name: str) -> int:
        """Return a count, after the first job."""
        if self._seen is not None:
            # Where Spark can prove that there is nothing to write it runs nothing that counts.
            with suppress(Py4JError):
                return int(self._seen.get[name])
        sql = f"{self._measures[name]} AS found"
        return int(self._uncounted.selectExpr(sql).collect()[0].found)


def _require_all(table: str, staged: int, expected: int) -> None:
    if staged != expected:
        raise SinkError(
            problem=f"{staged} of {expected} records were staged for {table}.",
            fix="The source gives other records when it is read again: put a topic in between.",
        )
