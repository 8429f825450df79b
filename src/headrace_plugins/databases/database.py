"""One kind of database: what every connector of databases asks of it."""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted by the driver

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from typing_extensions import override

from headrace.sdk import ConfigError, HeadraceError
from headrace.sdk.connector import Finding, Verdict
from headrace_plugins.databases.catalog import Column, Table, TableName, stated_scale

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Schema
    from headrace_plugins.databases.address import Address

_DIGITS = re.compile(r"(?i)\b(?:timestamp|datetime|time|interval|second)\((\d)\)")

Rejected: TypeAlias = Sequence[tuple[str, str]]
"""Rows that no value of their schema stands for: the text of each, and why."""
RawLoad: TypeAlias = "Callable[[Session, TableName, Sequence[str], Iterator[bytes]], int]"
"""Adds rows as bytes to the named columns of a table; returns how many."""


class Session:
    """A connection of a DB-API driver (PEP 249), with the transaction that is open on it.

    Statements are in a transaction until ``commit`` or ``rollback``. Closing it without a
    commit undoes what it did. One thread at a time may use it.

    Args:
        connection: The driver's.
        errors: Raises an error of ours for one of the driver's.
    """

    undoes_parts: bool = True
    """Whether ``savepoint`` undoes anything: some databases have none."""

    def __init__(
        self, connection: Any, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.connection = connection
        self.errors = errors
        self._savepoints = 0

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement; return how many rows it has changed.

        Args:
            sql: The statement. With ``values`` each stands for a ``Database.mark``, and no
                name of a user's may be in it.
            values: What is bound.
        """
        with self.errors():
            cursor = self.connection.cursor()
            try:
                cursor.execute(sql, tuple(values)) if values else cursor.execute(sql)
                return max(0, int(cursor.rowcount))
            finally:
                cursor.close()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; see ``execute``. For what is few rows by nature."""
        with self.errors():
            cursor = self.connection.cursor()
            try:
                cursor.execute(sql, tuple(values)) if values else cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
            finally:
                cursor.close()

    def value(self, sql: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of a query's first row; None if there is no row."""
        found = self.rows(sql, values)
        return found[0][0] if found else None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is done within, and only that, when it raises."""
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
        """Let statements within give up after so long, where the server does not do so."""
        return nullcontext()

    def commit(self) -> None:
        """Commit the transaction."""
        with self.errors():
            self.connection.commit()

    def rollback(self) -> None:
        """Undo the transaction."""
        with self.errors():
            self.connection.rollback()

    def close(self) -> None:
        """Close the connection. Never raises: it may be gone."""
        with suppress(Exception):  # whatever a driver makes of a lost connection
            self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # of a batch that was abandoned: its locks go with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Rows to be read, and as what. It is pickled to executors.

    Args:
        columns: What is read, in this order.
        source: SQL of the table or query that they are of, as it stands behind FROM.
        where: A condition in SQL; empty for all rows.
        snapshot: What the database calls the state that is to be read, see ``snapshot``.
    """

    columns: tuple[Column, ...]
    source: str
    where: str = ""
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The rows of a staging table that go into a target, by its key. All texts are SQL.

    Args:
        target: The table.
        staging: The staging table, with at most one row for each key.
        columns: The columns that are written, the key's among them.
        keys: The columns of the key, which are never null in the staging table.
        unique: Whether the target has a unique constraint on just these.
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
        """The condition that rows of ``t``, the target, and of ``s`` have the same key."""
        return " AND ".join(f"t.{key} = s.{key}" for key in self.keys)

    @property
    def insertion(self) -> str:
        """The statement that adds the rows, whatever the target has."""
        names = ", ".join(self.columns)
        return (
            f"INSERT INTO {self.target} ({names}) "
            f"SELECT {names} FROM {self.staging} s WHERE {self.where}"
        )


UNSEEN = Finding(
    "a connection",
    Verdict.WARNING,
    "The database is reached by a JDBC driver, which runs where Spark does.",
    "Run the connector: its first batch connects.",
)
"""What is found of a database where no driver can be loaded."""


class Database(ABC):
    """A database at an address. It is pickled to executors, and holds no connection.

    Every method that talks to the database raises RetriableError where it is away or busy,
    ConfigError where it does not let one in or lacks what is named, RecordError for a value
    that it refuses, and SinkError or SourceError for anything else; none shows a secret.
    """

    read_only: ClassVar[str] = "START TRANSACTION READ ONLY"
    """The statement that lets a transaction change nothing."""
    mark: ClassVar[str] = "%s"
    """What stands for a bound value in SQL."""
    row_id: ClassVar[str]
    """SQL that identifies a row of a staging table within a transaction."""
    exact_text: ClassVar[str] = ""
    """SQL behind the type of a column of texts that lets it tell cases apart."""
    transactional_ddl: ClassVar[bool] = True
    """Whether making and renaming tables is undone with a transaction."""
    keeps_open: ClassVar[bool] = True
    """Whether a transaction with a batch's rows may stay open until the batch is committed. If
    not they are applied twice: to find what the target refuses, and to be committed."""
    staging_is_apart: ClassVar[bool] = False
    """Whether staging tables are in files of their own, see ``staging_session``."""
    by_spark: ClassVar[bool] = False
    """Whether Spark's own reader and writer move rows: ``frame`` and ``load_frame`` instead of
    ``read`` and ``load``. The writer keeps no ledger of parts, so staged rows are counted."""
    publishes: ClassVar[bool] = True
    """Whether a staging table can become a target by another name."""
    has_row_number: ClassVar[bool] = True
    """Whether its SQL has ``row_number``."""
    seeks_rows: ClassVar[bool] = True
    """Whether its SQL compares rows of values, and finds them by an index."""
    folds_columns: ClassVar[bool] = False
    """Whether names of columns that differ in case only are of one column."""
    long_text: ClassVar[str] = "TEXT"
    """The type of receipts."""
    knows_writers: ClassVar[bool] = False
    """Whether ``writers`` tells all transactions that may still add rows."""
    cuts_seconds: ClassVar[bool] = False
    """Whether a value is to be refused that has more digits of a second than its column, of
    whose digits ``second_digits`` is sure."""
    table_options: ClassVar[str] = ""
    """SQL behind the columns of a table that is made, where tables may lack transactions."""

    def __init__(self, address: Address) -> None:
        self.address = address

    # --- connections and names ------------------------------------------------------

    @property
    @abstractmethod
    def kind(self) -> str:
        """Its name in the types of columns and in messages."""

    @abstractmethod
    def session(self) -> Session:
        """Open a connection."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Return a name as an identifier in SQL."""

    @abstractmethod
    def literal(self, value: object) -> str:
        """Return a value as SQL, quoted by the driver: for a statement that cannot bind it."""

    def compared(self, value: object, column: Column) -> str:
        """Return a value of a column, as offsets have it, as SQL that it is compared to."""
        return self.literal(value)

    def ordered(self, column: Column) -> str:
        """Return a column as SQL that is in the order of its values."""
        return self.quote(column.name)

    def page(self, query: str, rows: int, offset: int = 0) -> str:
        """Return a query with only so many of its rows, those after the first ``offset``."""
        return f"{query} LIMIT {rows} OFFSET {offset}"

    @property
    @abstractmethod
    def default_schema(self) -> str:
        """The schema of a table that is named without one."""

    def path(self, name: TableName) -> str:
        """Return the name of a table as SQL."""
        parts = (name.schema, name.name) if name.schema else (name.name,)
        return ".".join(self.quote(part) for part in parts)

    def idle(self, session: Session | None) -> Session:
        """Return a session with no transaction open: this one, or a new one if it has ended."""
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
        """Return the name of a table that a person wrote, in the default schema if in none."""
        return TableName.parse(text, self.default_schema)

    # --- the catalog ----------------------------------------------------------------

    @abstractmethod
    def tables(self, session: Session) -> list[TableName]:
        """Return the tables that may be read, but those of the system and our own, sorted."""

    @abstractmethod
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        """Return what the catalog says of tables; without those that are not there."""

    def table(self, session: Session, name: TableName) -> Table | None:
        """Return what the catalog says of a table; None if there is none."""
        return self.describe(session, [name]).get(name)

    def column_named(self, table: Table, name: str) -> str:
        """Return the name that a table's column has which a record calls ``name``."""
        if not self.folds_columns:
            return name
        alike = (each.name for each in table.columns if each.name.lower() == name.lower())
        return next(alike, name)

    def folds_tables(self, session: Session) -> bool:
        """Return whether names of tables that differ in case only are of one table."""
        return False

    @abstractmethod
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        """Return the columns of a query's result. The query is not run."""

    @abstractmethod
    def now(self, session: Session) -> datetime:
        """Return the time by the database's clock, without a zone if it gives none."""

    def writers(self, session: Session, table: TableName | None) -> frozenset[str]:
        """Return names of the transactions that write a table now, or for None any table.

        It sees more than the statements before it on the session. Empty where the database
        does not tell, see ``knows_writers``.
        """
        return frozenset()

    # --- reading --------------------------------------------------------------------

    @abstractmethod
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        """Yield the rows of a select as Arrow, in the schemas of its columns. On executors.

        Memory is bounded whatever the number of rows. A value that its schema has nothing for,
        such as an infinite date, makes its row a rejected one, or with ``nulls`` becomes null
        where the column may be null.
        """

    def second_digits(self, column: Column) -> int:
        """Return how many digits of a second a column of times keeps; 0 if nobody knows."""
        found = _DIGITS.search(column.type)
        return int(found[1]) if found else 0

    def frame(self, spark: SparkSession, selects: Sequence[Select]) -> DataFrame:
        """Return the rows of selects, which differ in their conditions only, a partition each.

        Its columns are those that ``to_spark_json`` gives for the select's, but any may be
        null. Only where Spark moves the rows. Raises what ``session`` raises.
        """
        raise NotImplementedError

    def raw(
        self, columns: Sequence[Column]
    ) -> Mapping[str, Callable[[Select], Iterator[bytes]]]:
        """Return readers of rows as bytes, see ``ArrowParts.raw``."""
        return {}

    @contextmanager
    def snapshot(self) -> Iterator[str | None]:
        """Give a name of the state that the database has now, for selects, while this lasts.

        None where reads on several connections cannot see one state.
        """
        yield None

    def physical_ranges(self, session: Session, table: Table, count: int) -> list[str]:
        """Return conditions that divide a table by where its rows are stored.

        They hold within one snapshot only. Empty where it cannot be divided so.
        """
        return []

    # --- writing --------------------------------------------------------------------

    def require_transactions(self, table: Table) -> None:
        """Raise ConfigError if what is done to a table stays when its transaction is undone."""
        if table.untransactional:
            # Guarantee 2: the mark and the rows would not be one transaction.
            raise ConfigError(
                problem=f"The table {table.name} has the engine {table.untransactional}, which "
                "has no transactions: a batch could be there in part, or twice.",
                fix=f"ALTER TABLE {self.path(table.name)} ENGINE=InnoDB;",
                field="table.name.format",
            )

    def learn(self, session: Session, marks: TableName) -> None:  # noqa: B027 - optional
        """Find out which statements there are, with the table of marks. When a sink starts."""

    @abstractmethod
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        """Return the type of a column that takes the values of a schema, without NOT NULL.

        The column's own type if it was one of the same kind of database. Raises ConfigError
        where there is none.
        """

    def add_column(self, table: TableName, column: str, type_: str) -> str:
        """Return the statement that gives a table a column."""
        return f"ALTER TABLE {self.path(table)} ADD COLUMN {self.quote(column)} {type_}"

    def kept_scale(self, column: Column) -> int | None:
        """Return how many digits after the point a column keeps of a number; None for all.

        Not of floats, which keep what they can.
        """
        return stated_scale(column)

    def staged_type(self, column: Column, *, in_key: bool = False) -> str:
        """Return the type as which a staging table has what is to be in a column."""
        return column.type

    @abstractmethod
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        """Return the statements that give a column a wider type; none where it takes any."""

    @abstractmethod
    def staging_columns(self) -> str:
        """Return the column that ``row_id`` needs in a staging table, as SQL; may be empty."""

    def staging(self, target: TableName, digest: str) -> TableName:
        """Return the name of a staging table for a target; ``digest`` makes it unique."""
        return TableName(target.schema, f"headrace_staged_{digest}")

    @contextmanager
    def reading(self, session: Session) -> Iterator[Session]:
        """Let a session change nothing: a condition that is given may call what writes."""
        session.rollback()
        session.execute(self.read_only)
        try:
            yield session
        finally:
            with suppress(HeadraceError):  # the next statement says what is wrong
                session.rollback()

    def staging_session(self, staging: TableName) -> Session:
        """Open a connection for making a staging table, and for loading rows into it."""
        return self.session()

    def merging_session(self, staging: TableName) -> Session:
        """Open a connection whose transaction sees the target, and the staging table too.

        It gives up after a minute of waiting for a lock, and the server ends its transaction
        when nothing has come from here for some minutes, where it can.
        """
        return self.session()

    @abstractmethod
    def take_over(self, session: Session, name: str) -> None:
        """Let a session be the only one of its name, and end the one that is so now.

        Of two attempts at a batch the one that comes later goes on: the other may be of an
        owner that was suspended, with locks that nobody else would release. Raises
        RetriableError: the other cannot be ended.
        """

    def drop_staging(self, staging: TableName) -> None:
        """Remove a staging table, if it is there."""
        with self.session() as session:
            session.execute(f"DROP TABLE IF EXISTS {self.path(staging)}")
            session.commit()

    def add_key(
        self, session: Session, staging: TableName, target: TableName, columns: Sequence[str]
    ) -> None:
        """Give a staging table that becomes a target its primary key, of quoted columns."""
        session.execute(
            f"ALTER TABLE {self.path(staging)} ADD PRIMARY KEY ({', '.join(columns)})"
        )

    @abstractmethod
    def rename(self, session: Session, names: Sequence[tuple[TableName, TableName]]) -> None:
        """Give tables new names, all of them or none, in the order that is given."""

    @abstractmethod
    def load(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        rows: Iterator[pa.RecordBatch],
    ) -> int:
        """Add rows to a table in the open transaction, as fast as it goes. On executors.

        Args:
            session: Has the transaction.
            table: The table.
            columns: The columns that are written, each with the schema of its values.
            rows: The rows, with these columns in this order, as ``to_arrow`` has them.

        Returns how many. Raises RecordError for a value that the columns' types do not take,
        with what the database says of it; the transaction is then to be rolled back.
        """

    def load_frame(
        self,
        rows: DataFrame,
        table: TableName,
        columns: Mapping[str, Schema],
        types: Mapping[str, str],
    ) -> None:
        """Run the job that adds rows to a table, where Spark moves them.

        Parts of it may be there when it fails, and a part twice when it does not. Raises what
        ``load`` raises, and Spark's errors for what is not the table's fault.

        Args:
            rows: The rows, with these columns.
            table: The table.
            columns: The columns that are written, each with the schema of its values.
            types: Their types in the table, as SQL by name.
        """
        raise NotImplementedError

    def raw_load(self, columns: Sequence[Column]) -> Mapping[str, RawLoad]:
        """Return loaders of rows as bytes into such columns, see ``ArrowWrite.raw``."""
        return {}

    def upsert(self, merge: Merge) -> list[str]:
        """Return statements that update the rows of the same key and insert the others."""
        changed = [(name, f"s.{name}") for name in merge.columns if name not in merge.keys]
        names = ", ".join(merge.columns)
        insert = (
            f"INSERT INTO {merge.target} ({names}) "
            f"SELECT {', '.join(f's.{name}' for name in merge.columns)} "
            f"FROM {merge.staging} s WHERE {merge.where} AND NOT EXISTS "
            f"(SELECT 1 FROM {merge.target} t WHERE {merge.matches})"
        )
        return [*([self.update(merge, changed)] if changed else []), insert]

    @abstractmethod
    def update(self, merge: Merge, settings: Sequence[tuple[str, str]]) -> str:
        """Return the statement that updates the rows of the same key.

        ``settings`` are columns of ``t``, the target, with SQL over ``t`` and ``s``, the
        staging table.
        """

    @abstractmethod
    def delete(self, merge: Merge) -> str:
        """Return the statement that deletes the rows of the same key."""

    def differs(self, one: str, other: str) -> str:
        """Return the condition that two values differ, where nulls are equal."""
        return f"{one} IS DISTINCT FROM {other}"

    # --- health ---------------------------------------------------------------------

    @abstractmethod
    def examine(self, session: Session) -> Iterator[Finding]:
        """Yield findings about the server that hold for reading and writing alike."""

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.title})"
