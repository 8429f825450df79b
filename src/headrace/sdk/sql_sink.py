"""A base class for database sinks: marks and staging in tables, through a DB-API driver."""

# ruff: noqa: S608 - names are quoted or generated here, and values are bound
from __future__ import annotations

import hashlib
from abc import abstractmethod
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
from typing_extensions import override

from headrace.sdk.errors import ConfigError, RetriableError
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from headrace.sdk.sink import BatchSink, SinkBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.sdk.connector import TaskContext
    from headrace.sdk.mark import Mark

_MARKS = "headrace_marks"
_STAGED = "headrace_staged"
_TYPES: Mapping[str, str] = {
    Type.BOOLEAN.value: "BOOLEAN",
    Type.INT8.value: "SMALLINT",
    Type.INT16.value: "SMALLINT",
    Type.INT32.value: "INTEGER",
    Type.INT64.value: "BIGINT",
    Type.FLOAT32.value: "REAL",
    Type.FLOAT64.value: "DOUBLE PRECISION",
    Type.STRING.value: "TEXT",
    Type.BYTES.value: "BLOB",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    DECIMAL: "DECIMAL(38, {scale})",
}


class Connection(Protocol):
    """A connection of a DB-API 2.0 driver (PEP 249)."""

    def cursor(self) -> Any:
        """Return a new cursor."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll back the transaction."""

    def close(self) -> None:
        """Close the connection."""


