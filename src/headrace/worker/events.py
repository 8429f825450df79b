"""The events and the outcome that a worker reports, and their logging."""

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
    """A listener for events of a worker. Called from the worker's threads; must not block."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        """Handle a batch that is durable."""

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        """Handle a task state change; ``error`` is set if the task failed."""

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        """Handle a failed step that is retried after ``wait``."""


@dataclass(frozen=True)
class Outcome:
    """How the tasks of a run ended."""

    states: Mapping[TaskId, TaskState]
    errors: Mapping[TaskId, Exception]

    @property
    def failed(self) -> bool:
        return bool(self.errors)


class Measures(Protocol):
    """A listener for events that only feed metrics. Called like Events."""

    def started(self, task: TaskId) -> None:
        """Handle a task that is ready to run."""

    def committed(self, task: TaskId, took: timedelta) -> None:
        """Handle how long storing the position and the counts of a durable batch took."""

    def connector_changed(
        self, connector: Connector, state: ConnectorState, tasks: Collection[int]
    ) -> None:
        """Handle a connector that was reconciled, with its state and tasks."""

    def connector_gone(self, name: str) -> None:
        """Handle a connector that was deleted and whose tasks have ended."""


class Unmeasured(Measures):
    """Ignores all events."""


@dataclass(frozen=True)
class Everyone:
    """Forwards events to several listeners, one after the other."""

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
    """The log fields that identify a task."""

    connector: str
    task: int


def labels(task: TaskId) -> Labels:
    """Return the log fields that identify a task."""
    return Labels(connector=task.connector, task=task.number)


def labelled(task: TaskId) -> AbstractContextManager[None]:
    """Add the task's log fields to every line that this thread logs in the context."""
    return bound_contextvars(**labels(task))


class LoggedEvents:
    """Logs the events of the server's worker."""

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
            # The connector was removed while the task moved data, or another worker has it.
            log.warning("task lease lost", **labels(task), why=str(error))
        else:
            log.error("task failed", **labels(task), why=str(error))

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        if isinstance(error, SparkUnavailableError):
            log.debug("task waits for Spark to restart", **labels(task), why=str(error))
            return
        seconds = round(wait.total_seconds(), 3)
        log.warning("task will be retried", **labels(task), seconds=seconds, why=str(error))


def as_it_is(error: Exception) -> Exception:
    """Return the error unchanged."""
    return error


def trace_of(error: Exception) -> str:
    """Return an error's text, with the exception type unless it is a HeadraceError."""
    if isinstance(error, HeadraceError):
        return str(error)
    return f"{type(error).__name__}: {error}"
