"""The interface of a kind of database, its errors, and the choice of the kind."""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted by the driver

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from typing_extensions import override

from headrace.sdk import ConfigError, HeadraceError, RetriableError
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.jdbc import DriverSettings
from headrace_plugins.databases.address import (
    JDBC,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    ConnectionSettings,
)
from headrace_plugins.databases.catalog import Column, Table, TableName, stated_scale

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Schema
    from headrace_plugins.databases.address import Address

_TAKE_OVER_SECONDS = 30
_DIGITS = re.compile(r"(?i)\b(?:timestamp|datetime|time|interval|second)\((\d)\)")

Rejected: TypeAlias = Sequence[tuple[str, str]]
"""Rows that their schema cannot represent: the text of each row, and the reason."""
RawLoad: TypeAlias = "Callable[[Session, TableName, Sequence[str], Iterator[bytes]], int]"
"""Loads rows as bytes into the named columns of a table; returns the row count."""


class DatabaseError(HeadraceError):
    """A database refused a statement; a retry would fail too."""

    code = "database.failed"


class UnsupportedError(DatabaseError):
    """A database does not support a statement, such as a type change of a view's column."""

    code = "database.unsupported"


UNREACHABLE = (
    "Start the server, or correct the host and the port in connection.url. A firewall may "
    "block the connection."
)
"""The fix for a server that does not answer."""


