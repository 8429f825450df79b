"""Windows of times or column values: those that a source reads, and those that a sink replaces.

Defines the settings shared by all sources that support boundaries, and those of the sinks that
replace the rows of the window of an offline job's run.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import Boundaries, BoundaryKind, ConfigError, RecordError, Refusal, Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.config import Importance, NullOr, Rule, Settings, ValidString, setting
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIMESTAMP,
    WHOLE_NUMBERS,
    Type,
    decimal_parameters,
    scale_of,
)
from headrace.sdk.sqltext import sql_value

if TYPE_CHECKING:
    from headrace.sdk.config import Config


_KEYS = {"lower": "window.from", "upper": "window.to"}
_FOLLOW = "window.follow"


def valid_window(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    """Yield the errors in the bounds: a rule of settings."""
    try:
        kind = BoundaryKind(props.get("window.kind") or BoundaryKind.TIME)
        Boundaries(kind, *(props.get(key) or None for key in _KEYS.values()))
    except ConfigError as error:
        key = _KEYS[str(error.field).rpartition(".")[2]]
        yield ConfigError(error.problem, fix=error.fix, field=key)
    except ValueError:
        pass  # the validator of window.kind reports it
    if str(props.get(_FOLLOW)).lower() == "true" and props.get("window.to"):
        problem = "window.follow cannot be used with window.to."
        yield ConfigError(problem, fix="Remove window.to.", field=_FOLLOW)


def kind_of_window(*kinds: str) -> Any:
    """Return the setting window.kind."""
    return setting(
        "The kind of window.from and window.to: times with a zone, such as "
        "2026-01-31T00:00:00Z, or values of window.column. A source with this key or a bound "
        "ends when it has read the data in the window, unless window.follow is true. time if "
        "null.",
        default=None,
        validator=NullOr(ValidString(*kinds)),
        group="Window",
    )


class BoundSettings(Settings, group="Window"):
    """The bounds of the input that a source reads."""

    rules: ClassVar[tuple[Rule, ...]] = (valid_window,)

    window_kind: str | None = kind_of_window("time", "value")
    window_from: str | None = setting(
        "Lower bound, inclusive. From the beginning if null.", default=None
    )
    window_to: str | None = setting(
        "Upper bound, exclusive. All existing data if null.", default=None
    )

    @property
    def window(self) -> Boundaries | None:
        """The window; None if the source reads everything and then new data."""
        if not (self.window_kind or self.window_from or self.window_to):
            return None
        kind = BoundaryKind(self.window_kind or BoundaryKind.TIME)
        return Boundaries(kind, self.window_from or None, self.window_to or None)


class WindowSettings(BoundSettings, group="Window"):
    """The part of its input that a source reads, and the column that bounds it."""

    window_column: str | None = setting(
        "The column that decides whether a row is in the window. A row with a null in it is in "
        "no window. A local time that occurs twice, at the end of daylight saving time, counts "
        "as the later one.",
        default=None,
    )

    window_follow: bool = setting(
        "Whether to go on with new data after the window, without an end.", default=False
    )

    @property
    def ends(self) -> bool:
        """Whether the source ends once it has read the data in its window."""
        return self.window is not None and not self.window_follow

    def column_window(self, rows: Schema, zone: str, title: str) -> ColumnWindow | None:
        """Return the window in window.column of the rows; None without a window.

        Args:
            rows: The schema of the rows.
            zone: The time zone of local times.
            title: The table or query, for errors.

        Raises ConfigError if the column is missing or its type has no order.
        """
        window, name = self.window, self.window_column
        if window is None or name is None or window.kind is BoundaryKind.SNAPSHOT:
            return None
        return column_window(window, name, rows, zone, title)


def column_window(  # noqa: PLR0917 - the settings and what they apply to
    window: Boundaries, name: str, rows: Schema, zone: str, title: str, prefix: str = ""
) -> ColumnWindow:
    """Return a window of a column; see ``WindowSettings.column_window``.

    ``prefix`` is the prefix of the window's keys, for errors.
    """
    fields = {field.name: field.schema for field in rows.fields}
    schema = fields.get(name)
    if schema is None:
        near = next((each for each in fields if each.lower() == name.lower()), None)
        raise ConfigError(
            problem=f"{title} has no column {name}.",
            fix=f"Did you mean {near}?"
            if near
            else f"Use one of: {', '.join(fields) or 'none'}.",
            field=f"{prefix}window.column",
        )
    _require_ordered(window.kind, name, schema, f"{prefix}window.column")
    bounds: list[Any] = []
    for key, text in zip(_KEYS.values(), (window.lower, window.upper), strict=True):
        is_time = window.kind is BoundaryKind.TIME
        try:
            found = None if text is None else _bound(text, schema, zone, is_time=is_time)
        except (ValueError, OverflowError, InvalidOperation) as error:
            raise ConfigError(
                problem=f"Invalid value {text!r} for the column {name}.",
                fix="Write a value of the column's type, such as 17 or 2026-01-31.",
                field=f"{prefix}{key}",
            ) from error
        bounds.append(found)
    return ColumnWindow(name, _widest(schema), *bounds)


WINDOW_KEYS = tuple(key for key in WindowSettings.config_def().keys if key != _FOLLOW)
"""The keys that decide which rows are in a window."""


def filled_in(
    config: Config, boundaries: Boundaries, *without: str, **more: str | None
) -> dict[str, str]:
    """Return the configuration with a window, without the keys ``without``, plus ``more``.

    ``_`` in the names of ``more`` stands for a dot.
    """
    bounds = {
        "window.kind": boundaries.kind.value,
        "window.from": boundaries.lower,
        "window.to": boundaries.upper,
    }
    bounds |= {key.replace("_", "."): text for key, text in more.items()}
    kept = {key: text for key, text in config.originals.items() if key not in without}
    kept = {key: text for key, text in kept.items() if key not in bounds}
    return kept | {key: text for key, text in bounds.items() if text is not None}


def followed(filled: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration with window.follow=true."""
    return {**filled, _FOLLOW: "true"}


