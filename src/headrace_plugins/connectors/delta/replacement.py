"""Replaces a window's rows by those of a run, in the first commit of the run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from headrace.sdk import ConfigError, Mark, RetriableError, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import AddedFile, add_files, find_receipt, staging_folder
from headrace.sdk.deltalog import flushing, load_table
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.sink import run_in_workers
from headrace.sdk.sqltext import quote
from headrace_plugins.connectors.delta.columns import as_field, nullable
from headrace_plugins.connectors.delta.commit import SparkCommit, delete_rows
from headrace_plugins.connectors.delta.table import (
    TableFile,
    added_file,
    definition_of,
    fields_of,
    merge_obstacle,
    properties_of,
    schemas_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace_plugins.window import ColumnWindow, RunWindow

_TRIES = 10
_MILLISECOND = timedelta(milliseconds=1)
_TEXT_CHARS = 32  # writers truncate strings in statistics to this length


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The rows of a window in one table.

    A mark of the run records that they are deleted. The first task of the run to commit
    deletes them and stores that mark, in the transaction that adds its own rows: each file with
    rows in the window is removed from the table, and its other rows are written to a new file.
    If only Spark may delete, the deletion is a separate transaction before the one that adds
    the rows.
    """

    spark: SparkSession
    path: Location
    window: RunWindow

    @property
    def _mark(self) -> Mark:
        return Mark(self.window.run, self.window.generation, 0)

    def commit(
        self,
        planned: tuple[Any, ...] | None,
        files: Sequence[AddedFile],
        mark: Mark,
        receipt: str,
    ) -> None:
        """Add files, and delete the window's rows if this is the first commit of the run.

        Raises StaleEpochError if another attempt has written the batch, or a newer one, or the
        run was restarted from the beginning meanwhile. Raises RetriableError if other writers
        committed first in each of several tries, or the table no longer has the ``planned``
        definition.
        """
        for _ in range(_TRIES):
            table = load_table(self.path)
            if mark.wrote(find_receipt(table, mark)):
                return
            if files and definition_of(table) != planned:
                break
            removed: list[dict[str, Any]] = []
            rest: list[AddedFile] = []
            marks = {}
            if not self._is_done(table):
                if self._needs_spark(table):
                    self._delete()
                    continue
                removed, rest = self._replaced(table, mark)
                marks = {self._mark.application: self._mark.batch}
            try:
                # Guarantee 2: the commit fails if the run's mark has changed meanwhile.
                add_files(
                    table,
                    [*files, *rest],
                    mark,
                    receipt,
                    datetime.now(UTC),
                    removed=removed,
                    transactions=marks,
                    watched=[self.window.run],
                )
            except RetriableError:
                for file in rest:
                    (self.path / file.path).delete()
            else:
                return
        problem = f"Other writers changed {self.path} while rows of a window were replaced."
        raise RetriableError(problem)

    def settle(self) -> None:
        """Delete the window's rows, unless the run has already done so."""
        if self._is_done(table := load_table(self.path)):
            return
        if self._needs_spark(table):
            self._delete()
            return
        try:
            self.commit(None, [], self._mark, self._mark.receipt({}))
        except StaleEpochError:  # another task of the run was faster
            if not self._is_done(load_table(self.path)):
                raise

    def _is_done(self, table: DeltaTable) -> bool:
        return self.window.is_replaced(table.transaction_version(self.window.run))

    def _window_in(self, table: DeltaTable) -> ColumnWindow:
        return self.window.of(schemas_of(fields_of(table)), f"The table {self.path}")

    def _needs_spark(self, table: DeltaTable) -> bool:
        if properties_of(table).get("delta.appendOnly") == "true":
            raise ConfigError(
                problem=f"Rows of the table {self.path} cannot be deleted: its property "
                "delta.appendOnly is true.",
                fix="Remove replace.window.column, or set delta.appendOnly to false.",
                field="replace.window.column",
            )
        return merge_obstacle(table) is not None

    def _delete(self) -> None:
        table, mark = load_table(self.path), self._mark
        window = self._window_in(table)
        marked = SparkCommit(
            table=self.path,
            files=(),
            fields=[as_field(f["name"], nullable(f["type"])) for f in fields_of(table)],
            keys=(),
            mark=mark,
            receipt=mark.receipt({}),
            planned=definition_of(table),
        )
        condition, last = window.sql(quote(window.column)), None
        # Guarantee 1: Spark's commits are not yet on disk.
        with flushing(self.path, mark, int(table.version())):
            for _ in range(_TRIES):
                try:
                    delete_rows(self.spark, self.path, condition, mark)
                    # Spark makes no commit where there is nothing to delete.
                    marked.run(self.spark)
                except RetriableError as error:
                    last = error
                else:
                    return
        problem = f"Other writers changed {self.path} during the deletion of a window."
        raise RetriableError(problem) from last

    def _replaced(
        self, table: DeltaTable, mark: Mark
    ) -> tuple[list[dict[str, Any]], list[AddedFile]]:
        """Return the remove actions, and the new files with the rows outside the window."""
        window = self._window_in(table)
        folder = self.path / staging_folder(mark)
        found = [
            _File(action, folder / f"kept-{uuid.uuid4().hex}.parquet")
            for action in pa.table(table.get_add_actions(flatten=True)).to_pylist()
            if _may_hold(action, window)
        ]
        divided = window.column in table.metadata().partition_columns
        if not divided and found:
            folder.make_folder()
            schema = Schema.struct(schemas_of(fields_of(table)))
            run_in_workers(
                self.spark, [partial(_write_rest, self.path, f, schema, window) for f in found]
            )
        now = int(datetime.now(UTC).timestamp() * 1000)
        removed, rest = [], []
        for file in found:
            if divided or file.to.exists():
                removed.append(file.removal(now))
            if not divided and file.to.exists():
                kept = added_file(file.to, self.path, file.values)
                rest += [kept] if kept.rows else []
                if not kept.rows:
                    file.to.delete()
        return removed, rest


