"""The streams of a batch: the parts and schema of each table for executors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import methodcaller
from typing import TYPE_CHECKING

from headrace.sdk.schema_evolution import evolve
from headrace.sdk.sources import ArrowParts, StreamRows
from headrace_plugins.changes.envelope import Envelope, row_schema
from headrace_plugins.changes.log import Shape
from headrace_plugins.changes.parts import ChangePart, LogPart, SnapshotPart, grouped
from headrace_plugins.changes.position import WHERE, begun_offset, check_condition
from headrace_plugins.databases.cursors import BulkCursor, Rows, dividing_key
from headrace_plugins.databases.database import Select
from headrace_plugins.databases.parts import divided, parts_of
from headrace_plugins.databases.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.sdk import Schema
    from headrace_plugins.changes.database_log import DatabaseLog, Snapshot
    from headrace_plugins.changes.log import Offset
    from headrace_plugins.changes.settings import ChangeSettings
    from headrace_plugins.changes.spool import SpooledRun
    from headrace_plugins.databases.catalog import Table, TableName
    from headrace_plugins.databases.database import Session


def cursor_of(rows: Rows, partition: Mapping[str, str]) -> BulkCursor:
    """Return the cursor over the rows of a table, or over those of a condition."""
    return BulkCursor(() if WHERE in partition else dividing_key(rows))


@dataclass(frozen=True)
class BatchStreams:
    """Collects the log changes and snapshot rows of a batch by table.

    Args:
        parallel: The number of parts to read in parallel.
        plugin: The name of the source in dead letters.
    """

    log: DatabaseLog
    settings: ChangeSettings
    parallel: int
    plugin: str
    _rows: dict[TableName, list[Schema]] = field(default_factory=lambda: defaultdict(list))
    _parts: dict[TableName, list[ChangePart]] = field(default_factory=lambda: defaultdict(list))

    def add_changes(
        self, table: TableName, runs: Sequence[SpooledRun], seen: str | None
    ) -> None:
        """Add log changes, without those that the table's snapshot contains."""
        shapes = dict.fromkeys(run.shape for run in runs)
        row = reduce(evolve, (row_schema(self.log.database.kind, shape) for shape in shapes))
        envelope, keeps = self._envelope(table, row, runs[-1].shape.key), self.log.keeps(seen)
        self._rows[table].append(row)
        self._parts[table] += [
            LogPart(group, envelope, self.log.typed, keeps)
            for group in grouped(runs, self.parallel)
        ]

    def add_rows(
        self,
        session: Session,
        table: Table,
        partition: Mapping[str, str],
        snapshot: Snapshot,
        *,
        start: Offset | None,
        end: Offset,
    ) -> None:
        """Add the rows of a table between two offsets, from a snapshot."""
        database, settings = self.log.database, self.settings
        rows = Rows.of(database, table)
        span = cursor_of(rows, partition).range(rows, begun_offset(start), end)
        if WHERE in partition:
            check_condition(partition[WHERE])
            span = replace(span, more=f"({partition[WHERE]})")
        with database.reading(session):
            conditions = divided(
                session,
                rows,
                span,
                table=table,
                has_snapshot=snapshot.name is not None,
                split_rows=settings.split_rows,
                connections=settings.snapshot_max_threads,
                parallel=self.parallel,
            )
        columns = tuple(each for each in table.columns if not each.generated)
        shape = Shape(table.name, columns, table.key)
        row = row_schema(database.kind, shape)
        envelope = self._envelope(table.name, row, table.key)
        selects = [
            Select(
                columns=shape.columns, source=rows.source, where=where, snapshot=snapshot.name
            )
            for where in conditions
        ]
        parts = parts_of(
            database,
            selects,
            settings.snapshot_max_threads,
            nulls=settings.nulls,
            rows_per_second=settings.snapshot_rows_per_second,
        )
        self._rows[table.name].append(row)
        self._parts[table.name] += [
            SnapshotPart(part, envelope, snapshot.ts_us, snapshot.details) for part in parts
        ]

    def streams(
        self, tables: Mapping[str, Table], continues: Callable[[TableName], bool]
    ) -> list[StreamRows]:
        """Return a stream for each table.

        Args:
            tables: The existing tables, by name.
            continues: Whether earlier batches contain data of a table.
        """
        selection, streams = Selection.of(self.settings, self.log.database), []
        for table, parts in self._parts.items():
            key = tables[str(table)].key if str(table) in tables else ()
            schema = self._envelope(table, reduce(evolve, self._rows[table]), key).schema
            sizes = [part.size_bytes for part in parts]
            streams.append(
                StreamRows(
                    selection.stream(table),
                    ArrowParts(schema, parts, methodcaller("read"), self.plugin),
                    continues=continues(table),
                    size_bytes=None if None in sizes else sum(filter(None, sizes)),
                    # Rows of two reads, such as for two conditions, may be duplicates.
                    inserts=len(self._rows[table]) == 1
                    and all(isinstance(part, SnapshotPart) for part in parts),
                )
            )
        return streams

    def _envelope(self, table: TableName, row: Schema, key: tuple[str, ...]) -> Envelope:
        return Envelope(row, key, self.log.facts(table), self.log.details)
