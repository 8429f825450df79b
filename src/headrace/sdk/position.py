"""The position of a task in its source, the read limit of one batch, and what a run reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, final

from typing_extensions import override

from headrace.sdk.errors import ConfigError, StateError


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Position:
    """An offset for each source partition, in the form of Kafka Connect's REST API.

    A partition and its offset are JSON objects, such as `{"filename": "/p"}` and
    `{"position": 9}`; the source defines their meaning.
    A position is immutable: `moved` and `without` return new positions. Two positions are equal
    if they contain the same JSON, whatever the order of keys and partitions. A position is
    hashable.

    Trap: JSON values are compared, so the offsets `1`, `1.0` and `true` differ.

    Args:
        offsets: Pairs of partition and offset; if a partition occurs twice, the last pair wins.

    Raises StateError: a partition or an offset is not an object of JSON values.
    """

    _offsets: Mapping[str, str]

    def __init__(
        self, offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]] = ()
    ) -> None:
        pairs = {_canonical(partition): _canonical(offset) for partition, offset in offsets}
        object.__setattr__(self, "_offsets", dict(sorted(pairs.items())))

    @classmethod
    def of(cls, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> Position:
        """Return the position of a source with this single partition."""
        return cls([(partition, offset)])

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Parse the output of `to_json`.

        Raises StateError: the text is not JSON, or not a list of `{"partition", "offset"}`.
        """
        try:
            entries = json.loads(text)
            return cls((entry["partition"], entry["offset"]) for entry in entries)
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                problem=f"Cannot parse a position from {text[:200]!r}.",
                fix='Use a list of {"partition": {...}, "offset": {...}}.',
            ) from error

    def to_json(self) -> str:
        """Return the position in its canonical form.

        A list of `{"partition", "offset"}`, sorted, with sorted keys, and ASCII only.
        """
        entries = ",".join(
            f'{{"offset":{offset},"partition":{partition}}}'
            for partition, offset in self._offsets.items()
        )
        return f"[{entries}]"

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the offset of a partition, or None if the source has not started it."""
        text = self._offsets.get(_canonical(partition))
        return None if text is None else _object(text)

    def moved(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> Position:
        """Return this position with the partition at that offset."""
        return self.merged(Position.of(partition, offset))

    def merged(self, other: Position) -> Position:
        """Return this position with all partitions of the other at the other's offsets."""
        return _position({**self._offsets, **other._offsets})

    def without(self, partition: Mapping[str, Any]) -> Position:
        """Return this position without the partition, which the source then starts again."""
        gone = _canonical(partition)
        return _position({key: text for key, text in self._offsets.items() if key != gone})

    def items(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each partition with its offset, in the canonical order."""
        for partition, offset in self._offsets.items():
            yield _object(partition), _object(offset)

    def changed(self, before: Position) -> list[Mapping[str, Any]]:
        """Return the partitions in which this position differs from an earlier one."""
        old, new = before._offsets, self._offsets
        return [_object(key) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]

    def __len__(self) -> int:
        return len(self._offsets)

    @override
    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    @override
    def __repr__(self) -> str:
        return f"Position({self.to_json()})"


def _position(offsets: Mapping[str, str]) -> Position:
    position = Position()
    object.__setattr__(position, "_offsets", dict(sorted(offsets.items())))
    return position


def _canonical(value: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        raise StateError(
            problem=f"A partition or offset must be an object, not {type(value).__name__}."
        )
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise StateError(
            problem="A partition or offset contains a number that JSON does not support."
        ) from error


def _plain(value: object) -> object:
    """Reject values that `json.dumps` would change: keys that are not strings, and tuples."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_plain(item) for item in value]
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise StateError(
                        problem=f"A key in a partition or offset must be a string, not {key!r}."
                    )
            return {key: _plain(item) for key, item in value.items()}
        case _:
            raise StateError(
                problem=f"A position contains a {type(value).__name__}, which JSON does not "
                "support.",
                fix="Use strings, integers, floats, booleans, null, lists and objects.",
            )


def _object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def check_range(
    start: Position, end: Position, partitions: Collection[Mapping[str, Any]]
) -> None:
    """Reject a range that covers partitions that the source does not read.

    A batch keeps its range when the configuration changes, so a batch that was planned with
    another path, topic or number of tasks must be an error. If it were read as an empty range,
    the batch would finish and its records would be lost. Every source calls this function, or
    does the same, at the beginning of `read` or `splits`. Raises StateError: the range covers a
    partition that is not among `partitions`.
    """
    known = {_canonical(partition) for partition in partitions}
    foreign = [each for each in end.changed(start) if _canonical(each) not in known]
    if foreign:
        raise StateError(
            problem=f"The batch reads {_canonical(foreign[0])}, but the source is configured "
            f"to read {', '.join(sorted(known)) or 'nothing'}.",
            fix="Restore the configuration from when the batch began until the batch is "
            "finished.",
        )


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a task is behind its source; a value is None if computing it is not cheap.

    Args:
        rows: The number of records not read yet.
        size_bytes: The size of the input not read yet.
        age: The age of the oldest change not read yet.
        retained_bytes: How much the source retains on its disk for this task.
    """

    rows: int | None = None
    size_bytes: int | None = None
    age: timedelta | None = None
    retained_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimit:
    """The limits of one batch.

    The worker passes it to a source's `latest`. `rows` and `size_bytes` are soft limits, which
    the last item, such as a file or a transaction, may exceed; `until` is a hard limit.

    Args:
        until: The position that `latest` must not pass, such as the end of a run's window.
    """

    rows: int | None = None
    size_bytes: int | None = None
    until: Position | None = None

    def __post_init__(self) -> None:
        for name, limit in (("rows", self.rows), ("size_bytes", self.size_bytes)):
            if limit is not None and limit < 1:
                raise StateError(
                    problem=f"A read limit must be at least 1, not {limit}.", field=name
                )


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
