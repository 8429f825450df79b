"""Decides: reads definitions, checks them, and plans their tasks."""

from headrace.control.files import check_names, read_definitions
from headrace.control.planning import SinkPlan, SourcePlan, TaskPlan, plan_tasks
from headrace.control.validation import Findings, check_definition

__all__ = [
    "Findings",
    "SinkPlan",
    "SourcePlan",
    "TaskPlan",
    "check_definition",
    "check_names",
    "plan_tasks",
    "read_definitions",
]