class SqlSink(BatchSink):
    """Appends rows to tables of a transactional database, exactly once.

    Each Spark partition writes its rows to a separate staging table; then one transaction
    inserts them all into the target, with the batch's mark. Staging tables of crashed attempts
    are dropped after the next commit. Columns missing in a target are added.
    """

    placeholder: ClassVar[str] = "?"
    """The placeholder for a value in the driver's SQL: ``?`` or ``%s``."""
    quote_sign: ClassVar[str] = '"'
    """The quote character of the database for names."""
    busy: ClassVar[tuple[type[Exception], ...]] = ()
    """The driver's errors after which the batch is retried."""
    rows_at_once: ClassVar[int] = 10_000
    """The number of rows per ``executemany``."""

    @abstractmethod
    def connect(self) -> Connection:
        """Open a connection that is in a transaction until commit (no autocommit)."""

    @abstractmethod
    def table(self, topic: str) -> str:
        """Return the name of the table for a topic."""

    def column_type(self, schema: Schema) -> str:
        """Return the SQL type for a schema. Raises ConfigError: the database has none."""
        found = _TYPES.get(str(schema.name) if schema.is_logical else schema.type.value)
        if found is None:
            problem = f"The database has no type for {schema.name or schema.type.value}."
            raise ConfigError(problem, fix="Cast the field, or remove it with ReplaceField.")
        return found.format(scale=schema.parameters.get("scale", "0"))

    def quoted(self, name: str) -> str:
        """Return a quoted name."""
        sign = self.quote_sign
        return f"{sign}{name.replace(sign, sign * 2)}{sign}"

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Yield a cursor; its changes are committed at the end, or rolled back on an error."""
        try:
            with closing(self.connect()) as connection:
                try:
                    yield connection.cursor()
                except BaseException:
                    connection.rollback()
                    raise
                connection.commit()
        except self.busy as error:
            raise RetriableError(str(error)) from error

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self._fit(
            _MARKS,
            {
                "application": "VARCHAR(255) PRIMARY KEY",
                "batch": "BIGINT",
                "receipt": "TEXT",
            },
        )
        self._fit(
            _STAGED,
            {
                "name": "VARCHAR(63) PRIMARY KEY",
                "application": "VARCHAR(255)",
                "batch": "BIGINT",
                "epoch": "BIGINT",
            },
        )

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        with self.transaction() as cursor:
            return self._held(cursor, mark)

    @override
    def write(
        self, rows: Iterator[pa.RecordBatch], batch: SinkBatch, part: str
    ) -> Mapping[str, object]:
        mark = batch.mark
        digest = hashlib.sha256(f"{mark} {part}".encode()).hexdigest()[:32]
        name, columns = f"{_STAGED}_{digest}", self._columns(batch.schema)
        with self.transaction() as cursor:
            # Recorded before it is created, so that it is found even after a crash in between.
            self._execute(
                cursor,
                f"INSERT INTO {_STAGED} VALUES (?, ?, ?, ?)",
                (name, mark.application, mark.batch, mark.epoch),
            )
        with self.transaction() as cursor:
            types = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
            cursor.execute(f"CREATE TABLE {name} ({types})")
            places = ", ".join("?" * len(columns))
            insert = self._sql(f"INSERT INTO {name} VALUES ({places})")
            for some in rows:
                for start in range(0, some.num_rows, self.rows_at_once):
                    piece = some.slice(start, self.rows_at_once)
                    cursor.executemany(insert, _tuples(piece, batch.schema))
        return {"table": name}

    @override
    def commit(
        self, messages: Sequence[Mapping[str, object]], batch: SinkBatch, receipt: str
    ) -> None:
        mark, table = batch.mark, self.quoted(self.table(batch.topic))
        columns = self._columns(batch.schema)
        self._fit(table, columns)
        with self.transaction() as cursor:
            self._lock(cursor, mark)
            if not mark.wrote(self._held(cursor, mark)):
                names = ", ".join(columns)
                for message in messages:
                    cursor.execute(
                        f"INSERT INTO {table} ({names}) SELECT {names} FROM {message['table']}"
                    )
                self._execute(
                    cursor,
                    f"UPDATE {_MARKS} SET batch = ?, receipt = ? WHERE application = ?",
                    (mark.batch, receipt, mark.application),
                )
        self._drop_staged(mark)

    @override
    def abort(self, messages: Sequence[Mapping[str, object]], batch: SinkBatch) -> None:
        self._drop_staged(batch.mark)

    def _lock(self, cursor: Any, mark: Mark) -> None:
        """Lock the mark, so no other attempt of the application can commit before this one."""
        where = f"UPDATE {_MARKS} SET batch = batch WHERE application = ?"
        self._execute(cursor, where, (mark.application,))
        if cursor.rowcount == 0:
            insert = f"INSERT INTO {_MARKS} VALUES (?, 0, '')"
            self._execute(cursor, insert, (mark.application,))

    def _held(self, cursor: Any, mark: Mark) -> str | None:
        query = f"SELECT batch, receipt FROM {_MARKS} WHERE application = ?"
        self._execute(cursor, query, (mark.application,))
        batch, receipt = cursor.fetchone() or (0, "")
        if batch > mark.batch:
            raise mark.newer(batch)
        return receipt if batch == mark.batch else None

    def _fit(self, table: str, columns: Mapping[str, str]) -> None:
        """Create a table, or its missing columns.

        In many databases one of two concurrent attempts fails, and in some the statement ends
        the transaction. So this is done before the transaction for the rows.
        """
        try:
            self._make(table, columns)
        except RetriableError:
            raise
        except Exception:
            if self._lacking(table, columns):  # raises if there is no table
                raise

    def _make(self, table: str, columns: Mapping[str, str]) -> None:
        types = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        with self.transaction() as cursor:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} ({types})")
        if lacking := self._lacking(table, columns):
            with self.transaction() as cursor:
                for column in lacking:
                    cursor.execute(f"ALTER TABLE {table} ADD COLUMN {column} {columns[column]}")

    def _lacking(self, table: str, columns: Mapping[str, str]) -> list[str]:
        with self.transaction() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
            names = [found[0] for found in cursor.description]
        there = {*names, *map(self.quoted, names)}
        return [column for column in columns if column not in there]

    def _drop_staged(self, mark: Mark) -> None:
        """Drop the staging tables of this and earlier epochs, up to this batch."""
        which = "WHERE application = ? AND batch <= ? AND epoch <= ?"
        values = (mark.application, mark.batch, mark.epoch)
        with self.transaction() as cursor:
            self._execute(cursor, f"SELECT name FROM {_STAGED} {which}", values)
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
            self._execute(cursor, f"DELETE FROM {_STAGED} {which}", values)

    def _columns(self, schema: Schema) -> dict[str, str]:
        return {self.quoted(each.name): self.column_type(each.schema) for each in schema.fields}

    def _execute(self, cursor: Any, sql: str, values: Sequence[object]) -> None:
        cursor.execute(self._sql(sql), values)

    def _sql(self, sql: str) -> str:
        return sql.replace("?", self.placeholder)


def _tuples(rows: pa.RecordBatch, schema: Schema) -> Iterable[tuple[object, ...]]:
    columns = [
        # In Spark, and so in the rows, times are microseconds.
        column.cast(pa.time64("us")) if each.schema.name == TIME else column
        for each, column in zip(schema.fields, rows.columns, strict=True)
    ]
    return zip(*(column.to_pylist() for column in columns), strict=True)
