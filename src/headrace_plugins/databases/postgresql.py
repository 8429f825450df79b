"""PostgreSQL: COPY for reading and writing, snapshots shared by connections, ctid ranges."""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted by the driver

from __future__ import annotations

import hashlib
import re
from contextlib import closing, contextmanager
from functools import partial
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from headrace.sdk import ConfigError, RecordError, RetriableError, Schema, Type
from headrace.sdk.connector import Finding, Verdict
from headrace.sdk.errors import SetupError, StorageUnavailableError
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    precision_of,
    scale_of,
)
from headrace_plugins.databases.catalog import Column, Table, TableName, stated_type
from headrace_plugins.databases.database import (
    UNREACHABLE,
    Database,
    DatabaseError,
    Merge,
    RawLoad,
    Rejected,
    Select,
    Session,
    UnsupportedError,
)
from headrace_plugins.databases.postgresql_catalog import (
    all_tables,
    binary_form,
    columns_of_query,
    describe_tables,
    writers_of,
)
from headrace_plugins.databases.text_rows import CsvRows, to_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

_BLOCK_BYTES = 4 << 20
"""The size of the text blocks to parse."""
_WRITE_BYTES = 128 << 10
"""The size of the blocks to write when rows arrive one by one."""
SETTINGS: Mapping[str, str] = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
}
"""Session settings that fix the text format of values, independent of the server's settings."""

_TYPES: Mapping[str, str] = {
    Type.BOOLEAN.value: "boolean",
    Type.INT8.value: "smallint",
    Type.INT16.value: "smallint",
    Type.INT32.value: "integer",
    Type.INT64.value: "bigint",
    Type.FLOAT32.value: "real",
    Type.FLOAT64.value: "double precision",
    Type.STRING.value: "text",
    Type.BYTES.value: "bytea",
    Type.ARRAY.value: "jsonb",
    Type.MAP.value: "jsonb",
    Type.STRUCT.value: "jsonb",
    DATE: "date",
    TIME: "time",
    VARIANT: "jsonb",
}


