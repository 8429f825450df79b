"""What can be done with connectors: each call becomes rows that workers read."""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

import structlog

from headrace.control.config_infos import Masks, config_infos, definition_of, secrets_of
from headrace.control.offsets import AnyPlace
from headrace.model import (
    Connector,
    ConnectorKind,
    ConnectorState,
    PluginNotFoundError,
    Stamp,
    TargetState,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.store import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
    existing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from headrace.control.offsets import Places
    from headrace.model import ConnectorStatus, Definition, EventKind, TaskConfig
    from headrace.plugins import PluginInfo, Registry
    from headrace.store import ConnectorStore, Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class TaskView:
    """A task as it is shown: its number, how it is, and who runs it."""

    number: int
    status: TaskStatus
    worker: str


@dataclass(frozen=True)
class ConnectorView:
    """A connector as it is shown, with its tasks."""

    connector: Connector
    status: ConnectorStatus
    tasks: Sequence[TaskView]

    def restarting(self, tasks: Collection[int], *, itself: bool) -> ConnectorView:
        """Return it as it is shown while some of it restarts; why it failed is kept."""
        shown = [
            replace(task, status=replace(task.status, state=TaskState.RESTARTING))
            if task.number in tasks
            else task
            for task in self.tasks
        ]
        state = ConnectorState.RESTARTING if itself else self.status.state
        return replace(self, status=replace(self.status, state=state), tasks=shown)


@dataclass(frozen=True, kw_only=True)
class Connectors:
    """The connectors of an installation. Any thread may use it.

    Args:
        wanted: Where what is wanted of connectors is kept.
        state: Where the state of tasks is kept.
        registry: The installed plugins.
        clock: Gives the present, aware.
        changed: Called after each change, so that workers look at once.
        workers: Gives the names of the workers that run them.
        places: The topics that sinks stand in.
    """

    wanted: ConnectorStore
    state: Store
    registry: Registry
    clock: Callable[[], datetime]
    changed: Callable[[], None] = lambda: None
    workers: Callable[[], Sequence[str]] = tuple
    places: Places = field(default_factory=AnyPlace)

    @cached_property
    def masks(self) -> Masks:
        """Return what hides passwords: all that is given out has been through it."""
        return Masks(self.registry)

    def names(self) -> list[str]:
        """Return the names of all connectors, sorted."""
        return [each.name for each in self.wanted.connectors()]

    def all(self) -> list[Connector]:
        """Return all connectors, by name."""
        return [self.masks.of(each) for each in self.wanted.connectors()]

    def get(self, name: str) -> Connector:
        """Return a connector. Raises ConnectorNotFoundError."""
        return self.masks.of(existing(name, self.wanted.connector(name)))

    def plugin_of(self, connector: Connector) -> PluginInfo | None:
        """Return a connector's plugin; None if it is not installed."""
        try:
            return self.registry.find(connector.config["connector.class"])[0]
        except PluginNotFoundError:
            return None

    def version_of(self, connector: Connector) -> str:
        """Return the version of a connector's plugin; empty if it is not installed."""
        plugin = self.plugin_of(connector)
        return "" if plugin is None else plugin.version

    def tasks(self, name: str) -> Sequence[TaskConfig]:
        """Return the planned tasks of a connector. Raises ConnectorNotFoundError."""
        config = self.get(name).config
        return [self.masks.of_task(each, config) for each in self.wanted.tasks(name)]

    def all_tasks(self) -> Mapping[str, Sequence[TaskConfig]]:
        """Return the planned tasks of all connectors, by name."""
        configs = {each.name: each.config for each in self.all()}
        return {
            name: [self.masks.of_task(each, configs.get(name, {})) for each in tasks]
            for name, tasks in self.wanted.all_tasks().items()
        }

    def views(self) -> list[ConnectorView]:
        """Return all connectors with the states of their tasks, by name.

        However many there are, the store is asked four times.
        """
        connectors, tasks = self.all(), self.wanted.all_tasks()
        statuses = self.state.statuses()
        owners = {lease.task: lease.owner for lease in self.state.leases()}
        return [_seen(each, tasks.get(each.name, ()), statuses, owners) for each in connectors]

    def chosen(self, chosen: ConnectorFilter) -> list[ConnectorView]:
        """Return the connectors that a filter takes, by name."""
        views = self.views()
        return [each for each in views if chosen.takes(each, self.plugin_of(each.connector))]

    def view(self, name: str) -> ConnectorView:
        """Return a connector with the states of its tasks. Raises ConnectorNotFoundError."""
        found = self.get(name)
        statuses = self.state.statuses(name)
        owners = {lease.task: lease.owner for lease in self.state.leases(name)}
        return _seen(found, self.wanted.tasks(name), statuses, owners)

    def task(self, name: str, number: int) -> TaskView:
        """Return the state of one task. Raises ConnectorNotFoundError or TaskNotFoundError."""
        for task in self.view(name).tasks:
            if task.number == number:
                return task
        problem = f"Connector {name} has no task {number}."
        raise TaskNotFoundError(problem)

    @staticmethod
    def target(text: str | None) -> TargetState | None:
        """Read what a caller wants of a connector, in whatever case. Raises ConfigError."""
        if text is None:
            return None
        if text.upper() not in list(TargetState):
            problem = f"Invalid initial_state {text!r}."
            fix = f"Use one of: {', '.join(TargetState)}."
            raise ConfigError(problem, field="initial_state", fix=fix)
        return TargetState(text.upper())

    def definition(self, config: Mapping[str, str]) -> Definition:
        """Return what a configuration defines; nothing is stored, and it needs no name.

        Raises what is wrong with it.
        """
        name = config.get("name") or "preview"
        _check_name(name)
        kind, checked = self._checked(name, config, self.wanted.connector(name))
        unborn = Connector(name, "", kind, checked, 1, TargetState.RUNNING)
        return definition_of(unborn, self.registry)

    def create(
        self, name: str, config: Mapping[str, str], by: str, target: TargetState | None = None
    ) -> Connector:
        """Add a connector. Raises ConnectorExistsError, or what is wrong with it."""
        _check_name(name)  # the store cannot look for all that is none
        kind, checked = self._checked(name, config, self.wanted.connector(name))
        stamp = Stamp(self.clock(), by)
        wanted = target or TargetState.RUNNING
        made = self.wanted.create(name, kind, checked, wanted, stamp)
        self.changed()
        return self.masks.of(made)

    def configure(
        self, name: str, config: Mapping[str, str], by: str
    ) -> tuple[Connector, bool]:
        """Give a connector a configuration; return it, and whether it was made for that.

        A value that is as it is shown, a password hidden, stays what it was.
        """
        return self._rewrite(name, lambda _: config, by)

    def patch(self, name: str, changes: Mapping[str, str | None], by: str) -> Connector:
        """Change some keys of a configuration; None removes one.

        Raises ConnectorNotFoundError, or what is wrong with it then.
        """

        def merged(kept: Connector | None) -> Mapping[str, str]:
            both = {**self.masks.of(existing(name, kept)).config, **changes}
            return {key: value for key, value in both.items() if value is not None}

        return self._rewrite(name, merged, by)[0]

    def _rewrite(
        self,
        name: str,
        rewritten: Callable[[Connector | None], Mapping[str, str]],
        by: str,
    ) -> tuple[Connector, bool]:
        """Give a connector what is made of what it has; make it if it is not there.

        Others may change it while that is checked, which takes its time: then it is made anew,
        of what it has by then.
        """
        while True:
            kept = self.wanted.connector(name)
            kind, checked = self._checked(name, rewritten(kept), kept)
            stamp = Stamp(self.clock(), by)
            with suppress(ConnectorExistsError, ConnectorNotFoundError, ConnectorChangedError):
                if kept is None:
                    running = TargetState.RUNNING
                    found = self.wanted.create(name, kind, checked, running, stamp)
                else:
                    found = self.wanted.configure(name, kind, checked, stamp, kept)
                self.changed()
                return self.masks.of(found), kept is None

    def set_target(self, name: str, target: TargetState, by: str) -> Connector:
        """Say what is wanted of a connector. Raises ConnectorNotFoundError."""
        found = self.wanted.set_target(name, target, Stamp(self.clock(), by))
        self.changed()
        return self.masks.of(found)

    def delete(self, name: str, by: str) -> None:
        """Forget a connector; its tasks end. Raises ConnectorNotFoundError."""
        self.wanted.delete(name, Stamp(self.clock(), by))
        self.changed()

    def restart(
        self, name: str, by: str, *, tasks: bool = False, only_failed: bool = False
    ) -> ConnectorView:
        """Restart a connector and, if told so, its tasks; return how they are then.

        What restarts is shown as RESTARTING, as in Kafka Connect.
        """
        view = self.view(name)
        failed = view.status.state is ConnectorState.FAILED
        chosen = {
            task.number
            for task in view.tasks
            if tasks and (not only_failed or task.status.state is TaskState.FAILED)
        }
        itself = failed or not only_failed
        if itself or chosen:
            stamp = Stamp(self.clock(), by)
            self.wanted.request_restart(name, chosen, stamp, connector=itself)
            self.changed()
        return view.restarting(chosen, itself=itself)

    def restart_task(self, name: str, number: int, by: str) -> None:
        """Restart one task. Raises ConnectorNotFoundError or TaskNotFoundError."""
        self.wanted.request_restart(name, [number], Stamp(self.clock(), by), connector=False)
        self.changed()

    def record_event(
        self, kind: EventKind, by: str, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        """Make an event of what somebody did that changes no row of a connector."""
        self.wanted.add_event(kind, Stamp(self.clock(), by), detail, connector)

    def _checked(
        self, name: str, config: Mapping[str, str], kept: Connector | None
    ) -> tuple[ConnectorKind, dict[str, str]]:
        """Return the kind of a connector and its configuration with its name.

        What is hidden in it stands for what is kept.

        Raises:
            ConfigErrors: With everything that is wrong with it.
        """
        _check_name(name)
        inner = config.get("name", name)
        if inner != name:
            problem = (
                f"Connector name configuration ({inner}) doesn't match connector name in the "
                f"URL ({name})"
            )
            raise ConfigError(problem, field="name", fix="Use one name.")
        given = self.masks.restored(config, {} if kept is None else kept.config)
        named = {**given, "name": name}
        self.registry.references.secrets.remember(secrets_of(named, self.registry))
        infos = config_infos(named, self.registry)
        if infos.errors:
            raise ConfigErrors(infos.errors)
        for each in infos.warnings:
            log.warning(
                "a key is passed over",
                connector=name,
                key=each.field,
                why=each.problem,
                fix=each.fix,
            )
        reads = self.registry.reads(named["connector.class"])
        return (ConnectorKind.SOURCE if reads else ConnectorKind.SINK), named


def _check_name(name: str) -> None:
    if not name.isprintable() and any(unicodedata.category(each) == "Cc" for each in name):
        # A value's own check sees it trimmed, as Kafka's does, and so not all of it.
        problem = "The name contains control characters."
        raise ConfigError(problem, field="name", fix="Leave them out.")


def _seen(
    connector: Connector,
    planned: Sequence[TaskConfig],
    statuses: Mapping[TaskId, TaskStatus],
    owners: Mapping[TaskId, str],
) -> ConnectorView:
    """Return a connector with those of its tasks that are planned."""
    tasks = []
    for task in planned:
        key = TaskId(connector.name, task.number)
        status = statuses.get(key, TaskStatus(TaskState.UNASSIGNED))
        tasks.append(TaskView(task.number, status, owners.get(key, connector.status.worker)))
    return ConnectorView(connector, connector.status, tasks)


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
        return lambda: connectors.set_target(name, _TARGETS[self.action], by)

    @staticmethod
    def _done(view: ConnectorView, do: Callable[[], object]) -> BulkResult:
        try:
            do()
        except HeadraceError as error:
            return BulkResult(view, error=error)
        return BulkResult(view, done=True)
