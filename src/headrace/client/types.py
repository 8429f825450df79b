"""What a server tells of connectors, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sdk.errors import ConfigError


FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """A connector as it was defined.

    Args:
        name: Its name.
        kind: ``source`` or ``sink``.
        config: Its configuration, as texts.
        tasks: The numbers of its tasks.
    """

    name: str
    kind: str
    config: Mapping[str, str]
    tasks: tuple[int, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ConnectorInfo:
        """Read it as a server writes it."""
        tasks = tuple(int(task["task"]) for task in value.get("tasks", ()))
        return cls(value["name"], value.get("type") or "", dict(value["config"]), tasks)

    def to_json(self) -> dict[str, Any]:
        """Return it as a server writes it."""
        return {
            "name": self.name,
            "config": dict(self.config),
            "tasks": [{"connector": self.name, "task": number} for number in self.tasks],
            "type": self.kind,
        }


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """How a task is.

    Args:
        number: Its number, from 0.
        state: RUNNING, PAUSED, FAILED, UNASSIGNED, RESTARTING, ...
        worker: Who runs it; empty for nobody.
        trace: Why it failed.
        version: The version of its plugin.
    """

    number: int
    state: str
    worker: str = ""
    trace: str | None = None
    version: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TaskHealth:
        """Read it as a server writes it."""
        return cls(
            int(value["id"]),
            value["state"],
            value.get("worker_id") or "",
            value.get("trace"),
            value.get("version") or "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a server writes it."""
        trace = {} if self.trace is None else {"trace": self.trace}
        return {
            "id": self.number,
            "state": self.state,
            "worker_id": self.worker,
            **trace,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """How a connector and its tasks are.

    Args:
        name: Its name.
        kind: ``source`` or ``sink``.
        state: RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED or RESTARTING.
        worker: Who runs it; empty for nobody.
        trace: Why it failed.
        version: The version of its plugin.
        tasks: Its tasks, by number.
    """

    name: str
    kind: str
    state: str
    worker: str = ""
    trace: str | None = None
    version: str = ""
    tasks: tuple[TaskHealth, ...] = field(default=())

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ConnectorStatus:
        """Read it as a server writes it."""
        itself = value["connector"]
        return cls(
            value["name"],
            value.get("type") or "",
            itself["state"],
            itself.get("worker_id") or "",
            itself.get("trace"),
            itself.get("version") or "",
            tuple(sorted(map(TaskHealth.of, value["tasks"]), key=lambda task: task.number)),
        )

    @property
    def failures(self) -> dict[str, str]:
        """Return the trace of each part that failed: the connector, or ``name-0``."""
        parts = {self.name: (self.state, self.trace)}
        parts |= {f"{self.name}-{t.number}": (t.state, t.trace) for t in self.tasks}
        return {name: trace or "" for name, (state, trace) in parts.items() if state == FAILED}

    def to_json(self) -> dict[str, Any]:
        """Return it as a server writes it."""
        trace = {} if self.trace is None else {"trace": self.trace}
        itself = {"state": self.state, "worker_id": self.worker, **trace}
        return {
            "name": self.name,
            "connector": {**itself, "version": self.version},
            "tasks": [task.to_json() for task in self.tasks],
            "type": self.kind,
        }


@dataclass(frozen=True, slots=True)
class OffsetInfo:
    """Where a connector stands in one partition of what it reads.

    Args:
        partition: The partition, in the source's own words.
        offset: The offset; None stands for the beginning.
    """

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return it as a server reads and writes it."""
        offset = None if self.offset is None else dict(self.offset)
        return {"partition": dict(self.partition), "offset": offset}


@dataclass(frozen=True, slots=True)
class PluginSummary:
    """A plugin that a server has.

    Args:
        class_name: What ``connector.class`` or a transform's ``type`` names.
        kind: ``source``, ``sink``, ``transformation``, ``predicate``, ``converter``, ...
        version: Its version.
    """

    class_name: str
    kind: str
    version: str

    def to_json(self) -> dict[str, Any]:
        """Return it as a server writes it."""
        return {"class": self.class_name, "type": self.kind, "version": self.version}


@dataclass(frozen=True, slots=True)
class Validation:
    """What a server says of a configuration.

    Args:
        errors: Everything that is wrong with it.
        secrets: The keys whose values are secret.
        unknown: The keys that nothing reads, as far as the server knows.
    """

    errors: tuple[ConfigError, ...]
    secrets: frozenset[str]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """How much a logger of the server tells.

    Args:
        name: The logger; ``root`` for all that have no level of their own.
        level: TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF.
        modified_ms: When it was last set, in milliseconds since 1970; None for never.
    """

    name: str
    level: str
    modified_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {"name": self.name, "level": self.level, "last_modified": self.modified_ms}
