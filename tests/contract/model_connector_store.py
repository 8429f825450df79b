"""What stores of connectors must do, in plain Python, see model_store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from headrace.model import ConfigVersion, Connector, Event, Stamp, TaskConfig
from headrace.sdk import Position
from headrace.store.rows import (
    check_new,
    check_tasks,
    check_to_stop,
    check_unchanged,
    existing,
    given_up,
    state_after,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from tests.contract.model_store import MemoryStore

    from headrace.model import (
        Batch,
        ConnectorKind,
        ConnectorStatus,
        Retention,
        TargetState,
        TaskId,
        TaskStatus,
    )


@dataclass
class _Kept:
    """All that is kept for one connector."""

    connector: Connector
    versions: list[ConfigVersion]
    tasks: list[TaskConfig] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)


class MemoryConnectorStore:
    """A ConnectorStore that forgets everything when the process ends."""

    def __init__(self, state: MemoryStore) -> None:
        """Start empty; ``state`` is where the state of tasks is."""
        self._state = state
        self._lock = state.lock
        state.told = self._task_state
        self._kept: dict[str, _Kept] = {}
        self._events: list[Event] = []

    def create(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        target: TargetState,
        stamp: Stamp,
    ) -> Connector:
        with self._lock:
            check_new(name, self._kept.get(name))
            uid = self._state.register(name)
            made = Connector(name, uid, kind, dict(config), 1, target)
            self._kept[name] = _Kept(made, [_version(1, config, stamp)])
            self._event(name, "created", stamp, {"version": 1, "target": target.value})
            return made

    def connector(self, name: str) -> Connector | None:
        with self._lock:
            return self._kept[name].connector if name in self._kept else None

    def connectors(self) -> Sequence[Connector]:
        with self._lock:
            return [self._kept[name].connector for name in sorted(self._kept)]

    def configure(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        stamp: Stamp,
        seen: Connector | None = None,
    ) -> Connector:
        with self._lock:
            kept = self._existing(name)
            found = kept.connector
            if seen is not None:
                there, known = (found.uid, found.version), (seen.uid, seen.version)
                check_unchanged(name, there, known)
            if dict(found.config) == dict(config):
                return found
            version = found.version + 1
            kept.connector = replace(found, kind=kind, config=dict(config), version=version)
            kept.versions.append(_version(version, config, stamp))
            self._event(name, "configured", stamp, {"version": version})
            return kept.connector

    def versions(self, name: str) -> Sequence[ConfigVersion]:
        with self._lock:
            return self._kept[name].versions[::-1] if name in self._kept else []

    def set_target(self, name: str, target: TargetState, stamp: Stamp) -> Connector:
        with self._lock:
            kept = self._existing(name)
            if kept.connector.target is not target:
                state = state_after(kept.connector, target)
                status = replace(kept.connector.status, state=state)
                kept.connector = replace(kept.connector, target=target, status=status)
                self._event(name, "target", stamp, {"target": target.value})
            return kept.connector

    def request_restart(
        self, name: str, tasks: Collection[int], stamp: Stamp, *, connector: bool
    ) -> Connector:
        with self._lock:
            kept = self._existing(name)
            check_tasks(name, tasks, {task.number for task in kept.tasks})
            restarts = kept.connector.restarts + connector
            kept.connector = replace(kept.connector, restarts=restarts)
            kept.tasks = [
                replace(task, restarts=task.restarts + (task.number in tasks))
                for task in kept.tasks
            ]
            detail = {"connector": connector, "tasks": sorted(tasks)}
            self._event(name, "restart", stamp, detail)
            return kept.connector

    def delete(self, name: str, stamp: Stamp) -> None:
        with self._lock:
            self._existing(name)
            del self._kept[name]
            self._state.remove(name)
            self._event(name, "deleted", stamp, {})

    def plan(
        self, connector: Connector, configs: Mapping[int, Mapping[str, str]], now: datetime
    ) -> bool:
        with self._lock:
            kept = self._current(connector)
            if kept is None:
                return False
            restarts = {task.number: task.restarts for task in kept.tasks}
            kept.tasks = [
                TaskConfig(number, dict(config), restarts.get(number, 0))
                for number, config in sorted(configs.items())
            ]
            return True

    def tasks(self, name: str) -> Sequence[TaskConfig]:
        with self._lock:
            return list(self._kept[name].tasks) if name in self._kept else []

    def all_tasks(self) -> Mapping[str, Sequence[TaskConfig]]:
        with self._lock:
            kept = self._kept.items()
            return {name: list(each.tasks) for name, each in kept if each.tasks}

    def set_status(self, connector: Connector, status: ConnectorStatus, now: datetime) -> bool:
        with self._lock:
            kept = self._current(connector)
            if kept is None:
                return False
            kept.connector = replace(kept.connector, status=status)
            detail = {"state": status.state.value, "trace": status.trace}
            self._event(connector.name, "state", Stamp(now, status.worker), detail)
            return True

    def set_positions(
        self,
        name: str,
        positions: Mapping[TaskId, Position],
        stamp: Stamp,
        action: str = "alter",
        seen: Mapping[TaskId, Position] | None = None,
    ) -> None:
        with self._lock:
            self._existing(name)
            stood = self._state.positions(name)
            if seen is not None:
                there, known = (
                    {task: each.get(task, Position()) for task in positions}
                    for each in (stood, seen)
                )
                check_unchanged(name, there, known)
            before = {t.number: stood.get(t, Position()).to_json() for t in positions}
            self._state.set_positions(positions)
            after = {task.number: each.to_json() for task, each in positions.items()}
            self._event(
                name, "offsets", stamp, {"action": action, "before": before, "after": after}
            )

    def give_up(self, task: TaskId, batch_id: int, stamp: Stamp, *, skip: bool) -> Batch:
        with self._lock:
            check_to_stop(self._existing(task.connector).connector)
            before = self._state.position(task).to_json()
            batch = self._state.give_up(task, batch_id, skip=skip)
            after = self._state.position(task).to_json()
            self._event(task.connector, "offsets", stamp, given_up(batch, before, after))
            return batch

    def add_topics(self, connector: Connector, topics: Collection[str]) -> None:
        with self._lock:
            kept = self._kept.get(connector.name)
            if kept is not None and kept.connector.uid == connector.uid:
                kept.topics |= set(topics)

    def topics(self, name: str) -> Sequence[str]:
        with self._lock:
            return sorted(self._kept[name].topics) if name in self._kept else []

    def reset_topics(self, name: str) -> None:
        with self._lock:
            if name in self._kept:
                self._kept[name].topics.clear()

    def add_event(
        self, kind: str, stamp: Stamp, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        with self._lock:
            self._event(connector, kind, stamp, detail)

    def events(
        self,
        after: int = 0,
        limit: int = 100,
        connector: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> Sequence[Event]:
        with self._lock:
            later = [event for event in self._events if event.id > after]
        found = (
            each
            for each in later
            if connector in {None, each.connector} and (kinds is None or each.kind in kinds)
        )
        return list(islice(found, limit))

    def last_event(self) -> int:
        with self._lock:
            return self._events[-1].id if self._events else 0

    def prune(self, keep: Retention, now: datetime) -> int:
        with self._lock:
            seen: Counter[tuple[str, int | None]] = Counter()
            kept: list[Event] = []
            changes_age = max(keep.changes_age, keep.states_age)
            for event in reversed(self._events):
                part = event.connector, event.task
                seen[part] += event.kind == "state"
                stays = event.at >= now - changes_age
                if event.kind == "state":
                    stays = (
                        event.at >= now - keep.states_age and seen[part] <= keep.states_count
                    )
                if stays or not kept:
                    kept.insert(0, event)
            gone = len(self._events) - len(kept)
            self._events = kept
            return gone

    def close(self) -> None:
        """See ConnectorStore."""

    def _existing(self, name: str) -> _Kept:
        return existing(name, self._kept.get(name))

    def _current(self, connector: Connector) -> _Kept | None:
        kept = self._kept.get(connector.name)
        if kept is None:
            return None
        now = kept.connector
        same = (now.uid, now.version) == (connector.uid, connector.version)
        return kept if same else None

    def _event(self, name: str, kind: str, stamp: Stamp, detail: Mapping[str, object]) -> None:
        self._add(name, None, kind, stamp, detail)

    def _task_state(self, task: TaskId, status: TaskStatus, stamp: Stamp) -> None:
        detail = {"state": status.state.value, "trace": status.trace}
        self._add(task.connector, task.number, "state", stamp, detail)

    def _add(
        self,
        name: str,
        task: int | None,
        kind: str,
        stamp: Stamp,
        detail: Mapping[str, object],
    ) -> None:
        number = self._events[-1].id + 1 if self._events else 1
        event = Event(number, stamp.at, name, task, kind, stamp.by, detail)
        self._events.append(event)


def _version(number: int, config: Mapping[str, str], stamp: Stamp) -> ConfigVersion:
    return ConfigVersion(number, dict(config), stamp.at, stamp.by)
