"""What happens when the schema of records is not the target's.

In it: the keys of a policy, differences, the plan that a policy makes of them, the plan applied
as SQL and as Arrow, and what targets have taken. Never: Spark itself, connectors, the store.
"""

from headrace.evolution.diff import SchemaChange, schema_changes
from headrace.evolution.keys import (
    EvolutionSettings,
    evolution_keys,
    evolution_of,
    plugin_keys,
)
from headrace.evolution.targets import (
    Evolution,
    Handled,
    Move,
    Reconciled,
    Reconciliations,
    Target,
    reconcile,
    topic_of,
)

__all__ = [
    "Evolution",
    "EvolutionSettings",
    "Handled",
    "Move",
    "Reconciled",
    "Reconciliations",
    "SchemaChange",
    "Target",
    "evolution_keys",
    "evolution_of",
    "plugin_keys",
    "reconcile",
    "schema_changes",
    "topic_of",
]
