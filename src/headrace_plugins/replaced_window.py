"""The window of an offline job whose rows a sink puts in the place of those that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import BoundaryKind, ConfigError, RecordError, Refusal, Schema, Type
from headrace.sdk.config import Importance, NullOr, Settings, ValidString, setting
from headrace.sdk.schema import DATE, DECIMAL, FLOATS, TIMESTAMP, WHOLE_NUMBERS
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from headrace.sdk import Boundaries
    from headrace.sdk.config import Config

_COLUMN, _KIND = "replace.window.column", "replace.window.kind"
_FROM, _TO = "replace.window.from", "replace.window.to"
_KINDS = (BoundaryKind.TIME, BoundaryKind.VALUE)

Bounds: TypeAlias = tuple[Any, Any]
"""The first value of a window, and the first behind it; None for no end."""


class ReplacedWindowSettings(Settings, group="Windows"):
    """Whether a run of an offline job replaces its window: a base of sinks' settings."""

    replace_window_column: str | None = setting(
        "For offline jobs: the column by which the target's rows are of a window, such as "
        "created_at, or one that the table is divided by. The first rows of a run take the "
        "place of those that the target has of the run's window, so that a window may be run "
        "again. A timestamp or a date for windows of times, numbers and texts for windows of "
        "values. A record that lies outside of the window is refused.",
        default=None,
        importance=Importance.HIGH,
    )
    replace_window_kind: str | None = setting(
        "What the bounds of the window are: filled in by the job, for each run.",
        default=None,
        validator=NullOr(ValidString(*(kind.value for kind in _KINDS))),
        importance=Importance.LOW,
    )
    replace_window_from: str | None = setting(
        "Where the window begins: filled in by the job, for each run.",
        default=None,
        importance=Importance.LOW,
    )
    replace_window_to: str | None = setting(
        "Where the window ends, the first that is not part of it: filled in by the job, for "
        "each run.",
        default=None,
        importance=Importance.LOW,
    )

    def replaced_window(self, application: str) -> Window | None:
        """Return the window that a task replaces; None for one that replaces none.

        ``application`` is what the tasks of the run have in common. Raises ConfigError:
        nothing says which window it is, as for a connector that no job runs.
        """
        column, kind = self.replace_window_column, self.replace_window_kind
        if not column:
            return None
        if not kind:
            raise ConfigError(
                problem="Nothing says which window is replaced.",
                fix="Run it as an offline job, or leave replace.window.column out.",
                field=_COLUMN,
            )
        bounds = (self.replace_window_from or None, self.replace_window_to or None)
        return Window(application, column, BoundaryKind(kind), *bounds)


def only_in_mode(key: str, mode: str) -> Callable[[Mapping[str, Any]], Iterable[ConfigError]]:
    """Return the rule that windows are replaced in one mode of a sink only, its default."""

    def check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
        if props.get(_COLUMN) and str(props.get(key) or mode).lower() != mode:
            yield ConfigError(
                problem=f"With {key} {props[key]} rows are not replaced by windows.",
                fix=f"Leave {key} out, or {_COLUMN}.",
                field=_COLUMN,
            )

    return check


