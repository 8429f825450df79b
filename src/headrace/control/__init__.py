"""Decides: reads definitions, checks them, plans their tasks, and changes target states.

In it: validation, planning, `offsets.py` (seen and altered; workers commit them), versions,
counts, the runtime's own keys. Never: a running task, Spark or HTTP.
"""

from headrace.control.config_infos import (
    config_infos,
    definition_of,
    plugin_keys_of,
    secrets_of,
)
from headrace.control.connector_settings import parse_common
from headrace.control.connectors import (
    Bulk,
    BulkAction,
    BulkResult,
    ConfigChange,
    ConfigVersionNotFoundError,
    ConfigVersions,
    ConnectorFilter,
    Connectors,
    ConnectorView,
    TaskView,
)
from headrace.control.converters import ConverterPlan
from headrace.control.counts import BALANCE, Tallies, Tally
from headrace.control.definition_forms import (
    from_rocketmq,
    in_rocketmq_words,
    target_state,
    to_rocketmq,
)
from headrace.control.files import (
    Served,
    check_names,
    documents_of,
    read_config,
    read_definitions,
    read_documents,
    served,
)
from headrace.control.offsets import Offset, OffsetChange, OffsetEffect, Offsets, OffsetUpdate
from headrace.control.planning import (
    REPLAYS,
    OpenPlan,
    SinkPlan,
    SourcePlan,
    StepPlan,
    TaskPlan,
    plan_tasks,
    replay_plan,
    try_transforms,
)
from headrace.control.unfinished_batches import (
    BatchTargets,
    GivenUp,
    Holding,
    TargetView,
    UnfinishedBatches,
)
from headrace.control.validation import Findings, check_definition

__all__ = [
    "BALANCE",
    "REPLAYS",
    "BatchTargets",
    "Bulk",
    "BulkAction",
    "BulkResult",
    "ConfigChange",
    "ConfigVersionNotFoundError",
    "ConfigVersions",
    "ConnectorFilter",
    "ConnectorView",
    "Connectors",
    "ConverterPlan",
    "Findings",
    "GivenUp",
    "Holding",
    "Offset",
    "OffsetChange",
    "OffsetEffect",
    "OffsetUpdate",
    "Offsets",
    "OpenPlan",
    "Served",
    "SinkPlan",
    "SourcePlan",
    "StepPlan",
    "Tallies",
    "Tally",
    "TargetView",
    "TaskPlan",
    "TaskView",
    "UnfinishedBatches",
    "check_definition",
    "check_names",
    "config_infos",
    "definition_of",
    "documents_of",
    "from_rocketmq",
    "in_rocketmq_words",
    "parse_common",
    "plan_tasks",
    "plugin_keys_of",
    "read_config",
    "read_definitions",
    "read_documents",
    "replay_plan",
    "secrets_of",
    "served",
    "target_state",
    "to_rocketmq",
    "try_transforms",
]
