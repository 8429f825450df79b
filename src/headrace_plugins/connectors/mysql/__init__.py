"""The sink of MySQL and MariaDB."""

from headrace_plugins.connectors.mysql.sink import MysqlSink

__all__ = ["MysqlSink"]
