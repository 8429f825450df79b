"""The nouns and their changes of state; pure."""

from headrace.model.batch import Batch, BatchState, Counts
from headrace.model.definition import Definition, PluginSpec, StepSpec
from headrace.model.lease import Lease
from headrace.model.subjects import (
    DEFAULT_CONTEXT,
    CompatibilityLevel,
    RegistryMode,
    StoredSchema,
    Subject,
    SubjectVersion,
)
from headrace.model.task import TaskId, TaskState, TaskStatus
from headrace.model.tolerance import ToleranceLimits

__all__ = [
    "DEFAULT_CONTEXT",
    "Batch",
    "BatchState",
    "CompatibilityLevel",
    "Counts",
    "Definition",
    "Lease",
    "PluginSpec",
    "RegistryMode",
    "StepSpec",
    "StoredSchema",
    "Subject",
    "SubjectVersion",
    "TaskId",
    "TaskState",
    "TaskStatus",
    "ToleranceLimits",
]
