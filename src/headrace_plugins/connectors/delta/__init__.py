"""A sink for Delta tables."""

from headrace_plugins.connectors.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
