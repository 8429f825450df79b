from .alerts import AlertRules as AlertRules, trial_alert as trial_alert
from .config_infos import (
    config_infos as config_infos,
    definition_of as definition_of,
    plugin_keys_of as plugin_keys_of,
    secrets_of as secrets_of,
)
from .connector_settings import parse_common as parse_common
from .connectors import (
    BALANCE as BALANCE,
    Bulk as Bulk,
    BulkAction as BulkAction,
    BulkResult as BulkResult,
    ConfigVersionNotFoundError as ConfigVersionNotFoundError,
    ConfigVersions as ConfigVersions,
    ConnectorFilter as ConnectorFilter,
    Connectors as Connectors,
    ConnectorView as ConnectorView,
    Tallies as Tallies,
    Tally as Tally,
    TaskView as TaskView,
)
from .definition_forms import (
    from_rocketmq as from_rocketmq,
    in_rocketmq_words as in_rocketmq_words,
    target_state as target_state,
    to_rocketmq as to_rocketmq,
)
from .files import (
    Served as Served,
    check_names as check_names,
    documents_of as documents_of,
    read_config as read_config,
    read_definitions as read_definitions,
    read_documents as read_documents,
    served as served,
)
from .job_definitions import (
    bounded as bounded,
    check_copy as check_copy,
    followed as followed,
    read_job as read_job,
)
from .job_windows import is_ordered as is_ordered
from .jobs import (
    Backfill as Backfill,
    BackfillNotFoundError as BackfillNotFoundError,
    Jobs as Jobs,
    JobView as JobView,
    NotApproverError as NotApproverError,
)
from .offsets import (
    GivenUp as GivenUp,
    Holding as Holding,
    Offset as Offset,
    OffsetChange as OffsetChange,
    OffsetEffect as OffsetEffect,
    Offsets as Offsets,
    TargetView as TargetView,
    UnfinishedBatches as UnfinishedBatches,
    input_positions as input_positions,
    meaning_of as meaning_of,
    places_text as places_text,
    require_not_held as require_not_held,
)
from .task_plans import (
    REPLAYS as REPLAYS,
    Copy as Copy,
    CopyPlan as CopyPlan,
    OpenPlan as OpenPlan,
    SinkPlan as SinkPlan,
    SourcePlan as SourcePlan,
    StepPlan as StepPlan,
    TaskPlan as TaskPlan,
    copies_of as copies_of,
    plan_sinks as plan_sinks,
    plan_steps as plan_steps,
    plan_tasks as plan_tasks,
    replay_plan as replay_plan,
    try_transforms as try_transforms,
)
from .validation import (
    Findings as Findings,
    check_definition as check_definition,
    errors_at as errors_at,
    resolved as resolved,
    unknown_keys as unknown_keys,
)
