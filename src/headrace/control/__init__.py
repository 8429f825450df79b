"""Decides: reads definitions, checks them, plans their tasks, and changes what is wanted.

In it: validation, planning, offsets, versions, the runtime's own keys, and what a server shows
of itself: health, log, backups, counts. Never: a running task, Spark or HTTP.
"""

from headrace.control.backups import Backup, Backups
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
    ConnectorFilter,
    Connectors,
    ConnectorView,
    TaskView,
)
from headrace.control.converters import ConverterPlan
from headrace.control.counts import BALANCE, Tallies, Tally
from headrace.control.files import (
    Served,
    check_names,
    documents_of,
    read_config,
    read_definitions,
    read_documents,
    served,
)
from headrace.control.health import Finding, Health, HealthState, store_look
from headrace.control.offset_changes import Offset, OffsetChange, OffsetEffect, OffsetUpdate
from headrace.control.offsets import Offsets
from headrace.control.planning import (
    REPLAYS,
    OpenPlan,
    SinkPlan,
    SourcePlan,
    StepPlan,
    TaskPlan,
    plan_tasks,
    replay_plan,
)
from headrace.control.rocketmq_form import from_rocketmq, in_rocketmq_words, to_rocketmq
from headrace.control.server_log import LogChoice, LogLine, LogPlace, ServerLog
from headrace.control.trial import try_transforms
from headrace.control.unfinished_batches import (
    BatchTargets,
    GivenUp,
    Holding,
    TargetView,
    UnfinishedBatches,
)
from headrace.control.validation import Findings, check_definition
from headrace.control.versions import (
    ConfigChange,
    ConfigVersionNotFoundError,
    ConfigVersions,
)

__all__ = [
    "BALANCE",
    "REPLAYS",
    "Backup",
    "Backups",
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
    "Finding",
    "Findings",
    "GivenUp",
    "Health",
    "HealthState",
    "Holding",
    "LogChoice",
    "LogLine",
    "LogPlace",
    "Offset",
    "OffsetChange",
    "OffsetEffect",
    "OffsetUpdate",
    "Offsets",
    "OpenPlan",
    "Served",
    "ServerLog",
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
    "store_look",
    "to_rocketmq",
    "try_transforms",
]
