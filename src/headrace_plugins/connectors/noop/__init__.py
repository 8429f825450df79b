"""A sink that keeps nothing, for measurements."""

from headrace_plugins.connectors.noop.connector import NoopSink

__all__ = ["NoopSink"]
