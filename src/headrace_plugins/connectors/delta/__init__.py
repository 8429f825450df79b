"""A source and a sink for Delta tables."""

from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.delta.source import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
