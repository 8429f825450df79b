"""Reads new rows from the tables of a database, in parts that executors read."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import structlog
from typing_extensions import override

from headrace.sdk import (
    Boundaries,
    ConfigError,
    FrameSource,
    HeadraceError,
    Lag,
    Position,
    ReadLimit,
    RetriableError,
    Schema,
    check_range,
)
from headrace.sdk.errors import RangeChangedError
from headrace.sdk.schema import DATE, TIMESTAMP
from headrace.sdk.sources import ArrowParts, ReplayableSource, StreamFrameSource, StreamRows
from headrace_plugins.connectors.jdbc.settings import (
    JdbcSourceSettings,
    Mode,
)
from headrace_plugins.databases.catalog import Table, rows_schema
from headrace_plugins.databases.cursors import (
    NOW,
    BulkCursor,
    Cursor,
    GrowingCursor,
    Rows,
    SettledNumber,
    dividing_key,
    window_sql,
    written,
)
from headrace_plugins.databases.database import Select, database_of
from headrace_plugins.databases.parts import arrow_parts, divided, spark_records
from headrace_plugins.databases.selection import NO_TABLES, NO_TABLES_FIX, Selection
from headrace_plugins.window import column_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import TaskContext
    from headrace_plugins.databases.catalog import TableName
    from headrace_plugins.databases.database import Session

log = structlog.get_logger(__name__)


class TableReader:
    """Common code of the two tasks: finds tables, creates cursors, and splits ranges.

    Not thread-safe. It has one connection for metadata and positions, which is reopened after
    an error, and during a batch a second one that holds the batch's snapshot.
    """

    def __init__(self, settings: JdbcSourceSettings) -> None:
        self.settings = settings
        self.database = database_of(settings)
        self._session: Session | None = None
        self._looked = -float("inf")
        self._tables: dict[str, Table] = {}
        self._batch = ExitStack()
        self._rounds: dict[str, tuple[int, float]] = {}
        self._settled: dict[str, SettledNumber] = {}

    @cached_property
    def selection(self) -> Selection:
        """The selection of tables; may query the database for its default schema."""
        return Selection.of(self.settings, self.database)

    # --- metadata -------------------------------------------------------------------

    def session(self) -> Session:
        """Return the connection for metadata and positions, without an open transaction."""
        self._session = self.database.idle(self._session)
        return self._session

    def forget(self) -> None:
        """Close the connection for metadata and positions."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def close(self) -> None:
        """Close all connections."""
        self._batch.close()
        self.forget()

    def tables(self, *, refresh: bool = False) -> Mapping[str, Table]:
        """Return the tables to read by name, parents first; cached unless ``refresh``."""
        due = self._looked + self.settings.table_poll_interval_ms / 1000
        if refresh or time.monotonic() >= due:
            session = self.session()
            found = self.selection.tables(self.database, session)
            before = set(self._tables)
            self._tables = {str(table.name): table for table in found}
            if self._looked > 0 and before != set(self._tables):
                log.info(
                    "the set of tables to read has changed",
                    new=sorted(set(self._tables) - before),
                    gone=sorted(before - set(self._tables)),
                )
            self._looked = time.monotonic()
        return self._tables

    def rows_of(self, table: Table) -> Rows:
        """Return the rows of a table, as input of a cursor."""
        return Rows.of(self.database, table)

    def query_rows(self) -> Rows:
        """Return the rows of the configured query."""
        query = str(self.settings.query).strip().rstrip(";")
        columns = self.database.query_columns(self.session(), query)
        return Rows(
            database=self.database,
            source=f"({query}) q",
            columns={each.name: each for each in columns},
            key=(),
            count=None,
            title="the query",
        )

    def cursor(self, rows: Rows) -> Cursor:
        """Return the mode's cursor over rows. Raises ConfigError if its column is missing."""
        settings, mode = self.settings, self.settings.mode
        if mode is Mode.BULK:
            again = settings.bulk_interval_ms is not None
            more = self._window(rows)
            return BulkCursor(dividing_key(rows), _now_ms() if again else None, more)
        for key, names in self._mode_columns():
            for name in names:
                self._check_column(rows, key, name)
        zone, times = ZoneInfo(settings.db_timezone), settings.timestamp_column_name
        if len({rows.has_zone(name) for name in times}) > 1 and settings.db_timezone != "UTC":
            raise ConfigError(
                problem=f"Some of the columns {', '.join(times)} of {rows.title} have a time "
                "zone and some have none, and a database compares the latter as UTC.",
                fix="Name only columns of one kind, or set db.timezone=UTC.",
                field="db.timezone",
            )
        initial, begin = self._begin(rows)
        return GrowingCursor(
            times,
            settings.incrementing_column_name,
            timedelta(milliseconds=settings.timestamp_delay_interval_ms),
            initial,
            zone,
            begin,
            self._window(rows, times),
        )

    def _begin(self, rows: Rows) -> tuple[Mapping[str, Any], str]:
        """Return the offset after which a first batch starts, and the SQL condition for it."""
        settings, times = self.settings, self.settings.timestamp_column_name
        time_ms, number = settings.timestamp_initial, settings.incrementing_initial
        initial: dict[str, Any] = {}
        if settings.incrementing_column_name and number is not None:
            initial["incrementing"] = number
        if not times or time_ms is None:
            return initial, ""
        if time_ms == _AT_START:
            return {**initial, "timestamp": NOW}, ""
        schema = rows.columns[times[0]].schema
        if not (schema.is_logical and schema.name in {DATE, TIMESTAMP}):
            schema = Schema.local_timestamp()  # a time in a text column
        bounds = Boundaries.between(datetime.fromtimestamp(time_ms / 1000, UTC), None)
        of, zone = Schema.struct({times[0]: schema}), settings.db_timezone
        window = column_window(bounds, times[0], of, zone, rows.title)
        if initial:
            return {**initial, "timestamp": written(window.lower, schema)}, ""
        return initial, window_sql(rows, window, times)

    def _window(self, rows: Rows, columns: Sequence[str] = ()) -> str:
        """Return the SQL condition of the configured window; empty without a window."""
        schema = Schema.struct({name: each.schema for name, each in rows.columns.items()})
        settings = self.settings
        window = settings.column_window(schema, settings.db_timezone, rows.title)
        return "" if window is None else window_sql(rows, window, columns)

    def _mode_columns(self) -> list[tuple[str, Sequence[str]]]:
        number = self.settings.incrementing_column_name
        return [
            ("incrementing.column.name", [number] if number else []),
            ("timestamp.column.name", self.settings.timestamp_column_name),
        ]

    def _check_column(self, rows: Rows, key: str, name: str) -> None:
        column = rows.columns.get(name)
        if column is None:
            near = [each for each in rows.columns if each.lower() == name.lower()]
            has = (
                f"It has: {', '.join(rows.columns)}. Exclude the table, or name another column."
            )
            raise ConfigError(
                problem=f"{rows.title} has no column {name}.",
                fix=f"Did you mean {near[0]}?" if near else has,
                field=key,
            )
        settings = self.settings
        is_one = not key.startswith("timestamp") or len(settings.timestamp_column_name) == 1
        is_checked = settings.validate_non_null and settings.query is None and is_one
        if column.schema.optional and is_checked:
            raise ConfigError(
                problem=f"The column {name} of {rows.title} is nullable, and rows with a "
                "null in it are never read.",
                fix="Make it NOT NULL, or set validate.non.null=false.",
                field=key,
            )

    # --- ranges ---------------------------------------------------------------------

    def latest(
        self,
        rows: Rows,
        offset: Mapping[str, Any] | None,
        *,
        most: int | None,
        until: Mapping[str, Any] | None,
    ) -> tuple[Mapping[str, Any], int] | None:
        """Return the end of the next batch; see ``Cursor.latest``."""
        cursor, session = self.cursor(rows), self.session()
        # A given end was settled when it was determined; timestamp columns use their delay.
        if until is None and isinstance(cursor, GrowingCursor) and not cursor.timestamp:
            settled = self._settled.setdefault(rows.title, SettledNumber())
            until = settled.look(session, rows, cursor, offset)
            if until is None:
                return None
        return cursor.latest(session, rows, offset, most=most, until=until)

    def may_begin(self, name: str, offset: Mapping[str, Any] | None) -> bool:
        """Return whether the interval since the last bulk read of a table has passed.

        The interval continues across restarts by the time in the offset. The clock may have
        been set back since: the wait never exceeds the interval, and a time far in the future
        causes no wait.
        """
        interval, now = self.settings.bulk_interval_ms, time.monotonic()
        if interval is None or offset is None or "after" in offset:
            self._rounds.setdefault(name, (0, now))
            return True
        number = int(offset.get("round", 0))
        known, since = self._rounds.get(name, (None, 0.0))
        if known is None:
            since = now - abs(_now_ms() - int(offset.get("at", _now_ms()))) / 1000
        elif known != number:
            since = now
        self._rounds[name] = number, since
        return now >= since + interval / 1000

    def parts(
        self,
        spark: SparkSession,
        rows: Rows,
        schema: Schema,
        start: Mapping[str, Any] | None,
        end: Mapping[str, Any],
        *,
        table: Table | None,
        snapshot: str | None,
    ) -> ArrowParts | DataFrame:
        """Return the rows of a range as parts that executors read, or as a Spark data frame."""
        settings = self.settings
        span = self.cursor(rows).range(rows, start, end)
        conditions = divided(
            self.session(),
            rows,
            span,
            table=table,
            has_snapshot=snapshot is not None,
            split_rows=settings.split_rows,
            connections=settings.connections_max,
            parallel=spark.sparkContext.defaultParallelism,
        )
        selects = [
            Select(
                columns=tuple(rows.columns.values()),
                source=rows.source,
                where=each,
                snapshot=snapshot,
            )
            for each in conditions
        ]
        if self.database.by_spark:
            return spark_records(
                self.database.frame(spark, selects).coalesce(settings.connections_max),
                schema,
                settings.rows_per_second,
            )
        return arrow_parts(
            self.database,
            schema,
            selects,
            connections=settings.connections_max,
            nulls=settings.nulls,
            rows_per_second=settings.rows_per_second,
        )

    def begin_batch(self) -> str | None:
        """Take a snapshot for a batch, and release that of the previous batch."""
        self._batch.close()
        return self._batch.enter_context(self.database.snapshot())

    def end_batch(self) -> None:
        """Release the batch's snapshot."""
        self._batch.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def partition_of(name: TableName | str) -> Mapping[str, str]:
    """Return the source partition of a table."""
    return {"table": str(name)}


