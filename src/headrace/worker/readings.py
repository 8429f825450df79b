"""Where the tasks of a store stand in the topics that they read."""

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
"""Many topics are looked after one after the other, and one look at the store serves all."""
_CAPTURE = ".capture"
"""How the topic between a capture and its connector's chain is called."""


@dataclass
class TopicReadings:
    """Tells of each topic who reads it, as positions and unfinished batches say.

    Whoever was started once has a position, also while it is paused, stopped or failed. Used
    by one thread at a time.
    """

    store: Store
    monotonic: Callable[[], float] = time.monotonic
    _found: dict[str, list[Reading]] = field(default_factory=dict, init=False)
    _connectors: set[str] = field(default_factory=set, init=False)
    _looked: float | None = field(default=None, init=False)

    def __call__(self, topic: str) -> Sequence[Reading]:
        """Return who reads a topic. Raises StoreUnavailableError when the store is away."""
        now = self.monotonic()
        if self._looked is None or now - self._looked >= _FRESH_SECONDS:
            self._look()
            self._looked = now
        found = self._found.get(topic, ())
        owner = topic.removesuffix(_CAPTURE)
        if not found and owner != topic and owner in self._connectors:
            # Its source has let go of what only this topic has, and nobody has begun to read.
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
    """Yield the topics of a position, each with the newest version that is read as a whole."""
    for partition, offset in position.items():
        if partition.keys() == {"topic"} and "version" in offset:
            yield partition["topic"], int(offset["version"]) - ("index" in offset)
