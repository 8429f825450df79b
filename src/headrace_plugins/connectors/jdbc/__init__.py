"""Databases by JDBC: the source of all databases' rows, and the sink of any with a driver."""

from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSink", "JdbcSource"]
