"""Staging tables: loaded in parts by executors or by Spark's JDBC writer, always removed."""

# ruff: noqa: S608 - names are quoted or made here, values are bound
from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import ConfigError, RecordError, RetriableError, Schema, StateError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.keyed_rows import DELETED
from headrace.sdk.sink import Refused, class_name
from headrace_plugins.databases.catalog import TableName, check_cases
from headrace_plugins.databases.database import DatabaseError
from headrace_plugins.mapped_records import renamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sdk import Mark
    from headrace_plugins.databases.database import Database, RawLoad, Session
    from headrace_plugins.window import RunWindow

OWN = "headrace_"
"""The prefix of the sink's own tables."""
MARKS = "headrace_marks"
STAGED = "headrace_staged"
PARTS = "headrace_parts"
OP = "headrace_op"
"""The staging column of a row's operation: u for upsert, d for delete, and t for a truncation
of the table."""
UPSERT, DELETE, TRUNCATE = "u", "d", "t"
PLACE = "headrace_place"
"""The staging column of a change's position in its batch, as text. Only change records have
one: a truncation affects only the changes before it."""
RECORD = "headrace_record"
"""The staging column of the record id."""
_PART_COLUMNS = (
    "staging VARCHAR(200) NOT NULL, part INTEGER NOT NULL, loaded BIGINT, "
    "PRIMARY KEY (staging, part)"
)
_LOCK_SECONDS = 60
_BLOCK = 65_536
_APPLICATION = 700
"""The maximum length of an application id in marks: an index key of MySQL has 3,072 bytes."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """A staging table of one attempt at a batch. Pickled to executors.

    Args:
        database: The database of the table.
        name: The table.
        columns: The loaded columns and their schemas, by name.
        rows: The number of loaded rows; None if the ledger of parts prevents duplicates.
    """

    database: Database
    name: TableName
    columns: Mapping[str, Schema]
    rows: int | None = None

    @property
    def path(self) -> str:
        """The table's name as SQL."""
        return self.database.path(self.name)

    def own(self, name: str) -> str:
        """Return one of the sink's own columns, such as ``OP``, as SQL."""
        return f"s.{self.database.quote(name)}"

    def require_rows(self, session: Session) -> None:
        """Check that the table has exactly the loaded rows.

        Rows are only added, never removed: if the count is right after a statement, then the
        statement has seen exactly these rows. Raises RetriableError if a task that Spark has
        given up on has added rows too.
        """
        if self.rows is None:
            return
        found = int(session.value(f"SELECT count(*) FROM {self.path}"))
        if found != self.rows:
            raise RetriableError(
                problem=f"The staging table has {found:,} rows, but {self.rows:,} were "
                "loaded: Spark has run a task twice."
            )

    def create(
        self, types: Mapping[str, str], keys: Sequence[str] = (), *, plain: bool = False
    ) -> None:
        """Create the table.

        Args:
            types: The SQL types of the columns, by name.
            keys: The columns that are NOT NULL.
            plain: Whether to omit the staging columns, as the table becomes the target.
        """
        quote = self.database.quote
        own = "" if plain else self.database.staging_columns()
        columns = [
            f"{quote(name)} {kind}{' NOT NULL' if name in keys else ''}"
            for name, kind in types.items()
        ]
        parts = self.database.path(TableName(self.name.schema, PARTS))
        with self.database.staging_session(self.name) as session:
            session.execute(
                f"CREATE TABLE {self.path} ({', '.join([*([own] if own else []), *columns])})"
                f"{self.database.table_options}"
            )
            session.commit()
            if self.database.staging_is_apart:
                make_table(self.database, session, parts, _PART_COLUMNS)

    def load(self, number: int, rows: Iterator[pa.RecordBatch]) -> str | None:
        """Load the rows of a part exactly once over all attempts at the part. On executors.

        Returns the row count as JSON, see ``ArrowWrite.write``; None for no rows. Raises
        RecordError for the first row that the table refuses.
        """
        with self.database.staging_session(self.name) as session:
            count = self.database.load(session, self.name, self.columns, rows)
            return self._done(session, number, count)

    def load_keyed(self, number: int, rows: Iterator[pa.RecordBatch]) -> str | None:
        """Load rows whose ``DELETED`` field marks deletions; see ``load``."""
        schema = to_arrow(Schema.struct(dict(self.columns)))

        def with_ops() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                op = pc.if_else(batch.column(DELETED), DELETE, UPSERT)
                yield conform(batch.append_column(OP, op), schema)

        return self.load(number, with_ops())

    def load_renamed(
        self, renames: Mapping[str, str], number: int, rows: Iterator[pa.RecordBatch]
    ) -> str | None:
        """Load rows and rename their columns; see ``load``."""
        return self.load(number, renamed(rows, renames))

    def load_raw(
        self, load: RawLoad, number: int, data: Iterator[bytes]
    ) -> tuple[str | None, int]:
        """Load the rows of a part as bytes; see ``load`` and ``ArrowWrite.raw``."""
        with self.database.staging_session(self.name) as session:
            count = load(session, self.name, list(self.columns), data)
            result = self._done(session, number, count)
        return result, _count(result)

    def load_tolerant(
        self, number: int, rows: Iterator[pa.RecordBatch]
    ) -> tuple[str | None, list[tuple[int, str, str]]]:
        """Load the rows of a part that the table accepts.

        Returns the result of ``load``, and the record id, problem and column of each refused
        row.
        """
        refused: list[tuple[int, str, str]] = []
        with self.database.staging_session(self.name) as session:
            count = 0
            for batch in rows:
                for start in range(0, batch.num_rows, _BLOCK):
                    count += self._load_some(session, batch.slice(start, _BLOCK), refused)
            return self._done(session, number, count), refused

    def _load_some(
        self, session: Session, rows: pa.RecordBatch, refused: list[tuple[int, str, str]]
    ) -> int:
        try:
            with session.savepoint():
                return self.database.load(session, self.name, self.columns, iter([rows]))
        except RecordError as error:
            if rows.num_rows == 1:
                record = rows.column(RECORD)[0].as_py()
                refused.append((record, error.problem, error.field or ""))
                return 0
        half = rows.num_rows // 2
        return self._load_some(session, rows.slice(0, half), refused) + self._load_some(
            session, rows.slice(half), refused
        )

    def _done(self, session: Session, number: int, count: int) -> str | None:
        """Commit a part unless another attempt has; return the committed row count."""
        mark, key = self.database.mark, (str(self.name), number)
        parts = self.database.path(TableName(self.name.schema, PARTS))
        if not count:
            return None
        try:
            # Guarantee 2: an attempt that Spark gave up on may end after the successful one.
            session.execute(
                f"INSERT INTO {parts} VALUES ({mark}, {mark}, {mark})", (*key, count)
            )
            session.commit()
        except RecordError:
            session.rollback()
            there = session.value(
                f"SELECT loaded FROM {parts} WHERE staging = {mark} AND part = {mark}", key
            )
            return json.dumps({"rows": int(there)})
        return json.dumps({"rows": count})


