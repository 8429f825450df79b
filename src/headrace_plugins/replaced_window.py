"""The window of an offline job whose rows a sink puts in the place of those that are there."""

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
        "What the bounds of the window are: filled in by the job, for each run.",
        default=None,
        validator=NullOr(ValidString(*(kind.value for kind in kinds))),
        importance=Importance.LOW,
    )


class FilledWindowSettings(Settings, group="Window"):
    """The window of a run, which its job fills in."""

    replace_window_kind: str | None = _kind_of_window(*BoundaryKind)
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

    def window_to_replace(self, asked_by: str) -> Boundaries:
        """Return the window that a run replaces.

        ``asked_by`` is the key that asks for it. Raises ConfigError: nothing says which window
        it is, as for a connector that no job runs.
        """
        if not self.replace_window_kind:
            raise ConfigError(
                problem="Nothing says which window is replaced.",
                fix=f"Run it as an offline job, or leave {asked_by} out.",
                field=asked_by,
            )
        bounds = (self.replace_window_from or None, self.replace_window_to or None)
        return Boundaries(BoundaryKind(self.replace_window_kind), *bounds)


class ReplacementSettings(FilledWindowSettings, group="Window"):
    """Whether a run of an offline job replaces its window: a base of sinks' settings."""

    replace_window_kind: str | None = _kind_of_window(*_OF_COLUMNS)

    replace_window_column: str | None = setting(
        "For offline jobs: the column by which the target's rows are of a window, such as "
        "created_at, or one that the table is divided by. The first rows of a run take the "
        "place of those that the target has of the run's window, so that a window may be run "
        "again. A timestamp or a date for windows of times, numbers and texts for windows of "
        "values. A record that lies outside of the window is refused.",
        default=None,
        importance=Importance.HIGH,
    )
    replace_window_zone: str = setting(
        "The zone of days, and of times without a zone, in replace.window.column.",
        default="UTC",
    )

    def replaced_window(self, application: str) -> RunWindow | None:
        """Return the window that a task replaces; None for one that replaces none.

        ``application`` is what the tasks of the run are called in marks, without their numbers,
        see ``TaskContext.connector``. Raises ConfigError:
        nothing says which window it is, as for a connector that no job runs.
        """
        column = self.replace_window_column
        if not column:
            return None
        window, run = self.window_to_replace(_COLUMN), JobRun.from_application(application)
        zone = self.replace_window_zone
        return RunWindow(run.run, run.generation, run.job, run.number, column, window, zone)


def only_with(key: str, *values: str) -> Callable[[Mapping[str, Any]], Iterable[ConfigError]]:
    """Return the rule that windows are replaced with some values of a key; the default first.

    What would remove other windows' rows at each run is no such value.
    """

    def check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
        value = str(props.get(key) or values[0]).lower()
        if props.get(_COLUMN) and value not in values:
            yield ConfigError(
                problem=f"With {key} {value} rows are not replaced by windows.",
                fix=f"Leave {key} out, or {_COLUMN}.",
                field=_COLUMN,
            )

    return check


def with_window(config: Config, boundaries: Boundaries) -> dict[str, str]:
    """Return a configuration that replaces rows by a column, with the window of a run.

    One that does not is returned as it is; see ``fill_in_boundaries``.
    """
    if not config.originals.get(_COLUMN):
        return {**config.originals}
    if boundaries.kind not in _OF_COLUMNS:
        raise ConfigError(
            problem=f"A window of kind {boundaries.kind} says nothing of a column's values.",
            fix=f"Leave {_COLUMN} out, or give the job boundaries of times or values.",
            field=_COLUMN,
        )
    return filled_window(config, boundaries, _COLUMN)


def filled_window(config: Config, boundaries: Boundaries, asked_by: str) -> dict[str, str]:
    """Return a configuration with the window of a run, for which a key asks."""
    if boundaries.lower is None and boundaries.upper is None:
        raise ConfigError(
            problem="A job that is in real time from its beginning has no window, and so no "
            "rows to replace.",
            fix=f"Leave {asked_by} out, or set mode to offline.",
            field=asked_by,
        )
    lower, upper = boundaries.lower or "", boundaries.upper or ""
    return {**config.originals, _KIND: boundaries.kind.value, _FROM: lower, _TO: upper}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of an offline job, as its tasks are called in marks.

    Args:
        run: Names the run, however often it is begun from its beginning.
        generation: How often it was, which marks hold too. What is left of an earlier one must
            not commit beside a later one (Guarantee 3).
        job: The name of its job.
        number: Its number in the job.
    """

    run: str
    generation: int
    job: str
    number: int

    @classmethod
    def from_application(cls, application: str) -> JobRun:
        """Read what tasks are called in marks, without their numbers."""
        if named := _RUN.fullmatch(application):
            run = f"{named['run']}{named['id']}"
            generation, number = int(named["generation"]), int(named["number"])
            return cls(run, generation, named["job"], number)
        return cls(application, 1, application, 0)

    def is_replaced(self, held: int | None) -> bool:
        """Return whether rows that were there before the run are gone, by the mark's number.

        Raises StaleEpochError: the run was begun anew since, and its window is another's.
        """
        if held is not None:
            self.require_newest(held)
        return held == self.generation

    def require_newest(self, generation: int) -> None:
        """Raise StaleEpochError if the run has come to a later generation."""
        if generation > self.generation:
            raise StaleEpochError(
                problem="The run was begun again from its beginning, and what an attempt of "
                "before that has left to write does not count any more.",
                fix="Nothing has to be done: the newer attempt writes the whole window.",
            )


@dataclass(frozen=True, slots=True)
class RunWindow(JobRun):
    """The window of a run, by a column.

    Whoever of the run's tasks keeps its mark first in a table has removed the rows that were
    there before.

    Args:
        column: The column that says which rows are of it.
        zone: Where the clock is that times without a zone show.
    """

    column: str
    boundaries: Boundaries
    zone: str

    def named(self, names: Iterable[str]) -> str:
        """Return the column as it is called among names; as it is configured if it is none."""
        return next((n for n in names if n.lower() == self.column.lower()), self.column)

    def of(self, columns: Mapping[str, Schema], title: str) -> ColumnWindow:
        """Return the window of columns. Raises ConfigError: they have none such."""
        name, rows = self.named(columns), Schema.struct(columns)
        return column_window(self.boundaries, name, rows, self.zone, title, "replace.")


@dataclass(frozen=True, slots=True)
class WindowedRecords:
    """Records that are to lie in a window.

    When the window is run again, those outside would not be replaced, and be there twice.

    Args:
        sql: The column of the window in Spark's SQL.
    """

    sql: str
    window: ColumnWindow

    @property
    def refusal(self) -> Refusal:
        """The condition for records that are outside."""
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
        """Write the rows of a part past Spark. Raises RecordError if one may be outside."""
        return write(number, map(self._checked, rows))

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        with suppress(pa.ArrowException):  # what Arrow cannot compare is left to Spark
            if self.window.rows(rows).num_rows == rows.num_rows:
                return rows
        raise RecordError(_OUTSIDE, fix=_FIX, field=self.window.column)


_OUTSIDE = "A record lies outside of the window that the run replaces."
_FIX = "Name in replace.window.column what the source's windows are cut by."
