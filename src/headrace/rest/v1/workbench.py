"""What routes ask of the process that runs connectors, beyond its store."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.control import Backups, ServerLog
from headrace.model import TopicNotFoundError
from headrace.rest.v1.slots import Slots
from headrace.sdk import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from headrace.control import BatchTargets
    from headrace.dataplane import Claimed, Letterbox, LetterFilter, Stage
    from headrace.model import Definition, Reading
    from headrace.runtime.app import Runtime
    from headrace.topics import Topic, Topics
    from headrace.worker import Events, Outcome


@dataclass
class Workbench:
    """A process with a Spark session, which starts when it is first needed.

    Any thread may use it.

    Args:
        runtime: The process.
        events: Who is told what replays do.
        clock: Gives the present, aware.
        slots: How many requests may use it at a time.
    """

    runtime: Runtime
    events: Events
    clock: Callable[[], datetime]
    slots: Slots = field(default_factory=Slots)
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def topics(self) -> Topics:
        """Return the topics."""
        return self.runtime.topics

    @property
    def targets(self) -> BatchTargets:
        """Ask the targets of tasks that nobody runs what they hold."""
        return self.runtime.receipts

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises TopicNotFoundError if it is not there."""
        found = self.topics.find(name)
        if found is None:
            problem = f"There is no topic {name}."
            raise TopicNotFoundError(problem, field="topic", fix="Name one that is there.")
        return found

    def readings(self, topic: str) -> Sequence[Reading]:
        """Return who reads a topic."""
        return self.runtime.readings(topic)

    @cached_property
    def backups(self) -> Backups:
        """Return the backups of the store."""
        settings = self.runtime.settings
        folder = settings.home / "backups"
        return Backups(
            place=settings.store_place,
            folder=folder,
            clock=self.clock,
            kept=settings.store_backups_kept,
        )

    @cached_property
    def log(self) -> ServerLog:
        """Return the process's own log."""
        return ServerLog(self.runtime.settings.log_file)

    def preview(self, definition: Definition, rows: int) -> Sequence[Stage]:
        """Return the first records at the source and after each step; nothing is kept."""
        return self.runtime.preview(definition, rows)

    def try_transforms(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a chain over sample records, see `headrace.control.try_transforms`."""
        return self.runtime.try_transforms(request)

    def letterbox(self, topic: str) -> Letterbox:
        """Look into a dead-letter topic. Raises TopicNotFoundError if it is none."""
        return self.runtime.letterbox(self.topic(topic).name)

    def replay(
        self, definition: Definition, chosen: LetterFilter, file: Path | None
    ) -> tuple[Claimed, Outcome]:
        """Send letters through their connector's chain again, each once.

        Raises StateError while another replay of the connector runs.
        """
        with self._only(definition.name):
            return self.runtime.replay(definition, chosen, file, self.events)

    @contextmanager
    def _only(self, connector: str) -> Iterator[None]:
        """Keep others of this process away; their leases would be this one's."""
        with self._lock:
            if connector in self._busy:
                problem = f"A replay of {connector} runs already."
                raise StateError(problem, fix="Wait until it is done, then try again.")
            self._busy.add(connector)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(connector)
