"""A sink for Delta tables."""

from headrace_plugins.connectors.delta.connector import DeltaSink

__all__ = ["DeltaSink"]