def require_column(kind: BoundaryKind, column: str | None) -> None:
    """Raise ConfigError if bounds of a kind have no column."""
    if not column:
        raise ConfigError(
            problem=f"Bounds of kind {kind} require window.column.",
            fix="Set window.column to the column whose values are bounded.",
            field="window.column",
        )


@dataclass(frozen=True, slots=True)
class ColumnWindow:
    """The rows with ``lower`` <= value < ``upper`` in a column.

    Bounds have the column's type; local times are represented as if in UTC. Pickled.
    """

    column: str
    schema: Schema
    """The type of the bounds."""
    lower: Any = None
    upper: Any = None

    @property
    def comparisons(self) -> Iterator[tuple[str, Any]]:
        """The operators and bounds of the condition; without bounds the value is not null."""
        if self.lower is not None:
            yield ">=", self.lower
        if self.upper is not None:
            yield "<", self.upper

    def sql(self, column: str) -> str:
        """Return the condition in Spark SQL."""
        parts = [
            f"{column} {sign} {sql_value(self.schema, bound)}"
            for sign, bound in self.comparisons
        ]
        return " AND ".join(parts) or f"{column} IS NOT NULL"

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are in the window."""
        return batch.filter(self.holds(batch))

    def holds(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a mask of the rows in the window; false for a null value."""
        values, kind = batch.column(self.column), to_arrow_type(self.schema)
        held = values.is_valid()
        for sign, bound in self.comparisons:
            compare = pc.greater_equal if sign == ">=" else pc.less
            held = pc.and_kleene(held, compare(values, pa.scalar(bound, kind)))
        return pc.fill_null(held, fill_value=False)


def _widest(schema: Schema) -> Schema:
    """Return the type of a column's bounds, which may be wider than the column's type."""
    if schema.is_logical and schema.name == DECIMAL:
        digits = decimal_parameters(scale_of(schema.parameters) or 0, MAX_PRECISION)
        return schema.replaced(parameters=digits)
    return Schema.int64() if schema.type in WHOLE_NUMBERS and not schema.is_logical else schema


def _require_ordered(kind: BoundaryKind, name: str, schema: Schema, key: str) -> None:
    """Raise ConfigError if a column's type does not support bounds of a kind."""
    logical = schema.name if schema.is_logical else None
    ordered: set[object] = {DATE, TIMESTAMP}
    if kind is BoundaryKind.VALUE:
        ordered |= {DECIMAL, Type.STRING, *WHOLE_NUMBERS}
    if (logical or schema.type) not in ordered:
        what = logical.rpartition(".")[2] if logical else schema.type.value
        fix = "Name a column of integers, decimals, strings, dates or timestamps."
        if kind is BoundaryKind.TIME:
            fix = "Name a date or timestamp column; declare its type if it is read as a string."
        raise ConfigError(
            problem=f"The column {name} has type {what}, which has no bounds of kind {kind}.",
            fix=fix,
            field=key,
        )


