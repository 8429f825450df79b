"""The nouns and their changes of state.

In it: connectors, tasks, leases, batches, counts, policies. Never: I/O, a thread, a clock.
"""

from headrace.model.batch import Batch, BatchState, Counts
from headrace.model.connector import (
    ConfigVersion,
    Connector,
    ConnectorKind,
    ConnectorState,
    ConnectorStatus,
    Definition,
    Event,
    EventKind,
    PluginSpec,
    Stamp,
    StepSpec,
    TargetState,
    TaskConfig,
)
from headrace.model.errors import (
    PluginNotFoundError,
    SchemaChangeError,
    SparkError,
    SparkLostError,
    SparkMemoryError,
    SparkUnavailableError,
    ToleranceExceededError,
    TooManyRejectedError,
    TopicNotFoundError,
)
from headrace.model.rejected_records import MOST_LINES, ErrorLog, ToleranceLimits
from headrace.model.retries import Backoff, RestartKeys, RestartPolicy
from headrace.model.task import Lease, TaskId, TaskState, TaskStatus, file_name
from headrace.model.topic import (
    Reading,
    Retention,
    TopicReaders,
    TopicRetention,
    topic_matcher,
)

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
    "SparkError",
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
    "topic_matcher",
]
