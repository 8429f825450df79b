"""Chooses connectors by what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.control.connectors import ConnectorView
    from headrace.model import ConnectorKind, ConnectorState, TaskState
    from headrace.plugins import PluginInfo


@dataclass(frozen=True, kw_only=True)
class ConnectorFilter:
    """Which connectors; what is empty does not matter, and of several values one will do.

    Args:
        names: Patterns of names, as file names have them: ``*``, ``?`` and ``[a-z]``.
        kinds: What they copy between.
        states: How they are.
        task_states: How at least one of their tasks is.
        plugins: Their plugins, by name, alias or class.
    """

    names: Collection[str] = ()
    kinds: Collection[ConnectorKind] = ()
    states: Collection[ConnectorState] = ()
    task_states: Collection[TaskState] = ()
    plugins: Collection[str] = ()

    def takes(self, view: ConnectorView, plugin: PluginInfo | None) -> bool:
        """Return whether a connector is chosen; ``plugin`` is None if it is not installed."""
        found = view.connector
        return (
            (not self.names or any(fnmatchcase(found.name, each) for each in self.names))
            and (not self.kinds or found.kind in self.kinds)
            and (not self.states or view.status.state in self.states)
            and (not self.task_states or self._has_task(view))
            and (not self.plugins or bool(_names(view, plugin) & {*self.plugins}))
        )

    def _has_task(self, view: ConnectorView) -> bool:
        return any(task.status.state in self.task_states for task in view.tasks)


def _names(view: ConnectorView, plugin: PluginInfo | None) -> set[str]:
    names = {view.connector.config.get("connector.class", "")}
    return (
        names if plugin is None else names | {plugin.name, plugin.class_path, *plugin.aliases}
    )
