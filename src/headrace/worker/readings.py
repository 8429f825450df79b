"""The positions of a store's tasks in the topics that they read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.sdk import Position
    from headrace.store import Store


_FRESH_SECONDS = 5.0
"""How long one read of the store is reused, as topics are maintained one after another."""
_CAPTURE = ".capture"
"""The suffix of the topic between a capture and its connector's chain."""


@dataclass
class TopicReadings:
    """Finds the readers of each topic from positions and unfinished batches.

    Every task that was ever started has a position, even while paused, stopped or failed. Used
    by one thread at a time.
    """

    store: Store
    monotonic: Callable[[], float] = time.monotonic
    _found: dict[str, list[Reading]] = field(default_factory=dict, init=False)
    _connectors: set[str] = field(default_factory=set, init=False)
    _looked: float | None = field(default=None, init=False)

    def __call__(self, topic: str) -> Sequence[Reading]:
        """Return the readers of a topic. Raises StoreUnavailableError."""
        now = self.monotonic()
        if self._looked is None or now - self._looked >= _FRESH_SECONDS:
            self._look()
            self._looked = now
        found = self._found.get(topic, ())
        owner = topic.removesuffix(_CAPTURE)
        if not found and owner != topic and owner in self._connectors:
            # The source has already released data that only this topic has, and the chain has
            # not begun to read it.
            return [Reading(reader=owner, version=-1)]
        return found

    def _look(self) -> None:
        self._looked = None
        self._connectors = {task.connector for task in self.store.statuses()}
        self._found = {}
        for connector in sorted(self._connectors):
            for task, position in self.store.positions(connector).items():
                batch = self.store.unfinished_batch(task)
                for topic, version in _versions(position if batch is None else batch.start):
                    reading = Reading(
                        reader=str(task), version=version, running=batch is not None
                    )
                    self._found.setdefault(topic, []).append(reading)


def _versions(position: Position) -> Iterator[tuple[str, int]]:
    """Yield the topics of a position, each with the newest version that is read completely."""
    for partition, offset in position.items():
        if partition.keys() == {"topic"} and "version" in offset:
            yield partition["topic"], int(offset["version"]) - ("index" in offset)
