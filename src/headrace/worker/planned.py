"""What a connector is to run, and what runs of it."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from headrace.model import Connector, ConnectorState, TargetState, TaskId
from headrace.plugins import aside, has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from headrace.worker.task import Task

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Planned:
    """What a connector is to run.

    Args:
        make: Makes the task of a number; nothing of it is started.
        topics: The topics that it is known to use beforehand.
    """

    configs: Mapping[int, Mapping[str, str]]
    make: Callable[[int], Task]
    topics: frozenset[str] = frozenset()


class Planning(Protocol):
    """A connector that plans its tasks. One thread at a time calls it."""

    def plan(self) -> Planned:
        """Return what it is to run now; the first call starts the connector.

        May raise anything, and hang, as a plugin does the work.
        """

    def changed(self) -> bool:
        """Return whether a new plan may differ. Called about once a second; must be quick."""

    def close(self) -> None:
        """Stop the connector. Called once, also after a ``plan`` that failed."""


@dataclass
class LocalConnector:
    """A connector as it was last settled, and what runs of it."""

    connector: Connector
    planning: Planning | None = None
    planned: Planned | None = None
    running: list[TaskId] = field(default_factory=list)
    restarts: Mapping[int, int] = field(default_factory=dict)
    """How often each task had been asked to start again when it was started."""
    failed: bool = False
    """Whether the connector itself has failed; its tasks may run on."""
    done: bool = False
    """Whether it was settled to the last word; else that is tried again."""

    def settled(self, stored: Connector) -> bool:
        """Return whether the connector was settled as it is wanted now."""
        here, shown = self.connector, stored.status.state
        if shown is ConnectorState.UNASSIGNED and stored.target is not TargetState.RUNNING:
            return False  # it was wanted to run in between, which nobody saw
        return self.done and (here.version, here.target, here.restarts) == (
            stored.version,
            stored.target,
            stored.restarts,
        )

    def late(self, asked: Mapping[int, int]) -> set[int]:
        """Return the numbers of the tasks that were asked to start again since they did."""
        return {n for n, count in asked.items() if self.restarts.get(n, 0) != count}

    def unchanged(self, stored: Connector, planned: Planned) -> set[int]:
        """Return the numbers of the tasks that run as they are planned now."""
        if self.planned is None or self.connector.version != stored.version:
            return set()
        had, has = self.planned.configs, planned.configs
        running = {task.number for task in self.running}
        return {n for n in running if n in has and has[n] == had.get(n)}

    def changed(self, stored: Connector, planned: Planned | None) -> set[int]:
        """Return the numbers of the tasks that run otherwise than they are planned now."""
        stay = set() if planned is None else self.unchanged(stored, planned)
        return {task.number for task in self.running} - stay

    def closing(self, after: Future[Any] | None = None) -> Future[None] | None:
        """Begin to stop the connector, if it is started, when a call of it has ended."""
        planning, self.planning = self.planning, None
        if planning is None:
            return None
        name = self.connector.name

        def close() -> None:
            if after is not None:
                wait([after])
            try:
                planning.close()
            except Exception:
                log.warning("connector did not stop cleanly", connector=name, exc_info=True)

        return aside(f"headrace-stop-{name}", close)


def close_all(local: Iterable[LocalConnector], stop_timeout: timedelta) -> None:
    """Stop connectors, all at once. One that hangs is left behind after a while."""
    by = time.monotonic() + stop_timeout.total_seconds()
    closing = [(each.connector.name, each.closing()) for each in local]
    for name, stop in closing:
        if stop is not None and not has_ended(stop, by):
            log.warning("connector did not stop in time", connector=name)