class Session:
    """A connection of a DB-API driver (PEP 249) and its open transaction.

    Statements are in a transaction until ``commit`` or ``rollback``. Closing without a commit
    rolls back. Not thread-safe.

    Args:
        connection: The driver's connection.
        errors: Context manager that translates the driver's errors.
    """

    undoes_parts: bool = True
    """Whether ``savepoint`` works: some databases have no savepoints."""

    def __init__(
        self, connection: Any, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.connection = connection
        self.errors = errors
        self._savepoints = 0

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement; return the number of changed rows.

        Args:
            sql: The statement. With ``values`` it has a ``Database.mark`` for each value, and
                must not contain names from users.
            values: The values to bind.
        """
        with self.errors():
            cursor = self.connection.cursor()
            try:
                cursor.execute(sql, tuple(values)) if values else cursor.execute(sql)
                return max(0, int(cursor.rowcount))
            finally:
                cursor.close()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; see ``execute``. Only for small results."""
        with self.errors():
            cursor = self.connection.cursor()
            try:
                cursor.execute(sql, tuple(values)) if values else cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
            finally:
                cursor.close()

    def value(self, sql: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of a query's first row; None without rows."""
        found = self.rows(sql, values)
        return found[0][0] if found else None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo only the statements in this context if it raises."""
        self._savepoints += 1
        name = f"headrace_{self._savepoints}"
        self.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            self.execute(f"ROLLBACK TO SAVEPOINT {name}")
            raise
        self.execute(f"RELEASE SAVEPOINT {name}")

    def waiting(self, seconds: int) -> AbstractContextManager[None]:
        """Set a timeout for statements in this context, if the server has none."""
        return nullcontext()

    def commit(self) -> None:
        """Commit the transaction."""
        with self.errors():
            self.connection.commit()

    def rollback(self) -> None:
        """Roll back the transaction."""
        with self.errors():
            self.connection.rollback()

    def close(self) -> None:
        """Close the connection. Never raises, even if the connection is lost."""
        with suppress(Exception):  # any error that a driver raises for a lost connection
            self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # releases the locks of an abandoned batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query to read. Pickled to executors.

    Args:
        columns: The columns to read, in this order.
        source: SQL of the table or subquery in the FROM clause.
        where: A condition in SQL; empty for all rows.
        snapshot: The database's name of the snapshot to read, see ``Database.snapshot``.
    """

    columns: tuple[Column, ...]
    source: str
    where: str = ""
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge of a staging table's rows into a target by key. All strings are SQL.

    Args:
        target: The table.
        staging: The staging table, with at most one row for each key.
        columns: The columns to write, including the key.
        keys: The key columns, which are never null in the staging table.
        unique: Whether the target has a unique constraint on exactly the key columns.
        where: A condition on rows of ``s``, the staging table.
    """

    target: str
    staging: str
    columns: Sequence[str]
    keys: Sequence[str]
    unique: bool = False
    where: str = "true"

    @property
    def matches(self) -> str:
        """The condition that rows of ``t``, the target, and ``s`` have the same key."""
        return " AND ".join(f"t.{key} = s.{key}" for key in self.keys)

    @property
    def insertion(self) -> str:
        """The statement that inserts the rows without a key match."""
        names = ", ".join(self.columns)
        return (
            f"INSERT INTO {self.target} ({names}) "
            f"SELECT {names} FROM {self.staging} s WHERE {self.where}"
        )

    @property
    def on_conflict(self) -> str:
        """The statement that updates rows with the same key and inserts the others.

        For databases with ON CONFLICT, if the keys are ``unique``.
        """
        changed = [name for name in self.columns if name not in self.keys]
        settings = ", ".join(f"{name} = excluded.{name}" for name in changed)
        action = f"DO UPDATE SET {settings}" if changed else "DO NOTHING"
        return f"{self.insertion} ON CONFLICT ({', '.join(self.keys)}) {action}"


UNSEEN = Finding(
    "a connection",
    Verdict.WARNING,
    "The database requires a JDBC driver, which is only available in Spark.",
    "Run the connector: its first batch connects.",
)
"""The finding for a database whose JDBC driver cannot be loaded in this process."""


class Database(ABC):
    """A database at an address. Pickled to executors; holds no connection.

    Every method that accesses the database raises RetriableError if the database is unavailable
    or busy, ConfigError for denied access or a missing object, RecordError for a refused value,
    and DatabaseError otherwise. No error contains a secret.
    """

    read_only: ClassVar[str] = "START TRANSACTION READ ONLY"
    """The statement that begins a read-only transaction."""
    mark: ClassVar[str] = "%s"
    """The placeholder of a bound value in SQL."""
    schema_alias: ClassVar[str] = ""
    """Another name of the default schema, in lower case."""
    row_id: ClassVar[str]
    """SQL that identifies a row of a staging table within a transaction."""
    exact_text: ClassVar[str] = ""
    """SQL suffix of a text column's type that makes comparisons case-sensitive."""
    transactional_ddl: ClassVar[bool] = True
    """Whether a rollback undoes CREATE TABLE and renames."""
    keeps_open: ClassVar[bool] = True
    """Whether a transaction with a batch's rows may stay open until the batch commits. If not,
    the rows are applied twice: to find refused rows, and to commit."""
    staging_is_apart: ClassVar[bool] = False
    """Whether each staging table is in a separate file, see ``staging_session``."""
    by_spark: ClassVar[bool] = False
    """Whether Spark's JDBC reader and writer move rows: ``frame`` and ``load_frame`` instead of
    ``read`` and ``load``. The writer has no ledger of parts, so staged rows are counted."""
    publishes: ClassVar[bool] = True
    """Whether a staging table can become the target by a rename."""
    has_row_number: ClassVar[bool] = True
    """Whether the SQL dialect has ``row_number``."""
    seeks_rows: ClassVar[bool] = True
    """Whether the SQL dialect has row value comparisons that use an index."""
    folds_columns: ClassVar[bool] = False
    """Whether column names are case-insensitive."""
    long_text: ClassVar[str] = "TEXT"
    """The SQL type of receipts."""
    knows_writers: ClassVar[bool] = False
    """Whether ``writers`` returns all transactions that may still add rows."""
    cuts_seconds: ClassVar[bool] = False
    """Whether to refuse values with more fractional-second digits than their column, for which
    ``second_digits`` is exact."""
    table_options: ClassVar[str] = ""
    """SQL suffix of CREATE TABLE, if tables without transactions exist."""

    def __init__(self, address: Address) -> None:
        self.address = address

    # --- connections and names ------------------------------------------------------

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of the kind, in column types and messages."""

    @abstractmethod
    def session(self) -> Session:
        """Open a connection."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Return a name as a quoted SQL identifier."""

    @abstractmethod
    def literal(self, value: object) -> str:
        """Return a value as an SQL literal, quoted by the driver, if it cannot be bound."""

    def compared(self, value: object, column: Column) -> str:
        """Return an offset's value of a column as SQL, for comparisons with the column."""
        return self.literal(value)

    def ordered(self, column: Column) -> str:
        """Return SQL of a column that sorts in the order of its values."""
        return self.quote(column.name)

    def page(self, query: str, rows: int, offset: int = 0) -> str:
        """Return a query limited to ``rows`` rows after the first ``offset``."""
        return f"{query} LIMIT {rows} OFFSET {offset}"

    @property
    @abstractmethod
    def default_schema(self) -> str:
        """The schema of table names without a schema."""

    def path(self, name: TableName) -> str:
        """Return the name of a table as SQL."""
        parts = (name.schema, name.name) if name.schema else (name.name,)
        return ".".join(self.quote(part) for part in parts)

    def idle(self, session: Session | None) -> Session:
        """Return a session without an open transaction: this one, or a new one if lost."""
        if session is not None:
            try:
                session.rollback()
            except HeadraceError:
                session.close()
            else:
                return session
        session = self.session()
        session.rollback()
        return session

    def named(self, text: str) -> TableName:
        """Parse a configured table name, with the default schema if it has none."""
        return TableName.parse(text, self.default_schema)

    # --- the catalog ----------------------------------------------------------------

    @abstractmethod
    def tables(self, session: Session) -> list[TableName]:
        """Return the readable tables, sorted, without system tables and our own."""

    @abstractmethod
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        """Return the catalog's description of tables; missing tables are omitted."""

    def table(self, session: Session, name: TableName) -> Table | None:
        """Return the catalog's description of a table; None if it does not exist."""
        return self.describe(session, [name]).get(name)

    def column_named(self, table: Table, name: str) -> str:
        """Return the name of the table's column for a record's field ``name``."""
        if not self.folds_columns:
            return name
        alike = (each.name for each in table.columns if each.name.lower() == name.lower())
        return next(alike, name)

    def folds_tables(self, session: Session) -> bool:
        """Return whether table names are case-insensitive."""
        return False

    @abstractmethod
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        """Return the columns of a query's result, without running the query."""

    @abstractmethod
    def now(self, session: Session) -> datetime:
        """Return the time of the database's clock, without a zone if it returns none."""

    def writers(self, session: Session, table: TableName | None) -> frozenset[str]:
        """Return the ids of transactions that currently write a table, or any table for None.

        The result is current, even within a snapshot of the session. Empty if the database does
        not support it, see ``knows_writers``.
        """
        return frozenset()

    # --- reading --------------------------------------------------------------------

    @abstractmethod
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        """Yield the rows of a select as Arrow, in the schemas of its columns. On executors.

        Memory is bounded for any number of rows. A row with a value that its schema cannot
        represent, such as an infinite date, is rejected; with ``nulls`` such a value becomes
        null if the column is nullable.
        """

    def second_digits(self, column: Column) -> int:
        """Return the fractional-second digits of a time column; 0 if unknown."""
        found = _DIGITS.search(column.type)
        return int(found[1]) if found else 0

    def frame(self, spark: SparkSession, selects: Sequence[Select]) -> DataFrame:
        """Return the rows of selects, one partition per select. They differ only in conditions.

        The columns are those of ``to_spark_json`` for the select's, but all are nullable. Only
        for ``by_spark``. Raises what ``session`` raises.
        """
        raise NotImplementedError

    def raw(
        self, columns: Sequence[Column]
    ) -> Mapping[str, Callable[[Select], Iterator[bytes]]]:
        """Return readers of rows as bytes, see ``ArrowParts.raw``."""
        return {}

    @contextmanager
    def snapshot(self) -> Iterator[str | None]:
        """Take a snapshot and yield its name for selects; valid within this context.

        None if several connections cannot read the same snapshot.
        """
        yield None

    def physical_ranges(self, session: Session, table: Table, count: int) -> list[str]:
        """Return conditions that split a table by the physical location of its rows.

        They are valid within one snapshot only. Empty if the table cannot be split this way.
        """
        return []

    # --- writing --------------------------------------------------------------------

    def require_transactions(self, table: Table) -> None:
        """Raise ConfigError if a rollback does not undo changes to a table."""
        if table.untransactional:
            # Guarantee 2: the mark and the rows could not be committed in one transaction.
            raise ConfigError(
                problem=f"The table {table.name} has the engine {table.untransactional}, which "
                "has no transactions: a batch could be written partially or twice.",
                fix=f"ALTER TABLE {self.path(table.name)} ENGINE=InnoDB;",
                field="table.name.format",
            )

    def learn(self, session: Session, marks: TableName) -> None:  # noqa: B027 - optional
        """Detect supported statements with the marks table. Called when a sink starts."""

    @abstractmethod
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        """Return the column type for the values of a schema, without NOT NULL.

        The original column type if the schema is from the same kind of database. Raises
        ConfigError if there is no suitable type.
        """

    def add_column(self, table: TableName, column: str, type_: str) -> str:
        """Return the statement that adds a column to a table."""
        return f"ALTER TABLE {self.path(table)} ADD COLUMN {self.quote(column)} {type_}"

    def kept_scale(self, column: Column) -> int | None:
        """Return the decimal scale of a column; None for unlimited. Not for floats."""
        return stated_scale(column)

    def staged_type(self, column: Column, *, in_key: bool = False) -> str:
        """Return the type of a column in staging tables."""
        return column.type

    @abstractmethod
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        """Return the statements that widen a column's type; empty if it accepts any value."""

    @abstractmethod
    def staging_columns(self) -> str:
        """Return SQL of the staging column that ``row_id`` requires; may be empty."""

    def staging(self, target: TableName, digest: str) -> TableName:
        """Return the name of a staging table for a target; ``digest`` makes it unique."""
        return TableName(target.schema, f"headrace_staged_{digest}")

    @contextmanager
    def reading(self, session: Session) -> Iterator[Session]:
        """Make a session read-only: a user's condition may call a function that writes."""
        session.rollback()
        session.execute(self.read_only)
        try:
            yield session
        finally:
            with suppress(HeadraceError):  # the next statement reports the error
                session.rollback()

    def staging_session(self, staging: TableName) -> Session:
        """Open a connection for creating and loading a staging table."""
        return self.session()

    def merging_session(self, staging: TableName) -> Session:
        """Open a connection whose transaction can access the target and the staging table.

        The lock timeout is a minute. If supported, the server ends the transaction after some
        idle minutes.
        """
        return self.session()

    def take_over(self, session: Session, name: str) -> None:
        """Make a session the only one with a name, and terminate the current one.

        Of two attempts at a batch the later one continues: the other may belong to a suspended
        owner, whose locks nobody else would release. Raises RetriableError if the other session
        cannot be terminated.
        """
        by = time.monotonic() + _TAKE_OVER_SECONDS
        while not self.try_take_over(session, name):
            if time.monotonic() > by:
                raise RetriableError(
                    problem=f"Another connection to {self.address.title} runs the same task "
                    "and cannot be terminated.",
                    fix="Stop the other worker, or terminate its connection.",
                )
            time.sleep(0.05)

    @abstractmethod
    def try_take_over(self, session: Session, name: str) -> bool:
        """Return whether a session has the name now; if not, terminate the one that has it."""

    def drop_staging(self, staging: TableName) -> None:
        """Drop a staging table, if it exists."""
        with self.session() as session:
            session.execute(f"DROP TABLE IF EXISTS {self.path(staging)}")
            session.commit()

    def add_key(
        self, session: Session, staging: TableName, target: TableName, columns: Sequence[str]
    ) -> None:
        """Add a primary key of quoted columns to a staging table that becomes the target."""
        session.execute(
            f"ALTER TABLE {self.path(staging)} ADD PRIMARY KEY ({', '.join(columns)})"
        )

    def rename(self, session: Session, names: Sequence[tuple[TableName, TableName]]) -> None:
        """Rename tables atomically, in this order."""
        for old, new in names:
            session.execute(f"ALTER TABLE {self.path(old)} RENAME TO {self.quote(new.name)}")

    def load(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        rows: Iterator[pa.RecordBatch],
    ) -> int:
        """Bulk load rows into a table in the open transaction. On executors, not ``by_spark``.

        Args:
            session: The session of the transaction.
            table: The table.
            columns: The columns to write, with the schema of their values.
            rows: The rows, with these columns in this order, in the types of ``to_arrow``.

        Returns the row count. Raises RecordError with the database's message for a value that
        the column type does not accept; the caller must then roll back.
        """
        raise NotImplementedError

    def load_frame(
        self,
        rows: DataFrame,
        table: TableName,
        columns: Mapping[str, Schema],
        types: Mapping[str, str],
    ) -> None:
        """Run the Spark job that writes rows to a table, for ``by_spark``.

        A failed job may leave some partitions' rows, and a successful one may write a partition
        twice. Raises what ``load`` raises, and Spark's errors for other failures.

        Args:
            rows: The rows, with these columns.
            table: The table.
            columns: The columns to write, with the schema of their values.
            types: The SQL types of the columns in the table, by name.
        """
        raise NotImplementedError

    def raw_load(self, columns: Sequence[Column]) -> Mapping[str, RawLoad]:
        """Return loaders of rows as bytes into these columns, see ``ArrowWrite.raw``."""
        return {}

    def upsert(self, merge: Merge) -> list[str]:
        """Return statements that update rows with the same key and insert the others."""
        changed = [(name, f"s.{name}") for name in merge.columns if name not in merge.keys]
        names = ", ".join(merge.columns)
        insert = (
            f"INSERT INTO {merge.target} ({names}) "
            f"SELECT {', '.join(f's.{name}' for name in merge.columns)} "
            f"FROM {merge.staging} s WHERE {merge.where} AND NOT EXISTS "
            f"(SELECT 1 FROM {merge.target} t WHERE {merge.matches})"
        )
        return [*([self.update(merge, changed)] if changed else []), insert]

    def update(self, merge: Merge, settings: Sequence[tuple[str, str]]) -> str:
        """Return the statement that updates rows with the same key.

        ``settings`` are pairs of a target column and SQL over ``t``, the target, and ``s``, the
        staging table.
        """
        changes = ", ".join(f"{name} = {value}" for name, value in settings)
        return (
            f"UPDATE {merge.target} AS t SET {changes} FROM {merge.staging} AS s "
            f"WHERE {merge.matches} AND {merge.where}"
        )

    @abstractmethod
    def delete(self, merge: Merge) -> str:
        """Return the statement that deletes rows with the same key."""

    def differs(self, one: str, other: str) -> str:
        """Return the condition that two values differ; nulls are equal."""
        return f"{one} IS DISTINCT FROM {other}"

    # --- health ---------------------------------------------------------------------

    def no_key(self, table: Table) -> Finding:
        """Return the finding for a table without a primary key."""
        return Finding(
            f"a primary key of {table.name}",
            Verdict.WARNING,
            "The table has none: a target cannot update its rows.",
            f"ALTER TABLE {self.path(table.name)} ADD PRIMARY KEY (…);",
        )

    @abstractmethod
    def examine(self, session: Session) -> Iterator[Finding]:
        """Yield findings about the server that apply to both sources and sinks."""

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.title})"


