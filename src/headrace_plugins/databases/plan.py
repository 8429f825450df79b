"""The plan of a batch for its table, made before anything is staged; precision of columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from headrace.sdk import Refusal, RetriableError, Schema, Type
from headrace.sdk.schema import (
    DECIMAL,
    FLOATS,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    WHOLE_NUMBERS,
    precision_of,
    scale_of,
)
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling, evolve
from headrace_plugins.databases.catalog import stated_type
from headrace_plugins.databases.database import UnsupportedError
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


_MICROSECONDS = 6
"""The fractional-second digits of time values."""


def wider_type(database: Database, column: Column, comes: Schema) -> str | None:
    """Return the column type for both the existing and the new values.

    None if the column already accepts the new values, or if there is no such type.
    """
    larger = _wider(column.schema, comes)
    if larger is not None:
        return database.column_type(larger)
    own, stated = stated_type(comes)
    is_same = comes.name == column.schema.name and comes.is_local == column.schema.is_local
    if own == database.kind and is_same and _is_timed(comes):
        grown = replace(column, type=stated)
        if database.second_digits(column) < database.second_digits(grown):
            return stated
    return None


def _wider(there: Schema, comes: Schema) -> Schema | None:
    """Return the schema of a number column for both the existing and the new values."""
    if _is_decimal(there) and _is_decimal(comes):
        return _more_digits(there, comes)
    numbers = {*WHOLE_NUMBERS, *FLOATS}
    if {there.type, comes.type} - numbers or there.is_logical or comes.is_logical:
        return None
    bare = there.replaced(parameters={}, optional=True, default=None)
    wider = evolve(bare, comes.replaced(parameters={}, optional=True, default=None))
    return None if wider.type is there.type else wider


def _more_digits(there: Schema, comes: Schema) -> Schema | None:
    old, new = _decimal_digits(there), _decimal_digits(comes)
    if (precision_of(comes.parameters) or MAX_PRECISION) == MAX_PRECISION:
        new = 0, new[1]  # with unknown precision, the integer digits are unknown too
    whole, scale = max(old[0], new[0]), max(old[1], new[1])
    if (whole, scale) == old or whole + scale > MAX_PRECISION:
        return None
    return Schema.decimal(scale, precision=whole + scale, optional=True)


def _decimal_digits(schema: Schema) -> tuple[int, int]:
    """Return the integer digits and the scale of a Decimal."""
    scale = scale_of(schema.parameters) or 0
    return (precision_of(schema.parameters) or MAX_PRECISION) - scale, scale


def lost_digits(database: Database, rows: RecordRows, columns: list[Column]) -> list[Refusal]:
    """Return refusals of records whose values have more digits than their columns.

    Databases round or truncate such values, most of them silently.
    """
    found = []
    for column in columns:
        field = rows.schema.field(column.name)
        if field is None:
            continue
        lost = _lost(database, column, field.schema, rows.value_sql(column.name))
        if lost is not None:
            found.append(
                Refusal(
                    condition=f"coalesce({lost}, false)",
                    problem=f"A value has more digits than the column {column.name} of type "
                    f"{column.type} can store.",
                    fix="Change the column to a type with more digits, or round the values "
                    "with a transform.",
                    field=column.name,
                )
            )
    return found


def _lost(database: Database, column: Column, schema: Schema, sql: str) -> str | None:
    """Return the condition that a value loses digits in a column; None if none can."""
    own, stated = stated_type(schema)
    if own == database.kind and stated == column.type and not _is_decimal(schema):
        return None
    if (scale := database.kept_scale(column)) is not None:
        return _lost_of_number(schema, sql, scale)
    is_timed = _is_timed(column.schema) or column.type.startswith("interval")
    if not database.cuts_seconds or not is_timed:
        return None
    digits = database.second_digits(column)
    if digits >= _MICROSECONDS:
        return None
    if schema.type is Type.STRING and not schema.is_logical:
        return _lost_of_text(sql, digits)
    if not _is_timed(schema):
        return None
    if schema.name == TIME:
        return f"{sql} % {10 ** (_MICROSECONDS - digits)} <> 0"
    return f"extract(SECOND FROM {sql}) % CAST('1E-{digits}' AS DECIMAL(7, 6)) <> 0"


def _lost_of_number(schema: Schema, sql: str, scale: int) -> str | None:
    if _is_decimal(schema) or (schema.type in WHOLE_NUMBERS and not schema.is_logical):
        if (scale_of(schema.parameters) or 0) <= scale:
            return None
        # Spark rounds in comparisons with DECIMAL(38); a remainder is exact.
        least = max(scale, 1 - MAX_PRECISION)
        unit = f"DECIMAL({abs(least) + 1}, {max(least, 0)})"
        return f"CAST({sql} % CAST('1E{-least}' AS {unit}) AS BOOLEAN)"
    if schema.is_logical:
        return None
    if schema.type is Type.STRING:
        return _lost_of_text(sql, max(scale, 0))
    return f"{sql} <> round({sql}, {scale})" if schema.type in FLOATS else None


def _lost_of_text(sql: str, digits: int) -> str:
    return f"{sql} RLIKE '[.][0-9]{{{digits}}}0*[1-9]|[0-9][eE]-'"


def _is_decimal(schema: Schema) -> bool:
    return schema.is_logical and schema.name == DECIMAL


def _is_timed(schema: Schema) -> bool:
    return schema.is_logical and schema.name in {TIME, TIMESTAMP}
