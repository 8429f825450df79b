"""Offsets as people see them, and what a change of them does to the data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import ConnectorKind, TaskId
from headrace.sdk import ConfigError, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.model import Connector


class OffsetEffect(StrEnum):
    """What becomes of the records between two offsets of a partition.

    What is read again belongs to new batches, so that only a target that overwrites what it
    has by a key is the same afterwards (Guarantee 2 is about one batch, run twice).
    """

    REPEATED = "repeated"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


_WORDS = {
    OffsetEffect.REPEATED: "is read again, and doubled where the target adds what it gets",
    OffsetEffect.SKIPPED: "is left out, and never arrives",
    OffsetEffect.UNKNOWN: "may be read again or left out; only the source knows",
}


@dataclass(frozen=True)
class OffsetChange:
    """A partition whose offset changes; None stands for the beginning.

    ``is_back`` says that it goes back for certain, whatever its offsets look like.
    """

    partition: Json
    before: Json | None
    after: Json | None
    is_back: bool = False

    @property
    def effect(self) -> OffsetEffect:
        """What becomes of the records in between."""
        if self.after is None or self.is_back:
            return OffsetEffect.REPEATED
        if self.before is None:
            return OffsetEffect.SKIPPED
        differing = self._differing
        if len(differing) != 1 or not all(type(value) is int for value in differing[0]):
            return OffsetEffect.UNKNOWN
        [(old, new)] = differing
        assert isinstance(old, int)
        assert isinstance(new, int)
        return OffsetEffect.REPEATED if new < old else OffsetEffect.SKIPPED

    @property
    def meaning(self) -> str:
        """The same in a sentence."""
        places = [_place(each) for each in (self.before, self.after)]
        partition = _place(self.partition)
        between = f"{places[0]} and {places[1]}"
        if len(self._differing) > 1:
            between = "the offset that it had and the one that it has now"
        return f"Between {between} of {partition}, what there is {_WORDS[self.effect]}."

    @property
    def _differing(self) -> list[tuple[object, object]]:
        if self.before is None or self.after is None:
            return []
        keys = self.before.keys() | self.after.keys()
        pairs = [(self.before.get(key), self.after.get(key)) for key in keys]
        return [(old, new) for old, new in pairs if old != new]


@dataclass(frozen=True)
class OffsetUpdate:
    """A change of a connector's offsets that was made.

    Args:
        id: The number of its event.
        action: ``alter``, ``reset``, ``rewind``, ``undo`` or ``give-up``.
        at: When; aware.
        by: Who made it.
        changes: What it changed.
    """

    id: int
    action: str
    at: datetime
    by: str
    changes: Sequence[OffsetChange]


def changes_between(
    before: Iterable[Offset], after: Iterable[Offset], *, is_back: bool = False
) -> list[OffsetChange]:
    """Return the partitions that differ, in a fixed order."""
    old, new = _by_partition(before), _by_partition(after)
    found = []
    for key, seen in sorted({**old, **new}.items(), key=lambda pair: pair[0].to_json()):
        here, there = (
            None if each is None else each.offset for each in (old.get(key), new.get(key))
        )
        if here != there:
            found.append(OffsetChange(seen.partition, here, there, is_back))
    return found


def _by_partition(offsets: Iterable[Offset]) -> Mapping[Position, Offset]:
    return {Position.of(each.partition, {}): each for each in offsets}


def _place(value: Json | None) -> str:
    if value is None:
        return "the beginning"
    return ", ".join(f"{key} {each}" for key, each in value.items())


_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_WHOLE = f"Set {_OFFSET} to an integer of at least 0: the next offset to read."
Json: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class Offset:
    """Where a connector stands in one partition of what it reads.

    Args:
        partition: The partition, in the source's own words; a topic's as Kafka Connect has it.
        offset: The offset; None stands for the beginning.
    """

    partition: Json
    offset: Json | None


def shown_offsets(connector: Connector, position: Position) -> Iterator[Offset]:
    """Yield where a task stands, partition by partition."""
    own = {"topic": f"{connector.name}.capture"}
    for partition, offset in position.items():
        if partition == own:
            continue  # how far its chain has read what it captured
        if connector.kind is ConnectorKind.SINK and "version" in offset:
            # Kafka's offset is the next to be read, ours the last version that was; one that
            # was read in part is the next still.
            whole = "index" not in offset
            yield Offset(
                {_TOPIC: partition["topic"], _PARTITION: 0},
                {_OFFSET: int(offset["version"]) + whole},
            )
        else:
            yield Offset(dict(partition), dict(offset))


def own_offset(connector: Connector, given: Offset) -> tuple[Json, Json | None]:
    """Return a partition and its offset in our own words."""
    if connector.kind is not ConnectorKind.SINK:
        return given.partition, given.offset
    if not {_TOPIC, _PARTITION} <= given.partition.keys():
        problem = (
            "The partition for a sink connector offset must contain the keys "
            f"'{_TOPIC}' and '{_PARTITION}'"
        )
        fix = f'Write it as {{"{_TOPIC}": "TOPIC", "{_PARTITION}": 0}}.'
        raise ConfigError(problem, field="partition", fix=fix)
    topic, number = given.partition[_TOPIC], given.partition[_PARTITION]
    if not isinstance(topic, str) or str(number) != "0":
        problem = f"{topic!r} has no partition {number!r}: every topic has one, of number 0."
        raise ConfigError(problem, field="partition", fix=f"Set {_PARTITION} to 0.")
    partition = {"topic": topic}
    if given.offset is None:
        return partition, None
    if _OFFSET not in given.offset:
        problem = (
            "The offset for a sink connector should either be null or contain the key "
            f"'{_OFFSET}'"
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    value = given.offset[_OFFSET]
    try:
        number = int(str(value))
    except ValueError:
        problem = (
            "Failed to parse the following Kafka offset value in the provided offsets: "
            f"'{value}'. Offset values for sink connectors need to be integers."
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE) from None
    if number < 0:
        problem = f"Invalid offset {number}; expected an integer of at least 0."
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    return partition, {"version": number - 1}


def task_of(name: str, positions: Mapping[TaskId, Position], partition: Json) -> TaskId:
    """Return the task that stands in a partition; the first for one that none has begun."""
    for task, position in sorted(positions.items()):
        if position.offset(partition) is not None:
            return task
    return min(positions, default=TaskId(name, 0))
