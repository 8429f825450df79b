"""What a change of offsets does to the data: what is read again, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.sdk import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from headrace.control.offset_words import Json, Offset

__all__ = ["OffsetChange", "OffsetEffect", "OffsetUpdate", "changes_between"]


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
    OffsetEffect.UNKNOWN: "may be read again or left out; only the source can tell",
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
