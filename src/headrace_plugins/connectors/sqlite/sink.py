"""The SQLite sink."""

from __future__ import annotations

from headrace_plugins.databases.sink import TableSink


class SqliteSink(TableSink):
    """Writes records to tables of a SQLite file, exactly once, on workers of its machine."""
