"""What happens when the schema of records is not the target's.

In it: differences, the plan that a policy makes of them, and the plan applied as SQL and as
Arrow. Never: Spark itself, connectors, the store.
"""

from headrace.evolution.diff import SchemaChange, schema_changes
from headrace.evolution.plan import Handled, Move, Reconciled, reconcile

__all__ = ["Handled", "Move", "Reconciled", "SchemaChange", "reconcile", "schema_changes"]
