"""Connectors: their definitions, target states, states and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import field as default
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Stamp:
    """When something was done (aware time), and by whom."""

    at: datetime
    by: str


class TargetState(StrEnum):
    """The target state of a connector, with Kafka Connect's names in ``initial_state``."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorState(StrEnum):
    """The state of a connector, as in Kafka Connect. Its tasks have their own states."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class ConnectorKind(StrEnum):
    """The kind of a connector: to topics, from topics, or direct."""

    SOURCE = "source"
    SINK = "sink"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The status of a connector.

    Args:
        worker: The worker that runs it; empty if none.
        trace: Why it failed, and what happens next.
        next_try: Time of the next automatic restart, if any; aware.
    """

    state: ConnectorState = ConnectorState.UNASSIGNED
    worker: str = ""
    trace: str | None = None
    next_try: datetime | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector as the control plane stores it.

    Args:
        uid: Its identity; a connector that is re-created with the same name has another.
        config: The configuration as submitted, with secrets as references.
        version: The number of the configuration, from 1.
        restarts: How often a restart without its tasks was requested.
    """

    name: str
    uid: str
    kind: ConnectorKind
    config: Mapping[str, str]
    version: int
    target: TargetState
    restarts: int = 0
    status: ConnectorStatus = field(default_factory=ConnectorStatus)


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """A task as its connector planned it.

    Args:
        restarts: How often a restart was requested.
    """

    number: int
    config: Mapping[str, str]
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A current or earlier configuration of a connector."""

    version: int
    config: Mapping[str, str]
    at: datetime
    by: str


class EventKind(StrEnum):
    """The kinds of events of a connector, a job or a server."""

    CREATED = "created"
    CONFIGURED = "configured"
    TARGET = "target"
    RESTART = "restart"
    OFFSETS = "offsets"
    DELETED = "deleted"
    DISCARDED = "discarded"
    BACKUP = "backup"
    LOGGER = "logger"
    STATE = "state"
    JOB_CREATED = "job.created"
    JOB_EDITED = "job.edited"
    JOB_SUBMITTED = "job.submitted"
    JOB_APPROVED = "job.approved"
    JOB_REJECTED = "job.rejected"
    JOB_SUSPENDED = "job.suspended"
    JOB_RESUMED = "job.resumed"
    JOB_DELETED = "job.deleted"
    JOB_REGISTERED = "job.registered"
    JOB_FAILED = "job.failed"
    WINDOWS_MISSED = "windows.missed"
    RUN_STOP = "run.stop"
    RUN_AGAIN = "run.again"
    RUN_GIVE_UP = "run.give-up"
    BACKFILL_STOP = "backfill.stop"
    BACKFILL_PAUSE = "backfill.pause"
    BACKFILL_RESUME = "backfill.resume"


BY_ITSELF = frozenset(
    {
        EventKind.STATE,
        EventKind.JOB_REGISTERED,
        EventKind.JOB_FAILED,
        EventKind.WINDOWS_MISSED,
    }
)
"""The kinds of events that happen without a user's request."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a connector or one of its tasks, or of a job.

    Args:
        id: Increases with time; clients poll for events after the last id that they have seen.
        connector: The connector, or the job; empty for events of the server or of several.
        task: The number of the task; None for the connector itself.
        kind: What happened, see EventKind.
        by: Who caused it: a caller's name, or the worker's.
    """

    id: int
    at: datetime
    connector: str
    task: int | None
    kind: str
    by: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A connector plugin by name or class name, with its own configuration.

    ``place`` is its path in the user's file, for error messages; empty for the top level.
    """

    plugin: str
    config: Mapping[str, str] = default(default_factory=dict)
    place: str = ""

    def field(self, key: str | None) -> str:
        """Return the full path of a key in the user's file."""
        return ".".join(part for part in (self.place, key) if part)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A transform of the chain.

    Args:
        transform: Plugin or class name, with ``$Key`` or ``$Value`` if it has both variants.
        predicate: The predicate's plugin or class name; None to apply to all records.
        negate: Whether the step applies if the predicate is false.
        place: The step's path in the user's file, for error messages.
    """

    alias: str
    transform: str
    config: Mapping[str, str] = default(default_factory=dict)
    predicate: str | None = None
    predicate_alias: str = ""
    predicate_config: Mapping[str, str] = default(default_factory=dict)
    negate: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A connector: a source (to a topic), a sink (from topics), or both (direct).

    Args:
        source: The source; None for a sink connector, which reads ``topics``.
        sinks: The sinks; empty for a source connector, which writes ``topics``.
        topics: The topics to read or write; empty for a direct connector.
        common: The keys that the runtime itself reads (``tasks.max``, ``errors.*``,
            ``batch.*``...).
        strict: Whether an unknown key is an error; Kafka Connect's format allows any.
    """

    name: str
    source: PluginSpec | None = None
    sinks: tuple[PluginSpec, ...] = ()
    topics: tuple[str, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    common: Mapping[str, str] = default(default_factory=dict)
    strict: bool = True

    @property
    def kind(self) -> str:
        if self.source is None:
            return "sink"
        return "direct" if self.sinks else "source"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Digests of a copy's source and targets; positions and marks are valid only for these.

    Args:
        source: A digest of the source's plugin and what it reads.
        sinks: The name of each sink in marks: a digest of its plugin and what it writes to.
    """

    source: str
    sinks: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"source": self.source, "sinks": list(self.sinks)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Endpoints:
        """Parse the result of ``to_json``."""
        return cls(str(kept["source"]), tuple(map(str, kept["sinks"])))
