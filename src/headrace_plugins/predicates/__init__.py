"""The built-in predicates."""

from headrace_plugins.predicates.condition import Condition

__all__ = ["Condition"]
