"""Moments in the forms that TimestampConverter takes and gives, as SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace_plugins.kafka.date_format import DatePattern, read_sql, write_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIX_PRECISIONS = ("nanoseconds", "microseconds", "milliseconds", "seconds")

_MAX = 2**63 - 1
# Milliseconds that Spark's timestamps, which count microseconds, can hold.
_MAX_MILLIS = _MAX // 1_000
_DAY_MILLIS = 86_400_000
_MORE: Mapping[str, int] = {"microseconds": 1_000, "nanoseconds": 1_000_000}


@dataclass(frozen=True)
class Instant:
    """A moment as Kafka Connect holds it, a number of milliseconds; null stays null.

    Args:
        millis: SQL of a BIGINT.
        timestamp: SQL of the same as TIMESTAMP, where that is what it comes from: it may
            have microseconds, which Kafka Connect has not.
        bounded: Whether it is certain that a TIMESTAMP can hold it.
    """

    millis: str
    timestamp: str | None = None
    bounded: bool = True

    def too_far(self) -> str | None:
        """Give the condition under which no TIMESTAMP can hold it; None for never."""
        return None if self.bounded else f"NOT ({self._near()})"

    def _near(self) -> str:
        return f"{self.millis} BETWEEN {-_MAX_MILLIS}L AND {_MAX_MILLIS}L"

    def as_timestamp(self) -> str:
        """Give a TIMESTAMP; null where none can hold it."""
        if self.timestamp is not None:
            return self.timestamp
        made = f"timestamp_millis({self.millis})"
        return made if self.bounded else f"IF({self._near()}, {made}, NULL)"

    def as_date(self) -> str:
        """Give the DATE in UTC; null where no TIMESTAMP can hold the moment."""
        return f"CAST({self.as_timestamp()} AS DATE)"

    def as_time(self) -> str:
        """Give the microseconds since midnight in UTC."""
        if self.timestamp is not None:
            return f"pmod(unix_micros({self.timestamp}), {_DAY_MILLIS}000L)"
        return f"pmod({self.millis}, {_DAY_MILLIS}L) * 1000L"

    def as_unix(self, precision: str) -> str:
        """Give the number since 1970; as in Java, it stops at the ends of 64 bits."""
        if precision == "seconds":
            return f"{self.millis} div 1000L"
        if precision == "milliseconds":
            return self.millis
        if self.timestamp is None:
            return _times(self.millis, _MORE[precision])
        return _times(f"unix_micros({self.timestamp})", _MORE[precision] // 1_000)

    def as_text(self, pattern: DatePattern) -> str:
        """Give the text by a pattern; null where no TIMESTAMP can hold the moment."""
        return write_sql(pattern, self.as_timestamp())


def of_timestamp(sql: str) -> Instant:
    """Give the instant of a TIMESTAMP."""
    return Instant(f"unix_millis({sql})", timestamp=sql)


def of_unix(sql: str, precision: str) -> Instant:
    """Give the instant of a number since 1970. Fractions of a millisecond are cut off."""
    match precision:
        case "seconds":
            return Instant(_times(sql, 1_000), bounded=False)
        case "milliseconds":
            return Instant(sql, bounded=False)
        case _:
            return Instant(f"({sql} div {_MORE[precision]}L)")


def of_text(sql: str, pattern: DatePattern) -> Instant:
    """Give the instant of a text, null where it does not fit the pattern."""
    return of_timestamp(read_sql(pattern, sql))


def _times(sql: str, factor: int) -> str:
    if factor == 1:
        return sql
    most = _MAX // factor
    # The lowest BIGINT cannot be written as a number with a minus.
    return (
        f"CASE WHEN {sql} > {most}L THEN {_MAX}L WHEN {sql} < -{most}L "
        f"THEN -{_MAX}L - 1L ELSE {sql} * {factor}L END"
    )
