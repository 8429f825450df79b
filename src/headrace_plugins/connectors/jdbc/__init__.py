"""The source of databases."""

from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSink", "JdbcSource"]
