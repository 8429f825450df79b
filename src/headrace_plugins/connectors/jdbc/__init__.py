"""The source for tables of all databases, and the sink for any database with a JDBC driver."""

from headrace_plugins.connectors.jdbc.sink import JdbcSink
from headrace_plugins.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSink", "JdbcSource"]