def _bound(text: str, schema: Schema, zone: str, *, is_time: bool) -> Any:
    """Parse a bound as the column's type. Raises Python's errors for an invalid value."""
    match schema.name if schema.is_logical else schema.type:
        case name if name == TIMESTAMP:
            return _time(datetime.fromisoformat(text), zone, is_local=schema.is_local)
        case name if name == DATE and is_time:
            local = clock_at(datetime.fromisoformat(text), zone_named(zone))
            # A date stands for the start of the day.
            return local.date() + timedelta(days=local.time() > local.min.time())
        case name if name == DATE:
            return date.fromisoformat(text)
        case name if name == DECIMAL:
            number, scale = Decimal(text), scale_of(schema.parameters)
            if not number.is_finite():
                raise InvalidOperation
            step = number if scale is None else Decimal(1).scaleb(-scale)
            # Round up to the column's scale: no column value lies in between.
            return number.quantize(step, ROUND_CEILING, Context(prec=MAX_PRECISION))
        case Type.STRING:
            return text
    whole = int(text)
    if not -(2**63) <= whole < 2**63:
        raise OverflowError
    return whole


def _time(at: datetime, zone: str, *, is_local: bool) -> datetime:
    if is_local:
        shown = at if at.tzinfo is None else clock_at(at, zone_named(zone))
        return shown.replace(tzinfo=UTC)
    return (at if at.tzinfo else at.replace(tzinfo=zone_named(zone))).astimezone(UTC)


