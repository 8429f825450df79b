"""Applies staged rows to a target and deletes those that they replace, in one transaction.

The transaction is open until the batch commits.
"""

# ruff: noqa: S608 - names are quoted or made here, values are bound or quoted by the driver
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, RecordError, RetriableError, SinkError
from headrace.sdk.sink import Refused, class_name
from headrace_plugins.databases.catalog import Table, TableName
from headrace_plugins.databases.cursors import Rows, window_sql
from headrace_plugins.databases.database import DatabaseError, Merge, Session
from headrace_plugins.databases.plan import changed_meanwhile
from headrace_plugins.databases.sink_settings import DataSaveMode, Deletes, Mode
from headrace_plugins.databases.staging import (
    DELETE,
    OP,
    PLACE,
    RECORD,
    TRUNCATE,
    UPSERT,
    Bookkeeping,
    Staging,
)
from headrace_plugins.window import WindowedRecords

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.sdk import Mark, SinkBatch
    from headrace_plugins.databases.plan import Plan
    from headrace_plugins.databases.sink_settings import TableSinkSettings
    from headrace_plugins.window import RunWindow

_ERROR = class_name(RecordError)


@dataclass(frozen=True)
class Clearance:
    """The target rows to delete before a batch is applied.

    A mark in the batch's transaction records the deletion. The first task of the connector or
    run to store the mark deletes the rows; the others wait for its transaction.

    Args:
        settings: The sink's settings.
        books: The marks.
        connector: The application id that the tasks share: of the connector or of a job's run.
        target: The table.
        window: The window that the run replaces; None for none.
    """

    settings: TableSinkSettings
    books: Bookkeeping
    connector: str
    target: TableName
    window: RunWindow | None

    def begin(self, session: Session) -> None:
        """Record in the open transaction that the connector has begun with the table.

        Raises StaleEpochError if the run was restarted from the beginning meanwhile.
        """
        self.books.begin(session, self.connector, self.target)
        if self.window is not None:
            # Guarantee 3: keep the lock, or a newer generation would not see our rows.
            self.books.replace_window(session, self.window, self.target, holds=True)

    def rows(self, session: Session, plan: Plan, batch: SinkBatch) -> str:
        """Return the SQL condition of the rows that a batch replaces; empty for none.

        Raises ConfigError if the table has rows and data.save.mode is error_when_exists.
        """
        if self.window is not None:
            # Another task may have created the table since.
            table = plan.table or self.books.database.table(session, self.target)
            return "" if table is None else self._of_window(session, table)
        modes = {DataSaveMode.DROP, DataSaveMode.REQUIRE_EMPTY}
        # Guarantee 2: rows that another task commits meanwhile are not old rows.
        if (
            plan.is_first
            and plan.table is not None
            and self.settings.data_save_mode in modes
            and self.books.begin(session, self.connector, self.target)
        ):
            if self.settings.data_save_mode is DataSaveMode.DROP:
                return "1 = 1"
            database = self.books.database
            query = database.page(f"SELECT 1 FROM {database.path(self.target)}", 1)
            if session.value(query):
                raise ConfigError(
                    problem=f"The table {self.target} already has rows.",
                    fix="Set data.save.mode to append or drop.",
                    field="data.save.mode",
                )
        replaces = self.settings.insert_mode is Mode.REPLACE and not batch.continues
        return "1 = 1" if replaces else ""

    def clear(self, table: Table) -> None:
        """Delete the window's rows, unless the run has already done so."""
        with self.books.database.session() as session:
            if where := self._of_window(session, table):
                path = self.books.database.path(table.name)
                session.execute(f"DELETE FROM {path} WHERE {where}")
                session.commit()

    def _of_window(self, session: Session, table: Table) -> str:
        """Return the SQL condition of the window's rows; empty if they are already deleted."""
        if self.window is None or not self.books.replace_window(
            session, self.window, self.target, holds=False
        ):
            return ""
        rows = Rows.of(self.books.database, table)
        columns = {name: each.schema for name, each in rows.columns.items()}
        return window_sql(rows, self.window.of(columns, rows.title))


def windowed_records(window: RunWindow, plan: Plan) -> WindowedRecords:
    """Return the window check of a batch's records. Raises ConfigError if it is impossible."""
    own = {column.name: column.schema for column in plan.columns}
    columns = plan.rows.staged_schema() | own
    found = window.of(columns, f"The stream that goes to {plan.target}")
    return WindowedRecords(plan.rows.value_sql(found.column), found)