def _count(result: str | None) -> int:
    return 0 if result is None else int(json.loads(result)["rows"])


def rows_of(results: Sequence[str]) -> int:
    """Return the total row count from the results of ``Staging.load``."""
    return sum(_count(result) for result in results)


def make_table(database: Database, session: Session, path: str, columns: str) -> None:
    """Create a table if it does not exist; safe if others do so at the same time."""
    with suppress(DatabaseError, ConfigError):  # not all databases have IF NOT EXISTS
        session.rows(f"SELECT 1 FROM {path} WHERE 1 = 0")
        session.rollback()
        return
    session.rollback()
    try:
        session.execute(f"CREATE TABLE {path} ({columns}){database.table_options}")
        session.commit()
    except (DatabaseError, RecordError):
        # Two tasks may find it missing; the database then refuses one of them.
        session.rollback()
        session.rows(f"SELECT 1 FROM {path} WHERE 1 = 0")
        session.rollback()


def load_by_spark(
    rows: DataFrame, staging: Staging, types: Mapping[str, str], *, tolerant: bool
) -> tuple[Staging, list[Refused]]:
    """Load a staging table; return it with its row count, and the refused records.

    Args:
        rows: The rows, with the columns of the table.
        staging: The table, which is empty.
        types: The SQL types of the target's columns, by name.
        tolerant: Whether to skip records that the table refuses.

    Raises RecordError if the table refuses a record and ``tolerant`` is false.
    """
    if not tolerant:
        seen = Observation()
        counted = rows.observe(seen, F.expr("count(1)").alias("rows"))
        staging.database.load_frame(counted, staging.name, staging.columns, types)
        return replace(staging, rows=int(seen.get["rows"] or 0)), []
    rows = rows.persist()
    try:
        total = rows.count()
        load = _Tolerant(staging, types)
        load.run(rows)
        return replace(staging, rows=total - len(load.refused)), load.refused
    finally:
        rows.unpersist()