_Kind = TypeVar("_Kind", bound="Database")
_KINDS = {POSTGRESQL: "Postgresql", MYSQL: "Mysql", SQLITE: "Sqlite"}
"""The class of each kind, in the module of the same name, which is imported on demand."""


def database_of(settings: ConnectionSettings) -> Database:
    """Return the database of connection settings.

    Raises ConfigError for a kind that requires a JDBC driver, if the settings have no driver.
    """
    address = settings.address
    if address.kind == JDBC and isinstance(settings, DriverSettings):
        # By name, as below: the modules of the kinds import this one.
        made: Database = import_module(f"{__package__}.jdbc").AnyJdbc(address, settings.driver)
        return made
    name = _KINDS.get(address.kind)
    if name is None:
        raise ConfigError(
            problem=f"This connector does not support {address.kind} databases.",
            fix=f"Use one of: {', '.join(_KINDS)}; or use the connector jdbc.",
            field="connection.url",
        )
    module = import_module(f"{__package__}.{name.lower()}")
    kind: type[Database] = getattr(module, name)
    return kind(address)


def database_of_kind(settings: ConnectionSettings, kind: type[_Kind], connector: str) -> _Kind:
    """Return the database of connection settings, which must be of the connector's kind.

    Raises ConfigError if it is of another kind.
    """
    database = database_of(settings)
    if not isinstance(database, kind):
        raise ConfigError(
            problem=f"The connector {connector} follows {kind.__name__}, not "
            f"{settings.address.kind}.",
            fix="Set the URL of such a database, or use another connector.",
            field="connection.url",
        )
    return database
