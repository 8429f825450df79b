"""Value classes for connectors and other objects of a server.

``of`` parses the server's JSON, and ``to_json`` returns it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sdk.errors import ConfigError


FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """The definition of a connector, a ``source`` or ``sink``, and the numbers of its tasks."""

    name: str
    kind: str
    config: Mapping[str, str]
    tasks: tuple[int, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ConnectorInfo:
        tasks = tuple(int(task["task"]) for task in value.get("tasks", ()))
        return cls(value["name"], value.get("type") or "", dict(value["config"]), tasks)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "config": dict(self.config),
            "tasks": [{"connector": self.name, "task": number} for number in self.tasks],
            "type": self.kind,
        }


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """The status of a task: RUNNING, PAUSED, FAILED, UNASSIGNED, RESTARTING, ...

    ``worker`` is empty if none runs it, ``trace`` is the reason of a failure, and ``version``
    is the version of its plugin.
    """

    number: int
    state: str
    worker: str = ""
    trace: str | None = None
    version: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TaskHealth:
        return cls(int(value["id"]), *_health(value))

    def to_json(self) -> dict[str, Any]:
        return {"id": self.number, **_health_json(self)}


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The status of a connector, see ``TaskHealth``, and of its tasks by number."""

    name: str
    kind: str
    state: str
    worker: str = ""
    trace: str | None = None
    version: str = ""
    tasks: tuple[TaskHealth, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ConnectorStatus:
        tasks = tuple(sorted(map(TaskHealth.of, value["tasks"]), key=lambda task: task.number))
        kind = value.get("type") or ""
        return cls(value["name"], kind, *_health(value["connector"]), tasks)

    @property
    def task_states(self) -> str:
        """The number of tasks per state: ``2 RUNNING, 1 FAILED``."""
        counts = Counter(task.state for task in self.tasks)
        return ", ".join(f"{number} {state}" for state, number in counts.items())

    @property
    def failures(self) -> dict[str, str]:
        """The trace of each part that failed: the connector, or ``name-0``."""
        parts = {self.name: (self.state, self.trace)}
        parts |= {f"{self.name}-{t.number}": (t.state, t.trace) for t in self.tasks}
        return {name: trace or "" for name, (state, trace) in parts.items() if state == FAILED}

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "connector": _health_json(self),
            "tasks": [task.to_json() for task in self.tasks],
            "type": self.kind,
        }


def _health(value: Mapping[str, Any]) -> tuple[str, str, str | None, str]:
    worker, version = value.get("worker_id") or "", value.get("version") or ""
    return value["state"], worker, value.get("trace"), version


def _health_json(health: TaskHealth | ConnectorStatus) -> dict[str, Any]:
    trace = {} if health.trace is None else {"trace": health.trace}
    shown = {"state": health.state, "worker_id": health.worker, **trace}
    return {**shown, "version": health.version}


@dataclass(frozen=True, slots=True)
class OffsetInfo:
    """The offset of a connector in one partition; None means the beginning."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        offset = None if self.offset is None else dict(self.offset)
        return {"partition": dict(self.partition), "offset": offset}


@dataclass(frozen=True, slots=True)
class PluginSummary:
    """A plugin of a server.

    Args:
        class_name: The value for ``connector.class`` or a transform's ``type``.
        kind: ``source``, ``sink``, ``transformation``, ``predicate``, ``converter``, ...
        version: Its version.
    """

    class_name: str
    kind: str
    version: str

    def to_json(self) -> dict[str, Any]:
        return {"class": self.class_name, "type": self.kind, "version": self.version}


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of validating a configuration.

    Args:
        errors: All errors.
        secrets: The keys whose values are secret.
        warnings: What the server ignores, such as unknown keys.
    """

    errors: tuple[ConfigError, ...]
    secrets: frozenset[str]
    warnings: tuple[ConfigError, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """The level of a logger of the server: TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF.

    The level of ``root`` applies to all loggers without their own level; ``modified_ms``, in
    milliseconds since 1970, is None if the level was never set.
    """

    name: str
    level: str
    modified_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "level": self.level, "last_modified": self.modified_ms}