_AT_START = -1
"""The value of timestamp.initial for the time of the start."""
QUERY = {"query": "query"}
"""Kafka Connect's source partition for a query."""


class _ReadingTask(ReplayableSource):
    settings: JdbcSourceSettings

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._reader = TableReader(self.settings)

    @override
    def stop(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None:
            reader.close()

    @override
    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    @override
    def acknowledge(self, position: Position) -> None:
        self._reader.end_batch()


class TablesTask(_ReadingTask, StreamFrameSource):
    """Reads tables, each as a stream of its own."""

    _has_tables = True

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        reader, end = self._reader, start
        left = limit.rows
        had, self._has_tables = self._has_tables, bool(reader.tables())
        if had and not self._has_tables:
            log.warning(NO_TABLES, fix=NO_TABLES_FIX)
        for name, table in reader.tables().items():
            partition = partition_of(name)
            until = None if limit.until is None else limit.until.offset(partition)
            offset = start.offset(partition)
            if limit.until is not None and until is None:
                continue  # created after the start of the run
            if (offset == until and until is not None) or not reader.may_begin(name, offset):
                continue
            try:
                found = reader.latest(reader.rows_of(table), offset, most=left, until=until)
            except RetriableError:
                raise
            except HeadraceError:
                if name in reader.tables(refresh=True):
                    raise
                continue  # dropped since the tables were listed; continue with the others
            if found is None or found[0] == offset:
                continue
            end = end.moved(partition, found[0])
            if left is not None:
                left -= found[1]
                if left <= 0:
                    break
        reader.session()
        return end

    @override
    def streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        reader = self._reader
        changed = [each["table"] for each in end.changed(start) if "table" in each]
        # Take the snapshot first: reading detects schema changes made after it.
        snapshot = reader.begin_batch()
        try:
            tables = reader.tables(refresh=True)
        except ConfigError as error:  # a table named in the settings was dropped
            raise RangeChangedError(error.problem, fix=error.fix) from error
        check_range(start, end, [partition_of(name) for name in {*tables, *changed}])
        gone = [name for name in changed if name not in tables]
        if gone:
            raise RangeChangedError(
                problem=f"The batch reads {gone[0]}, which was dropped or is not included.",
                fix="Restore the table, or include it again, until the batch is finished.",
            )
        found = []
        for name, table in tables.items():
            if name not in changed:
                continue
            partition = partition_of(name)
            rows = reader.rows_of(table)
            parts = reader.parts(
                spark,
                rows,
                table.schema(reader.database.kind),
                start.offset(partition),
                end.offset(partition) or {},
                table=table,
                snapshot=snapshot,
            )
            continues = reader.cursor(rows).continues(start.offset(partition))
            stream = reader.selection.stream(table.name)
            found.append(StreamRows(stream, parts, continues=continues))
        reader.session()
        return found

    @override
    def ended(self, position: Position) -> bool:
        if self.settings.mode is not Mode.BULK or self.settings.bulk_interval_ms is not None:
            return False
        names = self._reader.tables()
        fixed = self._reader.selection.is_fixed or self.settings.window is not None
        offsets = [position.offset(partition_of(name)) for name in names]
        return fixed and all(each is not None and "after" not in each for each in offsets)


class QueryTask(_ReadingTask, FrameSource):
    """Reads the rows of a query."""

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        reader = self._reader
        rows, offset = reader.query_rows(), start.offset(QUERY)
        until = None if limit.until is None else limit.until.offset(QUERY)
        if (offset == until and until is not None) or not reader.may_begin("query", offset):
            return start
        found = reader.latest(rows, offset, most=limit.rows, until=until)
        reader.session()
        return start if found is None else start.moved(QUERY, found[0])

    @override
    def arrow_parts(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | None:
        if self._reader.database.by_spark:
            return None
        found = self._rows(spark, start, end)
        assert isinstance(found, ArrowParts)
        return found

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        found = self._rows(spark, start, end)
        assert not isinstance(found, ArrowParts)  # read by arrow_parts
        return found

    def _rows(
        self, spark: SparkSession, start: Position, end: Position
    ) -> ArrowParts | DataFrame:
        check_range(start, end, [QUERY])
        reader = self._reader
        rows = reader.query_rows()
        return reader.parts(
            spark,
            rows,
            rows_schema(reader.database.kind, list(rows.columns.values())),
            start.offset(QUERY),
            end.offset(QUERY) or {},
            table=None,
            snapshot=reader.begin_batch(),
        )

    @override
    def ended(self, position: Position) -> bool:
        once = self.settings.mode is Mode.BULK and self.settings.bulk_interval_ms is None
        return once and position.offset(QUERY) is not None