@dataclass
class _Tolerant:
    """Loads rows, and bisects them by record id if a record is refused."""

    staging: Staging
    types: Mapping[str, str]
    refused: list[Refused] = field(default_factory=list)

    def run(self, rows: DataFrame) -> None:
        staging = self.staging
        try:
            staging.database.load_frame(rows, staging.name, staging.columns, self.types)
        except RecordError as error:
            least, most, count = rows.agg(
                F.min(RECORD), F.max(RECORD), F.count(F.lit(1))
            ).collect()[0]
            self._remove(least, most)
            if least == most:
                # Rows of one record id are equal: the table refuses all of them.
                self.refused += [Refused(least, class_name(RecordError), error.problem)] * count
                return
            middle = (least + most) // 2
            self.run(rows.where(F.col(RECORD) <= middle))
            self.run(rows.where(F.col(RECORD) > middle))

    def _remove(self, least: int, most: int) -> None:
        """Delete the rows that partitions of a failed job have written."""
        staging = self.staging
        record = staging.database.quote(RECORD)
        with staging.database.session() as session:
            session.execute(
                f"DELETE FROM {staging.path} WHERE {record} BETWEEN {least} AND {most}"
            )
            session.commit()


class Step(Enum):
    """A step that the tasks of a connector do once per table, recorded by a mark."""

    BEGUN = "begun"
    RECREATED = "recreated"


