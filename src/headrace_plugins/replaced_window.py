"""The window of an offline job's run, whose rows in the target a sink replaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.sdk import Boundaries, BoundaryKind, ConfigError, RecordError, Refusal, Schema
from headrace.sdk.config import Importance, NullOr, Settings, ValidString, setting
from headrace.sdk.errors import StaleEpochError
from headrace_plugins.window import column_window

if TYPE_CHECKING:
    from headrace.sdk.config import Config
    from headrace_plugins.window import ColumnWindow

_COLUMN, _KIND = "replace.window.column", "replace.window.kind"
_FROM, _TO = "replace.window.from", "replace.window.to"
_RUN = re.compile(r"(?P<run>(?P<job>.+)@(?P<number>\d+))\.(?P<generation>\d+)(?P<id>-\w+)")
_OF_COLUMNS = (BoundaryKind.TIME, BoundaryKind.VALUE)


def _kind_of_window(*kinds: BoundaryKind) -> Any:
    return setting(
        "The kind of the window's bounds. The job sets it for each run.",
        default=None,
        validator=NullOr(ValidString(*(kind.value for kind in kinds))),
        importance=Importance.LOW,
    )


class FilledWindowSettings(Settings, group="Window"):
    """The window of a run, set by its job."""

    replace_window_kind: str | None = _kind_of_window(*BoundaryKind)
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

    replace_window_kind: str | None = _kind_of_window(*_OF_COLUMNS)

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
