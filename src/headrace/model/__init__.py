"""The nouns and their changes of state; pure."""

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
from headrace.model.lease import Lease
from headrace.model.restart import RestartKeys, RestartPolicy
from headrace.model.retention import Retention
from headrace.model.subjects import (
    DEFAULT_CONTEXT,
    CompatibilityLevel,
    RegistryMode,
    StoredSchema,
    Subject,
    SubjectVersion,
)
from headrace.model.task import TaskId, TaskState, TaskStatus, file_name
from headrace.model.tolerance import ToleranceLimits
from headrace.model.topic import Reading, TopicReaders, TopicRetention

__all__ = [
    "DEFAULT_CONTEXT",
    "Batch",
    "BatchState",
    "CompatibilityLevel",
    "ConfigVersion",
    "Connector",
    "ConnectorKind",
    "ConnectorState",
    "ConnectorStatus",
    "Counts",
    "Definition",
    "Event",
    "EventKind",
    "Lease",
    "PluginSpec",
    "Reading",
    "RegistryMode",
    "RestartKeys",
    "RestartPolicy",
    "Retention",
    "Stamp",
    "StepSpec",
    "StoredSchema",
    "Subject",
    "SubjectVersion",
    "TargetState",
    "TaskConfig",
    "TaskId",
    "TaskState",
    "TaskStatus",
    "ToleranceLimits",
    "TopicReaders",
    "TopicRetention",
    "file_name",
]