def zone_named(name: str) -> ZoneInfo:
    """Return a time zone. Raises ConfigError."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ConfigError(
            problem=f"Unknown time zone {name!r} for the times of the window.",
            fix="Use an IANA time zone, such as UTC or Europe/Berlin.",
        ) from None


def clock_at(at: datetime, zone: tzinfo) -> datetime:
    """Return the smallest local time that a zone's clock shows at an instant or later.

    The result never decreases for later instants, so windows divide local times into disjoint
    parts, and no local time of a past window occurs again.
    """
    local = at.astimezone(zone)
    again = local.replace(fold=1)
    offsets = [each.utcoffset() or timedelta() for each in (local, again)]
    seconds = int((offsets[0] - offsets[1]).total_seconds())
    if seconds > 0:  # the clock will be set back and show this time again
        begin = at.replace(microsecond=0)

        def is_back(later: int) -> bool:
            return bool((begin + timedelta(seconds=later)).astimezone(zone).fold)

        back = bisect_left(range(seconds), True, key=is_back)  # noqa: FBT003
        local = (begin + timedelta(seconds=back)).astimezone(zone)
    return local.replace(tzinfo=None, fold=0)


_FIELDS = {"Y": "[0-9]{4}", **dict.fromkeys("mdHMS", "[0-9]{2}")}
_PARTS = re.compile(r"%(.)|([^%]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NameTime:
    """Finds the time in a path, by a format of ``strptime`` directives."""

    text: str
    pattern: re.Pattern[str]
    """Matches what the format describes, with all its digits."""

    @classmethod
    def of(cls, text: str) -> NameTime:
        """Parse a format. Raises ConfigError."""
        found = list(_PARTS.finditer(text))
        fields = [each[1] for each in found if each[1] and each[1] != "%"]
        is_whole = sum(len(each[0]) for each in found) == len(text)
        unique = len(set(fields)) == len(fields) and set(fields) <= set(_FIELDS)
        if not (is_whole and unique and "Y" in fields):
            raise ConfigError(
                problem=f"Invalid format {text!r} for times in names.",
                fix="Use %Y, which is required, and %m, %d, %H, %M, %S, each at most once, as "
                "in %Y-%m-%d or dt=%Y%m%d/hour=%H.",
                field="window.name.format",
            )
        regex = "".join(
            _FIELDS[each[1]] if each[1] in _FIELDS else re.escape(each[2] or "%")
            for each in found
        )
        before = r"(?<!\d)" if text.startswith("%") else ""
        return cls(text, re.compile(rf"{before}{regex}(?!\d)"))

    def time(self, path: str) -> datetime | None:
        """Return the last time in a path, without a zone; None if there is none."""
        for found in reversed(list(self.pattern.finditer(path))):
            try:
                return datetime.strptime(found[0], self.text)  # noqa: DTZ007
            except ValueError:
                continue
        return None


_COLUMN, _KIND = "replace.window.column", "replace.window.kind"
_FROM, _TO = "replace.window.from", "replace.window.to"
_RUN = re.compile(r"(?P<run>(?P<job>.+)@(?P<number>\d+))\.(?P<generation>\d+)(?P<id>-\w+)")
_OF_COLUMNS = (BoundaryKind.TIME, BoundaryKind.VALUE)


def _kind_to_replace(*kinds: BoundaryKind) -> Any:
    return setting(
        "The kind of the window's bounds. The job sets it for each run.",
        default=None,
        validator=NullOr(ValidString(*(kind.value for kind in kinds))),
        importance=Importance.LOW,
    )


class FilledWindowSettings(Settings, group="Window"):
    """The window of a run, set by its job."""

    replace_window_kind: str | None = _kind_to_replace(*BoundaryKind)
    replace_window_from: str | None = setting(
        "Start of the window, inclusive. The job sets it for each run.",
        default=None,
        importance=Importance.LOW,
    )
    replace_window_to: str | None = setting(
        "End of the window, exclusive. The job sets it for each run.",
        default=None,
        importance=Importance.LOW,
    )

    def window_to_replace(self, asked_by: str) -> Boundaries:
        """Return the window that a run replaces.

        ``asked_by`` is the key that requires a window. Raises ConfigError if no window is set,
        which is the case for a connector outside a job.
        """
        if not self.replace_window_kind:
            raise ConfigError(
                problem="The window to replace is not set.",
                fix=f"Run the connector in an offline job, or remove {asked_by}.",
                field=asked_by,
            )
        bounds = (self.replace_window_from or None, self.replace_window_to or None)
        return Boundaries(BoundaryKind(self.replace_window_kind), *bounds)


class ReplacementSettings(FilledWindowSettings, group="Window"):
    """Whether a run of an offline job replaces its window: base class for sink settings."""

    replace_window_kind: str | None = _kind_to_replace(*_OF_COLUMNS)

    replace_window_column: str | None = setting(
        "For offline jobs: the column that decides which rows of the target are in a window, "
        "such as created_at or a partition column. The first write of a run replaces the "
        "target's rows in the run's window, so a window can be run again. Use a timestamp or "
        "a date for windows of times, a number or a string for windows of values. A record "
        "outside the window is refused.",
        default=None,
        importance=Importance.HIGH,
    )
    replace_window_zone: str = setting(
        "Time zone of dates and local timestamps in replace.window.column.",
        default="UTC",
    )

    def replaced_window(self, application: str) -> RunWindow | None:
        """Return the window that a task replaces; None if replacement is not configured.

        ``application`` is the application id of the run's tasks in marks, without the task
        number, see ``TaskContext.connector``. Raises ConfigError if no window is set, which is
        the case for a connector outside a job.
        """
        column = self.replace_window_column
        if not column:
            return None
        window, run = self.window_to_replace(_COLUMN), JobRun.from_application(application)
        zone = self.replace_window_zone
        return RunWindow(run.run, run.generation, run.job, run.number, column, window, zone)


def only_with(key: str, *values: str) -> Callable[[Mapping[str, Any]], Iterable[ConfigError]]:
    """Return the rule that allows window replacement only with these values of ``key``.

    The default value comes first. Other values would delete rows of other windows at each run.
    """

    def check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
        value = str(props.get(key) or values[0]).lower()
        if props.get(_COLUMN) and value not in values:
            yield ConfigError(
                problem=f"{_COLUMN} cannot be used with {key}={value}.",
                fix=f"Remove {key} or {_COLUMN}.",
                field=_COLUMN,
            )

    return check


def with_window(config: Config, boundaries: Boundaries) -> dict[str, str]:
    """Return the configuration with the window of a run; see ``fill_in_boundaries``.

    A configuration without ``replace.window.column`` is returned unchanged.
    """
    if not config.originals.get(_COLUMN):
        return {**config.originals}
    if boundaries.kind not in _OF_COLUMNS:
        raise ConfigError(
            problem=f"A window of kind {boundaries.kind} cannot be applied to a column.",
            fix=f"Remove {_COLUMN}, or set boundaries of times or values in the job.",
            field=_COLUMN,
        )
    return filled_window(config, boundaries, _COLUMN)


def filled_window(config: Config, boundaries: Boundaries, asked_by: str) -> dict[str, str]:
    """Return the configuration with the window of a run; ``asked_by`` is for errors."""
    if boundaries.lower is None and boundaries.upper is None:
        raise ConfigError(
            problem="A job that starts in real time has no window to replace.",
            fix=f"Remove {asked_by}, or set mode to offline.",
            field=asked_by,
        )
    lower, upper = boundaries.lower or "", boundaries.upper or ""
    return {**config.originals, _KIND: boundaries.kind.value, _FROM: lower, _TO: upper}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of an offline job, parsed from the application id in the commit marks.

    Args:
        run: Identifies the run; the same after a restart from the beginning.
        generation: How many times the run was started from the beginning. Also stored in
            marks: a leftover attempt of an older generation must not commit (Guarantee 3).
        job: The name of the job.
        number: The number of the run in the job.
    """

    run: str
    generation: int
    job: str
    number: int

    @classmethod
    def from_application(cls, application: str) -> JobRun:
        """Parse an application id in marks, without the task number."""
        if named := _RUN.fullmatch(application):
            run = f"{named['run']}{named['id']}"
            generation, number = int(named["generation"]), int(named["number"])
            return cls(run, generation, named["job"], number)
        return cls(application, 1, application, 0)

    def is_replaced(self, held: int | None) -> bool:
        """Return whether the rows from before this run are already deleted.

        ``held`` is the generation in the mark. Raises StaleEpochError if it is a newer one:
        the run was restarted from the beginning.
        """
        if held is not None:
            self.require_newest(held)
        return held == self.generation

    def require_newest(self, generation: int) -> None:
        """Raise StaleEpochError if the run has a newer generation."""
        if generation > self.generation:
            raise StaleEpochError(
                problem="The run was restarted from the beginning; this attempt is of an older "
                "generation and must not write.",
                fix="No action needed: the newer attempt writes the whole window.",
            )


