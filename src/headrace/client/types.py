"""Value classes for connectors and other objects of a server.

``of`` parses the server's JSON, and ``to_json`` returns it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from headrace.sdk.errors import ConfigError


FAILED = "FAILED"
_FIELDS = {
    "headrace_task_records_read_total": "read",
    "headrace_task_records_written_total": "written",
    "headrace_task_records_rejected_total": "rejected",
    "headrace_task_bytes_total": "size_bytes",
    "headrace_task_batch_seconds_count": "batches",
    "headrace_task_batch_seconds_sum": "batch_seconds",
    "headrace_task_batch_records": "batch_records",
    "headrace_task_lag_records": "lag_records",
    "headrace_task_lag_bytes": "lag_bytes",
    "headrace_task_retries_total": "retries",
    "headrace_task_failures_total": "failures",
}
_STATE = "headrace_task_state"


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


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The state of a task, and its counts since the server started.

    Args:
        connector: The name of its connector.
        number: Its number, from 0.
        state: RUNNING, PAUSED, FAILED, ...
        read: Records read.
        written: Records that are durable in its targets.
        rejected: Records that failed and were skipped.
        size_bytes: Bytes read or written.
        batches: The number of finished batches.
        batch_seconds: Their total duration.
        batch_records: The number of records that the newest batch read.
        lag_records: The lag in records at the start of that batch; None if unknown.
        lag_bytes: The same lag in bytes.
        retries: The number of steps that failed and were retried.
        failures: How often it became FAILED.
    """

    connector: str
    number: int
    state: str = ""
    read: float = 0
    written: float = 0
    rejected: float = 0
    size_bytes: float = 0
    batches: float = 0
    batch_seconds: float = 0
    batch_records: float = 0
    lag_records: float | None = None
    lag_bytes: float | None = None
    retries: float = 0
    failures: float = 0

    @property
    def name(self) -> str:
        return f"{self.connector}-{self.number}"


def task_figures(text: str) -> list[TaskFigures]:
    """Return the figures of each task, by name, from a text in Prometheus format."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - as httpx2 is

    found: dict[tuple[str, int], TaskFigures] = {}
    families: Iterable[Any] = text_string_to_metric_families(text)
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        if "task" not in labels or "connector" not in labels:
            continue
        key = labels["connector"], int(labels["task"])
        before = found.get(key) or TaskFigures(*key)
        if sample.name == _STATE and sample.value == 1:
            found[key] = replace(before, state=labels["state"])
        elif sample.name in _FIELDS:
            found[key] = replace(before, **{_FIELDS[sample.name]: sample.value})
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """A filter of dead letters; None matches any.

    Args:
        connector: The connector that rejected them.
        stage: The stage, by its Kafka Connect name.
        exception: The class of the error, with or without its package.
        since: Rejected by batches begun at or after this time; aware.
        until: Rejected by batches begun before this time; aware.
        ids: The ids of the letters; empty for any.
    """

    connector: str | None = None
    stage: str | None = None
    exception: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the filter as the query or body of a request."""
        return not_none(
            since=self.since and self.since.isoformat(),
            until=self.until and self.until.isoformat(),
            connector=self.connector,
            stage=self.stage,
            exception=self.exception,
            id=list(self.ids) or None,
        )


def not_none(**values: Any) -> dict[str, Any]:
    """Return the values that are set."""
    return {key: value for key, value in values.items() if value is not None}
