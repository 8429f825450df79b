"""Staging tables: made, filled in parts by executors, and removed whatever happens."""

# ruff: noqa: S608 - names are quoted or made here, values are bound
from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import ConfigError, RecordError, RetriableError, Schema, StateError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.keyed_rows import DELETED
from headrace_plugins.databases.catalog import TableName, check_cases
from headrace_plugins.databases.errors import DatabaseError
from headrace_plugins.mapped_records import renamed

if TYPE_CHECKING:
    from headrace.sdk import Mark
    from headrace_plugins.databases.database import Database, RawLoad, Session
    from headrace_plugins.replaced_window import RunWindow

OWN = "headrace_"
"""What the names of the sink's own tables begin with."""
MARKS = "headrace_marks"
STAGED = "headrace_staged"
PARTS = "headrace_parts"
OP = "headrace_op"
"""The column of staging tables that says what a row does: u for upsert, d for delete, and t for
a truncation of the table."""
UPSERT, DELETE, TRUNCATE = "u", "d", "t"
PLACE = "headrace_place"
"""The column of staging tables that has the place of a change among those of its batch, as a
text; only changes have one, as a truncation is of what came before it."""
RECORD = "headrace_record"
"""The column of staging tables that says which record a row is of."""
_PART_COLUMNS = (
    "staging VARCHAR(200) NOT NULL, part INTEGER NOT NULL, loaded BIGINT, "
    "PRIMARY KEY (staging, part)"
)
_LOCK_SECONDS = 60
_BLOCK = 65_536
_APPLICATION = 700
"""The most signs of a name in marks: an index of MySQL has 3,072 bytes."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """A staging table of one attempt at a batch. It is pickled to executors.

    Args:
        database: Where it is.
        name: The table.
        columns: What rows are loaded with, by the names of its columns.
        rows: How many rows were loaded; None where a ledger keeps each part from being there
            twice.
    """

    database: Database
    name: TableName
    columns: Mapping[str, Schema]
    rows: int | None = None

    @property
    def path(self) -> str:
        """Its name as SQL."""
        return self.database.path(self.name)

    def own(self, name: str) -> str:
        """Return one of the columns that are ours as SQL, such as ``OP``."""
        return f"s.{self.database.quote(name)}"

    def require_rows(self, session: Session) -> None:
        """Look whether the rows that are there are those that were loaded.

        Rows come and do not go: if they are as many after a statement, it has seen just them.
        Raises RetriableError: a task that Spark has given up has added its rows too.
        """
        if self.rows is None:
            return
        found = int(session.value(f"SELECT count(*) FROM {self.path}"))
        if found != self.rows:
            raise RetriableError(
                problem=f"{found:,} rows are in the staging table, and {self.rows:,} were "
                "loaded: Spark has run a task twice."
            )

    def create(
        self, types: Mapping[str, str], keys: Sequence[str] = (), *, plain: bool = False
    ) -> None:
        """Make the table.

        Args:
            types: The columns and their types, as SQL by name.
            keys: The columns that are NOT NULL.
            plain: Whether it has these columns only, as it is to become a target.
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
        """Add the rows of a part, once, whichever attempt at the part it is. On executors.

        Returns how many there are, as ``ArrowWrite.write`` has it; None for none. Raises
        RecordError for the first row that the table does not take.
        """
        with self.database.staging_session(self.name) as session:
            count = self.database.load(session, self.name, self.columns, rows)
            return self._done(session, number, count)

    def load_keyed(self, number: int, rows: Iterator[pa.RecordBatch]) -> str | None:
        """Add rows that say by ``DELETED`` what each does; see ``load``."""
        schema = to_arrow(Schema.struct(dict(self.columns)))

        def with_ops() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                op = pc.if_else(batch.column(DELETED), DELETE, UPSERT)
                yield conform(batch.append_column(OP, op), schema)

        return self.load(number, with_ops())

    def load_renamed(
        self, renames: Mapping[str, str], number: int, rows: Iterator[pa.RecordBatch]
    ) -> str | None:
        """Add rows whose columns have other names; see ``load``."""
        return self.load(number, renamed(rows, renames))

    def load_raw(
        self, load: RawLoad, number: int, data: Iterator[bytes]
    ) -> tuple[str | None, int]:
        """Add the rows of a part as bytes; see ``load`` and ``ArrowWrite.raw``."""
        with self.database.staging_session(self.name) as session:
            count = load(session, self.name, list(self.columns), data)
            result = self._done(session, number, count)
        return result, _count(result)

    def load_tolerant(
        self, number: int, rows: Iterator[pa.RecordBatch]
    ) -> tuple[str | None, list[tuple[int, str, str]]]:
        """Add those rows of a part that the table takes.

        Returns what ``load`` returns, and for each of the others its record, the problem and
        the column.
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
        """Commit a part, unless another attempt at it has; return what there is of it."""
        mark, key = self.database.mark, (str(self.name), number)
        parts = self.database.path(TableName(self.name.schema, PARTS))
        if not count:
            return None
        try:
            # Guarantee 2: an attempt that Spark has given up may end after the one that counts.
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
    """Return how many rows parts have, by what ``Staging.load`` returned of each."""
    return sum(_count(result) for result in results)


def make_table(database: Database, session: Session, path: str, columns: str) -> None:
    """Make a table if it is not there, whoever does so at the same time."""
    with suppress(DatabaseError, ConfigError):  # not all databases have IF NOT EXISTS
        session.rows(f"SELECT 1 FROM {path} WHERE 1 = 0")
        session.rollback()
        return
    session.rollback()
    try:
        session.execute(f"CREATE TABLE {path} ({columns}){database.table_options}")
        session.commit()
    except (DatabaseError, RecordError):
        # Two may find it missing; then one of them is refused by the catalog.
        session.rollback()
        session.rows(f"SELECT 1 FROM {path} WHERE 1 = 0")
        session.rollback()


class Step(Enum):
    """What the tasks of a connector do once with a table, and keep a mark of."""

    BEGUN = "begun"
    RECREATED = "recreated"


@dataclass(frozen=True)
class Bookkeeping:
    """The marks of batches and the names of staging tables, in a schema of the target."""

    database: Database
    schema: str

    def prepare(self, session: Session) -> None:
        """Make the tables."""
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
        """Return the receipt of a batch that the target holds, None for another.

        Raises StaleEpochError: it holds a newer one.
        """
        sign = self.database.mark
        found = session.rows(
            f"SELECT batch, receipt FROM {self._path(MARKS)} WHERE application = {sign}",
            (mark.application,),
        )
        batch, receipt = found[0] if found else (0, "")
        if batch > mark.batch:
            raise StaleEpochError(
                problem=f"The target already holds batch {batch} of {mark.application}, "
                f"and was asked for batch {mark.batch}.",
                fix="Another worker runs this task, or the state folder was set back; "
                "restore it.",
            )
        return str(receipt) if batch == mark.batch else None

    def is_new(
        self, session: Session, connector: str, target: TableName, step: Step = Step.BEGUN
    ) -> bool:
        """Return whether no task of a connector has come to a step with a table yet."""
        sign = self.database.mark
        return not session.value(
            f"SELECT batch FROM {self._path(MARKS)} WHERE application = {sign}",
            (f"{step.value}:{connector}:{target}",),
        )

    def check_cases(
        self, session: Session, connector: str, target: TableName, written: Iterable[TableName]
    ) -> None:
        """Raise SinkError if the database takes two tables that a connector writes for one.

        Args:
            session: In no transaction of a batch.
            connector: The connector, which has committed nothing to the target yet.
            target: The table.
            written: Those that the task has begun with.
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
            "Give one of them another name by table.mapping.",
        )

    def begin(
        self, session: Session, connector: str, target: TableName, step: Step = Step.BEGUN
    ) -> bool:
        """Store in the open transaction that a connector has come to a step with a table.

        Returns whether it is the first to do so. Another task waits here for the transaction's
        end, as the name is unique.
        """
        if not self.is_new(session, connector, target, step):
            return False
        sign, is_first = self.database.mark, False
        with suppress(RecordError), session.savepoint():  # another task may have stored it
            session.execute(
                f"INSERT INTO {self._path(MARKS)} (application, batch, receipt) "
                f"VALUES ({sign}, 1, '{{}}')",
                (f"{step.value}:{connector}:{target}",),
            )
            is_first = True
        return is_first

    def replace_window(
        self, session: Session, window: RunWindow, target: TableName, *, holds: bool
    ) -> bool:
        """Store in the open transaction that a run has replaced its window's rows in a table.

        Returns whether nobody of this generation of the run had done so; another task waits
        here for the transaction's end. With ``holds`` no later generation begins before the
        transaction has ended. Raises StaleEpochError: one has begun.
        """
        name, sign = f"window:{window.run}:{target}", self.database.mark
        marks = self._path(MARKS)
        query = f"SELECT batch FROM {marks} WHERE application = {sign}"
        older = (
            f"UPDATE {marks} SET batch = {sign} WHERE application = {sign} AND batch < {sign}"
        )
        number = window.generation
        held = session.value(query, (name,))
        if held is None:
            with suppress(RecordError), session.savepoint(), session.waiting(_LOCK_SECONDS):
                session.execute(
                    f"INSERT INTO {marks} (application, batch, receipt) "
                    f"VALUES ({sign}, {sign}, '{{}}')",
                    (name, number),
                )
                return True
        elif window.is_replaced(int(held)) and not holds:
            return False
        with session.waiting(_LOCK_SECONDS):
            is_first = session.execute(older, (number, name, number)) > 0
        self.hold(session, name)
        window.is_replaced(int(session.value(query, (name,))))
        return is_first

    def require_owner(
        self, session: Session, connector: str, target: TableName, owner: str
    ) -> None:
        """Let only one stream of one task replace the rows of a table.

        The first one that asks is it. Raises ConfigError: another one is.
        """
        name, sign = f"replaced:{connector}:{target}", self.database.mark
        query = f"SELECT receipt FROM {self._path(MARKS)} WHERE application = {sign}"
        with suppress(RecordError), session.savepoint():  # another may store it just now
            if not session.rows(query, (name,)):
                session.execute(
                    f"INSERT INTO {self._path(MARKS)} (application, batch, receipt) "
                    f"VALUES ({sign}, 1, {sign})",
                    (name, owner),
                )
        session.commit()
        found = str(session.value(query, (name,)))
        if found != owner:
            raise ConfigError(
                problem=f"{owner} would replace the rows of {found} in {target}.",
                fix="Give each stream its own table, set tasks.max to 1, or set insert.mode "
                f"to upsert. If {found} is no longer written: DELETE FROM {self._path(MARKS)} "
                f"WHERE application = {self.database.literal(name)};",
                field="insert.mode",
            )

    def recreate(self, session: Session, connector: str, target: TableName) -> None:
        """Drop a table once for a connector, whichever of its tasks comes first.

        An attempt that dies in between leaves no table; the next one makes it.
        """
        with self.database.session() as marks:
            # Guarantee 1: no task drops what another has made of the table since.
            if not self.begin(marks, connector, target, Step.RECREATED):
                return
            # Where DROP commits what is open the mark must come after it.
            by = marks if self.database.transactional_ddl else session
            if self.database.table(by, target) is not None:
                by.execute(f"DROP TABLE {self.database.path(target)}")
            by.commit()
            marks.commit()

    def lock(self, session: Session, mark: Mark) -> None:
        """Let no other attempt of the application commit before this transaction ends."""
        if len(mark.application) > _APPLICATION:
            raise StateError(
                problem=f"The name {mark.application} is longer than {_APPLICATION} signs.",
                fix="Give the connector a shorter name.",
            )
        sign, marks = self.database.mark, self._path(MARKS)
        if not session.value(
            f"SELECT count(*) FROM {marks} WHERE application = {sign}", (mark.application,)
        ):
            session.execute(
                f"INSERT INTO {marks} (application, batch, receipt) VALUES ({sign}, 0, '{{}}')",
                (mark.application,),
            )
        self.hold(session, mark.application)

    def hold(self, session: Session, application: str) -> None:
        """Lock the mark of an application, if there is one, until the transaction ends."""
        where = f"WHERE application = {self.database.mark}"
        with session.waiting(_LOCK_SECONDS):
            session.execute(
                f"UPDATE {self._path(MARKS)} SET batch = batch {where}", (application,)
            )

    def keep(
        self, session: Session, mark: Mark, receipt: str, renames: Sequence[Sequence[str]] = ()
    ) -> None:
        """Store the mark in the open transaction, with tables that are yet to be renamed."""
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
        """Return the tables of a mark that are yet to be renamed; see ``publish``."""
        sign = self.database.mark
        found = session.value(
            f"SELECT pending FROM {self._path(MARKS)} WHERE application = {sign}",
            (application,),
        )
        return list(json.loads(found)) if found else []

    def settled(self, session: Session, application: str) -> None:
        """Forget what was pending, and commit."""
        sign = self.database.mark
        session.execute(
            f"UPDATE {self._path(MARKS)} SET pending = NULL WHERE application = {sign}",
            (application,),
        )
        session.commit()

    def stage(self, session: Session, mark: Mark, target: TableName) -> TableName:
        """Return the name of a new staging table, once it is stored where it can be found."""
        # Guarantee 2: never the name of an earlier try, whose parts the ledger has as done.
        name = self.database.staging(target, secrets.token_hex(12))
        sign, staged = self.database.mark, self._path(STAGED)
        session.execute(
            f"INSERT INTO {staged} VALUES ({', '.join([sign] * 5)})",
            (str(name), str(target), mark.application, mark.batch, mark.epoch),
        )
        session.commit()
        return name

    def discard(self, session: Session, mark: Mark) -> None:
        """Remove the staging tables of this attempt and of those before it."""
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
