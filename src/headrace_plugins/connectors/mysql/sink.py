"""The MySQL and MariaDB sink."""

from __future__ import annotations

from headrace_plugins.databases.sink import TableSink


class MysqlSink(TableSink):
    """Writes records to tables of MySQL or MariaDB, exactly once, with LOAD DATA."""
