"""What happens in a server's worker, in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from headrace.model import SparkUnavailableError
from headrace.sdk.errors import StaleEpochError

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.model import Batch, TaskId, TaskState

log = structlog.get_logger(__name__)


class LoggedEvents:
    """Writes what happens in the server's worker to the log."""

    def batch_finished(self, batch: Batch, took: timedelta) -> None:
        log.debug(
            "batch finished",
            **_of(batch.task),
            batch=batch.id,
            seconds=round(took.total_seconds(), 3),
            written=batch.counts.written,
        )

    def state_changed(self, task: TaskId, state: TaskState, error: Exception | None) -> None:
        if error is None:
            log.info("task changed", **_of(task), state=state.value)
        elif isinstance(error, StaleEpochError):
            # Its connector was removed while it moved data, or another worker has it.
            log.warning("task is no longer ours", **_of(task), why=str(error))
        else:
            log.error("task failed", **_of(task), why=str(error))

    def retrying(self, task: TaskId, error: Exception, wait: timedelta) -> None:
        if isinstance(error, SparkUnavailableError):
            log.warning("task goes on once Spark is back", **_of(task), why=str(error))
            return
        seconds = round(wait.total_seconds(), 3)
        log.warning("task is tried again", **_of(task), seconds=seconds, why=str(error))


def _of(task: TaskId) -> dict[str, Any]:
    """Return the keys that every line about a task has."""
    return {"connector": task.connector, "task": task.number}
