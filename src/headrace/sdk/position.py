"""Where a task stands in its source, and how far one batch may go."""

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
    """An offset for each source partition, as Kafka Connect's REST API shows them.

    A partition and its offset are JSON objects, such as `{"filename": "/p"}` and
    `{"position": 9}`; their meaning belongs to the source.
    A position never changes: `moved` and `without` return new ones. It is equal to another if
    both hold the same JSON, whatever the order of keys and partitions, and it can be a key of
    a dictionary.

    Trap: equality is JSON's, so the offsets `1`, `1.0` and `true` differ.

    Args:
        offsets: Pairs of partition and offset; of two for one partition the last counts.

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
        """Give the position of a source with this one partition."""
        return cls([(partition, offset)])

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """Read what `to_json` wrote.

        Raises StateError: the text is not JSON, or not a list of `{"partition", "offset"}`.
        """
        try:
            entries = json.loads(text)
            return cls((entry["partition"], entry["offset"]) for entry in entries)
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                problem=f"A position cannot be read from {text[:200]!r}.",
                fix='Give a list of {"partition": {...}, "offset": {...}}.',
            ) from error

    def to_json(self) -> str:
        """Write the position in its one canonical form.

        It is a list of `{"partition", "offset"}`, sorted, with sorted keys, and ASCII only.
        """
        entries = ",".join(
            f'{{"offset":{offset},"partition":{partition}}}'
            for partition, offset in self._offsets.items()
        )
        return f"[{entries}]"

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Give the offset of a partition, or None if the source has not begun with it."""
        text = self._offsets.get(_canonical(partition))
        return None if text is None else _object(text)

    def moved(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> "Position":
        """Give this position with the partition at that offset."""
        return self.merged(Position.of(partition, offset))

    def merged(self, other: "Position") -> "Position":
        """Give this position with all partitions of the other at the other's offsets."""
        return _position({**self._offsets, **other._offsets})  # noqa: SLF001 - its own class

    def without(self, partition: Mapping[str, Any]) -> "Position":
        """Give this position without the partition: the source begins again with it."""
        gone = _canonical(partition)
        return _position({key: text for key, text in self._offsets.items() if key != gone})

    def items(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each partition with its offset, in the canonical order."""
        for partition, offset in self._offsets.items():
            yield _object(partition), _object(offset)

    def changed(self, before: "Position") -> list[Mapping[str, Any]]:
        """Give the partitions in which this position differs from one before it."""
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
            problem="A partition or offset holds a number that JSON lacks."
        ) from error


def _plain(value: object) -> object:
    """Check what `json.dumps` would change: keys that are not strings, and tuples."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_plain(item) for item in value]
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise StateError(
                        problem=f"A key in a partition or offset must be text, not {key!r}."
                    )
            return {key: _plain(item) for key, item in value.items()}
        case _:
            raise StateError(
                problem=f"A position holds a {type(value).__name__}, which JSON lacks.",
                fix="Use text, whole numbers, floats, booleans, null, lists and objects.",
            )


def _object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def check_range(
    start: Position, end: Position, partitions: Collection[Mapping[str, Any]]
) -> None:
    """Refuse a range that moves in other partitions than those that a source reads.

    A batch keeps its range while the configuration changes: one that was planned under another
    path, topic or number of tasks must be an error. Read as an empty range it would be
    finished, and its records would be lost. Every source calls this, or does the same, at the
    beginning of `read` or `splits`. Raises StateError: the range moves in a partition that is
    not among `partitions`.
    """
    known = {_canonical(partition) for partition in partitions}
    foreign = [each for each in end.changed(start) if _canonical(each) not in known]
    if foreign:
        raise StateError(
            problem=f"The batch reads {_canonical(foreign[0])}, and the source is configured "
            f"to read {', '.join(sorted(known)) or 'nothing'}.",
            fix="Set the configuration back to what it was when the batch began, until the "
            "batch is finished.",
        )


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a task is behind its source; None where that is not known cheaply.

    Args:
        rows: How many records wait.
        size_bytes: How much input waits.
        age: How long ago the oldest change was made that waits.
        retained_bytes: How much the source keeps on its disk for this task.
    """

    rows: int | None = None
    size_bytes: int | None = None
    age: timedelta | None = None
    retained_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimit:
    """How far one batch may go.

    The worker passes it to a source's `latest`, which answers with a position that keeps all
    the limits it can. `rows` and `size_bytes` are aims that the last item, such as a file or a
    transaction, may pass; `until` is a bound that may never be passed.

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
