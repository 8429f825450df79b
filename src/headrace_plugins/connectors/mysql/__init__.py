"""MySQL and MariaDB: the source that follows changes, and the sink."""

from headrace_plugins.connectors.mysql.sink import MysqlSink
from headrace_plugins.connectors.mysql.source import MysqlSource

__all__ = ["MysqlSink", "MysqlSource"]
