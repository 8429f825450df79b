"""JDBC connections with an interface like PEP 249, their errors, and the driver's catalog.

They are for statements that do not move rows. The columns of tables have Spark's types.
"""

# ruff: noqa: S608 - names are quoted
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Self

from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError

from headrace.sdk import ConfigError, RecordError, RetriableError, Schema
from headrace.sdk.sensitive import is_sensitive, masked
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.databases.catalog import Column, Table, TableName
from headrace_plugins.databases.database import UNREACHABLE, DatabaseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace_plugins.databases.address import Address
    from headrace_plugins.databases.database import Database, Session

MAX_ROWS = 10_000
"""The maximum rows of a query: each value is a JVM call of about 0.2 ms."""

_NULL = 0  # java.sql.Types.NULL
_NOT, _YES = False, True  # Java's arguments have no names here
_WITH_PATTERNS = {"getTables", "getColumns"}
_WILD = re.compile(r"[_%]")
_READING = re.compile(r"\bJDBCRDD\b|\bNextIterator\b")
_TEXTS = {-1, -16, 2005, 2011}  # LONGVARCHAR, LONGNVARCHAR, CLOB, NCLOB
_BLOB = 2004
_TIMES = {
    91: ("LocalDate", date, "getDate", "toLocalDate"),
    92: ("LocalTime", time, "getTime", "toLocalTime"),
    93: ("LocalDateTime", datetime, "getTimestamp", "toLocalDateTime"),
    2013: ("OffsetTime", time, "", ""),
    2014: ("OffsetDateTime", datetime, "", ""),
}
"""By java.sql.Types: the java.time class, the Python class, and the methods of old drivers."""
_ZONED = re.compile(r"timestamptz|with time ?zone|with local time ?zone", re.IGNORECASE)
_KINDS = (
    "SQLIntegrityConstraintViolationException",
    "SQLDataException",
    "SQLInvalidAuthorizationSpecException",
    "SQLTransientException",
    "SQLRecoverableException",
    "SQLNonTransientConnectionException",
)
"""The java.sql exception classes that decide how an error is handled."""
_FRACTION = re.compile(r"(\.\d{6})(\d+)")