@dataclass(frozen=True, slots=True)
class RunWindow(JobRun):
    """The window of a run in a column of the target.

    The first task of the run to commit its mark in a table also deletes the old rows.

    Args:
        column: The column that decides which rows are in the window.
        zone: The time zone of local times.
    """

    column: str
    boundaries: Boundaries
    zone: str

    def named(self, names: Iterable[str]) -> str:
        """Return the spelling of the column in ``names``; as configured if it is missing."""
        return next((n for n in names if n.lower() == self.column.lower()), self.column)

    def of(self, columns: Mapping[str, Schema], title: str) -> ColumnWindow:
        """Return the window for these columns. Raises ConfigError if the column is missing."""
        name, rows = self.named(columns), Schema.struct(columns)
        return column_window(self.boundaries, name, rows, self.zone, title, "replace.")


@dataclass(frozen=True, slots=True)
class WindowedRecords:
    """Checks that records lie in a window.

    A rerun of the window would not replace records outside it, and so duplicate them.

    Args:
        sql: Spark SQL of the window's column.
    """

    sql: str
    window: ColumnWindow

    @property
    def refusal(self) -> Refusal:
        """The refusal of records outside the window."""
        found = f"coalesce({self.window.sql(self.sql)}, false)"
        return Refusal(
            condition=f"(value IS NOT NULL AND NOT {found})",
            problem=_OUTSIDE,
            fix=_FIX,
            field=self.window.column,
        )

    def written(
        self,
        write: Callable[[int, Iterator[pa.RecordBatch]], str | None],
        number: int,
        rows: Iterator[pa.RecordBatch],
    ) -> str | None:
        """Write a part without Spark SQL. Raises RecordError if a row may be outside."""
        return write(number, map(self._checked, rows))

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        with suppress(pa.ArrowException):  # Arrow cannot compare the values: use Spark
            if self.window.rows(rows).num_rows == rows.num_rows:
                return rows
        raise RecordError(_OUTSIDE, fix=_FIX, field=self.window.column)


_OUTSIDE = "A record lies outside the window that the run replaces."
_FIX = "Set replace.window.column to the column that bounds the source's windows."