@dataclass(frozen=True)
class Bookkeeping:
    """The marks of batches and the names of staging tables, in a schema of the target."""

    database: Database
    schema: str

    def prepare(self, session: Session) -> None:
        """Create the sink's own tables."""
        number, text = self.database.column_type(Schema.int64()), self.database.long_text
        application = f"application VARCHAR({_APPLICATION}){self.database.exact_text} NOT NULL"
        make_table(
            self.database,
            session,
            self._path(MARKS),
            f"{application} PRIMARY KEY, batch {number} NOT NULL, receipt {text} NOT NULL, "
            f"pending {text}",
        )
        make_table(
            self.database,
            session,
            self._path(STAGED),
            "name VARCHAR(200) NOT NULL PRIMARY KEY, target VARCHAR(400) NOT NULL, "
            f"{application}, batch {number} NOT NULL, epoch {number} NOT NULL",
        )
        self.database.learn(session, TableName(self.schema, MARKS))
        if self._has_parts:
            make_table(self.database, session, self._path(PARTS), _PART_COLUMNS)

    def held(self, session: Session, mark: Mark) -> str | None:
        """Return the receipt if the batch is the last committed one, else None.

        Raises StaleEpochError if a newer batch is committed.
        """
        sign = self.database.mark
        found = session.rows(
            f"SELECT batch, receipt FROM {self._path(MARKS)} WHERE application = {sign}",
            (mark.application,),
        )
        batch, receipt = found[0] if found else (0, "")
        if batch > mark.batch:
            raise mark.newer(batch)
        return str(receipt) if batch == mark.batch else None

    def is_new(
        self, session: Session, connector: str, target: TableName, step: Step = Step.BEGUN
    ) -> bool:
        """Return whether no task of the connector has done a step with a table yet."""
        return not self._get(session, "batch", f"{step.value}:{connector}:{target}")

    def check_cases(
        self, session: Session, connector: str, target: TableName, written: Iterable[TableName]
    ) -> None:
        """Raise SinkError if two tables of a connector are the same table in the database.

        Table names may be case-insensitive.

        Args:
            session: A session outside the transaction of a batch.
            connector: The connector, which has committed nothing to the target yet.
            target: The table.
            written: The tables that the task has begun to write.
        """
        if not self.database.folds_tables(session):
            return
        before = f"{Step.BEGUN.value}:{connector}:"
        found = session.rows(
            f"SELECT application FROM {self._path(MARKS)} "
            f"WHERE lower(application) = lower({self.database.mark})",
            (f"{before}{target}",),
        )
        begun = [str(name).removeprefix(before) for (name,) in found]
        check_cases(
            "tables",
            [*begun, *map(str, written), str(target)],
            self.database.address.title,
            "Set another name for one of them in table.mapping.",
        )

    def begin(
        self, session: Session, connector: str, target: TableName, step: Step = Step.BEGUN
    ) -> bool:
        """Record in the open transaction that the connector has done a step with a table.

        Returns whether this task is the first. Other tasks block here until the transaction
        ends, as the application id is unique.
        """
        if not self.is_new(session, connector, target, step):
            return False
        is_first = False
        with suppress(RecordError), session.savepoint():  # another task may have stored it
            self._add(session, f"{step.value}:{connector}:{target}", 1)
            is_first = True
        return is_first

    def replace_window(
        self, session: Session, window: RunWindow, target: TableName, *, holds: bool
    ) -> bool:
        """Record in the open transaction that a run has replaced its window in a table.

        Returns whether this task is the first of the run's generation; other tasks block here
        until the transaction ends. With ``holds`` no newer generation can begin before then.
        Raises StaleEpochError if a newer generation has begun.
        """
        name, sign = f"window:{window.run}:{target}", self.database.mark
        older = (
            f"UPDATE {self._path(MARKS)} SET batch = {sign} "
            f"WHERE application = {sign} AND batch < {sign}"
        )
        number = window.generation
        held = self._get(session, "batch", name)
        if held is None:
            with suppress(RecordError), session.savepoint(), session.waiting(_LOCK_SECONDS):
                self._add(session, name, number)
                return True
        elif window.is_replaced(int(held)) and not holds:
            return False
        with session.waiting(_LOCK_SECONDS):
            is_first = session.execute(older, (number, name, number)) > 0
        self.hold(session, name)
        window.is_replaced(int(self._get(session, "batch", name)))
        return is_first

    def require_owner(
        self, session: Session, connector: str, target: TableName, owner: str
    ) -> None:
        """Ensure that only one stream of one task replaces the rows of a table.

        The first caller becomes the owner. Raises ConfigError if there is another owner.
        """
        name = f"replaced:{connector}:{target}"
        with suppress(RecordError), session.savepoint():  # another task may have stored it
            if self._get(session, "receipt", name) is None:
                self._add(session, name, 1, owner)
        session.commit()
        found = str(self._get(session, "receipt", name))
        if found != owner:
            raise ConfigError(
                problem=f"{owner} would replace the rows of {found} in {target}.",
                fix="Use a table for each stream, set tasks.max to 1, or set insert.mode to "
                f"upsert. If {found} is no longer written: DELETE FROM {self._path(MARKS)} "
                f"WHERE application = {self.database.literal(name)};",
                field="insert.mode",
            )

    def recreate(self, session: Session, connector: str, target: TableName) -> None:
        """Drop a table once per connector; the first of its tasks does so.

        A crash after the drop leaves no table; the next attempt creates it.
        """
        with self.database.session() as marks:
            # Guarantee 1: no task may drop the table that another has created since.
            if not self.begin(marks, connector, target, Step.RECREATED):
                return
            # If DROP commits the open transaction, the mark must be stored after the drop.
            by = marks if self.database.transactional_ddl else session
            if self.database.table(by, target) is not None:
                by.execute(f"DROP TABLE {self.database.path(target)}")
            by.commit()
            marks.commit()

    def lock(self, session: Session, mark: Mark) -> None:
        """Lock the application's mark, so no other attempt commits before this transaction."""
        if len(mark.application) > _APPLICATION:
            raise StateError(
                problem=f"The name {mark.application} has over {_APPLICATION} characters.",
                fix="Use a shorter connector name.",
            )
        if self._get(session, "batch", mark.application) is None:
            self._add(session, mark.application, 0)
        self.hold(session, mark.application)

    def hold(self, session: Session, application: str) -> None:
        """Lock the mark of an application, if it exists, until the transaction ends."""
        where = f"WHERE application = {self.database.mark}"
        with session.waiting(_LOCK_SECONDS):
            session.execute(
                f"UPDATE {self._path(MARKS)} SET batch = batch {where}", (application,)
            )

    def keep(
        self, session: Session, mark: Mark, receipt: str, renames: Sequence[Sequence[str]] = ()
    ) -> None:
        """Store the mark in the open transaction, with the renames that are still pending."""
        sign = self.database.mark
        session.execute(
            f"UPDATE {self._path(MARKS)} SET batch = {sign}, receipt = {sign}, "
            f"pending = {sign} WHERE application = {sign}",
            (
                mark.batch,
                receipt,
                json.dumps(renames) if renames else None,
                mark.application,
            ),
        )

    def pending(self, session: Session, application: str) -> list[list[str]]:
        """Return the pending renames of a mark; see ``publish``."""
        found = self._get(session, "pending", application)
        return list(json.loads(found)) if found else []

    def settled(self, session: Session, application: str) -> None:
        """Clear the pending renames, and commit."""
        sign = self.database.mark
        session.execute(
            f"UPDATE {self._path(MARKS)} SET pending = NULL WHERE application = {sign}",
            (application,),
        )
        session.commit()

    def stage(self, session: Session, mark: Mark, target: TableName) -> TableName:
        """Register a new staging table for later cleanup, and return its name."""
        # Guarantee 2: never reuse a name, as the ledger has its parts as done.
        name = self.database.staging(target, secrets.token_hex(12))
        sign, staged = self.database.mark, self._path(STAGED)
        session.execute(
            f"INSERT INTO {staged} VALUES ({', '.join([sign] * 5)})",
            (str(name), str(target), mark.application, mark.batch, mark.epoch),
        )
        session.commit()
        return name

    def discard(self, session: Session, mark: Mark) -> None:
        """Drop the staging tables of this attempt and of earlier ones."""
        sign, staged = self.database.mark, self._path(STAGED)
        which = f"WHERE application = {sign} AND batch <= {sign} AND epoch <= {sign}"
        values = (mark.application, mark.batch, mark.epoch)
        found = session.rows(f"SELECT name FROM {staged} {which}", values)
        for (name,) in found:
            table = TableName.parse(_quoted(str(name)), self.database.default_schema)
            self.database.drop_staging(table)
            self._forget_parts(session, table)
        if found:
            session.execute(f"DELETE FROM {staged} {which}", values)
        session.commit()

    def _get(self, session: Session, column: str, application: str) -> Any:
        """Return a column of a mark; None without the mark."""
        where = f"WHERE application = {self.database.mark}"
        return session.value(
            f"SELECT {column} FROM {self._path(MARKS)} {where}", (application,)
        )

    def _add(self, session: Session, application: str, batch: int, receipt: str = "{}") -> None:
        """Insert a mark. Raises RecordError if there is one."""
        values = ", ".join([self.database.mark] * 3)
        session.execute(
            f"INSERT INTO {self._path(MARKS)} (application, batch, receipt) VALUES ({values})",
            (application, batch, receipt),
        )

    def _forget_parts(self, session: Session, name: TableName) -> None:
        if self._has_parts:
            where = f"WHERE staging = {self.database.mark}"
            session.execute(f"DELETE FROM {self._path(PARTS)} {where}", (str(name),))

    @property
    def _has_parts(self) -> bool:
        return not (self.database.staging_is_apart or self.database.by_spark)

    def _path(self, name: str) -> str:
        return self.database.path(TableName(self.schema, name))


def _quoted(name: str) -> str:
    schema, dot, own = name.rpartition(".")
    return f'"{schema}"."{own}"' if dot else f'"{own}"'
