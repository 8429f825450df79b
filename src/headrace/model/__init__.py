"""The nouns and their changes of state; pure."""

from headrace.model.batch import Batch, BatchState, Counts
from headrace.model.definition import Definition, PluginSpec, StepSpec
from headrace.model.lease import Lease
from headrace.model.task import TaskId, TaskState, TaskStatus
from headrace.model.tolerance import ToleranceLimits

__all__ = [
    "Batch",
    "BatchState",
    "Counts",
    "Definition",
    "Lease",
    "PluginSpec",
    "StepSpec",
    "TaskId",
    "TaskState",
    "TaskStatus",
    "ToleranceLimits",
]
