"""Rows of a target that give way to those of a batch: all of them, or those of a window."""

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
    """What of a target gives way.

    A mark in the transaction of the batch says that it has: whoever of a connector's tasks, or
    of a run's, stores it first clears the rows, and the others wait for that.

    Args:
        settings: The sink's.
        books: The marks.
        connector: Names what the tasks have in common: the connector, or the run of a job.
        target: The table.
        window: What the run replaces.
    """

    settings: TableSinkSettings
    books: Bookkeeping
    connector: str
    target: TableName
    window: RunWindow | None

    def begin(self, session: Session) -> None:
        """Store in the open transaction that the connector has begun with the table.

        Raises StaleEpochError: the run was begun anew meanwhile.
        """
        self.books.begin(session, self.connector, self.target)
        if self.window is not None:
            # Guarantee 3: held to the end, or a later generation would not see our rows.
            self.books.replace_window(session, self.window, self.target, holds=True)

    def rows(self, session: Session, plan: Plan, batch: SinkBatch) -> str:
        """Return the SQL of the rows that give way to a batch; empty for none.

        Raises ConfigError: there are rows, and must not be any.
        """
        if self.window is not None:
            # Another task may have made it since.
            table = plan.table or self.books.database.table(session, self.target)
            return "" if table is None else self._of_window(session, table)
        modes = {DataSaveMode.DROP, DataSaveMode.REQUIRE_EMPTY}
        # Guarantee 2: what another task commits meanwhile is not what was there before.
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
                    problem=f"The table {self.target} has rows already.",
                    fix="Set data.save.mode to append or drop.",
                    field="data.save.mode",
                )
        return _ALL if self.settings.insert_mode is Mode.REPLACE and not batch.continues else ""

    def clear(self, table: Table) -> None:
        """Delete the window's rows, unless the run has done so."""
        with self.books.database.session() as session:
            if where := self._of_window(session, table):
                path = self.books.database.path(table.name)
                session.execute(f"DELETE FROM {path} WHERE {where}")
                session.commit()

    def _of_window(self, session: Session, table: Table) -> str:
        """Return the SQL of the window's rows; empty where the run has deleted them."""
        if self.window is None or not self.books.replace_window(
            session, self.window, self.target, holds=False
        ):
            return ""
        rows = Rows.of(self.books.database, table)
        columns = {name: each.schema for name, each in rows.columns.items()}
        return window_sql(rows, self.window.of(columns, rows.title))


def windowed_records(window: RunWindow, plan: Plan) -> WindowedRecords:
    """Return that a batch's records are to lie in a window. Raises ConfigError if none can."""
    own = {column.name: column.schema for column in plan.columns}
    columns = plan.rows.staged_schema() | own
    found = window.of(columns, f"The stream that goes to {plan.target}")
    return WindowedRecords(plan.rows.value_sql(found.column), found)
