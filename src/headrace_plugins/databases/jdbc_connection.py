"""Connections of JDBC drivers as those of Python's (PEP 249), for what is not rows of data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from typing_extensions import override

from headrace.sdk.sensitive import is_sensitive, masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ROWS = 10_000
"""How many rows a query may have: each value of them is a call of the JVM, some 0.2 ms."""

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
"""By the numbers of java.sql.Types: the class of java.time, ours, and how old drivers do it."""
_ZONED = re.compile(r"timestamptz|with time ?zone|with local time ?zone", re.IGNORECASE)
_OLD = {"LocalDate": "Date", "LocalTime": "Time", "LocalDateTime": "Timestamp"}
_KINDS = (
    "SQLIntegrityConstraintViolationException",
    "SQLDataException",
    "SQLInvalidAuthorizationSpecException",
    "SQLTransientException",
    "SQLRecoverableException",
    "SQLNonTransientConnectionException",
)
"""Classes of java.sql by what is to be done about an error."""
_FRACTION = re.compile(r"(\.\d{6})(\d+)")


class JdbcError(Exception):
    """What a JDBC driver has raised.

    Args:
        message: Its text, without passwords.
        sqlstate: The SQLSTATE; empty where the driver gives none.
        vendor_code: The database's own code, 0 where there is none.
        kind: JDBC's class of such errors, one of ``_KINDS``; empty for one of no such class.
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
    """The JVM, and what its errors must not show."""

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
            # The text of the error itself has the JVM's trace.
            raise self._translated(error.java_exception) from None

    def _translated(self, thrown: Any) -> JdbcError:
        found = self.sql_exception(thrown)
        if found is None:
            return JdbcError(self._without_secrets(str(thrown.toString())))
        return self.error_of(found)

    def sql_exception(self, thrown: Any) -> Any:
        """Return the driver's exception among what was thrown; None if there is none."""
        each = thrown
        while each is not None and not self._is(each, "SQLException"):
            each = each.getCause()
        # One of a batch of rows says only which row it was.
        if each is not None and self._is(each, "BatchUpdateException"):
            return each.getNextException() or each
        return each

    def error_of(self, thrown: Any) -> JdbcError:
        """Return the error that a driver's exception is."""
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
    """Raise JdbcError for what a driver refuses that Spark's writer writes with.

    Anything else is raised as it is, also what another driver says that the rows come from.
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

    For what Spark's reader and writer cannot do: definitions, marks, INSERT … SELECT; never
    for rows of data, as each value is a call of the JVM. It ends with the session's JVM. One
    thread at a time may use it. All of it raises JdbcError, and py4j's errors if the JVM is
    gone.
    """

    query_timeout = 0
    """After how many seconds a statement gives up; 0 for never."""

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
            properties: The driver's, such as ``user`` and ``password``.
            driver: The class of the driver, which Spark has: see ``sdk.jdbc.load_driver``.
        """
        java = _java(spark, properties)
        with java.errors():
            given = java.jvm.java.util.Properties()
            for name, value in properties.items():
                given.setProperty(name, value)
            registry = java.jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
            registry.register(driver)
            # Not DriverManager's: another driver may take the same URL.
            connection = registry.get(driver).connect(url, given)
            if connection is None:
                message = f"The driver {driver} does not take URLs such as this one."
                raise JdbcError(message, sqlstate="08001")
            opened = cls(java, connection)
            try:
                connection.setAutoCommit(False)
            except BaseException:
                opened.close()
                raise
            return opened

    def cursor(self) -> JdbcCursor:
        """Return what runs one statement."""
        return JdbcCursor(self._java, self._connection, self.query_timeout)

    @property
    def schema(self) -> str:
        """The schema of names that are in none; empty where the database has none."""
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
        """Return the rows of an answer of ``java.sql.DatabaseMetaData``.

        Args:
            question: Its method, such as ``getTables``.
            names: The names that it takes behind the catalog, which is the connection's; an
                empty one means any. Those of ``getTables`` and ``getColumns`` are patterns.
            columns: The columns that are wanted. One that the driver does not know is None.
            more: The arguments behind the names.
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
        """Return whether a statement's one parameter may be a null of a type of java.sql."""
        try:
            statement = self._connection.prepareStatement(sql)
            statement.setNull(1, kind)
            statement.executeUpdate()
            statement.close()
        except Py4JJavaError:
            return False
        return True

    def spark_types(self, url: str, query: str) -> str:
        """Return what Spark makes of a query's columns, as the JSON of a StructType.

        Times without a zone are ``timestamp_ntz``. The query is run, so it should have no row.
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
        """Undo the transaction."""
        with self._java.errors():
            self._connection.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is done within, and only that, when it raises."""
        with self._java.errors():
            savepoint = self._connection.setSavepoint()
        try:
            yield
        except BaseException:
            with self._java.errors():
                self._connection.rollback(savepoint)
            raise
        with suppress(JdbcError), self._java.errors():  # Oracle and SQL Server release none
            self._connection.releaseSavepoint(savepoint)

    def close(self) -> None:
        """Undo what is not committed, and close. Never raises: the connection may be gone."""
        # Oracle commits when a connection is closed, Derby refuses to close it.
        for end in (self._connection.rollback, self._connection.close):
            with suppress(Py4JError, OSError):
                end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class JdbcCursor:
    """Runs one statement; ``close`` it afterwards."""

    rowcount = -1
    """How many rows the statement has changed; -1 for a query."""

    def __init__(self, java: _Java, connection: Any, timeout: int = 0) -> None:
        self._java = java
        self._connection = connection
        self._timeout = timeout
        self._statement: Any = None
        self._result: Any = None

    def execute(self, sql: str, values: Sequence[object] = ()) -> None:
        """Run a statement, whose ``?`` stand for the values.

        A value is None, a bool, int, float, Decimal, str, bytes, date, time or datetime.
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
        """Return the rows of the query that was run.

        Values are exact: times with digits behind microseconds, and years that Python has not,
        are errors, as are more than ``MAX_ROWS`` rows. What JDBC has no type for is a str. A
        driver that knows no java.time reads times through the JVM's time zone.
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
                    message = f"The query has more than {MAX_ROWS:,} rows: Spark reads such."
                    raise JdbcError(message)
                rows.append(tuple(self._value(at, *each) for at, each in enumerate(kinds, 1)))
        return rows

    def close(self) -> None:
        """Let go of the statement and its rows."""
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
        except Py4JJavaError:  # of JDBC 4.2: drivers may lack it
            return int(self._statement.getUpdateCount())

    def _bind(self, at: int, value: object) -> None:
        statement, jvm = self._statement, self._java.jvm
        match value:
            case None:
                self._bind_null(at)
            case bool():
                statement.setBoolean(at, value)
            case int() if -(2**63) <= value < 2**63:
                statement.setLong(at, value)
            case int() | Decimal():
                statement.setBigDecimal(at, jvm.java.math.BigDecimal(str(value)))
            case float():
                statement.setDouble(at, value)
            case str():
                statement.setString(at, value)
            case bytes():
                statement.setBytes(at, value)
            case datetime():
                self._bind_time(at, value, "LocalDateTime", "OffsetDateTime")
            case time():
                self._bind_time(at, value, "LocalTime", "OffsetTime")
            case date():
                made = jvm.java.time.LocalDate.parse(value.isoformat())
                self._set_time(at, made, "LocalDate")
            case _:
                message = f"Expected a value that SQL has, got {type(value).__name__}."
                raise TypeError(message)

    def _bind_null(self, at: int) -> None:
        try:
            self._statement.setNull(at, _NULL)
        except Py4JJavaError:  # Derby takes a null of the parameter's own type only
            kind = self._statement.getParameterMetaData().getParameterType(at)
            self._statement.setNull(at, kind)

    def _bind_time(self, at: int, value: datetime | time, local: str, zoned: str) -> None:
        name = local if value.utcoffset() is None else zoned
        made = getattr(self._java.jvm.java.time, name).parse(value.isoformat())
        self._set_time(at, made, name)

    def _set_time(self, at: int, value: Any, name: str) -> None:
        try:
            self._statement.setObject(at, value)
        except Py4JJavaError:
            # A driver from before java.time. Its classes are in the JVM's time zone, where
            # that hour may not exist.
            if name not in _OLD:
                raise
            old = getattr(self._java.jvm.java.sql, _OLD[name]).valueOf(value)
            if not getattr(old, f"to{name}")().equals(value):
                raise
            self._statement.setObject(at, old)

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
    """Return what Java writes as Python's, which would drop digits behind microseconds."""
    fraction = _FRACTION.search(text)
    if fraction is None or not fraction[2].strip("0"):
        with suppress(ValueError):  # a year before 1 or after 9999
            return kind.fromisoformat(text)
    message = f"{text} is no {kind.__name__} that Python has: cast it to a text."
    raise JdbcError(message, sqlstate="22008")
