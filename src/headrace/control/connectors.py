"""The operations on connectors, which write rows that workers read, and their counts."""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from typing import TYPE_CHECKING, ClassVar

import structlog

from headrace.control.config_infos import (
    Masks,
    config_infos,
    configured_plugin,
    definition_of,
    secrets_of,
)
from headrace.control.definition_forms import check_addressable
from headrace.control.task_plans import REPLAYS
from headrace.model import (
    Batch,
    ConfigVersion,
    Connector,
    ConnectorKind,
    ConnectorState,
    ConnectorStatus,
    Counts,
    Definition,
    EventKind,
    PluginNotFoundError,
    Stamp,
    TargetState,
    TaskConfig,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.plugins import HIDDEN
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.errors import Category
from headrace.store import (
    ConnectorChangedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    ConnectorStore,
    Store,
    TaskNotFoundError,
    existing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from headrace.plugins import PluginInfo, Registry
    from headrace.topics import TopicPlaces


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class TaskView:
    """A task for display: its number, its status, and the worker that runs it."""

    number: int
    status: TaskStatus
    worker: str


@dataclass(frozen=True)
class ConnectorView:
    """A connector for display, with its tasks."""

    connector: Connector
    status: ConnectorStatus
    tasks: Sequence[TaskView]

    def restarting(self, tasks: Collection[int], *, itself: bool) -> ConnectorView:
        """Return the view with the restarting parts shown as RESTARTING; traces are kept."""
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
    """The connectors of an installation. Thread-safe.

    Methods raise ConnectorNotFoundError if the connector does not exist, and TaskNotFoundError
    if the task does not exist.

    Args:
        changed: Called after each change, so that workers check at once.
        places: The valid positions in the topics of sinks; None to skip the check.
        workers: Returns the names of the workers that run the connectors.
    """

    store: ConnectorStore
    task_store: Store
    registry: Registry
    clock: Callable[[], datetime]
    changed: Callable[[], None] = lambda: None
    workers: Callable[[], Sequence[str]] = tuple
    places: TopicPlaces | None = None

    @cached_property
    def masks(self) -> Masks:
        """Return the masks that hide passwords; every returned configuration is masked."""
        return Masks(self.registry)

    def names(self) -> list[str]:
        return [each.name for each in self.store.connectors()]

    def all(self) -> list[Connector]:
        return [self.masks.of(each) for each in self.store.connectors()]

    def get(self, name: str) -> Connector:
        return self.masks.of(existing(name, self.store.connector(name)))

    def plugin_of(self, connector: Connector) -> PluginInfo | None:
        """Return a connector's plugin; None if it is not installed."""
        try:
            return self.registry.find(connector.config["connector.class"])[0]
        except PluginNotFoundError:
            return None

    def version_of(self, connector: Connector) -> str:
        plugin = self.plugin_of(connector)
        return "" if plugin is None else plugin.version

    def tasks(self, name: str) -> Sequence[TaskConfig]:
        config = self.get(name).config
        return [self.masks.of_task(each, config) for each in self.store.tasks(name)]

    def all_tasks(self) -> Mapping[str, Sequence[TaskConfig]]:
        configs = {each.name: each.config for each in self.all()}
        return {
            name: [self.masks.of_task(each, configs.get(name, {})) for each in tasks]
            for name, tasks in self.store.all_tasks().items()
        }

    def views(self) -> list[ConnectorView]:
        """Return all connectors with the states of their tasks, by name.

        Makes four store queries, regardless of the number of connectors.
        """
        connectors, tasks = self.all(), self.store.all_tasks()
        statuses = self.task_store.statuses()
        owners = {lease.task: lease.owner for lease in self.task_store.leases()}
        return [_seen(each, tasks.get(each.name, ()), statuses, owners) for each in connectors]

    def chosen(self, chosen: ConnectorFilter) -> list[ConnectorView]:
        views = self.views()
        return [each for each in views if chosen.takes(each, self.plugin_of(each.connector))]

    def view(self, name: str) -> ConnectorView:
        found = self.get(name)
        statuses = self.task_store.statuses(name)
        owners = {lease.task: lease.owner for lease in self.task_store.leases(name)}
        return _seen(found, self.store.tasks(name), statuses, owners)

    def task(self, name: str, number: int) -> TaskView:
        for task in self.view(name).tasks:
            if task.number == number:
                return task
        problem = f"Connector {name} has no task {number}."
        raise TaskNotFoundError(problem)

    def definition(self, config: Mapping[str, str]) -> Definition:
        """Return the definition of a configuration without storing it; the name is optional.

        Raises the errors of the configuration.
        """
        name = config.get("name") or "preview"
        _check_name(name)
        stored = self.store.connector(name)
        self._check_hidden({**config, "name": name}, stored)
        kind, checked = self._checked(name, config, stored)
        unborn = Connector(name, "", kind, checked, 1, TargetState.RUNNING)
        return definition_of(unborn, self.registry)

    def _check_hidden(self, config: Mapping[str, str], stored: Connector | None) -> None:
        """Raise ConfigError if a hidden value is combined with changed keys.

        Guarantee 6: with a changed address the hidden password would be sent there, without a
        recorded configuration change.
        """
        hidden = next((key for key, value in config.items() if HIDDEN in value), None)
        shown = (
            {} if stored is None else {**self.masks.shown(stored.config), "name": stored.name}
        )
        if hidden is not None and stored is not None and config != shown:
            problem = f"{HIDDEN} is only accepted if all keys are unchanged."
            fix = "Write the value or a reference, or preview the stored configuration."
            raise ConfigError(problem, field=hidden, fix=fix)

    def create(
        self, name: str, config: Mapping[str, str], by: str, target: TargetState | None = None
    ) -> Connector:
        """Add a connector. Raises ConnectorExistsError, or the configuration's errors."""
        _check_name(name)  # the store cannot look up every invalid name
        kind, checked = self._checked(name, config, self.store.connector(name))
        stamp = Stamp(self.clock(), by)
        initial = target or TargetState.RUNNING
        made = self.store.create(name, kind, checked, initial, stamp)
        self.changed()
        return self.masks.of(made)

    def configure(
        self, name: str, config: Mapping[str, str], by: str
    ) -> tuple[Connector, bool]:
        """Create or reconfigure a connector; return it, and whether it was created.

        A hidden password in ``config`` stands for the stored value.
        """
        return self._rewrite(name, lambda _: config, by)

    def patch(self, name: str, changes: Mapping[str, str | None], by: str) -> Connector:
        """Change some keys of a configuration; None removes a key.

        Raises ConnectorNotFoundError, or the errors of the new configuration.
        """

        def merged(stored: Connector | None) -> Mapping[str, str]:
            both = {**self.masks.of(existing(name, stored)).config, **changes}
            return {key: value for key, value in both.items() if value is not None}

        return self._rewrite(name, merged, by)[0]

    def _rewrite(
        self,
        name: str,
        rewritten: Callable[[Connector | None], Mapping[str, str]],
        by: str,
    ) -> tuple[Connector, bool]:
        """Set a configuration derived from the stored one; create the connector if missing.

        The check takes time. If the connector is changed meanwhile, this is repeated with its
        new configuration.
        """
        while True:
            stored = self.store.connector(name)
            kind, checked = self._checked(name, rewritten(stored), stored)
            stamp = Stamp(self.clock(), by)
            with suppress(ConnectorExistsError, ConnectorNotFoundError, ConnectorChangedError):
                if stored is None:
                    running = TargetState.RUNNING
                    found = self.store.create(name, kind, checked, running, stamp)
                else:
                    found = self.store.configure(name, kind, checked, stamp, stored)
                self.changed()
                return self.masks.of(found), stored is None

    def set_target(self, name: str, target: TargetState, by: str) -> Connector:
        found = self.store.set_target(name, target, Stamp(self.clock(), by))
        self.changed()
        return self.masks.of(found)

    def delete(self, name: str, by: str) -> Sequence[str]:
        """Delete a connector; return what it leaves behind and how to remove that."""
        left = self._left_behind(name)
        self.store.delete(name, Stamp(self.clock(), by))
        self.changed()
        for each in left:
            log.warning("deleted connector left resources behind", connector=name, left=each)
        return left

    def _left_behind(self, name: str) -> Sequence[str]:
        stored = self.store.connector(name)
        if stored is None:
            return ()
        references = self.registry.references
        try:
            plugin, config = configured_plugin(stored, self.registry)
            left = tuple(plugin.left_behind(config))
            return tuple(references.shown(each, stored.config) for each in left)
        except Exception as error:  # noqa: BLE001 - the connector is deleted anyway
            why = references.secrets.redacted(str(error))
            log.warning(
                "cannot determine what a connector leaves behind", connector=name, why=why
            )
            return ()

    def restart(
        self, name: str, by: str, *, tasks: bool = False, only_failed: bool = False
    ) -> ConnectorView:
        """Restart a connector and, with ``tasks``, its tasks; return their new view.

        Restarting parts are shown as RESTARTING, as in Kafka Connect.
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
            self.store.request_restart(name, chosen, stamp, connector=itself)
            self.changed()
        return view.restarting(chosen, itself=itself)

    def restart_task(self, name: str, number: int, by: str) -> None:
        self.store.request_restart(name, [number], Stamp(self.clock(), by), connector=False)
        self.changed()

    def record_event(
        self, kind: EventKind, by: str, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        self.store.add_event(kind, Stamp(self.clock(), by), detail, connector)

    def _checked(
        self, name: str, config: Mapping[str, str], stored: Connector | None
    ) -> tuple[ConnectorKind, dict[str, str]]:
        """Return the kind of a connector and its configuration with its name.

        Hidden values are replaced by the stored ones.

        Raises:
            ConfigErrors: The configuration is not valid; contains all errors.
        """
        _check_name(name)
        inner = config.get("name", name)
        if inner != name:
            problem = (
                f"Connector name configuration ({inner}) doesn't match connector name in the "
                f"URL ({name})"
            )
            raise ConfigError(problem, field="name", fix="Use the same name.")
        restored = self.masks.restored(config, {} if stored is None else stored.config)
        named = {**restored, "name": name}
        self.registry.references.secrets.remember(secrets_of(named, self.registry))
        infos = config_infos(named, self.registry)
        if infos.errors:
            raise ConfigErrors(infos.errors)
        for each in infos.warnings:
            log.warning(
                "configuration key ignored",
                connector=name,
                key=each.field,
                why=each.problem,
                fix=each.fix,
            )
        reads = self.registry.reads(named)
        return (ConnectorKind.SOURCE if reads else ConnectorKind.SINK), named


def _check_name(name: str) -> None:
    if not name.isprintable() and any(unicodedata.category(each) == "Cc" for each in name):
        # The key's own check gets a trimmed value, as in Kafka, and may miss some of them.
        problem = "The name contains control characters."
        raise ConfigError(problem, field="name", fix="Remove them.")
    check_addressable(name)


def _seen(
    connector: Connector,
    planned: Sequence[TaskConfig],
    statuses: Mapping[TaskId, TaskStatus],
    owners: Mapping[TaskId, str],
) -> ConnectorView:
    tasks = []
    for task in planned:
        key = TaskId(connector.name, task.number)
        status = statuses.get(key, TaskStatus(TaskState.UNASSIGNED))
        tasks.append(TaskView(task.number, status, owners.get(key, connector.status.worker)))
    return ConnectorView(connector, connector.status, tasks)


@dataclass(frozen=True, kw_only=True)
class ConnectorFilter:
    """Selects connectors. All non-empty criteria must match, each by any of its values.

    Args:
        names: Glob patterns of names: ``*``, ``?`` and ``[a-z]``.
        task_states: States that at least one task must have.
        plugins: Plugins, by name, alias or class.
    """

    names: Collection[str] = ()
    kinds: Collection[ConnectorKind] = ()
    states: Collection[ConnectorState] = ()
    task_states: Collection[TaskState] = ()
    plugins: Collection[str] = ()

    def takes(self, view: ConnectorView, plugin: PluginInfo | None) -> bool:
        """Return whether a connector matches; ``plugin`` is None if it is not installed."""
        found = view.connector
        names = {found.config.get("connector.class", "")}
        if plugin is not None:
            names |= {plugin.name, plugin.class_path, *plugin.aliases}
        return (
            (not self.names or any(fnmatchcase(found.name, each) for each in self.names))
            and (not self.kinds or found.kind in self.kinds)
            and (not self.states or view.status.state in self.states)
            and (
                not self.task_states
                or any(task.status.state in self.task_states for task in view.tasks)
            )
            and (not self.plugins or not names.isdisjoint(self.plugins))
        )


class BulkAction(StrEnum):
    """The operations on many connectors at once."""

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
    """The result of a bulk operation for one connector.

    Args:
        view: The connector before the operation.
        done: Whether the operation is done, or will be by the worker.
    """

    view: ConnectorView
    done: bool = False
    error: HeadraceError | None = None


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """A bulk operation.

    Args:
        tasks: Whether a restart includes the tasks.
        only_failed: Whether a restart skips parts that have not failed.
    """

    action: BulkAction
    tasks: bool = True
    only_failed: bool = False

    def run(
        self, connectors: Connectors, chosen: ConnectorFilter, by: str, *, dry: bool
    ) -> list[BulkResult]:
        """Run the operation on each matching connector, by name; if ``dry``, only list them.

        If one fails, e.g. because it was deleted meanwhile, the others are still processed.
        """
        results = []
        for view in connectors.chosen(chosen):
            error = None if dry else self._error_of(connectors, view.connector.name, by)
            results.append(BulkResult(view, done=not dry and error is None, error=error))
        return results

    def _error_of(self, connectors: Connectors, name: str, by: str) -> HeadraceError | None:
        try:
            if self.action is BulkAction.DELETE:
                connectors.delete(name, by)
            elif self.action is BulkAction.RESTART:
                connectors.restart(name, by, tasks=self.tasks, only_failed=self.only_failed)
            else:
                connectors.set_target(name, _TARGETS[self.action], by)
        except HeadraceError as error:
            return error
        return None


class ConfigVersionNotFoundError(HeadraceError):
    """The connector has no configuration version with that number."""

    code: ClassVar[str] = "connector.version_not_found"
    category: ClassVar[Category] = Category.CONFIG


@dataclass(frozen=True)
class ConfigChange:
    """A key that differs between two configurations; None where it is not set."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ConfigVersions:
    """The configuration versions of an installation's connectors. Thread-safe."""

    connectors: Connectors

    def all(self, name: str) -> Sequence[ConfigVersion]:
        return [self.connectors.masks.of(each) for each in self._stored(name)]

    def get(self, name: str, number: int) -> ConfigVersion:
        return self.connectors.masks.of(self._find(name, number))

    def _stored(self, name: str) -> Sequence[ConfigVersion]:
        return existing(name, self.connectors.store.versions(name) or None)

    def _find(self, name: str, number: int) -> ConfigVersion:
        versions = self._stored(name)
        for version in versions:
            if version.version == number:
                return version
        problem = f"Connector {name} has no configuration version {number}."
        fix = f"Use a version from {versions[-1].version} to {versions[0].version}."
        raise ConfigVersionNotFoundError(problem, fix=fix, field="version")

    def changes(self, name: str, before: int, after: int) -> list[ConfigChange]:
        """Return the keys that differ between two versions, by name, with passwords hidden.

        Raises ConnectorNotFoundError or ConfigVersionNotFoundError.
        """
        first, then = self._find(name, before).config, self._find(name, after).config
        shown = [self.connectors.masks.shown(each) for each in (first, then)]
        return [
            replace(each, before=shown[0].get(each.key), after=shown[1].get(each.key))
            for each in differences(first, then)
        ]

    def steps(self, name: str) -> list[tuple[ConfigVersion, list[str]]]:
        """Return all versions, newest first, with the keys that each changed."""
        versions = self._stored(name)
        older: list[Mapping[str, str]] = [*(each.config for each in versions[1:]), {}]
        return [
            (
                self.connectors.masks.of(each),
                [change.key for change in differences(before, each.config)],
            )
            for each, before in zip(versions, older, strict=True)
        ]

    def restore(self, name: str, number: int, by: str) -> Connector:
        """Restore an earlier configuration of a connector, as its next version.

        Restoring the current configuration changes nothing. The configuration is checked again,
        because plugins may have changed. Raises ConnectorNotFoundError,
        ConfigVersionNotFoundError, or the errors of the configuration.
        """
        return self.connectors.configure(name, self._find(name, number).config, by)[0]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[ConfigChange]:
    """Return the keys that differ, by name."""
    keys = sorted({*before, *after})
    changes = (ConfigChange(key, before.get(key), after.get(key)) for key in keys)
    return [change for change in changes if change.before != change.after]


BALANCE = "read = written + filtered + rejected"
"""Guarantee 4: holds for each batch, and so for any sum of batches."""


@dataclass(frozen=True)
class Tally:
    """The record counts of one connector.

    Args:
        tasks: The counts of each task that has ever run, by number.
        replays: The counts of replayed dead letters, which were rejected before.
    """

    connector: str
    tasks: Mapping[int, Counts]
    replays: Counts

    @property
    def total(self) -> Counts:
        """Return the sum over all tasks, without replays."""
        return reduce(Counts.plus, self.tasks.values(), Counts())


@dataclass(frozen=True)
class Tallies:
    """The record counts of an installation's connectors. Thread-safe."""

    connectors: Connectors

    def of(self, name: str, since: datetime | None = None) -> Tally:
        """Return the counts of one connector.

        With ``since``, of the batches since that time, as far as the store still has them.
        """
        self.connectors.get(name)
        state = self.connectors.task_store
        found = state.all_totals(name)
        if since is not None:
            found = {task: state.counts_since(task, since) for task in found}
        return _tally(name, found)

    def chosen(self, chosen: ConnectorFilter) -> list[Tally]:
        """Return the counts of the connectors that match a filter, by name.

        The number of store queries does not depend on the number of connectors.
        """
        found: dict[str, dict[TaskId, Counts]] = {}
        for task, counts in self.connectors.task_store.all_totals().items():
            found.setdefault(task.connector, {})[task] = counts
        names = [view.connector.name for view in self.connectors.chosen(chosen)]
        return [_tally(name, found.get(name, {})) for name in names]

    def batches(self, name: str, number: int, limit: int) -> Sequence[Batch]:
        """Return the newest batches of a task, newest first; empty if it never ran.

        Raises ConnectorNotFoundError.
        """
        self.connectors.get(name)
        return self.connectors.task_store.batches(TaskId(name, number), limit)


def _tally(name: str, found: Mapping[TaskId, Counts]) -> Tally:
    tasks = {task.number: counts for task, counts in sorted(found.items())}
    replays = tasks.pop(REPLAYS, Counts())
    return Tally(name, tasks, replays)
