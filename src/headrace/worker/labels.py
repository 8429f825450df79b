"""Which connector and which task a log line is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from structlog.contextvars import bound_contextvars

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headrace.model import TaskId


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