class JdbcError(Exception):
    """An error of a JDBC driver.

    Args:
        message: The message, without passwords.
        sqlstate: The SQLSTATE; empty if the driver sets none.
        vendor_code: The database's own code; 0 if there is none.
        kind: The exception class, one of ``_KINDS``; empty for other classes.
    """

    def __init__(
        self, message: str, *, sqlstate: str = "", vendor_code: int = 0, kind: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.vendor_code = vendor_code
        self.kind = kind


@dataclass(frozen=True)
class _Java:
    """The JVM, and the secrets that its errors must not contain."""

    gateway: Any
    secrets: Sequence[str]

    @property
    def jvm(self) -> Any:
        return self.gateway.jvm

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            # The text of this error contains the JVM's stack trace.
            raise self._translated(error.java_exception) from None

    def _translated(self, thrown: Any) -> JdbcError:
        found = self.sql_exception(thrown)
        if found is None:
            return JdbcError(self._without_secrets(str(thrown.toString())))
        return self.error_of(found)

    def sql_exception(self, thrown: Any) -> Any:
        """Return the driver's exception in a cause chain; None if there is none."""
        each = thrown
        while each is not None and not self._is(each, "SQLException"):
            each = each.getCause()
        # A BatchUpdateException only identifies the row.
        if each is not None and self._is(each, "BatchUpdateException"):
            return each.getNextException() or each
        return each

    def error_of(self, thrown: Any) -> JdbcError:
        """Return the JdbcError for a driver's exception."""
        return JdbcError(
            self._without_secrets(str(thrown.getMessage())),
            sqlstate=str(thrown.getSQLState() or ""),
            vendor_code=int(thrown.getErrorCode()),
            kind=next((name for name in _KINDS if self._is(thrown, name)), ""),
        )

    def _is(self, thrown: Any, name: str) -> bool:
        return bool(is_instance_of(self.gateway, thrown, f"java.sql.{name}"))

    def _without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[hidden]", text)
        return masked(text)


def _java(spark: SparkSession, properties: Mapping[str, str]) -> _Java:
    hidden = [value for name, value in properties.items() if value and is_sensitive(name)]
    return _Java(spark.sparkContext._gateway, hidden)  # noqa: SLF001 - the only way to it


@contextmanager
def spark_writes(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Raise JdbcError for an error of the driver that Spark's writer uses.

    Other errors are raised unchanged, including those of a driver that the rows are read with.
    """
    java = _java(spark, properties)
    try:
        yield
    except Py4JJavaError as error:
        found = java.sql_exception(error.java_exception)
        if found is None or any(_READING.search(str(f)) for f in found.getStackTrace()):
            raise
        raise java.error_of(found) from None


class JdbcConnection:
    """A connection of a JDBC driver, in a transaction until ``commit`` or ``rollback``.

    For statements that Spark's reader and writer cannot run: DDL, marks, INSERT … SELECT. Never
    for rows of data, as each value is a JVM call. The connection ends with the session's JVM.
    Not thread-safe. All methods raise JdbcError, and py4j's errors if the JVM has ended.
    """

    query_timeout = 0
    """The timeout of statements in seconds; 0 for no timeout."""

    def __init__(self, java: _Java, connection: Any) -> None:
        self._java = java
        self._connection = connection

    @classmethod
    def open(
        cls, spark: SparkSession, url: str, properties: Mapping[str, str], driver: str
    ) -> Self:
        """Connect.

        Args:
            spark: The session whose JVM connects.
            url: The ``jdbc:`` URL.
            properties: The driver's properties, such as ``user`` and ``password``.
            driver: The class of the driver, loaded in Spark: see ``sdk.jdbc.load_driver``.
        """
        java = _java(spark, properties)
        with java.errors():
            given = java.jvm.java.util.Properties()
            for name, value in properties.items():
                given.setProperty(name, value)
            registry = java.jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
            registry.register(driver)
            # Not by DriverManager: another driver may accept the same URL.
            connection = registry.get(driver).connect(url, given)
            if connection is None:
                message = f"The driver {driver} does not accept this URL."
                raise JdbcError(message, sqlstate="08001")
            opened = cls(java, connection)
            try:
                connection.setAutoCommit(False)
            except BaseException:
                opened.close()
                raise
            return opened

    def cursor(self) -> JdbcCursor:
        """Return a cursor for one statement."""
        return JdbcCursor(self._java, self._connection, self.query_timeout)

    @property
    def schema(self) -> str:
        """The default schema; empty if the database has no schemas."""
        with self._java.errors():
            return str(self._connection.getSchema() or "")

    @property
    def has_savepoints(self) -> bool:
        """Whether ``savepoint`` works."""
        with self._java.errors():
            return bool(self._connection.getMetaData().supportsSavepoints())

    def catalog(
        self, question: str, names: Sequence[str], columns: Sequence[str], *more: object
    ) -> list[tuple[str | None, ...]]:
        """Return the result rows of a method of ``java.sql.DatabaseMetaData``.

        Args:
            question: The method, such as ``getTables``.
            names: The name arguments after the catalog, which is the connection's; an empty
                name matches any. Wildcards are escaped for ``_WITH_PATTERNS``.
            columns: The columns to return. A column that the driver lacks is None.
            more: The arguments after the names.
        """
        found: list[tuple[str | None, ...]] = []
        with self._java.errors():
            metadata = self._connection.getMetaData()
            if question in _WITH_PATTERNS:
                escape = str(metadata.getSearchStringEscape() or "")
                names = [_WILD.sub(lambda sign: escape + sign[0], name) for name in names]
            given = [name or None for name in names]
            catalog = self._connection.getCatalog()
            result = getattr(metadata, question)(catalog, *given, *more)
            described = result.getMetaData()
            has = {
                str(described.getColumnLabel(at)).upper()
                for at in range(1, described.getColumnCount() + 1)
            }
            while result.next():
                found.append(
                    tuple(result.getString(each) if each in has else None for each in columns)
                )
            result.close()
        return found

    def takes_null(self, sql: str, kind: int) -> bool:
        """Return whether a statement's only parameter accepts null of a java.sql type."""
        try:
            statement = self._connection.prepareStatement(sql)
            statement.setNull(1, kind)
            statement.executeUpdate()
            statement.close()
        except Py4JJavaError:
            return False
        return True

    def spark_types(self, url: str, query: str) -> str:
        """Return Spark's types of a query's columns, as the JSON of a StructType.

        Times without a zone are ``timestamp_ntz``. The query is run, so it should return no
        rows.
        """
        sql = self._java.jvm.org.apache.spark.sql
        with self._java.errors():
            statement = self._connection.createStatement()
            try:
                result = statement.executeQuery(query)
                found = sql.execution.datasources.jdbc.JdbcUtils.getSchema(
                    self._connection, result, sql.jdbc.JdbcDialects.get(url), _NOT, _YES
                )
                return str(found.json())
            finally:
                statement.close()

    def commit(self) -> None:
        """Commit the transaction."""
        with self._java.errors():
            self._connection.commit()

    def rollback(self) -> None:
        """Roll back the transaction."""
        with self._java.errors():
            self._connection.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo only the statements in this context if it raises."""
        with self._java.errors():
            savepoint = self._connection.setSavepoint()
        try:
            yield
        except BaseException:
            with self._java.errors():
                self._connection.rollback(savepoint)
            raise
        with suppress(JdbcError), self._java.errors():  # Oracle, SQL Server: not supported
            self._connection.releaseSavepoint(savepoint)

    def close(self) -> None:
        """Roll back and close. Never raises, even if the connection is lost."""
        # Without a rollback, Oracle commits on close, and Derby refuses to close.
        for end in (self._connection.rollback, self._connection.close):
            with suppress(Py4JError, OSError):
                end()


class JdbcCursor:
    """Runs one statement; must be closed afterwards."""

    rowcount = -1
    """The number of changed rows; -1 for a query."""

    def __init__(self, java: _Java, connection: Any, timeout: int = 0) -> None:
        self._java = java
        self._connection = connection
        self._timeout = timeout
        self._statement: Any = None
        self._result: Any = None

    def execute(self, sql: str, values: Sequence[object] = ()) -> None:
        """Run a statement with ``?`` placeholders for the values.

        A value is None, an int or a str.
        """
        self.close()
        with self._java.errors():
            if values:
                self._statement = self._connection.prepareStatement(sql)
                for at, value in enumerate(values, 1):
                    self._bind(at, value)
                self._limit_time()
                is_query = self._statement.execute()
            else:
                self._statement = self._connection.createStatement()
                self._limit_time()
                is_query = self._statement.execute(sql)
            self._result = self._statement.getResultSet() if is_query else None
            self.rowcount = -1 if is_query else self._changed()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of the query.

        Values are exact: times with more digits than microseconds and years that Python does
        not support are errors, as are more than ``MAX_ROWS`` rows. Values of types that JDBC
        lacks are str. A driver without java.time reads times in the JVM's time zone.
        """
        rows: list[tuple[Any, ...]] = []
        if self._result is None:
            return rows
        with self._java.errors():
            metadata = self._result.getMetaData()
            kinds = [
                (int(metadata.getColumnType(at)), str(metadata.getColumnTypeName(at)))
                for at in range(1, metadata.getColumnCount() + 1)
            ]
            while self._result.next():
                if len(rows) == MAX_ROWS:
                    message = f"The query has more than {MAX_ROWS:,} rows: read it with Spark."
                    raise JdbcError(message)
                rows.append(tuple(self._value(at, *each) for at, each in enumerate(kinds, 1)))
        return rows

    def close(self) -> None:
        """Close the statement and its result."""
        if self._statement is not None:
            with suppress(Py4JError, OSError):
                self._statement.close()
        self._statement = self._result = None

    def _limit_time(self) -> None:
        if self._timeout:
            self._statement.setQueryTimeout(self._timeout)

    def _changed(self) -> int:
        try:
            return int(self._statement.getLargeUpdateCount())
        except Py4JJavaError:  # new in JDBC 4.2: drivers may lack it
            return int(self._statement.getUpdateCount())

    def _bind(self, at: int, value: object) -> None:
        match value:
            case None:
                self._bind_null(at)
            case int():
                self._statement.setLong(at, value)
            case str():
                self._statement.setString(at, value)
            case _:
                message = f"Expected None, an int or a str, got {type(value).__name__}."
                raise TypeError(message)

    def _bind_null(self, at: int) -> None:
        try:
            self._statement.setNull(at, _NULL)
        except Py4JJavaError:  # Derby accepts null only with the parameter's type
            kind = self._statement.getParameterMetaData().getParameterType(at)
            self._statement.setNull(at, kind)

    def _value(self, at: int, kind: int, type_name: str) -> Any:
        result = self._result
        if kind in _TEXTS:
            return result.getString(at)
        if kind == _BLOB:
            return result.getBytes(at)
        if kind in _TIMES:
            return self._time(at, 2014 if _ZONED.search(type_name) and kind == 93 else kind)  # noqa: PLR2004 - PostgreSQL has no 2014
        value = result.getObject(at)
        if not isinstance(value, JavaObject):
            return value
        if value.getClass().getName() == "java.math.BigInteger":
            return int(value.toString())
        return result.getString(at)

    def _time(self, at: int, kind: int) -> Any:
        name, made, old_getter, converter = _TIMES[kind]
        jvm = self._java.jvm
        try:
            value = self._result.getObject(at, jvm.java.lang.Class.forName(f"java.time.{name}"))
        except Py4JJavaError:
            if not old_getter:
                raise
            old = getattr(self._result, old_getter)(at)
            value = None if old is None else getattr(old, converter)()
        if value is None:
            return None
        return _from_iso(str(value.toString()), made)


def _from_iso(text: str, kind: Any) -> Any:
    """Parse Java's text, without losing digits after microseconds as Python would."""
    fraction = _FRACTION.search(text)
    if fraction is None or not fraction[2].strip("0"):
        with suppress(ValueError):  # a year before 1 or after 9999
            return kind.fromisoformat(text)
    message = f"Python's {kind.__name__} cannot represent {text}: cast it to text."
    raise JdbcError(message, sqlstate="22008")


_UNKNOWN_TYPE = re.compile(r"UNRECOGNIZED_SQL_TYPE\] Unrecognized SQL type - name: (.+?), id:")
_RETRIABLE = {
    "SQLTransientException",
    "SQLRecoverableException",
    "SQLNonTransientConnectionException",
}
_REFUSING = {"SQLIntegrityConstraintViolationException", "SQLDataException"}
_REFUSES = re.compile(
    r"(?i)constraint|duplicate|unique|not null|out of range|too long|conver(?:t|sion)|overflow"
)
_BUSY = re.compile(r"(?i)conflict|deadlock|lock|timed? ?out|connection")
"""Messages of drivers that report no SQLSTATE."""


def translated(error: JdbcError, address: Address) -> Exception:
    """Return Headrace's error for a driver's error."""
    title, state, kind = address.title, error.sqlstate, error.kind
    text = " ".join(error.message.split()).rstrip(".")
    if state.startswith("28") or kind == "SQLInvalidAuthorizationSpecException":
        return ConfigError(
            problem=f"{title} denies access to {address.user or 'this user'}: {text}.",
            fix="Correct connection.user and connection.password.",
            field="connection.password",
        )
    if state == "42501":
        return ConfigError(
            problem=f"{title}: {text}.",
            fix=f"Grant the privilege to {address.user or 'the user'}.",
            field="connection.user",
        )
    if unknown := _UNKNOWN_TYPE.search(text):
        return ConfigError(
            problem=f"{title}: Spark has no type for {unknown[1]}.",
            fix="Use a query that casts the column to another type.",
            field="query",
        )
    is_refused = state[:2] in {"22", "23"} or kind in _REFUSING
    if is_refused or (not state and _REFUSES.search(text)):
        return RecordError(
            problem=f"{title} refuses a row: {text}.",
            fix="Change the rows with a transform, or the table's columns and constraints.",
        )
    is_busy = state[:2] in {"08", "40", "53", "57"} or state in {"HYT00", "HYT01"}
    if is_busy or kind in _RETRIABLE or (not state and _BUSY.search(text)):
        fix = UNREACHABLE if state.startswith("08") else ""
        return RetriableError(problem=f"{title}: {text}.", fix=fix)
    return DatabaseError(problem=f"{title}: {text}{f' (SQLSTATE {state})' if state else ''}.")


_TABLES = {"TABLE", "BASE TABLE", "PARTITIONED TABLE", "FOREIGN TABLE"}
_OF_SYSTEM = re.compile(r"(?i)(information_schema|sys.*|pg_.*|ctxsys|xdb|mdsys|outln|nullid)")
_INDEX = ("INDEX_NAME", "COLUMN_NAME", "FILTER_CONDITION")
_COLUMN = (
    *("COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE"),
    *("COLUMN_DEF", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"),
)
_SIZED = {"1", "12", "-15", "-9", "-2", "-3"}
"""Numbers in java.sql.Types of types with a length: CHAR, VARCHAR, NCHAR, NVARCHAR, BINARY."""
_EXACT, _TIME = {"2", "3"}, "92"
_MOST_SIGNS, _MOST_DIGITS = 1 << 30, 1000
"""Larger numbers mean that there is no limit."""
_OF_TIME = "logical_time_type"
"""Spark's metadata key for columns of type TIME in the database."""
_UNIQUE, _ROUGHLY = True, True  # Java's arguments have no names here


def tables_there(session: Session, *, own: bool = True) -> list[TableName]:
    """Return a database's tables without system tables; the sink's own only with ``own``."""
    with session.errors():
        found = session.connection.catalog(
            "getTables", ["", ""], ("TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"), None
        )
    return sorted(
        TableName(schema or "", name)
        for schema, name, kind in found
        if kind in _TABLES
        and not _OF_SYSTEM.fullmatch(schema or "")
        and (own or not name.lower().startswith("headrace_"))
    )


def described(database: Database, session: Session, name: TableName) -> Table | None:
    """Return the catalog's description of a table; None if it does not exist."""
    columns = _columns(database, session, name)
    if not columns:
        return None
    with session.errors():
        names, ask = [name.schema, name.name], session.connection.catalog
        keys = ask("getPrimaryKeys", names, ("KEY_SEQ", "COLUMN_NAME"))
        indexes = ask("getIndexInfo", names, _INDEX, _UNIQUE, _ROUGHLY)
        parents = ask("getImportedKeys", names, ("PKTABLE_SCHEM", "PKTABLE_NAME"))
    key = tuple(column for _, column in sorted(keys, key=lambda row: int(row[0])))
    unique: dict[str, list[str | None]] = {"": list(key)} if key else {}
    for index, column, condition in indexes:
        if index is not None:  # None is a row of statistics
            unique.setdefault(index, []).append(None if condition else column)
    whole = [tuple(map(str, each)) for each in unique.values() if None not in each]
    return Table(
        name=name,
        columns=tuple(columns),
        key=key,
        unique=tuple(dict.fromkeys(whole)),
        parents=tuple(dict.fromkeys(TableName(schema or "", own) for schema, own in parents)),
    )


def _columns(database: Database, session: Session, name: TableName) -> list[Column]:
    with session.errors():
        rows = session.connection.catalog("getColumns", [name.schema, name.name, ""], _COLUMN)
    if not rows:
        return []
    schemas = schemas_of(database, session, database.path(name), [row[0] for row in rows])
    return [
        Column(
            name=own,
            type=_type_text(code, type_, size, digits),
            schema=schemas[own].replaced(optional=nullable != "0"),
            has_default=default is not None or increments == "YES",
            generated=generated == "YES",
        )
        for own, code, type_, size, digits, nullable, default, increments, generated in rows
    ]


def schemas_of(
    database: Database, session: Session, source: str, names: Sequence[str]
) -> dict[str, Schema]:
    """Return the schemas of columns as read by Spark; unknown types are strings.

    Args:
        database: The database.
        session: A session of the database.
        source: SQL of the table or subquery in the FROM clause.
        names: The columns; empty for all columns, whose types Spark must then know.
    """
    url = database.address.url
    try:
        with session.errors():
            return _read_types(
                session.connection.spark_types(url, f"SELECT * FROM {source} WHERE 1 = 0")
            )
    except ConfigError:
        if not names:
            raise
    found: dict[str, Schema] = {}
    for name in names:
        query = f"SELECT {database.quote(name)} FROM {source} WHERE 1 = 0"
        try:
            with session.errors():
                found |= _read_types(session.connection.spark_types(url, query))
        except ConfigError:
            found[name] = Schema.string()
    return found


def _read_types(text: str) -> dict[str, Schema]:
    found: dict[str, Any] = json.loads(text)
    times = {f["name"] for f in found["fields"] if f["metadata"].get(_OF_TIME)}
    return {
        f.name: Schema.time(optional=f.schema.optional) if f.name in times else f.schema
        for f in from_spark_json(found).fields
    }


def _type_text(code: str, name: str, size: str | None, digits: str | None) -> str:
    """Return a column's SQL type, from the catalog's data."""
    name = name.removesuffix(" identity")  # SQL Server's
    figure = 0 if size is None else int(size)
    if code in _SIZED and 0 < figure < _MOST_SIGNS and name != "UUID":
        return name.replace("()", f"({size})") if "()" in name else f"{name}({size})"
    if code == _TIME and digits and digits != "0":
        return f"{name}({digits})"  # a TIME has no digits by default
    if code in _EXACT and 0 < figure <= _MOST_DIGITS:
        return f"{name}({size},{digits or 0})"
    return name