def with_window(config: Config, boundaries: Boundaries) -> dict[str, str]:
    """Return a configuration with the window of a run; see ``fill_in_boundaries``."""
    filled = {**config.originals}
    if not filled.get(_COLUMN):
        return filled
    if boundaries.kind not in _KINDS:
        raise ConfigError(
            problem=f"A window of kind {boundaries.kind} says nothing of a column's values.",
            fix=f"Leave {_COLUMN} out, or give the job boundaries of times or values.",
            field=_COLUMN,
        )
    lower, upper = boundaries.lower or "", boundaries.upper or ""
    return {**filled, _KIND: boundaries.kind.value, _FROM: lower, _TO: upper}


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a run.

    Args:
        application: Names the run in marks: whoever of its tasks keeps it first in a table has
            removed the rows that were there before.
        column: The column that says which rows are of it.
    """

    application: str
    column: str
    kind: BoundaryKind
    lower: str | None
    upper: str | None

    def named(self, names: Iterable[str], title: str) -> str:
        """Return the column's name among those of a table, or of records.

        Raises ConfigError: there is none.
        """
        for name in names:
            if name.lower() == self.column.lower():
                return name
        raise ConfigError(
            problem=f"{title} has no column {self.column}, by which rows are of a window.",
            fix="Name a column that the records have a field for.",
            field=_COLUMN,
        )

    def bounds(self, schema: Schema) -> Bounds:
        """Return the window as values of a column. Raises ConfigError: it has none such."""
        return self._value(self.lower, schema), self._value(self.upper, schema)

    def _value(self, text: str | None, schema: Schema) -> Any:
        if text is None:
            return None
        kind = schema.name if schema.is_logical else None
        try:
            if kind in (TIMESTAMP, DATE):
                return _moment(text, schema)
            if self.kind is BoundaryKind.VALUE:
                if kind is None and schema.type in WHOLE_NUMBERS:
                    return int(text)
                if kind == DECIMAL or (kind is None and schema.type in FLOATS):
                    return Decimal(text) if kind == DECIMAL else float(text)
                if kind is None and schema.type is Type.STRING:
                    return text
        except (ValueError, InvalidOperation) as error:
            raise ConfigError(
                problem=f"The window's bound {text} is no value of the column {self.column}.",
                fix="Name another column, or give other boundaries.",
                field=_COLUMN,
            ) from error
        raise ConfigError(
            problem=f"The column {self.column} has no values that bounds of kind {self.kind} "
            "can be compared to.",
            fix="Name a timestamp or a date for times, or a number or a text for values.",
            field=_COLUMN,
        )


@dataclass(frozen=True, slots=True)
class WindowColumn:
    """The column of records that are to lie in a window.

    When the window is run again, one outside would not be replaced, and be there twice.

    Args:
        name: What Arrow's rows call it.
        sql: What Spark's do.
    """

    name: str
    sql: str
    bounds: Bounds

    @property
    def refusal(self) -> Refusal:
        """The condition for records that are outside."""
        found = between(self.sql, self.bounds, spark_literal)
        return Refusal(
            condition=f"(value IS NOT NULL AND NOT {found})",
            problem=_OUTSIDE,
            fix=_FIX,
            field=self.name,
        )

    def written(
        self,
        write: Callable[[int, Iterator[pa.RecordBatch]], str | None],
        number: int,
        rows: Iterator[pa.RecordBatch],
    ) -> str | None:
        """Write the rows of a part. Raises RecordError for one that is outside."""
        return write(number, map(self._checked, rows))

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if pc.all(inside(rows.column(self.name), self.bounds)).as_py() is False:
            raise RecordError(_OUTSIDE, fix=_FIX, field=self.name)
        return rows


_OUTSIDE = "A record lies outside of the window that the run replaces."
_FIX = "Name in replace.window.column what the source's windows are cut by."


def _moment(text: str, schema: Schema) -> datetime | date:
    found = datetime.fromisoformat(text)
    found = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    if schema.name == DATE:
        if found.time() != time():
            raise ConfigError(
                problem=f"The window's bound {text} divides a day, and the column has days.",
                fix="Name a column of timestamps, or let windows be days of the zone UTC.",
                field=_COLUMN,
            )
        return found.date()
    return found.replace(tzinfo=None) if schema.is_local else found


def between(sql: str, bounds: Bounds, written: Callable[[Any], str]) -> str:
    """Return the condition in SQL that a value lies between bounds; it is never null."""
    tests = [f"{sql} IS NOT NULL"]
    for sign, bound in zip((">=", "<"), bounds, strict=True):
        if bound is not None:
            tests.append(f"{sql} {sign} {written(bound)}")
    return f"({' AND '.join(tests)})"


def spark_literal(value: Any) -> str:
    """Return a bound as Spark's SQL."""
    match value:
        case datetime():  # in frames a time without a zone is of UTC
            return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}+00:00'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case _:
            return literal(value)


def inside(values: pa.Array, bounds: Bounds) -> pa.Array:
    """Return for each value of a column whether it lies between bounds; a null does not."""
    found = pc.is_valid(values)
    for compare, bound in zip((pc.greater_equal, pc.less), bounds, strict=True):
        if bound is not None:
            is_time = pa.types.is_timestamp(values.type)
            other = pa.scalar(bound, values.type) if is_time else pa.scalar(bound)
            found = pc.and_(found, pc.fill_null(compare(values, other), fill_value=False))
    return found
