"""The nouns and their changes of state; pure."""

from headrace.model.backoff import Backoff
from headrace.model.batch import Batch, BatchState, Counts
from headrace.model.connector import (
    ConfigVersion,
    Connector,
    ConnectorKind,
    ConnectorState,
    ConnectorStatus,
    Event,
    EventKind,
    Stamp,
    TargetState,
    TaskConfig,
)
from headrace.model.definition import Definition, PluginSpec, StepSpec
from headrace.model.error_log import MOST_LINES, ErrorLog
from headrace.model.errors import (
    PluginNotFoundError,
    SchemaChangeError,
    SparkLostError,
    SparkMemoryError,
    SparkUnavailableError,
    ToleranceExceededError,
    TooManyRejectedError,
    TopicNotFoundError,
)
from headrace.model.lease import Lease
from headrace.model.restart import RestartKeys, RestartPolicy
from headrace.model.retention import Retention
from headrace.model.task import TaskId, TaskState, TaskStatus, file_name
from headrace.model.tolerance import ToleranceLimits
from headrace.model.topic import Reading, TopicReaders, TopicRetention

__all__ = [
    "MOST_LINES",
    "Backoff",
    "Batch",
    "BatchState",
    "ConfigVersion",
    "Connector",
    "ConnectorKind",
    "ConnectorState",
    "ConnectorStatus",
    "Counts",
    "Definition",
    "ErrorLog",
    "Event",
    "EventKind",
    "Lease",
    "PluginNotFoundError",
    "PluginSpec",
    "Reading",
    "RestartKeys",
    "RestartPolicy",
    "Retention",
    "SchemaChangeError",
    "SparkLostError",
    "SparkMemoryError",
    "SparkUnavailableError",
    "Stamp",
    "StepSpec",
    "TargetState",
    "TaskConfig",
    "TaskId",
    "TaskState",
    "TaskStatus",
    "ToleranceExceededError",
    "ToleranceLimits",
    "TooManyRejectedError",
    "TopicNotFoundError",
    "TopicReaders",
    "TopicRetention",
    "file_name",
]
