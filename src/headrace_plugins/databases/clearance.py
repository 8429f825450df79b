"""Deletes the target rows that a batch replaces: all of them, or those of a window."""

# ruff: noqa: S608 - names are quoted, values are quoted by the driver
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace_plugins.databases.cursors import Rows, window_sql
from headrace_plugins.databases.sink_settings import DataSaveMode, Mode
from headrace_plugins.replaced_window import WindowedRecords

if TYPE_CHECKING:
    from headrace.sdk import SinkBatch
    from headrace_plugins.databases.catalog import Table, TableName
    from headrace_plugins.databases.database import Session
    from headrace_plugins.databases.plan import Plan
    from headrace_plugins.databases.sink_settings import TableSinkSettings
    from headrace_plugins.databases.staging import Bookkeeping
    from headrace_plugins.replaced_window import RunWindow

_ALL = "1 = 1"


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
                return _ALL
            database = self.books.database
            query = database.page(f"SELECT 1 FROM {database.path(self.target)}", 1)
            if session.value(query):
                raise ConfigError(
                    problem=f"The table {self.target} already has rows.",
                    fix="Set data.save.mode to append or drop.",
                    field="data.save.mode",
                )
        return _ALL if self.settings.insert_mode is Mode.REPLACE and not batch.continues else ""

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
