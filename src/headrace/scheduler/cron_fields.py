"""Converts schedules to cron expressions, for schedulers that support only those."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, timedelta

from headrace.model import Cron, Interval, Schedule, Unit

_SECONDS = {Unit.SECOND: 1, Unit.MINUTE: 60, Unit.HOUR: 3600}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_IN_ALL_MONTHS = 28
_MONTHS = 12
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_WEEKDAYS = re.compile(r"(\*|\w+(?:-\w+)?)(?:/(\d+))?")
"""A part of the weekday field: one day, a range or all days, with an optional step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """The fields of a Unix cron expression.

    Args:
        zone: The time zone of the expression.
    """

    second: str = "0"
    minute: str = "*"
    hour: str = "*"
    day: str = "*"
    month: str = "*"
    weekday: str = "*"
    zone: str = "UTC"

    @property
    def unix(self) -> str:
        """Return the expression with five fields, or six with seconds last, as for croniter."""
        fields = [self.minute, self.hour, self.day, self.month, self.weekday]
        return " ".join(fields if self.second == "0" else [*fields, self.second])

    @property
    def quartz(self) -> str | None:
        """Return the expression with Quartz's seven fields; None if Quartz cannot express it.

        Quartz counts weekdays from 1, and accepts either weekdays or days of the month.
        """
        day, weekday = self.day, "?"
        if self.weekday not in {"*", "?"}:
            names = _weekdays(self.weekday)
            if day not in {"*", "?"} or names is None:
                return None
            day, weekday = "?", names
        return f"{self.second} {self.minute} {self.hour} {day} {self.month} {weekday} *"


def cron_of(schedule: Schedule) -> CronFields | None:
    """Return the ends of a schedule's windows as a cron expression; None if not possible.

    For windows of fixed length the expression is in UTC, since daylight saving would shift it.
    """
    match schedule.rhythm:
        case Cron(expression):
            *seconds, minute, hour, day, month, weekday = expression.split()
            return CronFields(
                second=seconds[0] if seconds else "0",
                minute=minute,
                hour=hour,
                day=day,
                month=month,
                weekday=weekday,
                zone=schedule.zone,
            )
        case Interval(amount, unit) if unit in _SECONDS:
            return _of_length(schedule, amount * _SECONDS[unit])
        case Interval(amount, unit):
            return _of_calendar(schedule, amount, unit)
        case _:
            return None


def _of_length(schedule: Schedule, step: int) -> CronFields | None:
    start = schedule.local(schedule.start).astimezone(UTC)
    since_midnight = start - start.replace(hour=0, minute=0, second=0)
    phase = since_midnight // timedelta(seconds=1) % step
    second, minute = str(phase % _MINUTE), str(phase % _HOUR // _MINUTE)
    if step < _MINUTE and _MINUTE % step == 0:
        return CronFields(second=_every(phase, step, _MINUTE))
    if step % _MINUTE == 0 and step < _HOUR and _HOUR % step == 0:
        steps = _every(phase // _MINUTE, step // _MINUTE, _HOUR // _MINUTE)
        return CronFields(second=second, minute=steps)
    if step % _HOUR == 0 and _DAY % step == 0:
        steps = _every(phase // _HOUR, step // _HOUR, _DAY // _HOUR)
        return CronFields(second=second, minute=minute, hour=steps)
    if step == _MINUTE:
        return CronFields(second=second)
    return None


def _every(first: int, step: int, end: int) -> str:
    return "*" if step == 1 else ",".join(str(number) for number in range(first, end, step))


def _of_calendar(schedule: Schedule, amount: int, unit: Unit) -> CronFields | None:
    start = schedule.local(schedule.start)
    months = amount * (_MONTHS if unit is Unit.YEAR else 1)
    day, month, weekday = "*", "*", "*"
    if unit in {Unit.MONTH, Unit.YEAR}:
        if start.day > _IN_ALL_MONTHS or _MONTHS % months:
            return None
        day = str(start.day)
        ordered = sorted((start.month - 1 + n) % _MONTHS + 1 for n in range(0, _MONTHS, months))
        month = "*" if months == 1 else ",".join(str(number) for number in ordered)
    elif amount != 1:
        return None
    elif unit is Unit.WEEK:
        weekday = _DAYS[start.isoweekday() % len(_DAYS)]
    return CronFields(
        second=str(start.second),
        minute=str(start.minute),
        hour=str(start.hour),
        day=day,
        month=month,
        weekday=weekday,
        zone=schedule.zone,
    )


def _weekdays(field: str) -> str | None:
    """Return a weekday field as a list of weekday names; None if it is not valid."""
    found: set[int] = set()
    for part in field.upper().split(","):
        parts = _WEEKDAYS.fullmatch(part)
        if parts is None:
            return None
        step = int(parts[2] or 1)
        ends = ["0", "6"] if parts[1] == "*" else parts[1].split("-")
        if len(ends) == 1 and parts[2]:  # from there to the end of the week
            ends.append("6")
        numbers = [_weekday(end) for end in ends]
        if None in numbers or not step:
            return None
        first, last = numbers[0] or 0, numbers[-1] or 0
        last += len(_DAYS) if last < first else 0
        found |= {number % len(_DAYS) for number in range(first, last + 1, step)}
    return ",".join(_DAYS[number] for number in sorted(found))


def _weekday(text: str) -> int | None:
    if text in _DAYS:
        return _DAYS.index(text)
    return int(text) % len(_DAYS) if text.isdecimal() and int(text) <= len(_DAYS) else None
