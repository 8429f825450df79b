"""Does one thing to many connectors, and tells of each whether it was done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.model import TargetState
from headrace.sdk import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.control.choosing import ConnectorFilter
    from headrace.control.connectors import Connectors, ConnectorView


class BulkAction(StrEnum):
    """What can be done to many connectors at once."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART = "restart"
    DELETE = "delete"


_TARGETS = {
    BulkAction.PAUSE: TargetState.PAUSED,
    BulkAction.RESUME: TargetState.RUNNING,
    BulkAction.STOP: TargetState.STOPPED,
}


@dataclass(frozen=True)
class BulkResult:
    """What became of one connector.

    Args:
        view: How it was before.
        done: Whether what was asked is done, or will be by its worker.
        error: Why not.
    """

    view: ConnectorView
    done: bool = False
    error: HeadraceError | None = None


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """One thing to do.

    Args:
        action: What.
        tasks: Whether a restart takes the tasks along.
        only_failed: Whether a restart leaves alone what has not failed.
    """

    action: BulkAction
    tasks: bool = True
    only_failed: bool = False

    def run(
        self, connectors: Connectors, chosen: ConnectorFilter, by: str, *, dry: bool
    ) -> list[BulkResult]:
        """Do it to each connector that a filter takes, by name; if ``dry``, only list them.

        One that fails, as it was deleted meanwhile, does not keep the others from it.
        """
        views = connectors.chosen(chosen)
        if dry:
            return [BulkResult(view) for view in views]
        return [self._done(view, self._doing(connectors, view, by)) for view in views]

    def _doing(
        self, connectors: Connectors, view: ConnectorView, by: str
    ) -> Callable[[], object]:
        name = view.connector.name
        if self.action is BulkAction.DELETE:
            return lambda: connectors.delete(name, by)
        if self.action is BulkAction.RESTART:
            more = {"tasks": self.tasks, "only_failed": self.only_failed}
            return lambda: connectors.restart(name, by, **more)
        return lambda: connectors.aim(name, _TARGETS[self.action], by)

    @staticmethod
    def _done(view: ConnectorView, do: Callable[[], object]) -> BulkResult:
        try:
            do()
        except HeadraceError as error:
            return BulkResult(view, error=error)
        return BulkResult(view, done=True)
