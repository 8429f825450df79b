"""Waits until connectors reach a state."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.client.http import ConnectorFailedError, NotThereError, TooLateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headrace.client.client import Client
    from headrace.client.types import ConnectorStatus


_OVER = {"RUNNING", "COMPLETED"}
_NOT_BEGUN = {"STOPPED", "PAUSED", "UNASSIGNED"}
_FEW = 3
"""Up to how many connectors are polled individually."""


class Goal(StrEnum):
    """The state to wait for."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    GONE = "GONE"

    def reached(self, status: ConnectorStatus | None) -> bool:
        """Return whether a connector and all its tasks are in the state; None means deleted."""
        if status is None or self is Goal.GONE:
            return status is None and self is Goal.GONE
        if status.state != self.value:
            return False
        fitting = _OVER if self is Goal.RUNNING else {self.value}
        return all(task.state in fitting for task in status.tasks)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Waits for connectors; call ``started`` before they are changed.

    A change takes effect with a delay. So a state equal to the one before the change counts
    only if it persists. RUNNING must persist too, because a task that cannot read its source
    also runs for a moment.

    Args:
        client: The client.
        goal: The state to wait for.
        within: The timeout.
        on_change: Called with each status that differs from the previous one, and with None for
            a deleted connector.
        every: The poll interval.
        steady: How long RUNNING or a failure must persist.
        stale: How long a state that equals the one before the change must persist.
    """

    client: Client
    goal: Goal
    within: timedelta = timedelta(seconds=60)
    on_change: Callable[[str, ConnectorStatus | None], None] = lambda _name, _status: None
    every: timedelta = timedelta(milliseconds=200)
    steady: timedelta = timedelta(seconds=1)
    stale: timedelta = timedelta(seconds=3)
    _before: dict[str, ConnectorStatus | None] = field(default_factory=dict)

    def started(self, names: Collection[str]) -> None:
        """Store the statuses of connectors before they are changed."""
        self._before.update(self._look(names))

    def until(self, names: Collection[str]) -> dict[str, ConnectorStatus | None]:
        """Wait for all connectors; return their final statuses.

        Raises:
            ConnectorFailedError: A connector or a task failed.
            TooLateError: The timeout has passed.
            NotThereError: A connector was deleted although the goal is not GONE.
        """
        begun = time.monotonic()
        seen: dict[str, _Seen] = {}
        while True:
            now = time.monotonic()
            for name, status in self._look(names).items():
                before = seen.get(name)
                if before is None or before.status != status:
                    known = before is None and name in self._before
                    first = known and status == self._before[name]
                    seen[name] = _Seen(status, now, stale=first)
                    if not first:
                        self.on_change(name, status)
            waiting = [name for name in names if not self._settled(name, seen[name], now)]
            if not waiting:
                return {name: each.status for name, each in seen.items()}
            if now - begun > self.within.total_seconds():
                raise self._too_late(waiting, seen)
            time.sleep(self.every.total_seconds())

    def _look(self, names: Collection[str]) -> Mapping[str, ConnectorStatus | None]:
        if len(names) > _FEW:
            every = self.client.statuses()
            return {name: every.get(name) for name in names}
        found: dict[str, ConnectorStatus | None] = {}
        for name in names:
            try:
                found[name] = self.client.status(name)
            except NotThereError:
                found[name] = None
        return found

    def _settled(self, name: str, seen: _Seen, now: float) -> bool:
        for_ = now - seen.since
        status = seen.status
        if seen.stale and for_ < self.stale.total_seconds():
            return False
        if status is None and self.goal is not Goal.GONE:
            raise self.client.not_there(name)
        lasts = for_ >= self.steady.total_seconds()
        # Until the tasks have started, their status is still the previous one.
        begun = status is not None and status.state not in _NOT_BEGUN
        if status is not None and self.goal is Goal.RUNNING and status.failures:
            if begun and lasts:
                raise _failed(status)
            return False
        if not self.goal.reached(status):
            return False
        return self.goal is not Goal.RUNNING or lasts

    def _too_late(self, waiting: list[str], seen: Mapping[str, _Seen]) -> TooLateError:
        shown = ", ".join(f"{name} is {_state(seen[name].status)}" for name in waiting[:5])
        more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""  # noqa: PLR2004 - as above
        seconds = self.within.total_seconds()
        state = self.goal.value.lower()
        problem = f"Not {state} within {seconds:g} s: {shown}{more}."
        fix = "See headrace connector status, or wait longer with --timeout."
        return TooLateError(problem, fix=fix)


@dataclass(frozen=True, slots=True)
class _Seen:
    status: ConnectorStatus | None
    since: float
    stale: bool


def _state(status: ConnectorStatus | None) -> str:
    if status is None:
        return "deleted"
    tasks = status.task_states
    return f"{status.state} (tasks: {tasks})" if tasks else f"{status.state} without tasks"


def _failed(status: ConnectorStatus) -> ConnectorFailedError:
    part, trace = next(iter(status.failures.items()))
    line = trace.strip().partition("\n")[0] or "The server gives no reason."
    fix = f"See headrace connector status {status.name}; fix it, then restart it."
    return ConnectorFailedError(f"{part} failed: {line}", fix=fix, field=status.name)
