"""Schema evolution: handles records whose schema differs from the target's.

Contains the settings of a policy, schema differences, the plan that a policy derives from them,
its application as SQL and as Arrow, and the schemas that targets have accepted. Does not use
Spark itself, connectors or the store.
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
    Move,
    Reconciliations,
    Target,
    reconcile,
    topic_of,
)

__all__ = [
    "Evolution",
    "EvolutionSettings",
    "Move",
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
