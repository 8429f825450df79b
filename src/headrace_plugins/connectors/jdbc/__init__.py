"""The source of databases, and the sink of any database that has a JDBC driver."""

from headrace_plugins.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcSource"]
