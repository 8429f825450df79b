"""A connector: its definition, its target state, its state, and what happens to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import field as default
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Stamp:
    """When something was done, aware, and by whom."""

    at: datetime
    by: str


class TargetState(StrEnum):
    """What is wanted of a connector, as Kafka Connect names it in ``initial_state``."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorState(StrEnum):
    """How a connector is, as Kafka Connect shows it. Its tasks have states of their own."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class ConnectorKind(StrEnum):
    """What a connector copies between."""

    SOURCE = "source"
    SINK = "sink"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """How a connector is.

    Args:
        worker: The worker that runs it; empty while none does.
        trace: Why it failed, and what is done about it.
        next_try: When it is started again by itself, if it is; aware.
    """

    state: ConnectorState = ConnectorState.UNASSIGNED
    worker: str = ""
    trace: str | None = None
    next_try: datetime | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector that the control plane was given.

    Args:
        uid: Its identity; a connector that is made again under the name has another.
        config: The configuration as it was given, secrets as references.
        version: The number of the configuration, from 1.
        restarts: How often it was asked to start again, its tasks left alone.
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
        restarts: How often it was asked to start again.
    """

    number: int
    config: Mapping[str, str]
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A configuration that a connector has or had."""

    version: int
    config: Mapping[str, str]
    at: datetime
    by: str


class EventKind(StrEnum):
    """What can happen to a connector or a job, or on their server."""

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
"""The kinds of events that happen by themselves; all others somebody did."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a connector or one of its tasks, or to a job.

    Args:
        id: Grows with time; whoever has seen one asks for those after it.
        connector: The connector, or the job; empty for what concerns the server, or several.
        task: The number of the task; None for the connector itself.
        kind: What happened, see EventKind.
        by: Who made it happen: a caller's name, or the worker's.
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

    ``place`` says where in the user's file it stands, for errors; empty for the top.
    """

    plugin: str
    config: Mapping[str, str] = default(default_factory=dict)
    place: str = ""

    def field(self, key: str | None) -> str:
        """Return the full name of one of its keys, as the user wrote it."""
        return ".".join(part for part in (self.place, key) if part)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A transform of the chain.

    Args:
        transform: Plugin or class name, with ``$Key`` or ``$Value`` where it has both.
        predicate: The predicate's plugin or class name; None applies to all records.
        negate: Whether the step applies where the predicate is false.
        place: Where in the user's file it stands, for errors.
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
        source: What is read; None for a sink connector, which reads ``topics``.
        sinks: What is written; empty for a source connector, which writes ``topics``.
        topics: The topics between; empty for a direct connector.
        common: The keys that the runtime itself reads (``tasks.max``, ``errors.*``,
            ``batch.*``...).
        strict: Whether an unknown key is an error; Kafka's form allows any.
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
    """Between what is copied, as digests: positions and marks mean nothing elsewhere.

    Args:
        source: The source's plugin, and what it reads.
        sinks: What each sink is called in marks: by its plugin, and what it writes to.
    """

    source: str
    sinks: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {"source": self.source, "sinks": list(self.sinks)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Endpoints:
        """Read what ``to_json`` wrote."""
        return cls(str(kept["source"]), tuple(map(str, kept["sinks"])))
