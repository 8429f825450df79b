"""What a worker reports while it runs and in the end, and the log of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

import structlog
from structlog.contextvars import bound_contextvars

from headrace.model import SparkUnavailableError
from headrace.sdk import HeadraceError
from headrace.sdk.errors import StaleEpochError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from headrace.model import Batch, Connector, ConnectorState, TaskId, TaskState


log = structlog.get_logger(__name__)


class Events(Protocol):
    """Learns what happens in a worker. Called from its threads; must not block."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Learn that a batch is durable."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Learn that a task changed its state; ``error`` says why it failed."""

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """Learn that a step failed for now and runs again after ``wait``."""


@dataclass(frozen=True)
class Outcome:
    """How the tasks of a run ended."""

    states: Mapping[TaskId, TaskState]
    errors: Mapping[TaskId, Exception]

    @property
    def failed(self) -> bool:
        return bool(self.errors)


class Measures(Protocol):
    """Learns what only metrics are made of. Called as Events are."""

    def started(self, task: TaskId) -> None:
        """Learn that a task is ready to run."""

    def committed(self, task: TaskId, took: timedelta) -> None:
        """Learn how long the position and the counts of a durable batch took to store."""

    def connector_changed(
        self, connector: Connector, state: ConnectorState, tasks: Collection[int]
    ) -> None:
        """Learn that a connector was settled, in which state, and which tasks it has."""

    def connector_gone(self, name: str) -> None:
        """Learn that a connector was deleted; its tasks have ended."""


class Unmeasured(Measures):
    """Measures nothing."""


@dataclass(frozen=True)
class Everyone:
    """Tells several listeners of the same events, one after the other."""

    listeners: Collection[Events]

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        for each in self.listeners:
            each.batch_finished(batch, took)

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        for each in self.listeners:
            each.state_changed(task, state, error)

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        for each in self.listeners:
            each.retrying(task, error, wait)


class Labels(TypedDict):
    """The keys of a log line that concerns a task."""

    connector: str
    task: int


def labels(task: TaskId) -> Labels:
    """Return the keys of a log line that concerns a task."""
    return Labels(connector=task.connector, task=task.number)


def labelled(task: TaskId) -> AbstractContextManager[None]:
    """Put the task on every line that this thread logs meanwhile, whatever logs it."""
    return bound_contextvars(**labels(task))


class LoggedEvents:
    """Writes what happens in the server's worker to the log."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        log.debug(
            "batch finished",
            **labels(batch.task),
            batch=batch.id,
            seconds=round(took.total_seconds(), 3),
            written=batch.counts.written,
        )

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        if error is None:
            log.info("task changed", **labels(task), state=state.value)
        elif isinstance(error, StaleEpochError):
            # Its connector was removed while it moved data, or another worker has it.
            log.warning("task is no longer ours", **labels(task), why=str(error))
        else:
            log.error("task failed", **labels(task), why=str(error))

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        if isinstance(error, SparkUnavailableError):
            log.warning("task goes on once Spark is back", **labels(task), why=str(error))
            return
        seconds = round(wait.total_seconds(), 3)
        log.warning("task is tried again", **labels(task), seconds=seconds, why=str(error))


def as_it_is(error: Exception) -> Exception:
    """Return the error."""
    return error


def trace_of(error: Exception) -> str:
    """Return why something failed: ours say so themselves, of others the kind is named."""
    if isinstance(error, HeadraceError):
        return str(error)
    return f"{type(error).__name__}: {error}"
