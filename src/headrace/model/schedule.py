"""When a job runs, and over which windows of time.

A schedule cuts time at its ticks, from its start on. A window is the time between two cuts,
with an inclusive lower and an exclusive upper bound. So windows cover time without gaps or
overlaps, and depend only on the schedule, not on the clock (Guarantee 5).
"""

from __future__ import annotations

import calendar
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from typing_extensions import override

from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_LATEST = datetime.max.replace(tzinfo=UTC)
_LAST_YEAR = _LATEST.year
_MOST_WINDOWS = 100_000
"""The maximum number of windows in a range."""


class Unit(Enum):
    """The unit of an interval."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


_LENGTHS = {
    Unit.SECOND: timedelta(seconds=1),
    Unit.MINUTE: timedelta(minutes=1),
    Unit.HOUR: timedelta(hours=1),
}
"""Units of fixed length; the others are calendar units, in the schedule's time zone."""
_DAYS = {Unit.DAY: 1, Unit.WEEK: 7}
_MONTHS = {Unit.MONTH: 1, Unit.YEAR: 12}


class Rhythm(ABC):
    """The rule for a schedule's ticks."""

    @abstractmethod
    def ticks(self, start: datetime, after: datetime) -> Iterator[datetime]:
        """Yield the ticks after a time, each later than the one before.

        Args:
            start: When the schedule starts, in its time zone.
            after: A time that is not before the start.
        """


