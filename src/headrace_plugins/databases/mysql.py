"""MySQL and MariaDB: decodes result packets to Arrow, and loads by LOAD DATA from a pipe."""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted by the driver

from __future__ import annotations

import hashlib
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import ConfigError, RetriableError, Schema, Type
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.errors import SetupError
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    WHOLE_NUMBERS,
    precision_of,
    scale_of,
)
from headrace_plugins.databases.catalog import Table, TableName, stated_type
from headrace_plugins.databases.database import (
    Database,
    DatabaseError,
    Merge,
    Rejected,
    Select,
    Session,
)
from headrace_plugins.databases.mysql_catalog import (
    COLLATE,
    describe_tables,
    result_column,
    tables_of,
)
from headrace_plugins.databases.mysql_connection import (
    NOT_REACHED,
    TOO_LARGE,
    column_blocks,
    refused_row,
    tls_of,
    translated,
)
from headrace_plugins.databases.text_rows import TextColumns, TextRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from io import FileIO

    from headrace_plugins.databases.catalog import Column

_SETTINGS = (
    # MySQL's default is higher, and only administrators may set it.
    "SET SESSION time_zone = '+00:00', /*M! max_error_count = 64, */ "
    # Values that do not fit are errors, and an id of 0 is not replaced by auto-increment.
    "sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO', "
    # Spark may pause between reads or writes: the server must wait.
    "net_read_timeout = 3600, net_write_timeout = 3600, "
    "lock_wait_timeout = 60, innodb_lock_wait_timeout = 60"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Each statement sees all committed data, as in other databases."""
_EXPLICIT = "explicit_defaults_for_timestamp"
"""Without it, TIMESTAMP columns are NOT NULL by default and store the current time for null."""
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 30
_INSERT_BYTES = 1 << 20
"""The size of INSERT statements if LOAD DATA is not allowed."""

_TYPES: Mapping[str, str] = {
    Type.BOOLEAN.value: "tinyint(1)",
    Type.INT8.value: "tinyint",
    Type.INT16.value: "smallint",
    Type.INT32.value: "int",
    Type.INT64.value: "bigint",
    Type.FLOAT32.value: "float",
    Type.FLOAT64.value: "double",
    Type.STRING.value: "longtext",
    Type.BYTES.value: "longblob",
    Type.ARRAY.value: "json",
    Type.MAP.value: "json",
    Type.STRUCT.value: "json",
    DATE: "date",
    TIME: "time(6)",
    TIMESTAMP: "datetime(6)",
    VARIANT: "json",
}
_KEY_TYPES = {
    Type.STRING.value: f"varchar(255){COLLATE}utf8mb4_bin",
    Type.BYTES.value: "varbinary(255)",
}
"""The types of key columns: servers cannot index longer values."""


class Mysql(Database):
    """A database of a MySQL or MariaDB server; table names may refer to other databases of it.

    Types on reading: TINYINT(1), and so BOOLEAN, as INT8, as it may store numbers other than 0
    and 1; BIT(1) as BOOLEAN, longer BIT as BYTES; an unsigned integer as the next wider type,
    BIGINT UNSIGNED as Decimal; DECIMAL of more than 38 digits as STRING; DATETIME as local
    timestamp; ENUM, SET and JSON as STRING; geometry as BYTES, in the server's own format. Rows
    with a negative TIME, a TIME of 24 hours or more, or a date with a zero month or day are
    rejected.

    Types on writing: DATETIME(6) for all timestamps, those with a zone in UTC, as TIMESTAMP
    ends in 2038; JSON for nested values, for which MySQL, but not MariaDB, sorts keys and
    converts long numbers to doubles; VARCHAR(255) for strings in a key. Fractional seconds
    beyond a column's precision are lost without an error.
    """

    kind: ClassVar[str] = "mysql"
    row_id: ClassVar[str] = "__headrace_row"
    exact_text: ClassVar[str] = f"{COLLATE}utf8mb4_bin"
    transactional_ddl: ClassVar[bool] = False
    folds_columns: ClassVar[bool] = True
    seeks_rows: ClassVar[bool] = False
    table_options: ClassVar[str] = " ENGINE=InnoDB"  # a server may have another default

    # --- connections and names ------------------------------------------------------

    @override
    def session(self) -> Session:
        session = Session(self._connect(local_infile=True), self._errors)
        if not session.value(f"SELECT @@{_EXPLICIT}"):
            session.execute(f"SET SESSION {_EXPLICIT} = 1")
        return session

    def _connect(self, **options: Any) -> Any:
        pymysql, address = _pymysql(), self.address
        tls, tls_required = tls_of(address.options)
        plugins = dict.fromkeys(("mysql_clear_password", "dialog"), self._require_tls)
        with self._errors():
            connection = pymysql.connect(
                host=address.host,
                port=address.port,
                database=address.database,
                user=address.user,
                password=address.password or "",
                charset="utf8mb4",
                autocommit=False,
                program_name="headrace",
                client_flag=pymysql.constants.CLIENT.FOUND_ROWS,  # count rows as others do
                conv=_conversions(),
                defer_connect=True,
                read_timeout=_ANSWER_SECONDS,
                auth_plugin_map=plugins,
                ssl=tls,
                ssl_disabled=tls is None,
                **options,
            )
            # PyMySQL requires TLS if it gets a context, while its default is to use TLS if the
            # server offers it. A server without TLS rejects clients that set the SSL flag.
            connection._ssl_required = tls_required  # noqa: SLF001
            if not tls_required:
                connection.client_flag &= ~pymysql.constants.CLIENT.SSL
            # No server may request a file: only our own LOAD DATA enables this.
            connection._local_infile = False  # noqa: SLF001 - PyMySQL has no other way
            connection.connect(_socket(address.host, address.port))
            try:
                connection.query(_SETTINGS)
                connection.query(_ISOLATION)
                connection._read_timeout = None  # noqa: SLF001 - only for connecting
            except BaseException:
                connection.close()
                raise
        return connection

    def _require_tls(self, connection: Any) -> None:
        if not connection._secure:  # noqa: SLF001
            raise ConfigError(
                problem=f"{self.address.title} requests a cleartext password without TLS.",
                fix="Set sslMode=verify-identity in the URL.",
                field="connection.url",
            )

    @property
    def grants(self) -> str:
        """The statement that grants the user the privileges to read and write."""
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP"
        user = self.address.user or "user"
        return f"GRANT {rights} ON {self.quote(self.address.database)}.* TO '{user}';"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if "LOAD_LOCAL" not in str(error):
                raise
            raise self._asks_for_file() from error
        except _pymysql().MySQLError as error:
            number, *texts = error.args if len(error.args) > 1 else (0, str(error))
            text = str(texts[0]).strip()
            raise translated(self.address, number, text, self.grants) from error
        except OSError as error:
            raise translated(self.address, NOT_REACHED, str(error)) from error

    @override
    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    @override
    def literal(self, value: object) -> str:
        from pymysql.converters import escape_item  # noqa: PLC0415 - an extra

        return str(escape_item(value, "utf8mb4", _conversions()))

    @property
    @override
    def default_schema(self) -> str:
        return self.address.database

    # --- the catalog ----------------------------------------------------------------

    @override
    def tables(self, session: Session) -> list[TableName]:
        return tables_of(session, self.address.database)

    @override
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        # Catalog queries are case-insensitive, but table names may be case-sensitive.
        is_folded = self.folds_tables(session)
        asked = {TableName(n.schema, n.name.lower()) if is_folded else n: n for n in names}
        found = dict[TableName, Table]()
        for schema in {each.schema for each in names}:
            tables = [each.name for each in names if each.schema == schema]
            for table in describe_tables(session, schema, tables):
                own = table.name
                name = asked.get(TableName(schema, own.name.lower()) if is_folded else own)
                if name is not None:
                    found[name] = replace(table, name=name)
        return found

    @override
    def folds_tables(self, session: Session) -> bool:
        return bool(session.value("SELECT @@lower_case_table_names"))

    @override
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        with session.errors(), closing(session.connection.cursor()) as cursor:
            cursor.execute(f"SELECT * FROM ({query}) AS q LIMIT 0")
            # PEP 249's description lacks the sign and the character set.
            fields = cursor._result.fields  # noqa: SLF001
        return tuple(map(result_column, fields))

    @override
    def now(self, session: Session) -> datetime:
        found: datetime = session.value("SELECT UTC_TIMESTAMP(6)")
        return found.replace(tzinfo=UTC)

    # --- reading --------------------------------------------------------------------

    @override
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        texts = TextColumns(select.columns, nulls)
        selected = ", ".join(self._value(each) for each in select.columns)
        where = f" WHERE {select.where}" if select.where else ""
        query = f"SELECT {selected} FROM {select.source}{where}"
        with closing(self._connect()) as connection, self._errors():
            connection.query(self.read_only)
            for block in column_blocks(connection, query):
                values = [
                    array if _is_bytes(column.schema) else array.cast(pa.string())
                    for array, column in zip(block, select.columns, strict=True)
                ]
                try:
                    parsed = texts.parse(values)
                except pa.ArrowInvalid as error:
                    raise RetriableError(
                        problem=f"The column types of {select.source} of {self.address.title} "
                        "have changed since the batch began."
                    ) from error
                yield parsed

    def _value(self, column: Column) -> str:
        name = self.quote(column.name)
        if column.schema.type in {Type.FLOAT32, Type.FLOAT64} and column.type != "double":
            return f"{name} * 1e0"  # FLOAT is sent with six digits, DOUBLE with all
        return f"{name} + 0" if column.schema.type is Type.BOOLEAN else name

    # --- writing --------------------------------------------------------------------

    @override
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        own, kind = stated_type(schema)
        if own == self.kind and not (in_key and re.match(r"\w*(text|blob|json)", kind)):
            # Other servers may lack the collation. Keys must stay as case-sensitive as before.
            own_kind, found, collation = kind.rpartition(COLLATE)
            kind, collation = (own_kind, collation) if found else (kind, "")
            is_exact = collation.endswith(("_bin", "_cs"))
            return f"{kind}{COLLATE}utf8mb4_bin" if is_exact else kind
        if schema.name == DECIMAL and schema.is_logical:
            scale = scale_of(schema.parameters)
            return f"decimal({precision_of(schema.parameters) or MAX_PRECISION},{scale})"
        name = str(schema.name) if schema.is_logical else schema.type.value
        return _KEY_TYPES.get(name, _TYPES[name]) if in_key else _TYPES[name]

    @override
    def staging_columns(self) -> str:
        return f"{self.row_id} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY"

    @override
    def merging_session(self, staging: TableName) -> Session:
        session = self.session()
        session.execute("SET SESSION wait_timeout = 3600")
        return session

    @override
    def try_take_over(self, session: Session, name: str) -> bool:
        lock = hashlib.blake2b(name.encode(), digest_size=24).hexdigest()
        if session.value("SELECT GET_LOCK(%s, 0)", [lock]) == 1:
            return True
        holder = session.value("SELECT IS_USED_LOCK(%s)", [lock])
        if holder is not None:
            with suppress(DatabaseError):  # the connection has ended meanwhile
                session.execute(f"KILL {holder}")
        return False

    @override
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        with self.session() as session:
            found = self.table(session, table)
            old = found.column(column) if found is not None else None
            made = session.rows(f"SHOW CREATE TABLE {self.path(table)}")[0][1]
        own = old.type.partition(COLLATE)[0] if old is not None else ""
        # Repeat the text after the type: MODIFY drops omitted attributes, such as a default.
        rest = str(made).partition(f"\n  {self.quote(column)} {own}")[2]
        kept = re.split(r",?\n", rest, maxsplit=1)[0]
        unsigned = own[len(own.partition(" unsigned")[0]) :]  # with any attributes after it
        change = f"MODIFY COLUMN {self.quote(column)} {type_}{unsigned}{kept}"
        return [f"ALTER TABLE {self.path(table)} {change}"]

    @override
    def rename(self, session: Session, names: Sequence[tuple[TableName, TableName]]) -> None:
        changes = ", ".join(f"{self.path(old)} TO {self.path(new)}" for old, new in names)
        session.execute(f"RENAME TABLE {changes}")

    @override
    def load(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        rows: Iterator[pa.RecordBatch],
    ) -> int:
        text, sent = TextRows(list(columns.values())), 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal sent
            for batch in rows:
                sent += batch.num_rows
                yield _with_doubles(batch)

        if session.value("SELECT @@local_infile"):
            data = map(text.lines, counted())
            count = self._load_data(session, table, columns, data)
        else:
            count = self._insert(session, table, columns, map(text.texts, counted()))
        if count != sent:
            raise refused_row(self.address, f"{sent} rows were sent, but {count} were stored")
        return count

    def _load_data(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        data: Iterator[memoryview],
    ) -> int:
        names, settings = [], []
        years = {row[0] for row in session.rows(_YEARS_OF, [table.schema, table.name])}
        for number, (name, schema) in enumerate(columns.items()):
            made = _LOADED.get(schema.type) if not schema.is_logical else None
            made = "CAST({} AS SIGNED)" if name in years else made  # '0' would be the year 2000
            names.append(self.quote(name) if made is None else f"@v{number}")
            if made is not None:
                settings.append(f"{self.quote(name)} = {made.format(f'@v{number}')}")
        reader, writer = os.pipe()

        def statement() -> int:
            file = f"/dev/fd/{reader}"
            try:
                with self._sending(session.connection, file):
                    return session.execute(
                        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {self.path(table)} "
                        f"CHARACTER SET utf8mb4 ({', '.join(names)})"
                        + (f" SET {', '.join(settings)}" if settings else "")
                    )
            finally:
                os.close(reader)  # or the writer would block forever

        with ThreadPoolExecutor(1, "load-data") as thread:
            loaded = thread.submit(statement)
            with open(writer, "wb", buffering=0) as pipe:  # noqa: PTH123 - a number
                for block in data:
                    if not _written(pipe, block):
                        break
            count = loaded.result()
        self._check(session)
        return count

    def _asks_for_file(self) -> DatabaseError:
        return DatabaseError(
            problem=f"{self.address.title} requests a local file that it must not read.",
            fix="Correct connection.url: this server is not trustworthy.",
            field="connection.url",
        )

    @contextmanager
    def _sending(self, connection: Any, file: str) -> Iterator[None]:
        """Allow the server to request this one local file only."""
        read = connection._read_packet  # noqa: SLF001

        def checked(*args: object) -> Any:
            packet = read(*args)
            if packet.is_load_local_packet() and packet.get_all_data()[1:] != file.encode():
                raise self._asks_for_file()
            return packet

        connection._local_infile, connection._read_packet = True, checked  # noqa: SLF001
        try:
            yield
        finally:
            connection._local_infile = False  # noqa: SLF001
            del connection._read_packet  # noqa: SLF001

    def _insert(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        data: Iterator[list[pa.Array]],
    ) -> int:
        """Add rows by INSERT if the server does not allow LOAD DATA LOCAL; half as fast."""
        names = ", ".join(self.quote(name) for name in columns)
        head = f"INSERT INTO {self.path(table)} ({names}) VALUES "
        limit, count = int(session.value("SELECT @@max_allowed_packet")), 0
        for texts in data:
            values = [
                _literals(each, schema)
                for each, schema in zip(texts, columns.values(), strict=True)
            ]
            joined = pc.binary_join_element_wise(
                *values, ",", null_handling="replace", null_replacement="NULL"
            )
            tuples = pc.binary_join_element_wise("(", joined, ")", "")
            if not len(tuples):
                continue
            ends = np.cumsum(pc.binary_length(tuples).to_numpy(zero_copy_only=False))
            parts = np.unique(ends // min(_INSERT_BYTES, limit // 2), return_index=True)[1]
            for start, end in zip(parts, [*parts[1:], len(tuples)], strict=True):
                statement = head + ",".join(tuples[start:end].to_pylist())
                if len(statement.encode()) >= limit:
                    problem = "it is larger than max_allowed_packet"
                    raise translated(self.address, TOO_LARGE, problem)
                count += session.execute(statement)
                self._check(session)
        return count

    def _check(self, session: Session) -> None:
        """Raise RecordError if the last statement skipped a row or changed a value.

        LOAD DATA LOCAL only warns where other statements fail.
        """
        warnings = session.rows("SHOW WARNINGS")
        if warnings:
            raise refused_row(
                self.address, "; ".join(dict.fromkeys(str(row[2]) for row in warnings[:3]))
            )

    @override
    def update(self, merge: Merge, settings: Sequence[tuple[str, str]]) -> str:
        changes = ", ".join(f"t.{name} = {value}" for name, value in settings)
        return (
            f"UPDATE {merge.target} t JOIN {merge.staging} s ON {merge.matches} "
            f"SET {changes} WHERE {merge.where}"
        )

    @override
    def delete(self, merge: Merge) -> str:
        return (
            f"DELETE t FROM {merge.target} t JOIN {merge.staging} s ON {merge.matches} "
            f"WHERE {merge.where}"
        )

    @override
    def differs(self, one: str, other: str) -> str:
        # Most collations are case-insensitive.
        exactly = f"CAST({one} AS BINARY) <=> CAST({other} AS BINARY)"
        return f"NOT ({one} <=> {other} AND {exactly})"

    # --- health ---------------------------------------------------------------------

    @override
    def examine(self, session: Session) -> Iterator[Finding]:
        found = dict(session.rows(_VARIABLES)) | dict(session.rows(_CONNECTED))
        version = str(session.value("SELECT VERSION()"))
        oldest = (10, 5) if "MariaDB" in version else (8, 0)
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        yield Finding.of(
            "MySQL 8.0 or MariaDB 10.5, or newer", version, "", met=numbers >= oldest
        )
        charset = session.value(
            "SELECT default_character_set_name FROM information_schema.schemata "
            "WHERE schema_name = %s",
            [self.address.database],
        )
        yield Finding.of(
            "character set utf8mb4",
            str(charset),
            f"ALTER DATABASE {self.quote(self.address.database)} CHARACTER SET utf8mb4;",
            met=charset == "utf8mb4",
            otherwise=Verdict.WARNING,
        )
        free = int(found["max_connections"]) - int(found["Threads_connected"])
        yield Finding.of(
            "free connections",
            f"{free} free",
            f"SET GLOBAL max_connections = {int(found['max_connections']) + 100};",
            met=free >= _SPARE,
            otherwise=Verdict.WARNING,
        )
        yield from self.examine_writing(found)

    def examine_writing(self, found: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about the server's variables that apply only to writing."""
        yield Finding.of(
            "LOAD DATA LOCAL, which is twice as fast as INSERT",
            f"local_infile is {found['local_infile']}",
            "SET GLOBAL local_infile = 1;",
            met=found["local_infile"] == "ON",
            otherwise=Verdict.WARNING,
        )
        packet = int(found["max_allowed_packet"])
        yield Finding.of(
            "rows of 16 MB",
            f"max_allowed_packet is {packet}",
            f"SET GLOBAL max_allowed_packet = {4 * _PACKET_BYTES};",
            met=packet >= _PACKET_BYTES,
            otherwise=Verdict.WARNING,
        )
        if found["read_only"] == "ON":
            yield Finding.of(
                "a writable server",
                "read_only is ON: it is a replica, or temporarily read-only",
                "Write to its primary, or SET GLOBAL read_only = OFF;",
                met=False,
                otherwise=Verdict.WARNING,
            )
        if found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT":
            yield Finding.of(
                "a binary log that supports READ COMMITTED",
                "binlog_format is STATEMENT: writing fails",
                "SET GLOBAL binlog_format = 'ROW';",
                met=False,
                otherwise=Verdict.WARNING,
            )


_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('local_infile', 'max_allowed_packet', "
    "'max_connections', 'read_only', 'log_bin', 'binlog_format')"
)
_YEARS_OF = (
    "SELECT column_name FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s AND data_type = 'year'"
)
_CONNECTED = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
_LOADED = {Type.BOOLEAN: "CAST({} AS UNSIGNED)", Type.BYTES: "UNHEX({})"}
"""The conversion in LOAD DATA of text that the column would misinterpret."""
_PACKET_BYTES = 16 << 20
_SPARE = 5


def _pymysql() -> Any:
    try:
        import pymysql  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError(
            problem="MySQL requires the package PyMySQL.", fix="pip install 'headrace[mysql]'"
        ) from error
    return pymysql


@cache
def _conversions() -> dict[Any, Any]:
    """Return PyMySQL's conversions, but with times converted to UTC: it ignores time zones."""
    from pymysql.converters import conversions, escape_datetime  # noqa: PLC0415 - an extra

    def escaped(value: datetime, mapping: Any = None) -> str:
        return escape_datetime(value.astimezone(UTC) if value.tzinfo else value, mapping)

    return {**conversions, datetime: escaped}


def _socket(host: str, port: int) -> socket.socket:
    """Return a connected socket that detects the loss of the server within a minute."""
    made = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    made.settimeout(None)
    for name, value in _SOCKET_OPTIONS.items():
        if hasattr(socket, name):  # not on every system
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


_SOCKET_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}


def _is_bytes(schema: Schema) -> bool:
    return schema.type is Type.BYTES and not schema.is_logical


def _with_doubles(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with FLOAT32 as doubles: a float's shortest text may be out of range."""
    for number, field in enumerate(batch.schema):
        if pa.types.is_float32(field.type):
            doubles = batch.column(number).cast(pa.float64())
            batch = batch.set_column(number, field.name, doubles)
    return batch


def _written(pipe: FileIO, block: memoryview) -> bool:
    """Write a block; return false if the reader has closed the pipe, as it has failed."""
    try:
        while block:
            block = block[pipe.write(block) :]
    except BrokenPipeError:
        return False
    return True


def _literals(texts: pa.Array, schema: Schema) -> pa.Array:
    """Return LOAD DATA texts as SQL literals, which have the same backslash escapes."""
    if schema.type in {Type.BOOLEAN, *WHOLE_NUMBERS} and not schema.is_logical:
        return texts
    if schema.type is Type.STRING:
        texts = pc.replace_substring(texts, "'", "''")
    return pc.binary_join_element_wise("X'" if _is_bytes(schema) else "'", texts, "'", "")
