"""Boundaries: the part of a source's input that an offline run reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from headrace.sdk.errors import ConfigError, StateError
from headrace.sdk.position import Position


class BoundaryKind(StrEnum):
    """The kinds of bounds of an offline run."""

    TIME = "time"
    """Times with a time zone."""
    OFFSET = "offset"
    """Positions of the source, as JSON."""
    VALUE = "value"
    """Values of a column."""
    SNAPSHOT = "snapshot"
    """Versions of the source, as integers."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The half-open interval from ``lower``, inclusive, to ``upper``, exclusive.

    Bounds are strings in a canonical form, so equal bounds are equal strings. Times are in RFC
    3339 form, in UTC with ``+00:00``, so their strings sort in time order.

    Args:
        lower: The first value that is read; None to read from the beginning.
        upper: The first value that is not read; None for no end, so new records are read too.
    """

    kind: BoundaryKind
    lower: str | None = None
    upper: str | None = None

    def __post_init__(self) -> None:
        """Convert the bounds to canonical form. Raises ConfigError: a bound is not valid."""
        for name in ("lower", "upper"):
            text: str | None = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, _written(self.kind, text, name))
        if self.kind is BoundaryKind.TIME:
            lower, upper = self.times
            empty = lower is not None and upper is not None and upper <= lower
        elif self.kind is BoundaryKind.SNAPSHOT and self.lower and self.upper:
            empty = int(self.upper) <= int(self.lower)
        else:
            empty = self.upper is not None and self.lower == self.upper
        if empty:
            raise ConfigError(
                problem=f"The range from {self.lower} to {self.upper} is empty.",
                fix="Set an upper bound after the lower one; the upper bound is not read.",
                field="boundaries.upper",
            )

    @classmethod
    def between(cls, lower: datetime | None, upper: datetime | None) -> Boundaries:
        """Return boundaries for two aware times."""
        texts = (None if time is None else time.isoformat() for time in (lower, upper))
        return cls(BoundaryKind.TIME, *texts)

    @property
    def times(self) -> tuple[datetime | None, datetime | None]:
        """Return the bounds of kind TIME as aware times in UTC."""
        lower, upper = (
            None if text is None else datetime.fromisoformat(text)
            for text in (self.lower, self.upper)
        )
        return lower, upper


_FIXES = {
    BoundaryKind.TIME: "Write a time with its time zone, such as 2026-01-31T00:00:00Z.",
    BoundaryKind.OFFSET: "Write the offsets as JSON, in the form that the API returns.",
    BoundaryKind.VALUE: "Write a value of the column.",
    BoundaryKind.SNAPSHOT: "Write the number of a version.",
}


def _written(kind: BoundaryKind, text: str, name: str) -> str:
    found: str | None = None
    try:
        match kind:
            case BoundaryKind.TIME:
                time = datetime.fromisoformat(text)
                if time.tzinfo is not None:
                    found = time.astimezone(UTC).isoformat()
            case BoundaryKind.OFFSET:
                found = Position.from_json(text).to_json()
            case BoundaryKind.SNAPSHOT:
                found = str(int(text))
            case BoundaryKind.VALUE:
                found = text
    except (ValueError, OverflowError, StateError):
        pass
    if not found:
        raise ConfigError(
            problem=f"Invalid {name} bound {text!r} of kind {kind}.",
            fix=_FIXES[kind],
            field=f"boundaries.{name}",
        )
    return found
