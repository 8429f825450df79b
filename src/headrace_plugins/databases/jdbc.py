"""Any other database by its JDBC driver: Spark's reader and writer move the rows.

SQL dialects differ: this module uses standard SQL, Spark's dialect of the database, or probes
the database once and stores the result.
"""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted
from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as day_time
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.sdk import ConfigError, RecordError, Schema, Type
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.jdbc import JdbcDriver, LoadedDriver, load_driver
from headrace.sdk.schema import DATE, TIME, TIMESTAMP
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import quote
from headrace_plugins.databases.address import protocol
from headrace_plugins.databases.catalog import Column, Table, TableName, stated_type
from headrace_plugins.databases.database import (
    Database,
    DatabaseError,
    Merge,
    Rejected,
    Select,
    Session,
)
from headrace_plugins.databases.jdbc_connection import (
    JdbcConnection,
    JdbcError,
    described,
    schemas_of,
    spark_writes,
    tables_there,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace_plugins.databases.address import Address

_FETCHED, _BATCHED = "5000", "5000"
"""The number of rows per network round trip, if the driver supports it."""
_KEY_SIGNS = 255
"""The maximum length of key strings in created tables: indexes have limits."""
_UNUSUAL = {"BIT(1)": "BOOLEAN", "BYTE": "SMALLINT"}
"""Spark's default types that are not standard SQL, and the standard types."""
_IS_TEXT = re.compile(r"(?i)char|text|clob|string|long")
_ZONED = re.compile(r"(?i)timestamptz|with (local )?time ?zone|datetimeoffset|timestamp_[tl]tz")
_TIME = re.compile(r"(?i)time(?!stamp|.*\bzone)")
_FULL_SELECTS = ("SELECT {}", "VALUES {}", "SELECT {} FROM DUAL")
"""The possible statements to select a value without a table."""


class JdbcSession(Session):
    """A session whose statements run in the JVM."""

    @contextmanager
    @override
    def savepoint(self) -> Iterator[None]:
        if not self.undoes_parts:
            yield
            return
        with self.errors(), self.connection.savepoint():
            yield

    @contextmanager
    @override
    def waiting(self, seconds: int) -> Iterator[None]:
        self.connection.query_timeout = seconds
        try:
            yield
        finally:
            self.connection.query_timeout = 0


@dataclass(frozen=True)
class _Known:
    """The probed properties of a database.

    Args:
        schema: The default schema.
        one: The statement to select a value without a table, one of ``_FULL_SELECTS``.
        has_limit: Whether the dialect has LIMIT and OFFSET.
        has_escapes: Whether a backslash in a string literal is an escape.
    """

    schema: str
    one: str
    has_limit: bool
    has_escapes: bool


class AnyJdbc(Database):
    """A database that is accessed by its JDBC driver.

    All code here runs on the Spark driver; executors run only Spark's own code.

    A batch is applied twice: to find refused rows, and to commit. Each transaction is open only
    for that time, and locks the row of the application's mark. If the worker is suspended
    within it, this lock and those of changed rows remain until the database closes the
    connection: there is no portable way to terminate it. Another owner of the task waits for a
    minute and retries later.
    """

    mark: ClassVar[str] = "?"
    row_id: ClassVar[str] = "headrace_row"
    transactional_ddl: ClassVar[bool] = False
    keeps_open: ClassVar[bool] = False
    by_spark: ClassVar[bool] = True
    # A task that Spark gave up on could still add rows after the table became the target.
    publishes: ClassVar[bool] = False
    has_row_number: ClassVar[bool] = False
    seeks_rows: ClassVar[bool] = False
    long_text: ClassVar[str] = "VARCHAR(4000)"

    def __init__(self, address: Address, driver: JdbcDriver) -> None:
        super().__init__(address)
        self.driver = driver
        self._merges = False
        self._takes_nulls = True

    @property
    @override
    def kind(self) -> str:
        return f"jdbc:{protocol(self.address)}"

    # --- connections and names ------------------------------------------------------

    @override
    def session(self) -> Session:
        loaded = self._loaded()
        with self._errors():
            opened = JdbcConnection.open(
                loaded.spark, self.address.url, self._properties, loaded.class_name
            )
        session = JdbcSession(opened, self._errors)
        session.undoes_parts = opened.has_savepoints
        return session

    def _loaded(self) -> LoadedDriver:
        return load_driver(self.driver, self.address.url)

    @property
    def _properties(self) -> dict[str, str]:
        both = {"user": self.address.user, "password": self.address.password}
        return {name: value for name, value in both.items() if value is not None}

    @cached_property
    def _dialect(self) -> Any:
        jvm: Any = self._loaded().spark.sparkContext._jvm  # noqa: SLF001 - the only way to it
        return jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.address.url)

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_dialect"}

    @cached_property
    def _known(self) -> _Known:
        with self.session() as session:
            connection: JdbcConnection = session.connection
            schema = connection.schema
            one = next((sql for sql in _FULL_SELECTS if _runs(session, sql.format("1"))), None)
            if one is None:
                raise DatabaseError(
                    problem=f"{self.address.title} cannot select a value without a table."
                )
            escaped = session.value(one.format("'\\\\'"))
            return _Known(
                schema=schema,
                one=one,
                has_limit=_runs(session, f"{one.format('1 AS one')} LIMIT 1 OFFSET 0"),
                has_escapes=str(escaped) == "\\",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except JdbcError as error:
            raise translated(error, self.address) from error

    @cached_property
    def _quotes(self) -> tuple[str, str]:
        # The quotes of Spark's writer.
        opening, closing = str(self._dialect.quoteIdentifier("x")).split("x")
        return opening, closing

    @override
    def quote(self, name: str) -> str:
        opening, closing = self._quotes
        return f"{opening}{name.replace(closing, closing * 2)}{closing}"

    @override
    def literal(self, value: object) -> str:
        match value:
            case None:
                return "NULL"
            case bool():
                has_booleans = self.column_type(Schema.boolean()) == "BOOLEAN"
                return str(value).upper() if has_booleans else str(int(value))
            case Decimal():
                return f"{value:f}"
            case int() | float():
                return str(value)
            case datetime() if value.tzinfo is not None:
                return self._time(value.astimezone(UTC), Schema.timestamp())
            case datetime():
                return self._time(value, Schema.local_timestamp())
            case date():
                return self._time(value, Schema.date())
        text = str(value).replace("'", "''")
        if self._known.has_escapes:
            text = text.replace("\\", "\\\\")
        return f"'{text}'"

    def _time(self, value: date, schema: Schema) -> str:
        kind = self.column_type(schema)
        if not isinstance(value, datetime):
            return f"CAST('{value.isoformat()}' AS {kind})"
        text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        if self.kind == "jdbc:oracle":  # its casts depend on the session's locale
            return f"{{ts '{text}'}}"
        return f"CAST('{text}{'+00:00' if _ZONED.search(kind) else ''}' AS {kind})"

    @override
    def compared(self, value: object, column: Column) -> str:
        text, schema = str(value), column.schema
        match schema.name if schema.is_logical else None:
            case name if name == TIMESTAMP:
                found = datetime.fromisoformat(text)
                if found.tzinfo is None:
                    found = found.replace(tzinfo=UTC)
                zone = "+00:00" if _ZONED.search(column.type) else ""
                plain = found.astimezone(UTC).replace(tzinfo=None)
                if self.kind == "jdbc:oracle":
                    return self._time(plain, schema)
                return f"'{plain.isoformat(sep=' ', timespec='microseconds')}{zone}'"
            case name if name == DATE:
                return self._time(date.fromisoformat(text), schema)
            case name if name == TIME:
                return f"'{day_time.fromisoformat(text).isoformat()}'"
        return self.literal(value)

    @override
    def page(self, query: str, rows: int, offset: int = 0) -> str:
        if self._known.has_limit:
            return super().page(query, rows, offset)
        # SQL:2008: Oracle, Db2, Derby, and SQL Server, which requires ORDER BY.
        if self.kind == "jdbc:sqlserver" and "ORDER BY" not in query:
            query = f"{query} ORDER BY (SELECT NULL)"
        return f"{query} OFFSET {offset} ROWS FETCH NEXT {rows} ROWS ONLY"

    @property
    @override
    def default_schema(self) -> str:
        return self._known.schema

    # --- the catalog ----------------------------------------------------------------

    @override
    def tables(self, session: Session) -> list[TableName]:
        return tables_there(session, own=False)

    @override
    def table(self, session: Session, name: TableName) -> Table | None:
        # Some databases store unquoted names in upper case, others in lower case.
        names = tables_there(session)
        [schema] = _alike([name.schema], {each.schema for each in names})
        [own] = _alike([name.name], {e.name for e in names if e.schema == schema})
        actual = TableName(schema, own)
        return self.describe(session, [actual]).get(actual) if actual in names else None

    @override
    def named(self, text: str) -> TableName:
        name = super().named(text)
        if name.schema == self.default_schema:
            return name
        with self.session() as session, session.errors():
            found = session.connection.catalog("getSchemas", [""], ("TABLE_SCHEM",))
        [schema] = _alike([name.schema], {str(each) for (each,) in found})
        return TableName(schema, name.name)

    @override
    def column_named(self, table: Table, name: str) -> str:
        [found] = _alike([name], {each.name for each in table.columns})
        return found

    @override
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        found = ((name, described(self, session, name)) for name in names)
        return {name: table for name, table in found if table is not None}

    @override
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        schemas = schemas_of(self, session, f"({query}) q", ())
        return tuple(
            Column(name=name, type=self.column_type(schema), schema=schema)
            for name, schema in schemas.items()
        )

    @override
    def now(self, session: Session) -> datetime:
        found = session.value(self._known.one.format("CURRENT_TIMESTAMP"))
        assert isinstance(found, datetime)
        return found

    # --- reading --------------------------------------------------------------------

    @override
    def frame(self, spark: SparkSession, selects: Sequence[Select]) -> DataFrame:
        columns, source = selects[0].columns, selects[0].source
        texts = {
            each.name: f"headrace_text_{number}"
            for number, each in enumerate(columns)
            if _is_read_as_text(each)
        }
        if texts:
            text = self.column_type(Schema.string())
            parts = []
            for each in columns:
                name = self.quote(each.name)
                if each.name not in texts or _is_time(each.schema):
                    parts.append(name)  # conditions refer to it
                if each.name in texts:
                    kind = _TIME_TEXT if _is_time(each.schema) else text
                    parts.append(f"CAST({name} AS {kind}) AS {self.quote(texts[each.name])}")
            source = f"(SELECT {', '.join(parts)} FROM {source}) q"
        loaded = self._loaded()
        rows = spark.read.jdbc(
            self.address.url,
            source,
            predicates=[each.where or "1 = 1" for each in selects],
            properties={
                **self._properties,
                "driver": loaded.class_name,
                "fetchsize": _FETCHED,
                "preferTimestampNTZ": "true",
            },
        )
        types = T.StructType.fromJson(
            to_spark_json(Schema.struct({c.name: c.schema for c in columns}))
        )
        return rows.select(
            *[
                _as_read(F.col(quote(texts.get(each.name, each.name))), each.schema).alias(
                    each.name, metadata=types[each.name].metadata
                )
                for each in columns
            ]
        )

    @override
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        raise NotImplementedError  # Spark reads

    # --- writing --------------------------------------------------------------------

    @override
    def learn(self, session: Session, marks: TableName) -> None:
        path, end = self.path(marks), self._end_of_merge
        same = "(t.application = s.application AND 1 = 0)"
        merge = f"MERGE INTO {path} t USING {path} s ON {same} WHEN MATCHED THEN"
        self._merges = _runs(session, f"{merge} UPDATE SET batch = s.batch{end}")
        # Spark's writer uses its string type for every null, which may be a CLOB.
        text = self._jdbc_type(T.StringType())[0].jdbcNullType()
        self._takes_nulls = session.connection.takes_null(
            f"UPDATE {path} SET pending = ? WHERE 1 = 0", text
        )
        session.rollback()

    @override
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        own, kind = stated_type(schema)
        is_text = schema.type is Type.STRING
        is_written = not is_text or (_IS_TEXT.search(kind) and (self._takes_nulls or in_key))
        if own == self.kind and is_written:
            return kind
        if is_text and in_key:
            return self._type(T.VarcharType(_KEY_SIGNS))
        bare = Schema.struct({"value": schema})
        return self._type(T.StructType.fromJson(to_spark_json(bare))["value"].dataType)

    def _type(self, kind: T.DataType) -> str:
        found, is_common = self._jdbc_type(kind)
        name = str(found.databaseTypeDefinition())
        return _UNUSUAL.get(name, name) if is_common else name

    def _jdbc_type(self, kind: T.DataType) -> tuple[Any, bool]:
        """Return the JDBC type of a Spark type, and whether it is Spark's common default."""
        jvm: Any = self._loaded().spark.sparkContext._jvm  # noqa: SLF001 - the only way to it
        sql = jvm.org.apache.spark.sql
        own = sql.types.DataType.fromJson(kind.json())
        found = self._dialect.getJDBCType(own)
        common = sql.execution.datasources.jdbc.JdbcUtils.getCommonJDBCType(own)
        if found.isEmpty() and common.isEmpty():
            raise ConfigError(
                problem=f"{self.address.title} has no type for {kind.simpleString()}.",
                fix="Cast the field to another type with a transform.",
            )
        return (common.get(), True) if found.isEmpty() else (found.get(), False)

    @override
    def staged_type(self, column: Column, *, in_key: bool = False) -> str:
        # Spark's writer supports only these types; the database converts the text.
        is_known = not _is_read_as_text(column) or _is_time(column.schema)
        is_text = column.schema.type is Type.STRING and not self._takes_nulls and not in_key
        return column.type if is_known and not is_text else self.column_type(Schema.string())

    @override
    def add_column(self, table: TableName, column: str, type_: str) -> str:
        return str(self._dialect.getAddColumnQuery(self.path(table), column, type_))

    @override
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        return [str(self._dialect.getUpdateColumnTypeQuery(self.path(table), column, type_))]

    @override
    def staging_columns(self) -> str:
        return f"{self.row_id} {self.column_type(Schema.int64())}"

    @override
    def try_take_over(self, session: Session, name: str) -> bool:
        return True  # there is only the lock on the mark, see the class

    @override
    def drop_staging(self, staging: TableName) -> None:
        with self.session() as session:
            path = self.path(staging)
            if _runs(session, f"SELECT 1 FROM {path} WHERE 1 = 0"):
                session.execute(str(self._dialect.dropTable(path)))
                session.commit()

    @override
    def load_frame(
        self,
        rows: DataFrame,
        table: TableName,
        columns: Mapping[str, Schema],
        types: Mapping[str, str],
    ) -> None:
        loaded = self._loaded()
        rows = rows.select(
            *[
                _as_written(F.col(quote(name)), schema, types.get(name, "")).alias(name)
                for name, schema in columns.items()
            ],
            # Unique within a job, which writes all rows of a record.
            F.monotonically_increasing_id().alias(self.row_id),
        )
        properties = {
            **self._properties,
            "driver": loaded.class_name,
            "batchsize": _BATCHED,
        }
        with self._errors(), spark_writes(loaded.spark, properties):
            rows.write.jdbc(self.address.url, self.path(table), "append", properties)

    @override
    def update(self, merge: Merge, settings: Sequence[tuple[str, str]]) -> str:
        on = f"{merge.matches} AND {merge.where}"
        if self._merges:
            changes = ", ".join(f"{name} = {value}" for name, value in settings)
            return (
                f"MERGE INTO {merge.target} t USING {merge.staging} s ON ({on}) "
                f"WHEN MATCHED THEN UPDATE SET {changes}{self._end_of_merge}"
            )
        rows = f"FROM {merge.staging} s WHERE {on}"
        changes = ", ".join(f"{name} = (SELECT {value} {rows})" for name, value in settings)
        return f"UPDATE {merge.target} t SET {changes} WHERE EXISTS (SELECT 1 {rows})"

    @property
    def _end_of_merge(self) -> str:
        return ";" if self.kind == "jdbc:sqlserver" else ""  # only SQL Server requires it

    @override
    def delete(self, merge: Merge) -> str:
        rows = f"FROM {merge.staging} s WHERE"
        if len(merge.keys) == 1:  # fast in every database
            [key] = merge.keys
            rows = f"{rows} {merge.where}"
            return f"DELETE FROM {merge.target} WHERE {key} IN (SELECT s.{key} {rows})"
        # Not all databases allow an alias of the target here.
        same = " AND ".join(f"{merge.target}.{key} = s.{key}" for key in merge.keys)
        exists = f"EXISTS (SELECT 1 {rows} {same} AND {merge.where})"
        return f"DELETE FROM {merge.target} WHERE {exists}"

    @override
    def differs(self, one: str, other: str) -> str:
        nulls = f"({one} IS NULL AND {other} IS NOT NULL)"
        return f"({one} <> {other} OR {nulls} OR ({one} IS NOT NULL AND {other} IS NULL))"

    # --- health ---------------------------------------------------------------------

    @override
    def examine(self, session: Session) -> Iterator[Finding]:
        yield Finding("a JDBC driver", Verdict.OK, self._loaded().class_name)
        yield Finding.of(
            "savepoints",
            "" if session.undoes_parts else "The database has no savepoints.",
            "If a constraint refuses a record, the whole batch fails.",
            met=session.undoes_parts,
            otherwise=Verdict.WARNING,
        )


_TIME_TEXT = "VARCHAR(30)"


def _runs(session: Session, sql: str) -> bool:
    """Return whether the database supports a statement, and roll it back."""
    try:
        session.execute(sql)
    except (DatabaseError, RecordError, ConfigError):
        return False
    finally:
        session.rollback()
    return True


def _alike(names: Sequence[str], there: Collection[str]) -> list[str]:
    """Return each name as spelled in ``there``, if the case-insensitive match is unique."""
    found = []
    for name in names:
        alike = [each for each in there if each.lower() == name.lower()]
        found.append(alike[0] if name not in there and len(alike) == 1 else name)
    return found


def _is_time(schema: Schema) -> bool:
    return schema.is_logical and schema.name == TIME


def _is_read_as_text(column: Column) -> bool:
    # Spark would drop the microseconds of a TIME.
    is_text = column.schema.type is Type.STRING
    return _is_time(column.schema) or (is_text and not _IS_TEXT.search(column.type))


def _as_read(column: Any, schema: Schema) -> Any:
    if _is_time(schema):
        at = F.concat(F.lit("1970-01-01 "), column).cast("timestamp")
        return F.unix_micros(at)
    return (
        column.cast("timestamp") if schema.is_logical and schema.name == TIMESTAMP else column
    )


def _as_written(column: Any, schema: Schema, type_: str) -> Any:
    if _is_time(schema) and _TIME.match(type_):
        text = F.date_format(F.timestamp_micros(column), "HH:mm:ss.SSSSSS")
        return F.regexp_replace(text, r"\.000000$", "")  # Derby's TIME has no fraction
    if schema.is_logical and schema.name == TIMESTAMP and not _ZONED.search(type_):
        return column.cast("timestamp_ntz")
    return column
