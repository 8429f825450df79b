"""A sink that discards all records, for measurements."""

from headrace_plugins.connectors.noop.connector import NoopSink

__all__ = ["NoopSink"]
