"""The sink of MySQL and MariaDB."""

from __future__ import annotations

from headrace_plugins.databases.sink import TableSink


class MysqlSink(TableSink):
    """Writes records to tables of MySQL or MariaDB, exactly once, at the speed of LOAD DATA."""
