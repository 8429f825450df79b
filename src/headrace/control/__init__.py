"""Decides: reads definitions, checks them, and plans their tasks."""

from headrace.control.converting import ConverterPlan
from headrace.control.files import check_names, read_config, read_definitions
from headrace.control.planning import (
    SinkPlan,
    SourcePlan,
    StepPlan,
    TaskPlan,
    plan_tasks,
    replay_plan,
)
from headrace.control.trial import try_transforms
from headrace.control.validation import Findings, check_definition

__all__ = [
    "ConverterPlan",
    "Findings",
    "SinkPlan",
    "SourcePlan",
    "StepPlan",
    "TaskPlan",
    "check_definition",
    "check_names",
    "plan_tasks",
    "read_config",
    "read_definitions",
    "replay_plan",
    "try_transforms",
]