class Postgresql(Database):
    """A database of a PostgreSQL server."""

    kind: ClassVar[str] = "postgresql"
    row_id: ClassVar[str] = "ctid"
    knows_writers: ClassVar[bool] = True
    cuts_seconds: ClassVar[bool] = True
    read_only: ClassVar[str] = "SET TRANSACTION READ ONLY"
    settings: ClassVar[Mapping[str, str]] = SETTINGS

    # --- connections and names ------------------------------------------------------

    @override
    def session(self) -> Session:
        return Session(self._connect(), self.errors)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of libpq for a connection."""
        address = self.address
        return {
            "host": ",".join(host for host, _ in address.servers) or None,
            "port": ",".join(str(port or "") for _, port in address.servers) or None,
            "dbname": address.database,
            "user": address.user,
            # A password in libpq's own variables is for their host: an empty string prevents
            # its use for the URL's host.
            "password": address.password or ("" if address.host else None),
            "connect_timeout": "10",
            "application_name": "headrace",
            "tcp_user_timeout": "30000",
            **address.options,
        }

    def _connect(self) -> Any:
        psycopg = _psycopg()
        with self.errors():
            connection = psycopg.connect(**self.parameters)
        try:
            connection.autocommit = True
            settings = ", ".join(
                f"set_config('{name}', '{value}', false)"
                for name, value in self.settings.items()
            )
            connection.execute(f"SELECT {settings}")
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the errors of psycopg."""
        psycopg = _psycopg()
        try:
            yield
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: Any) -> Exception:
        state, title = str(error.sqlstate or ""), self.address.title
        text = str(error.diag.message_primary or error).strip()
        if error.diag.message_detail:
            text = f"{text}: {error.diag.message_detail}"
        if not state:
            return self._not_connected(text)
        if state in {"53100", "58030"}:
            return StorageUnavailableError(
                problem=f"{title} is out of disk space: {text}.", fix="Free space on its disk."
            )
        if (
            state[:2] in {"08", "40", "53", "57"}
            or state in {"55P03", "25006", "25P03"}
            # Another session has just created the same table, type or schema.
            or error.diag.schema_name == "pg_catalog"
        ):
            return RetriableError(problem=f"{title}: {text}.")
        if state[:2] in {"22", "23"}:
            where = str(error.diag.context or "").partition("\n")[0]
            column = error.diag.column_name
            return RecordError(
                problem=f"{title} refuses a row: {text}{f' ({where})' if where else ''}.",
                fix="Change the rows with a transform, or the table's columns and constraints.",
                field=column,
            )
        if state == "42501" and "row-level security" in text:
            return ConfigError(
                problem=f"{title} would omit rows: {text}.",
                fix=f"ALTER ROLE {self.quote(self.address.user or 'user')} BYPASSRLS;",
                field="connection.user",
            )
        if state == "42501":
            return ConfigError(
                problem=f"{title}: {text}.",
                fix=f"GRANT {_missing(text)} TO {self.quote(self.address.user or 'user')};",
                field="connection.user",
            )
        fix = "Create the table, or correct its name." if state == "42P01" else ""
        kind = UnsupportedError if state == "0A000" else DatabaseError
        return kind(problem=f"{title}: {text} (SQLSTATE {state}).", fix=fix)

    def _not_connected(self, text: str) -> Exception:
        title, user = self.address.title, self.address.user
        text = " ".join(text.split())
        if "authentication failed" in text or "no password supplied" in text:
            return ConfigError(
                problem=f"{title} denies access to {user or 'this user'}: {text}",
                fix="Correct connection.user and connection.password.",
                field="connection.password",
            )
        if "does not exist" in text and "database" in text:
            return ConfigError(
                problem=f"{title}: {text}",
                fix=f"CREATE DATABASE {self.quote(self.address.database)};",
                field="connection.url",
            )
        if "pg_hba.conf" in text:
            return ConfigError(
                problem=f"{title}: {text}",
                fix="Add this machine and this user to the server's pg_hba.conf.",
                field="connection.url",
            )
        if "invalid connection option" in text or "invalid sslmode" in text:
            return ConfigError(
                problem=f"The URL has an invalid libpq option: {text}",
                fix="Use options such as sslmode=require.",
                field="connection.url",
            )
        return RetriableError(problem=f"{title} cannot be reached: {text}", fix=UNREACHABLE)

    @override
    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    @override
    def literal(self, value: object) -> str:
        from psycopg import sql  # noqa: PLC0415 - an extra

        return sql.Literal(value).as_string()

    @property
    @override
    def default_schema(self) -> str:
        return "public"

    # --- the catalog ----------------------------------------------------------------

    @override
    def tables(self, session: Session) -> list[TableName]:
        return all_tables(session)

    @override
    def describe(
        self, session: Session, names: Sequence[TableName]
    ) -> Mapping[TableName, Table]:
        return describe_tables(session, names)

    @override
    def query_columns(self, session: Session, query: str) -> tuple[Column, ...]:
        return columns_of_query(session, query)

    @override
    def now(self, session: Session) -> datetime:
        found: datetime = session.value("SELECT clock_timestamp()")
        return found

    @override
    def writers(self, session: Session, table: TableName | None) -> frozenset[str]:
        return writers_of(session, None if table is None else self.path(table))

    # --- reading --------------------------------------------------------------------

    @contextmanager
    @override
    def snapshot(self) -> Iterator[str | None]:
        with self.session() as session:
            begin_snapshot(session.connection)
            try:
                name = session.value("SELECT pg_catalog.pg_export_snapshot()")
            except DatabaseError:  # a standby cannot export a snapshot
                name = None
            yield name

    @override
    def physical_ranges(self, session: Session, table: Table, count: int) -> list[str]:
        path = self.literal(self.path(table.name))
        kind = session.value(f"SELECT relkind FROM pg_class WHERE oid = {path}::regclass::oid")
        if kind != "r":
            return []
        size = session.value(f"SELECT pg_relation_size({path}::regclass)")
        block = int(session.value("SHOW block_size"))
        # Leave the last range open; rows that are added later are not in the snapshot.
        pages = max(1, int(size) // block)
        count = min(count, pages)
        places = [pages * number // count for number in range(count)]
        ranges = []
        for start, end in zip(places, [*places[1:], None], strict=True):
            upper = "" if end is None else f" AND ctid < '({end},0)'::tid"
            ranges.append(f"ctid >= '({start},0)'::tid{upper}")
        return ranges

    @override
    def read(
        self, select: Select, *, nulls: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, Rejected]]:
        rows, block, size = CsvRows(select.columns, nulls), list[Any](), 0
        for data in self._copied(select, self._values(select.columns), "csv"):
            block.append(data)
            size += len(data)
            if size >= _BLOCK_BYTES:
                yield rows.parse(b"".join(block))
                block, size = [], 0
        if block:
            yield rows.parse(b"".join(block))

    def _values(self, columns: Sequence[Column]) -> list[str]:
        return [
            f"{self.quote(each.name)}::numeric"
            if each.type == "money"
            else self.quote(each.name)
            for each in columns
        ]

    def _copied(
        self, select: Select, values: Sequence[str], form: str
    ) -> Iterator[memoryview | bytes]:
        where = f" WHERE {select.where}" if select.where else ""
        query = f"SELECT {', '.join(values)} FROM {select.source}{where}"
        with closing(self._connect()) as connection, self.errors():
            if select.snapshot is not None:
                self._see(connection, select.snapshot)
            yield from _copied_rows(connection, f"COPY ({query}) TO STDOUT (FORMAT {form})")
            if select.snapshot is not None:
                self._check_rewritten(connection)

    def _see(self, connection: Any, snapshot: str) -> None:
        """Begin a transaction with an exported snapshot."""
        errors = _psycopg().errors
        begin_snapshot(connection)
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT {self.literal(snapshot)}")
        except (
            errors.InvalidParameterValue,
            errors.UndefinedObject,
            errors.ObjectNotInPrerequisiteState,
        ) as error:
            # A snapshot ends with the connection that exported it; a retry exports another.
            raise RetriableError(
                problem=f"{self.address.title} has lost the exported snapshot: {error}"
            ) from error

    def _check_rewritten(self, connection: Any) -> None:
        # A table that ALTER TABLE has rewritten is empty in an older snapshot:
        # postgresql.org/docs/current/mvcc-caveats.html. The table is locked until the end.
        if found := connection.execute(_REWRITTEN).fetchone():
            # Guarantee 1: rows that were not visible must not count as read.
            raise RetriableError(
                problem=f"{found[0]} was rewritten while it was read, for example by ALTER "
                "TABLE, TRUNCATE or VACUUM FULL."
            )

    @override
    def second_digits(self, column: Column) -> int:
        return super().second_digits(column) if "(" in column.type else _SECOND_DIGITS

    @override
    def raw(
        self, columns: Sequence[Column]
    ) -> Mapping[str, Callable[[Select], Iterator[bytes]]]:
        name = binary_form(columns)
        return {} if name is None else {name: partial(self._read_binary)}

    def _read_binary(self, select: Select) -> Iterator[bytes]:
        block, size = list[Any](), 0
        for data in self._copied(
            select, [self.quote(c.name) for c in select.columns], "binary"
        ):
            block.append(data)
            size += len(data)
            if size >= _WRITE_BYTES:
                yield b"".join(block)
                block, size = [], 0
        yield b"".join(block)

    # --- writing --------------------------------------------------------------------

    @override
    def column_type(self, schema: Schema, *, in_key: bool = False) -> str:
        own, kind = stated_type(schema)
        if own == self.kind:
            return kind
        if schema.name == DECIMAL and schema.is_logical:
            scale = scale_of(schema.parameters)
            return f"numeric({precision_of(schema.parameters) or MAX_PRECISION},{scale})"
        if schema.name == TIMESTAMP and schema.is_logical:
            return "timestamp" if schema.is_local else "timestamptz"
        return _TYPES[str(schema.name) if schema.is_logical else schema.type.value]

    @override
    def load(
        self,
        session: Session,
        table: TableName,
        columns: Mapping[str, Schema],
        rows: Iterator[pa.RecordBatch],
    ) -> int:
        names, schemas = ", ".join(self.quote(name) for name in columns), list(columns.values())
        statement = f"COPY {self.path(table)} ({names}) FROM STDIN (FORMAT csv)"
        with self.errors(), session.connection.cursor() as cursor:
            count = 0
            with cursor.copy(statement) as copy:
                for batch in rows:
                    copy.write(to_csv(batch, schemas))
                    count += batch.num_rows
            if cursor.rowcount != count:
                # Guarantee 4: counts must match the stored rows.
                raise RecordError(
                    problem=f"{self.address.title} stored {cursor.rowcount} of {count} rows."
                )
        return count

    @override
    def raw_load(self, columns: Sequence[Column]) -> Mapping[str, RawLoad]:
        name = binary_form(columns)
        return {} if name is None else {name: self._load_binary}

    def _load_binary(
        self, session: Session, table: TableName, columns: Sequence[str], data: Iterator[bytes]
    ) -> int:
        names = ", ".join(self.quote(name) for name in columns)
        with self.errors(), session.connection.cursor() as cursor:
            statement = f"COPY {self.path(table)} ({names}) FROM STDIN (FORMAT binary)"
            with cursor.copy(statement) as copy:
                for block in data:
                    copy.write(block)
            return int(cursor.rowcount)

    @override
    def upsert(self, merge: Merge) -> list[str]:
        return [merge.on_conflict] if merge.unique else super().upsert(merge)

    @override
    def delete(self, merge: Merge) -> str:
        return (
            f"DELETE FROM {merge.target} t USING {merge.staging} s "
            f"WHERE {merge.matches} AND {merge.where}"
        )

    @override
    def retype(self, table: TableName, column: str, type_: str) -> list[str]:
        name = self.quote(column)
        return [f"ALTER TABLE {self.path(table)} ALTER COLUMN {name} TYPE {type_}"]

    @override
    def staging_columns(self) -> str:
        return ""  # rows have a ctid

    @override
    def merging_session(self, staging: TableName) -> Session:
        session = self.session()
        session.execute(
            "SELECT set_config('lock_timeout', '60s', false), "
            "set_config('idle_in_transaction_session_timeout', '1h', false)"
        )
        session.commit()
        return session

    @override
    def add_key(
        self, session: Session, staging: TableName, target: TableName, columns: Sequence[str]
    ) -> None:
        # PostgreSQL's default name, unless it is taken.
        name = self.path(TableName(target.schema, f"{target.name}_pkey"))
        taken = session.value(f"SELECT to_regclass({self.literal(name)})")
        named = "" if taken else f"CONSTRAINT {self.quote(f'{target.name}_pkey')} "
        session.execute(
            f"ALTER TABLE {self.path(staging)} ADD {named}PRIMARY KEY ({', '.join(columns)})"
        )

    @override
    def try_take_over(self, session: Session, name: str) -> bool:
        key = int.from_bytes(
            hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True
        )
        taken = bool(session.value("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,)))
        if not taken:
            session.rows(_END_HOLDERS, (key, key))
        session.commit()
        return taken

    # --- health ---------------------------------------------------------------------

    @override
    def examine(self, session: Session) -> Iterator[Finding]:
        version, encoding, read_only = session.rows(
            "SELECT current_setting('server_version'), current_setting('server_encoding'), "
            "current_setting('transaction_read_only')"
        )[0]
        major = int(version.partition(".")[0])
        yield Finding.of("PostgreSQL 12 or newer", version, "", met=major >= _OLDEST)
        yield Finding.of(
            "encoding UTF8",
            encoding,
            "Strings with characters outside the encoding are refused.",
            met=encoding == "UTF8",
            otherwise=Verdict.WARNING,
        )
        free = session.value(
            "SELECT current_setting('max_connections')::int "
            "- (SELECT count(*) FROM pg_stat_activity)"
        )
        yield Finding.of(
            "free connections",
            f"{free} free",
            "ALTER SYSTEM SET max_connections = 200; then restart the server.",
            met=free >= _SPARE,
            otherwise=Verdict.WARNING,
        )
        if read_only == "on":
            yield Finding(
                "a writable server",
                Verdict.WARNING,
                "The server is a standby, or read-only.",
                "Write to its primary.",
            )


_END_HOLDERS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND classid::bigint = (%s::bigint >> 32) & 4294967295
  AND objid::bigint = %s::bigint & 4294967295"""
_REWRITTEN = """
SELECT l.relation::regclass::text FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND (c.oid IS NULL
  OR (c.relkind IN ('r', 'm') AND c.relfilenode <> 0
    AND c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid))) LIMIT 1"""
"""The catalog is as of the snapshot, while the function returns the current file: a table that
is missing in the catalog was created later and has replaced the planned one."""
_SECOND_DIGITS = 6
"""The digits of time types without a precision."""
_OLDEST = 12
_SPARE = 5


def _psycopg() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError(
            problem="PostgreSQL requires the package psycopg.",
            fix="pip install 'headrace[postgresql]'",
        ) from error
    return psycopg


def _copied_rows(connection: Any, statement: str) -> Iterator[memoryview]:
    """Yield the data of COPY row by row.

    psycopg's own loop runs a generator per row, which takes longer than reading the row.
    psycopg still begins and ends the copy. Raises the errors of psycopg.
    """
    from psycopg.errors import error_from_result  # noqa: PLC0415 - an extra
    from psycopg.pq import ExecStatus  # noqa: PLC0415 - an extra

    server, readable = connection.pgconn, poll()
    readable.register(server.socket, POLLIN)
    with connection.cursor() as cursor, cursor.copy(statement):
        while True:
            size, row = server.get_copy_data(1)
            if size > 0:
                yield row
            elif size == 0:
                readable.poll()
                server.consume_input()
            else:
                break
        results = list(iter(server.get_result, None))  # required to end the statement
        if results[0].status != ExecStatus.COMMAND_OK:
            raise error_from_result(results[0])


def begin_snapshot(connection: Any) -> None:
    """Make the next transaction read-only and REPEATABLE READ."""
    connection.isolation_level = _psycopg().IsolationLevel.REPEATABLE_READ
    connection.read_only = True


def _missing(text: str) -> str:
    """Return the missing privileges in a PostgreSQL message, in GRANT syntax."""
    found = re.search(r"permission denied for (table|schema|database|sequence) (.+)", text)
    kind, name = found.groups() if found else ("table", "…")
    rights = {"table": "SELECT, INSERT, UPDATE, DELETE, TRUNCATE", "schema": "USAGE, CREATE"}
    return f"{rights.get(kind, 'ALL')} ON {kind.upper()} {name}"
