"""The SQLite sink."""

from headrace_plugins.connectors.sqlite.sink import SqliteSink

__all__ = ["SqliteSink"]