@dataclass(frozen=True, slots=True)
class _File(TableFile):
    """A file of the table, and the new file for its rows outside the window.

    The new file does not exist if no rows are inside the window, and is empty if all are.
    """

    to: Location


def _may_hold(action: Mapping[str, Any], window: ColumnWindow) -> bool:
    """Return whether a file may contain rows of a window, by its partition or statistics."""
    name, lower, upper = window.column, window.lower, window.upper
    if f"partition.{name}" in action:
        low = high = action[f"partition.{name}"]
        if low is None:
            return False
    else:
        low, high = action.get(f"min.{name}"), action.get(f"max.{name}")
        if isinstance(low, Decimal):
            return True  # writers round decimals in statistics
        if isinstance(high, datetime):
            high += _MILLISECOND  # writers truncate it to milliseconds
        if isinstance(high, str) and len(high) >= _TEXT_CHARS:
            high = None
    return not (
        (lower is not None and high is not None and high < lower)
        or (upper is not None and low is not None and low >= upper)
    )


def _write_rest(table: Location, file: _File, schema: Schema, window: ColumnWindow) -> None:
    """Write the rows of a file that are outside a window, if any row is inside."""
    types = to_arrow(schema)
    with file.opened(table) as parquet:
        own = pa.schema([f for f in types if f.name in parquet.schema_arrow.names])
        column = pa.schema([f for f in own if f.name == window.column])
        batches = parquet.iter_batches(columns=column.names) if len(column) else ()
        if not any(window.rows(conform(batch, column)).num_rows for batch in batches):
            return
        # Spark may retry this while an abandoned attempt is still writing.
        draft = file.to.parent / f".{uuid.uuid4().hex}.parquet"
        with draft.open_output() as to, pq.ParquetWriter(to, own) as writer:
            for batch in parquet.iter_batches(columns=own.names):
                rows = conform(batch, own)
                kept = rows.filter(pc.invert(window.holds(rows)))
                if kept.num_rows:
                    writer.write_batch(kept)
        draft.move_to(file.to)