@dataclass(frozen=True, slots=True)
class Interval(Rhythm):
    """A tick every ``amount`` units from the start on.

    Days, weeks, months and years are calendar units: a daily tick keeps its time of day across
    daylight saving changes, and the 31st becomes the last day of a shorter month. A time of day
    that is skipped moves later by the length of the gap; of a repeated time of day, the first
    is used.
    """

    amount: int
    unit: Unit

    def __post_init__(self) -> None:
        """Raise ConfigError for an amount that is not positive."""
        if self.amount < 1:
            raise ConfigError(
                problem=f"Invalid interval {self.amount}.",
                fix="Set it to 1 or more.",
                field="schedule.interval",
            )

    @property
    def length(self) -> timedelta | None:
        """Return the interval's length; None for calendar units."""
        length = _LENGTHS.get(self.unit)
        return None if length is None else self.amount * length

    @override
    def ticks(self, start: datetime, after: datetime) -> Iterator[datetime]:
        if (step := self.length) is not None:
            first = (after - start) // step + 1
            yield from _within(lambda number: start.astimezone(UTC) + number * step, first)
            return
        first = max(0, self._passed(start, after) // self.amount - 1)
        for tick in _within(lambda number: self._of_calendar(start, number), first):
            if tick > after:
                yield tick

    def _passed(self, start: datetime, after: datetime) -> int:
        """Return the approximate number of units between two times."""
        local = after.astimezone(start.tzinfo)
        if self.unit in _DAYS:
            return (local.date() - start.date()).days // _DAYS[self.unit]
        months = (local.year - start.year) * 12 + local.month - start.month
        return months // _MONTHS[self.unit]

    def _of_calendar(self, start: datetime, number: int) -> datetime:
        steps = number * self.amount
        if self.unit in _DAYS:
            local = start.replace(tzinfo=None) + timedelta(days=steps * _DAYS[self.unit])
        else:
            year, month = divmod(start.month - 1 + steps * _MONTHS[self.unit], 12)
            year += start.year
            if year > _LAST_YEAR:
                raise OverflowError
            day = min(start.day, calendar.monthrange(year, month + 1)[1])
            local = start.replace(year=year, month=month + 1, day=day, tzinfo=None)
        return local.replace(tzinfo=start.tzinfo).astimezone(UTC)


def _within(tick: Callable[[int], datetime], first: int) -> Iterator[datetime]:
    """Yield numbered ticks up to the largest datetime."""
    for number in count(first):
        try:
            yield tick(number)
        except (OverflowError, ValueError):
            return


@dataclass(frozen=True, slots=True)
class Cron(Rhythm):
    """A cron expression of five fields, or of six with seconds first.

    Times of day that daylight saving skips or repeats are handled as in Debian's cron.
    """

    expression: str

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid expression."""
        try:
            next(CronSim(self.expression, datetime(2000, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as error:
            raise ConfigError(
                problem=f"Invalid cron expression {self.expression!r}: "
                f"{str(error) or 'it never matches'}.",
                fix="Set minute, hour, day of month, month and day of week, such as "
                "30 2 * * *, with an optional field for seconds before them.",
                field="schedule.cron",
            ) from error

    @override
    def ticks(self, start: datetime, after: datetime) -> Iterator[datetime]:
        last = after.astimezone(UTC)
        try:
            for tick in CronSim(self.expression, after.astimezone(start.tzinfo)):
                # Two times of day may be the same moment if an hour is skipped.
                if (moment := tick.astimezone(UTC)) > last:
                    last = moment
                    yield moment
        except OverflowError:
            return


@dataclass(frozen=True, slots=True)
class Once(Rhythm):
    """One window, from the start to the end."""

    @override
    def ticks(self, start: datetime, after: datetime) -> Iterator[datetime]:
        return iter(())


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow:
    """A range of time from ``lower`` (inclusive) to ``upper`` (exclusive), both in UTC."""

    lower: datetime
    upper: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Divides time into windows.

    Args:
        rhythm: The rule for the bounds of windows.
        start: The start of the first window, in local time of the zone.
        end: The end of the last window; None for no end.
        zone: The name of the time zone, such as ``Europe/Zurich``.
        delay: How long a window waits for late data after its end.
    """

    rhythm: Rhythm
    start: datetime
    end: datetime | None = None
    zone: str = "UTC"
    delay: timedelta = field(default=timedelta())

    def __post_init__(self) -> None:
        """Raise ConfigError for invalid or inconsistent values."""
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigError(
                problem=f"Unknown time zone {self.zone!r}.",
                fix="Set a name from the IANA database, such as Europe/Zurich.",
                field="schedule.zone",
            ) from error
        if self.delay < timedelta():
            raise ConfigError(
                problem=f"Invalid delay {self.delay}.",
                fix="Set it to 0 or more.",
                field="schedule.delay",
            )
        if self.end is None:
            if isinstance(self.rhythm, Once):
                raise ConfigError(
                    problem="A schedule with a single window must have an end.",
                    fix="Set the end of the schedule.",
                    field="schedule.end",
                )
        elif self._utc(self.end) <= self._utc(self.start):
            raise ConfigError(
                problem=f"The schedule's end {self.end} is not after its start {self.start}.",
                fix="Set an end after the start.",
                field="schedule.end",
            )

    def local(self, time: datetime) -> datetime:
        """Return a time in the schedule's zone; a naive time is interpreted in that zone."""
        zone = ZoneInfo(self.zone)
        return time.astimezone(zone) if time.tzinfo else time.replace(tzinfo=zone)

    def _utc(self, time: datetime) -> datetime:
        return self.local(time).astimezone(UTC)

    def cuts(self, since: datetime | None = None) -> Iterator[datetime]:
        """Yield the bounds of windows in UTC, from the last bound at or before a time on."""
        start, local = self._utc(self.start), self.local(self.start)
        end = _LATEST if self.end is None else self._utc(self.end)
        after = start if since is None else max(start, self._utc(since))
        yield self._last(after)
        for tick in self.rhythm.ticks(local, after):
            if tick >= end:
                break
            yield tick
        if self.end is not None and end > after:
            yield end

    def _last(self, time: datetime) -> datetime:
        """Return the last bound at or before a time."""
        start, local = self._utc(self.start), self.local(self.start)
        found, back = start, timedelta(minutes=1)
        # Ticks can only be iterated forwards: look back further until there is one.
        while time - back > start:
            earlier = list(_until(self.rhythm.ticks(local, time - back), time))
            if earlier:
                return earlier[-1]
            back *= 4
        for tick in _until(self.rhythm.ticks(local, start), time):
            found = tick
        return found

    def windows(self, since: datetime | None = None) -> Iterator[TimeWindow]:
        """Yield the windows in order, starting with the window that contains a time.

        Yield all windows if the time is None or before the start.
        """
        end = None if self.end is None else self._utc(self.end)
        if since is not None and end is not None and self._utc(since) >= end:
            return
        cuts = self.cuts(since)
        lower = next(cuts)
        for upper in cuts:
            yield TimeWindow(lower, upper)
            lower = upper

    def windows_in(self, lower: datetime, upper: datetime) -> list[TimeWindow]:
        """Return the windows that overlap a range. Raises ConfigError for too many."""
        found = list(
            islice(
                takewhile(lambda window: window.lower < upper, self.windows(lower)),
                _MOST_WINDOWS + 1,
            )
        )
        if len(found) > _MOST_WINDOWS:
            problem = f"The range has more than {_MOST_WINDOWS} windows."
            raise ConfigError(problem, field="upper", fix="Backfill it in smaller ranges.")
        return found

    def due(self, window: TimeWindow) -> datetime:
        """Return when a window may run: at its end, plus the delay for late data."""
        return window.upper + self.delay

    def newest_past(self, now: datetime) -> TimeWindow | None:
        """Return the newest window that is due; None before the first is."""
        time, start = self._utc(now) - self.delay, self._utc(self.start)
        if time <= start:
            return None
        end = None if self.end is None else self._utc(self.end)
        upper = end if end is not None and time >= end else self._last(time)
        if upper <= start:
            return None
        return TimeWindow(self._last(upper - timedelta(microseconds=1)), upper)

    def next_fires(self, now: datetime, amount: int) -> list[datetime]:
        """Return when the next ``amount`` windows are due, after now."""
        since = self._utc(now) - self.delay
        due = (self.due(window) for window in self.windows(since))
        return list(islice((time for time in due if time > self._utc(now)), amount))


def _until(ticks: Iterator[datetime], time: datetime) -> Iterator[datetime]:
    for tick in ticks:
        if tick > time:
            return
        yield tick


def in_chunks(windows: Sequence[TimeWindow], size: int) -> list[list[TimeWindow]]:
    """Return windows in chunks of at most ``size`` adjacent windows each."""
    chunks: list[list[TimeWindow]] = []
    for window in windows:
        newest = chunks[-1] if chunks else []
        if newest and newest[-1].upper == window.lower and len(newest) < size:
            newest.append(window)
        else:
            chunks.append([window])
    return chunks
