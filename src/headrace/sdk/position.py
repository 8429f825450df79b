"""The position of a task in its source, and the read limit of one batch."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

from typing_extensions import override

from headrace.sdk.errors import StateError


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
    def of(cls, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> "Position":
        """Return the position of a source with this single partition."""
        return cls([(partition, offset)])

    @classmethod
    def from_json(cls, text: str) -> "Position":
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

    def moved(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> "Position":
        """Return this position with the partition at that offset."""
        return self.merged(Position.of(partition, offset))

    def merged(self, other: "Position") -> "Position":
        """Return this position with all partitions of the other at the other's offsets."""
        return _position({**self._offsets, **other._offsets})  # noqa: SLF001 - its own class

    def without(self, partition: Mapping[str, Any]) -> "Position":
        """Return this position without the partition, which the source then starts again."""
        gone = _canonical(partition)
        return _position({key: text for key, text in self._offsets.items() if key != gone})

    def items(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each partition with its offset, in the canonical order."""
        for partition, offset in self._offsets.items():
            yield _object(partition), _object(offset)

    def changed(self, before: "Position") -> list[Mapping[str, Any]]:
        """Return the partitions in which this position differs from an earlier one."""
        old, new = before._offsets, self._offsets  # noqa: SLF001 - its own class
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
