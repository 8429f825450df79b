"""The plan of a batch for its table, made before anything is staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from headrace.sdk import RetriableError, Schema
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace_plugins.databases.database import UnsupportedError
from headrace_plugins.databases.digits import wider_type
from headrace_plugins.databases.sink_settings import Deletes, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.sdk import SinkBatch
    from headrace_plugins.databases.catalog import Column, Table, TableName
    from headrace_plugins.databases.database import Database, Session
    from headrace_plugins.databases.rows import RecordRows
    from headrace_plugins.databases.sink_settings import TableSinkSettings
    from headrace_plugins.target_table import TableSelection

log = structlog.get_logger(__name__)


def changed_meanwhile(table: TableName) -> RetriableError:
    """Return the error for a table that another task, or its owner, has created or changed."""
    return RetriableError(
        problem=f"Another writer changed the table {table} while a batch was written.",
        fix="No action is needed: the batch is written again.",
    )


def require_same_rows(judged: Sequence[Sequence[int]], target: TableName) -> None:
    """Raise RetriableError if a target refuses other rows than at the first application.

    Guarantee 4: the dead letters and counts are from the first application of the rows.
    """
    if judged[0] != judged[-1]:
        raise RetriableError(problem=f"{target} refuses other rows than before.")


def require_new(receipt: str | None, target: TableName) -> None:
    """Raise RetriableError if the batch is there: its rows would be refused as duplicates."""
    if receipt is not None:
        raise RetriableError(problem=f"Another attempt has just committed to {target}.")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a batch for its table.

    Args:
        target: The table's name.
        table: The existing table; None if it must be created.
        rows: How records are converted to rows.
        types: The target's types of the columns to write.
        is_first: Whether this is the connector's first batch for the table.
        publishes: Whether the staging table becomes the target.
        recreates: Whether to drop the existing table, once the rows are staged.
    """

    target: TableName
    table: Table | None
    rows: RecordRows
    types: Mapping[str, str]
    is_first: bool
    publishes: bool
    recreates: bool = False

    @property
    def columns(self) -> list[Column]:
        """The table's columns to write; empty if the table must be created."""
        found = () if self.table is None else self.table.columns
        return [column for column in found if column.name in self.types]

    @property
    def unique(self) -> bool:
        """Whether the target has a unique constraint on exactly the key columns."""
        if self.table is None:
            return True
        return any(set(each) == set(self.rows.keys) for each in self.table.unique)

    def require_same(self, database: Database, session: Session, staging: TableName) -> None:
        """Raise RetriableError if the target is not the table that the rows were staged for.

        A database converts the staged values to any type, and may round them silently.
        """
        now, planned = database.table(session, self.target), self.table
        if planned is not None:
            suits = now is not None and (now.columns, now.key, now.unique) == (
                planned.columns,
                planned.key,
                planned.unique,
            )
        elif now is not None and self.publishes:  # another task has created it
            made = database.table(session, staging)
            suits = made is not None and _types(now) == _types(made)
        else:
            suits = now is not None
        if not suits:
            raise changed_meanwhile(self.target)

    def creation(self, database: Database, settings: TableSinkSettings) -> str:
        """Return the statement that creates the target."""
        keys, quote = self.rows.keys, database.quote
        columns = {
            name: f"{kind}{' NOT NULL' if name in keys else ''}"
            for name, kind in self.types.items()
        }
        boolean, time = (
            database.column_type(each) for each in (Schema.boolean(), Schema.timestamp())
        )
        if settings.delete_mode is Deletes.SOFT:
            columns.setdefault(settings.soft_delete_column, boolean)
        versions = settings.insert_mode is Mode.SCD2
        if versions:
            columns[settings.valid_from_column] = time
            columns[settings.valid_to_column] = time
            columns[settings.current_column] = boolean
        body = [f"{quote(name)} {kind}" for name, kind in columns.items()]
        if keys and not versions:
            body.append(f"PRIMARY KEY ({', '.join(map(quote, keys))})")
        path = database.path(self.target)
        return f"CREATE TABLE {path} ({', '.join(body)}){database.table_options}"


def _types(table: Table) -> dict[str, str]:
    return {column.name: column.type for column in table.columns}


def column_changes(
    database: Database,
    table: Table,
    schema: Schema,
    types: Mapping[str, str],
    policy: EvolutionPolicy,
) -> tuple[list[str], list[str]]:
    """Return the statements that add columns and that widen columns, as the policy allows.

    Args:
        database: The database of the table.
        table: The table.
        schema: The schema of the rows, by column name.
        types: The types that the columns would have in a new table.
        policy: The target's policy.
    """
    follows = {Handling.EVOLVE, Handling.LENIENT}
    adds, widens = (policy.of(kind) in follows for kind in (ChangeKind.ADD, ChangeKind.WIDEN))
    added: list[str] = []
    widened: list[str] = []
    for name, kind in types.items():
        column, field = table.column(name), schema.field(name)
        if column is None:
            added += [database.add_column(table.name, name, kind)] if adds else []
        elif field is not None and widens and not column.generated:
            to = wider_type(database, column, field.schema)
            widened += [] if to is None else database.retype(table.name, name, to)
    return added, widened


def change_columns(
    session: Session, added: Sequence[str], widened: Sequence[str], not_widened: set[str]
) -> None:
    """Run the statements of ``column_changes``, and commit.

    If the database cannot widen a column, for example one used by a view, each value must fit
    the current type. The statement is added to ``not_widened`` and not tried again.
    """
    for statement in added:
        session.execute(statement)
    session.commit()
    for statement in widened:
        if statement in not_widened:
            continue
        try:
            session.execute(statement)
            session.commit()
        except UnsupportedError as error:
            session.rollback()
            not_widened.add(statement)
            log.warning("column cannot be widened", statement=statement, problem=error.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """The part of a batch for one table.

    Args:
        target: The table's name.
        keys: The configured key columns.
        batch: The batch, with the schema and mark for this table.
        selection: The columns and records that a rule selects; None for unchanged records.
    """

    target: TableName
    keys: tuple[str, ...]
    batch: SinkBatch
    selection: TableSelection | None = None

    @property
    def condition(self) -> str | None:
        """SQL condition of the records for the table; None for all."""
        return None if self.selection is None else self.selection.condition