@dataclass(frozen=True, kw_only=True)
class Application:
    """How the rows of a staging table are applied to a target.

    Args:
        settings: The sink's settings.
        target: The table.
        columns: The names of the columns that are written.
        keys: The columns that identify a row.
        unique: Whether the target has a unique constraint on exactly the keys.
        has_ops: Whether the staging table has the column ``OP``.
        clears: SQL condition of the target rows to delete before the staged rows are applied;
            empty for none.
        at: The time of the batch, for row versions.
    """

    settings: TableSinkSettings
    target: TableName
    columns: Sequence[str]
    keys: Sequence[str]
    unique: bool
    has_ops: bool
    clears: str
    at: datetime

    def run(self, session: Session, staging: Staging, *, tolerant: bool) -> list[Refused]:
        """Apply the rows; return the records that the target refuses, which are skipped.

        Raises RecordError for the first refused record unless ``tolerant``.
        """
        refused: list[Refused] = []
        later = ""
        if PLACE in staging.columns:
            truncated = session.value(
                f"SELECT max({staging.own(PLACE)}) FROM {staging.path} s "
                f"WHERE {staging.own(OP)} = '{TRUNCATE}'"
            )
            if truncated is not None:
                later = f" AND {staging.own(PLACE)} > '{truncated}'"
        if self.clears or later:
            session.execute(self._cleared(staging, "1 = 1" if later else self.clears))
        for where, statements in self._steps(staging):
            refused += _settled(
                session, staging, f"{where}{later}", statements, tolerant=tolerant
            )
        return refused

    def _cleared(self, staging: Staging, where: str) -> str:
        """Return the statement that deletes the rows of a condition, or ends their validity."""
        database, settings = staging.database, self.settings
        target, quote = database.path(self.target), database.quote
        if settings.insert_mode is Mode.SCD2:
            current = quote(settings.current_column)
            ended = f"{quote(settings.valid_to_column)} = {database.literal(self.at)}"
            return (
                f"UPDATE {target} SET {ended}, {current} = {database.literal(value=False)} "
                f"WHERE {current} = {database.literal(value=True)} AND {where}"
            )
        if settings.insert_mode.is_keyed and settings.delete_mode is Deletes.SOFT:
            column = quote(settings.soft_delete_column)
            return (
                f"UPDATE {target} SET {column} = {database.literal(value=True)} WHERE {where}"
            )
        return f"DELETE FROM {target} WHERE {where}"

    def _steps(self, staging: Staging) -> list[tuple[str, Callable[[str], list[str]]]]:
        """Return the steps, deletions first: row conditions and their statements."""
        mode = self.settings.insert_mode
        if not mode.is_keyed:
            return [("1 = 1", lambda where: [self._merge(staging, where).insertion])]
        database, steps = staging.database, list[tuple[str, Callable[[str], list[str]]]]()
        if self.has_ops:
            gone = f"{staging.own(OP)} = '{DELETE}'"
            steps.append((gone, lambda where: self._deleted(staging, where)))
        kept = f"{staging.own(OP)} = '{UPSERT}'" if self.has_ops else "1 = 1"
        if mode is Mode.SCD2:
            steps.append((kept, lambda where: self._versions(staging, where)))
        elif mode is Mode.UPDATE:
            changes = [(name, f"s.{name}") for name in self._others(staging)]
            steps.append(
                (kept, lambda where: [database.update(self._merge(staging, where), changes)])
            )
        else:
            steps.append((kept, lambda where: self._upserted(staging, where)))
        return steps

    def _upserted(self, staging: Staging, where: str) -> list[str]:
        database, merge = staging.database, self._merge(staging, where)
        statements = database.upsert(merge)
        if self.settings.delete_mode is Deletes.SOFT:
            column = database.quote(self.settings.soft_delete_column)
            statements.append(database.update(merge, [(column, database.literal(value=False))]))
        return statements

    def _deleted(self, staging: Staging, where: str) -> list[str]:
        database, merge = staging.database, self._merge(staging, where)
        if self.settings.insert_mode is Mode.SCD2:
            return [self._closed(staging, where)]
        if self.settings.delete_mode is Deletes.SOFT:
            column = database.quote(self.settings.soft_delete_column)
            return [database.update(merge, [(column, database.literal(value=True))])]
        return [database.delete(merge)]

    def _closed(self, staging: Staging, where: str) -> str:
        """Return the statement that ends the current versions of the staged keys."""
        database, settings = staging.database, self.settings
        current = database.quote(settings.current_column)
        merge = self._merge(
            staging, f"{where} AND t.{current} = {database.literal(value=True)}"
        )
        return database.update(
            merge,
            [
                (database.quote(settings.valid_to_column), database.literal(self.at)),
                (current, database.literal(value=False)),
            ],
        )

    def _versions(self, staging: Staging, where: str) -> list[str]:
        database, settings = staging.database, self.settings
        others = self._others(staging)
        differs = " OR ".join(database.differs(f"t.{each}", f"s.{each}") for each in others)
        closed = self._closed(staging, f"{where} AND ({differs or '1 = 0'})")
        names = [database.quote(name) for name in self.columns]
        target = database.path(self.target)
        own = [
            database.quote(each)
            for each in (
                settings.valid_from_column,
                settings.valid_to_column,
                settings.current_column,
            )
        ]
        at = database.literal(self.at)
        # A typed NULL, as not all databases can select an untyped one.
        values = [at, f"NULLIF({at}, {at})", database.literal(value=True)]
        matches = self._merge(staging, where).matches
        added = (
            f"INSERT INTO {target} ({', '.join([*names, *own])}) "
            f"SELECT {', '.join([*(f's.{name}' for name in names), *values])} "
            f"FROM {staging.path} s WHERE {where} AND NOT EXISTS (SELECT 1 FROM {target} t "
            f"WHERE {matches} AND t.{own[2]} = {database.literal(value=True)})"
        )
        return [closed, added]

    def _others(self, staging: Staging) -> list[str]:
        return [staging.database.quote(name) for name in self.columns if name not in self.keys]

    def _merge(self, staging: Staging, where: str) -> Merge:
        quote = staging.database.quote
        return Merge(
            target=staging.database.path(self.target),
            staging=staging.path,
            columns=[quote(name) for name in self.columns],
            keys=[quote(name) for name in self.keys],
            unique=self.unique,
            where=where,
        )


