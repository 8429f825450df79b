"""A connector as the control plane keeps it: what is wanted of it, and how it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


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
        state: Its state.
        worker: The worker that runs it; empty while none does.
        trace: Why it failed, and what is done about it.
        next_try: When it is started anew by itself, if it is; aware.
    """

    state: ConnectorState = ConnectorState.UNASSIGNED
    worker: str = ""
    trace: str | None = None
    next_try: datetime | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector that the control plane was given.

    Args:
        name: Unique in the store.
        uid: Its identity; a connector that is made again under the name has another.
        kind: What it copies between.
        config: The configuration as it was given, secrets as references.
        version: The number of the configuration, from 1.
        target: Its target state.
        restarts: How often it was asked to start anew, its tasks left alone.
        status: How it is.
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
        number: Its number, from 0.
        config: Its configuration.
        restarts: How often it was asked to start anew.
    """

    number: int
    config: Mapping[str, str]
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A configuration that a connector has or had.

    Args:
        version: Its number, from 1.
        config: The configuration.
        at: When it was given; aware.
        by: Who gave it.
    """

    version: int
    config: Mapping[str, str]
    at: datetime
    by: str


class EventKind(StrEnum):
    """What can happen to a connector, or on its server; all but a state somebody did."""

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


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a connector or one of its tasks.

    Args:
        id: Grows with time; whoever has seen one asks for those after it.
        at: When; aware.
        connector: The connector; empty for what concerns the server, or several of them.
        task: The number of the task; None for the connector itself.
        kind: What happened, see EventKind.
        by: Who made it happen: a caller's name, or the worker's.
        detail: Further details, by kind.
    """

    id: int
    at: datetime
    connector: str
    task: int | None
    kind: str
    by: str
    detail: Mapping[str, object]
