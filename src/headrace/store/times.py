"""Moments as numbers: microseconds since 1970, as databases sort and compare them alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: datetime) -> int:
    """Return an aware time as microseconds since 1970 UTC."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def time_of(number: int) -> datetime:
    """Return the aware time of microseconds since 1970 UTC."""
    return _EPOCH + timedelta(microseconds=number)