def _settled(
    session: Session,
    staging: Staging,
    where: str,
    statements: Callable[[str], list[str]],
    *,
    tolerant: bool,
) -> list[Refused]:
    """Run statements for the rows of a condition; bisect them if the target refuses any."""
    try:
        _run(session, statements(where))
    except RecordError:
        if not session.undoes_parts:
            raise
        if not tolerant:
            # Another task may have inserted a row of the same key; a retry sees that row.
            _run(session, statements(where))
            return []
        record, rows = staging.own(RECORD), f"FROM {staging.path} s WHERE {where}"
        bounds = session.rows(f"SELECT min({record}), max({record}) {rows}")[0]
        if bounds[0] is None:
            raise
        if bounds[0] == bounds[1]:
            return _settled_one_by_one(session, staging, where, statements, int(bounds[0]))
        count = session.value(f"SELECT count(DISTINCT {record}) {rows}")
        ordered = f"SELECT DISTINCT {record} {rows} ORDER BY {record}"
        middle = session.value(staging.database.page(ordered, 1, int(count) // 2 - 1))
        halves = (f"{where} AND {record} <= {middle}", f"{where} AND {record} > {middle}")
        return [
            refused
            for half in halves
            for refused in _settled(session, staging, half, statements, tolerant=True)
        ]
    return []


def _run(session: Session, statements: Sequence[str]) -> None:
    """Run statements in a savepoint: if one fails, all are undone."""
    with session.savepoint():
        for statement in statements:
            session.execute(statement)


def _settled_one_by_one(
    session: Session,
    staging: Staging,
    where: str,
    statements: Callable[[str], list[str]],
    record: int,
) -> list[Refused]:
    """Run statements one by one for rows with the same record id, whose records are equal."""
    database, refused = staging.database, list[Refused]()
    row_id = database.row_id
    for (row,) in session.rows(f"SELECT s.{row_id} FROM {staging.path} s WHERE {where}"):
        one = f"{where} AND s.{row_id} = {database.literal(row)}"
        try:
            _run(session, statements(one))
        except RecordError as error:
            refused.append(Refused(record, _ERROR, error.problem))
    return refused


@dataclass(kw_only=True)
class MergedRows:
    """Rows applied in a transaction that is open until ``commit``.

    Args:
        session: The session of the transaction, which has locked the application's mark; None
            if the transaction was already rolled back.
        again: Opens a new session and applies the rows again, if there is no session.
        books: The marks.
        mark: The batch's mark.
        target: The table.
        staging: The staged rows.
        rows: The number of records in the staged rows.
        publishes: Whether the staging table becomes the target.
        keys: The upsert key, if another task has created the target by then; empty to append.
        begin: Records that the connector has begun with the table.
        insert: Applies the staged rows if another task has created the target meanwhile.
        refusals: The records that the target refuses.
    """

    session: Session | None
    again: Callable[[], Session]
    books: Bookkeeping
    mark: Mark
    target: TableName
    staging: Staging
    rows: int
    publishes: bool = False
    keys: Sequence[str] = ()
    begin: Callable[[Session], object] = lambda _: None
    insert: Callable[[Session], object] = lambda _: None
    refusals: Sequence[Refused] = field(default_factory=list)

    def refused(self) -> Sequence[Refused]:
        """Return the records that the target refuses; see ``Verified``."""
        return self.refusals

    def commit(self, receipt: str) -> None:
        """Store the mark beside the rows, and commit; see ``StagedWrite.commit``."""
        database = self.staging.database
        session = self.session or self.again()
        try:
            if not self._wrote(session):
                renames = []
                if self.publishes:
                    if database.table(session, self.target) is None:
                        renames = [(self.staging.name, self.target)]
                    else:  # another task has created it
                        self.insert(session)
                self.begin(session)
                # Guarantee 2: the mark and the rows are committed in one transaction.
                if database.transactional_ddl:
                    try:
                        database.rename(session, renames)
                    except DatabaseError as error:
                        # Another task may have created it since the check above.
                        if renames and self._is_created():
                            raise changed_meanwhile(self.target) from error
                        raise
                    self.books.keep(session, self.mark, receipt)
                    session.commit()
                else:
                    # The mark stores the pending rename, which any later task can finish.
                    pending = [
                        [old.schema, old.name, new.name, *self.keys] for old, new in renames
                    ]
                    self.books.keep(session, self.mark, receipt, pending)
                    session.commit()
                    publish(self.books, session, self.mark.application)
            self.books.discard(session, self.mark)
        finally:
            session.close()

    def _is_created(self) -> bool:
        database = self.staging.database
        with database.session() as other:
            return database.table(other, self.target) is not None

    def _wrote(self, session: Session) -> bool:
        """Return whether this attempt has committed the batch; see ``Mark.wrote``."""
        try:
            return self.mark.wrote(self.books.held(session, self.mark))
        except RetriableError:
            # Another attempt has ended this session: check who committed the batch.
            with self.staging.database.session() as other:
                if self.mark.wrote(self.books.held(other, self.mark)):
                    return True
            raise

    def abort(self) -> None:
        """Roll back, and drop the staging table."""
        if self.session is not None:
            self.session.close()
        try:
            with self.staging.database.session() as session:
                self.books.discard(session, self.mark)
        except RetriableError:
            pass  # the next commit removes the staging table


def _require_fit(staged: Table, made: Table) -> None:
    """Raise SinkError if a table cannot store rows as they are; values would be rounded."""
    wanted = {column.name: column.schema.replaced(optional=True) for column in staged.columns}
    there = {column.name: column.schema.replaced(optional=True) for column in made.columns}
    wrong = [each for each in staged.columns if there.get(each.name) != wanted[each.name]]
    if wrong:
        types = ", ".join(f"{column.name} {column.type}" for column in wrong)
        raise SinkError(
            problem=f"{made.name} was created by others without {types}, which the committed "
            f"rows in {staged.name} have.",
            fix="Give the table these columns; the batch is then finished.",
        )


def publish(books: Bookkeeping, session: Session, application: str) -> None:
    """Finish the pending renames of a committed batch, which another task may have committed.

    Each has the schema, the name, the new name, and ``MergedRows.keys``.
    """
    database = books.database
    # Guarantee 2: of two tasks that find it, the second one sees the first one's rename.
    books.hold(session, application)
    for schema, old, new, *keys in books.pending(session, application):
        before, after = TableName(schema, old), TableName(schema, new)
        staged = database.table(session, before)
        if staged is None:
            continue
        made = database.table(session, after)
        if made is None:
            try:
                database.rename(session, [(before, after)])
            except (DatabaseError, ConfigError):
                if database.table(session, after) is None:
                    raise
                # Another task has created it, or renamed this one, just now. The statement
                # has ended the transaction.
                publish(books, session, application)
                return
            continue
        # Another task has created the table meanwhile: add the rows to it.
        try:
            _require_fit(staged, made)
        except SinkError:
            session.rollback()  # others wait for the mark
            raise
        merge = Merge(
            target=database.path(after),
            staging=database.path(before),
            columns=[database.quote(each.name) for each in staged.columns],
            keys=[database.quote(key) for key in keys],
            where="1 = 1",
        )
        for statement in database.upsert(merge) if keys else [merge.insertion]:
            session.execute(statement)
    books.settled(session, application)
