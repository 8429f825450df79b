"""Batches that are written but not yet part of the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.sdk.delta import (
    add_files,
    discard_other_attempts,
    discard_staged,
    find_receipt,
)
from headrace.sdk.deltalog import flush_commits
from headrace_plugins.connectors.delta.heavy import SparkCommit, change_schema, make_table
from headrace_plugins.connectors.delta.merging import Merge
from headrace_plugins.connectors.delta.target import (
    HIDDEN,
    add_columns,
    append_obstacle,
    create_table,
    merge_obstacle,
    open_table,
    record_created,
    size_of,
    turns_on_features,
)
from headrace_plugins.connectors.delta.types import nullable
from headrace_plugins.connectors.delta.worker import run_in_worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from headrace.sdk import Mark
    from headrace.sdk.delta import AddedFile
    from headrace.sdk.location import Location
    from headrace_plugins.connectors.delta.fitting import Fit
    from headrace_plugins.connectors.delta.upkeep import Upkeep

__all__ = ["Destination", "StagedAppend", "StagedRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The table that a batch goes to, and what has to be done to it before.

    Args:
        spark: The worker's session.
        path: The table's folder.
        fit: How the batch goes into the table.
        partition_by: What a new table is divided by.
        properties: The properties of a new table.
        upkeep: Called after each commit.
    """

    spark: SparkSession
    path: Location
    fit: Fit
    partition_by: Sequence[str]
    properties: Mapping[str, str]
    upkeep: Upkeep

    def ready(self) -> DeltaTable:
        """Make the table or its new columns, and return it as it is now.

        It has no part in the batch's transaction: columns without values do no harm, and are
        there when the batch runs again.
        """
        table = open_table(self.path)
        if table is None:
            return self._made()
        if not self.fit.added and not self.fit.widened:
            return table
        version = int(table.version())
        if self.fit.widened or append_obstacle(table) is not None:
            change_schema(self.spark, self.path, self.fit.schema)
        else:
            add_columns(table, self.fit)
        flush_commits(self.path, None, version)
        return self._opened()

    def _made(self) -> DeltaTable:
        if not turns_on_features(self.properties):
            return create_table(
                self.path,
                self.fit,
                partition_by=self.partition_by,
                properties=self.properties,
            )
        make_table(
            self.spark,
            self.path,
            self.fit.schema,
            partition_by=self.partition_by,
            properties=self.properties,
        )
        table = self._opened()
        flush_commits(self.path, None)
        record_created(table, self.path)
        return table

    def _opened(self) -> DeltaTable:
        table = open_table(self.path)
        if table is None:
            message = f"{self.path} was removed while it was written to"
            raise FileNotFoundError(message)
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAppend:
    """Files that only have to be named in the table's log."""

    to: Destination
    mark: Mark
    files: Sequence[AddedFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def commit(self, receipt: str) -> None:
        table = self.to.ready()
        if self.mark.wrote(find_receipt(table, self.mark)):
            return
        # Guarantee 2: the mark and the files are one transaction.
        add_files(table, self.files, self.mark, receipt, datetime.now(UTC))
        discard_other_attempts(self.to.path, self.mark)
        self.to.upkeep.after_commit(self.to.spark, self.to.path, self.mark.application)

    def abort(self) -> None:
        discard_staged(self.to.path, self.mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Rows in a hidden folder of the table, to be merged into it or written by Spark.

    Args:
        to: The table.
        mark: The batch.
        files: The staged files.
        rows: How many records they stand for, superseded ones included.
        keys: The key's columns, for a merge.
        merge_bytes: From this size of the table on, Spark does the merge.
    """

    to: Destination
    mark: Mark
    files: Sequence[AddedFile]
    rows: int
    keys: Sequence[str]
    merge_bytes: int

    def commit(self, receipt: str) -> None:
        table = self.to.ready()
        if not self.mark.wrote(find_receipt(table, self.mark)):
            work: dict[str, Any] = {
                "table": self.to.path,
                "files": [self.to.path / file.path for file in self.files],
                "fields": self._fields(),
                "keys": self.keys,
                "mark": self.mark,
                "receipt": receipt,
            }
            if self._needs_spark(table):
                SparkCommit(**work).run(self.to.spark)
            else:
                run_in_worker(self.to.spark, Merge(**work).run)
            # Guarantee 1: those commits are in the operating system's memory only.
            flush_commits(self.to.path, self.mark, int(table.version()))
        discard_staged(self.to.path, self.mark, folder=HIDDEN)
        discard_other_attempts(self.to.path, self.mark, folder=HIDDEN)
        self.to.upkeep.after_commit(self.to.spark, self.to.path, self.mark.application)

    def abort(self) -> None:
        discard_staged(self.to.path, self.mark, folder=HIDDEN)

    def _needs_spark(self, table: DeltaTable) -> bool:
        if not self.keys or merge_obstacle(table) is not None:
            return True
        return size_of(table) >= self.merge_bytes

    def _fields(self) -> list[dict[str, Any]]:
        written = set(self.to.fit.names.values())
        return [
            {"name": f["name"], "type": nullable(f["type"]), "nullable": True, "metadata": {}}
            for f in self.to.fit.fields
            if f["name"] in written
        ]
