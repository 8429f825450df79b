"""SQLite: dynamically typed values, a single writer, staging files beside the target."""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted here

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    HeadraceError,
    RecordError,
    RetriableError,
    Schema,
)
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.errors import StorageUnavailableError
from headrace.sdk.schema import TIMESTAMP
from headrace_plugins.databases.catalog import Column, Table, TableName, stated_type
from headrace_plugins.databases.database import (
    Database,
    DatabaseError,
    Merge,
    Rejected,
    Select,
    Session,
)
from headrace_plugins.databases.sqlite_values import (
    StoredRows,
    schema_of,
    stored_columns,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

STAGING = "headrace_staging"
"""The schema of staging tables: each is in a separate file, attached by this name."""

_WAIT_SECONDS = 60
"""The lock timeout."""
_LOADING_SECONDS = 3600
"""The lock timeout for a staging table, while other parts are added to it."""
_ROWS = 2048
"""The number of rows to fetch at a time; more slow down Python's garbage collector."""
_BLOCK_BYTES = 4 << 20
"""The approximate size to fetch at a time if rows are large."""
_OLDEST = (3, 37)
_SMALL_BYTES = 64 << 20
"""The maximum size of a file for an integrity check."""
_ROW_IDS = ("rowid", "_rowid_", "oid")

_NAMES_OF = """
SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type = 'table'
  AND name NOT GLOB 'sqlite_*' AND name NOT GLOB 'headrace_*'
ORDER BY name"""
_COLUMNS_OF = """
SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?)
WHERE hidden <> 1 ORDER BY cid"""
_INDEXES_OF = """
SELECT name, origin FROM pragma_index_list(?, ?) WHERE "unique" AND NOT partial ORDER BY seq"""


class SqliteSession(Session):
    """A connection that is opened on first use; only a write creates the file.

    A read outside a transaction sees the current state. A transaction begins with the first
    ``execute``, which waits for other writers.

    Args:
        connect: Opens a connection; the argument is whether it may create the file.
        errors: See ``Session``.
    """

    def __init__(
        self,
        connect: Callable[[bool], sqlite3.Connection],
        errors: Callable[[], Any],
    ) -> None:
        super().__init__(None, errors)
        self._connect = connect

    @override
    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        with self.errors():
            self._open(makes=True)
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
        return super().execute(sql, values)

    @override
    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.errors():
            self._open(makes=False)
        return super().rows(sql, values)

    def _open(self, *, makes: bool) -> None:
        if self.connection is None:
            self.connection = self._connect(makes)

    @contextmanager
    @override
    def savepoint(self) -> Iterator[None]:
        cause: HeadraceError | None = None
        try:
            with super().savepoint():
                try:
                    yield
                except HeadraceError as error:
                    cause = error
                    raise
        except DatabaseError as error:
            if cause is None or cause is error:
                raise
            # Some errors, and constraints with ON CONFLICT ROLLBACK, end the transaction, so
            # the savepoint no longer exists.
            if isinstance(cause, RecordError):
                problem = f"The whole transaction was rolled back. {cause.problem}"
                raise DatabaseError(problem, fix=cause.fix) from cause
            raise cause from None

    @override
    def commit(self) -> None:
        if self.connection is not None:
            super().commit()

    @override
    def rollback(self) -> None:
        if self.connection is not None:
            super().rollback()


class Sqlite(Database):
    """A SQLite database file.

    SQLite does not enforce column types. The declared type decides how values are read, and
    rows with a value of another storage class are rejected. If the type is not specific, such
    as NUMERIC or none, numbers and texts are read as strings.
    """

    kind: ClassVar[str] = "sqlite"
    mark: ClassVar[str] = "?"
    schema_alias: ClassVar[str] = "main"
    row_id: ClassVar[str] = "_rowid_"
    keeps_open: ClassVar[bool] = False
    knows_writers: ClassVar[bool] = True  # there is only one writer at a time
    staging_is_apart: ClassVar[bool] = True
    folds_columns: ClassVar[bool] = True

    @property
    def _file(self) -> Path:
        return Path(self.address.database).absolute()

    # --- connections and names ------------------------------------------------------

    @override
    def session(self) -> Session:
        session = SqliteSession(self._connect, self._errors)
        if self._file.exists():
            session.rows("SELECT 1 FROM sqlite_schema LIMIT 1")  # fails if it is not a database
        elif not self._file.parent.is_dir():
            raise ConfigError(
                problem=f"The folder {self._file.parent} does not exist.",
                fix="Create it, or correct the path.",
                field="connection.url",
            )
        return session

    def _connect(self, makes: bool, mode: str = "rw") -> sqlite3.Connection:  # noqa: FBT001
        uri = f"{self._file.as_uri()}?mode={'rwc' if makes else mode}"
        connection = _open(uri, _WAIT_SECONDS)
        try:
            # With FULL the folder is not synced when the journal is removed, so a power loss
            # may undo a commit: sqlite.org/pragma.html#pragma_synchronous.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> Exception:
        title, text = self.address.title, str(error)
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}:
            return RetriableError(
                problem=f"{title}: {text}.",
                fix="If this persists, end the process with the lock.",
            )
        if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}:
            return StorageUnavailableError(
                problem=f"{title}: {text}.",
                fix="Free space on its disk, and make sure that the file and its folder are "
                "writable.",
            )
        if code in {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}:
            found = _COLUMN_AT_FAULT.search(text)
            return RecordError(
                problem=f"{title} refuses a row: {text}.",
                fix="Change the rows with a transform, or the table's columns and constraints.",
                field=found[1] if found else None,
            )
        if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOTADB}:
            is_there = self._file.exists()
            return ConfigError(
                problem=f"{title}: {text}."
                if is_there
                else f"The file {title} does not exist.",
                fix="Correct the path to a SQLite 3 file, and the permissions of the file and "
                "its folder.",
                field="connection.url",
            )
        return DatabaseError(problem=f"{title}: {text}.")

    @override
    def quote(self, name: str) -> str:
        # SQLite reads a name in double quotes as a string if no such column exists:
        # sqlite.org/quirks.html#double_quoted_string_literals_are_accepted.
        return "`" + name.replace("`", "``") + "`"

    @override
    def literal(self, value: object) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes | bytearray | memoryview):
            return f"X'{bytes(value).hex()}'"
        if isinstance(value, float):
            return repr(value).replace("inf", "9e999")
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, datetime):
            text = value.isoformat(sep=" ", timespec="microseconds")
        elif isinstance(value, date | time):
            text = value.isoformat()
        else:
            # A numeric column converts the text of a decimal to a number.
            text = format(value, "f") if isinstance(value, Decimal) else str(value)
        if "\0" in text:
            return f"CAST(X'{text.encode().hex()}' AS TEXT)"
        return "'" + text.replace("'", "''") + "'"

    @override
    def ordered(self, column: Column) -> str:
        name = super().ordered(column)
        # Times are text, with a space or a T between date and time.
        return f"replace({name}, 'T', ' ')" if column.schema.name == TIMESTAMP else name

    @override
    def compared(self, value: object, column: Column) -> str:
        if isinstance(value, datetime):
            # Text comparison: every format of a time begins with the time without its zone.
            value = value.replace(tzinfo=None).isoformat(sep=" ")
        return super().compared(value, column)

    @property
    @override
    def default_schema(self) -> str:
        return ""

    @override
    def named(self, text: str) -> TableName:
        name = super().named(text)
        if name.schema.lower() == self.schema_alias:
            return TableName(self.default_schema, name.name)
        if name.schema:
            raise ConfigError(
                problem=f"The table name {text!r} has the schema {name.schema!r}, and SQLite "
                "has no schemas.",
                fix="In table.name.format and table.mapping, use ${table} for the last part of "
                'a stream\'s name, or quote a name with a dot, as in "a.b".',
                field="table.name.format",
            )
        return name

    # --- the catalog ----------------------------------------------------------------

    @override
    def tables(self, session: Session) -> list[TableName]:
        return [TableName("", name) for (name,) in session.rows(_NAMES_OF)]

    @override
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        counts = self._counts(session)
        found = ((name, self._described(session, name, counts)) for name in names)
        return {name: table for name, table in found if table is not None}

    def _described(
        self, session: Session, name: TableName, counts: Mapping[str, int]
    ) -> Table | None:
        place = (name.name, name.schema or "main")
        columns = session.rows(_COLUMNS_OF, place)
        if not columns:
            return None
        unique, is_row_id = list[tuple[str, ...]](), True
        for index, origin in session.rows(_INDEXES_OF, place):
            parts = session.rows(
                "SELECT name FROM pragma_index_info(?, ?) ORDER BY seqno", (index, place[1])
            )
            if all(part is not None for (part,) in parts):
                unique.append(tuple(part for (part,) in parts))
            is_row_id = is_row_id and origin != "pk"
        key = tuple(c[0] for c in sorted(columns, key=lambda c: c[4]) if c[4])
        is_row_id = is_row_id and bool(key)  # any other primary key has an index
        parents = session.rows(
            'SELECT DISTINCT "table" FROM pragma_foreign_key_list(?, ?) ORDER BY 1', place
        )
        return Table(
            name=name,
            columns=tuple(
                Column(
                    name=column,
                    type=type_,
                    schema=schema_of(type_, optional=not required and not (pk and is_row_id)),
                    has_default=default is not None or (bool(pk) and is_row_id),
                    generated=hidden != 0,
                )
                for column, type_, required, default, pk, hidden in columns
            ),
            key=key,
            unique=tuple([key, *unique] if is_row_id else unique),
            rows=counts.get(name.name),
            parents=tuple(TableName(name.schema, parent) for (parent,) in parents),
        )

    def _counts(self, session: Session) -> dict[str, int]:
        """Return the row counts from ANALYZE."""
        if not session.rows("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'"):
            return {}
        found = session.rows("SELECT tbl, stat FROM sqlite_stat1 WHERE stat IS NOT NULL")
        return {name: int(stat.split()[0]) for name, stat in found}

    @override
    def folds_tables(self, session: Session) -> bool:
        return True

    @override
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        named = "SELECT name, type FROM pragma_table_xinfo(?, 'temp') ORDER BY cid"
        # A view has the declared types of columns; a table also has types for expressions.
        session.rows(f"CREATE TEMP VIEW headrace_view AS SELECT * FROM ({query}) AS q")
        try:
            session.rows(f"CREATE TEMP TABLE headrace_table AS SELECT * FROM ({query}) LIMIT 0")
            declared = session.rows(named, ("headrace_view",))
            of_expressions = session.rows(named, ("headrace_table",))
            session.rows("DROP TABLE temp.headrace_table")
        finally:
            session.rows("DROP VIEW temp.headrace_view")
        return tuple(
            Column(name=name, type=type_ or other, schema=schema_of(type_ or other))
            for (name, type_), (_, other) in zip(declared, of_expressions, strict=True)
        )

    @override
    def now(self, session: Session) -> datetime:
        text = session.value("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    # --- reading --------------------------------------------------------------------

    @override
    def physical_ranges(self, session: Session, table: Table, count: int) -> list[str]:
        names = {column.name.lower() for column in table.columns}
        row_id = next((each for each in _ROW_IDS if each not in names), None)
        path = self.path(table.name)
        if row_id is None:
            return []
        try:
            least, most = session.rows(f"SELECT min({row_id}), max({row_id}) FROM {path}")[0]
        except DatabaseError:  # a view, or a table WITHOUT ROWID
            return []
        if least is None:
            return []
        width = most - least + 1
        count = min(count, width)
        inner = [least + width * number // count for number in range(1, count)]
        return [
            " AND ".join(
                ([] if start is None else [f"{row_id} >= {start}"])
                + ([] if end is None else [f"{row_id} < {end}"])
            )
            for start, end in pairwise([None, *inner, None])
        ]

    @override
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        stored, size = StoredRows(select.columns, nulls), 64
        where = f" WHERE {select.where}" if select.where else ""
        names = ", ".join(self.quote(column.name) for column in select.columns)
        query = f"SELECT {names} FROM {select.source}{where}"
        with self._errors(), closing(self._connect(makes=False, mode="ro")) as connection:
            connection.execute("BEGIN")
            fetched = _Fetched(connection, query)
            while rows := fetched.next(size):
                batch, rejected = stored.parse(rows)
                yield batch, rejected
                size = min(_ROWS, max(1, len(rows) * _BLOCK_BYTES // max(1, batch.nbytes)))

    # --- writing --------------------------------------------------------------------

    @override
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        own, kind = stated_type(schema)
        if own == self.kind:
            return "" if kind.upper() == "ANY" else kind  # only STRICT tables have ANY
        return type_of(schema)

    @override
    def load(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        rows: Iterator[pa.RecordBatch],
    ) -> int:
        described = session.rows(_COLUMNS_OF, (table.name, table.schema or "main"))
        types = {name: str(type_) for name, type_, *_ in described}
        names, path = ", ".join(self.quote(name) for name in columns), self.path(table)
        connection, count, into = session.connection, 0, path
        is_staging = table.schema == STAGING
        with self._errors():
            if is_staging:
                # A file has only one writer at a time: collect rows in a private file first.
                into = '"main"."headrace_part"'
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {into} AS SELECT {names} FROM {path} LIMIT 0"
                )
            if not connection.in_transaction:
                # Do not read the staging file in this transaction: after a read, SQLite does
                # not wait for the write lock.
                connection.execute("BEGIN")
            insert = f"INSERT INTO {into} ({names}) VALUES ({', '.join('?' * len(columns))})"
            for batch in rows:
                for start in range(0, batch.num_rows, _ROWS):
                    values = stored_columns(batch.slice(start, _ROWS), columns, types)
                    connection.executemany(insert, zip(*values, strict=True))
                count += batch.num_rows
            if is_staging:
                connection.execute(f"INSERT INTO {path} ({names}) SELECT {names} FROM {into}")
                connection.execute(f"DELETE FROM {into}")
        return count

    @override
    def upsert(self, merge: Merge) -> list[str]:
        if merge.unique:
            return [merge.on_conflict]
        # Not NOT EXISTS: without an index it scans the target for each staged row.
        present = " AND ".join(f"{key} IS NOT NULL" for key in merge.keys)
        keys = f"SELECT {', '.join(merge.keys)} FROM {merge.target} WHERE {present}"
        insert = f"{merge.insertion} AND {_tuple(merge, 's')} NOT IN ({keys})"
        changed = [(name, f"s.{name}") for name in merge.columns if name not in merge.keys]
        return [*([self.update(merge, changed)] if changed else []), insert]

    @override
    def delete(self, merge: Merge) -> str:
        keys = ", ".join(f"s.{key}" for key in merge.keys)
        return (
            f"DELETE FROM {merge.target} AS t WHERE {_tuple(merge, 't')} IN "
            f"(SELECT {keys} FROM {merge.staging} AS s WHERE {merge.where})"
        )

    @override
    def differs(self, one: str, other: str) -> str:
        return f"{one} IS NOT {other}"

    @override
    def kept_scale(self, column: Column) -> int | None:
        return None  # loading detects lost digits

    @override
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        return []  # a column accepts any value

    @override
    def try_take_over(self, session: Session, name: str) -> bool:
        # Only one transaction at a time writes the file, and another cannot be terminated.
        session.execute("SELECT 1")
        return True

    # --- staging --------------------------------------------------------------------

    @override
    def staging_columns(self) -> str:
        return ""  # rows have a rowid

    @override
    def staging(self, target: TableName, digest: str) -> TableName:
        return TableName(STAGING, f"rows_{digest}")

    @override
    def staging_session(self, staging: TableName) -> Session:
        return SqliteSession(partial(self._staging, staging), self._errors)

    def _staging(self, staging: TableName, makes: bool) -> sqlite3.Connection:  # noqa: FBT001
        connection = _open("", _LOADING_SECONDS)  # a private temporary database
        try:
            _attach(connection, self._staging_file(staging), "rwc" if makes else "rw")
            # After a power loss the batch is staged again.
            connection.execute(f"PRAGMA {STAGING}.synchronous = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    @override
    def merging_session(self, staging: TableName) -> Session:
        return SqliteSession(partial(self._merging, staging), self._errors)

    def _merging(self, staging: TableName, makes: bool) -> sqlite3.Connection:  # noqa: FBT001
        connection, file = self._connect(makes), self._staging_file(staging)
        try:
            if file.exists():  # a batch without rows has no staging file
                _attach(connection, file, "ro")
        except BaseException:
            connection.close()
            raise
        return connection

    @override
    def drop_staging(self, staging: TableName) -> None:
        file = self._staging_file(staging)
        for end in ("", "-journal"):
            Path(f"{file}{end}").unlink(missing_ok=True)

    def _staging_file(self, staging: TableName) -> Path:
        return Path(f"{self._file}.headrace-{staging.name.removeprefix('rows_')}")

    # --- health ---------------------------------------------------------------------

    @override
    def examine(self, session: Session) -> Iterator[Finding]:
        file = self._file
        yield Finding.of(
            f"SQLite {'.'.join(map(str, _OLDEST))} or newer",
            sqlite3.sqlite_version,
            "Run Headrace with a Python that has a newer SQLite.",
            met=sqlite3.sqlite_version_info >= _OLDEST,
        )
        may_add = os.access(file.parent, os.W_OK | os.X_OK)
        yield Finding.of(
            "a folder for journals and staging files",
            str(file.parent),
            f"To write to the database: chmod u+wx '{file.parent}'",
            met=may_add,
            otherwise=Verdict.WARNING,
        )
        if not file.exists():
            yield Finding(
                "a file",
                Verdict.WARNING,
                f"The file {file} does not exist. A sink creates it.",
                "To read from it, correct the path.",
            )
            return
        may_write = os.access(file, os.W_OK)
        yield Finding.of(
            "a writable file",
            str(file),
            f"To write to it: chmod u+w '{file}'",
            met=may_write,
            otherwise=Verdict.WARNING,
        )
        journal = session.value("PRAGMA journal_mode")
        yield Finding.of(
            "concurrent readers and a writer",
            f"journal_mode={journal}",
            "To allow both at the same time: PRAGMA journal_mode = WAL;",
            met=journal == "wal",
            otherwise=Verdict.WARNING,
        )
        if file.stat().st_size <= _SMALL_BYTES:
            found = session.value("PRAGMA quick_check(1)")
            yield Finding.of(
                "an intact file",
                found,
                f"sqlite3 '{file}' .recover | sqlite3 new.db",
                met=found == "ok",
            )


_COLUMN_AT_FAULT = re.compile(r"(?:constraint failed: |column )[^,]+\.([^,.]+)$")


class _Fetched:
    """Fetches the rows of a query in blocks.

    The driver fails at text that is not valid UTF-8. From there on text is decoded with
    surrogate escapes, which is slow.
    """

    def __init__(self, connection: sqlite3.Connection, query: str) -> None:
        self._connection = connection
        self._query = query
        self._cursor = connection.execute(query)
        self._seen = 0

    def next(self, most: int) -> list[tuple[Any, ...]]:
        try:
            rows = self._cursor.fetchmany(most)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            self._connection.text_factory = partial(
                str, encoding="utf-8", errors="surrogateescape"
            )
            # The same transaction returns the same rows in the same order.
            self._cursor = self._connection.execute(self._query)
            for _ in islice(self._cursor, self._seen):
                pass
            rows = self._cursor.fetchmany(most)
        self._seen += len(rows)
        return rows


def _open(uri: str, wait_seconds: int) -> sqlite3.Connection:
    # A session may move between threads, but only one uses it at a time.
    return sqlite3.connect(
        uri, uri=True, timeout=wait_seconds, isolation_level=None, check_same_thread=False
    )


def _attach(connection: sqlite3.Connection, file: Path, mode: str) -> None:
    connection.execute(f"ATTACH ? AS {STAGING}", (f"{file.as_uri()}?mode={mode}",))


def _tuple(merge: Merge, alias: str) -> str:
    names = ", ".join(f"{alias}.{key}" for key in merge.keys)
    return f"({names})" if len(merge.keys) > 1 else names
