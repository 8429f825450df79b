"""The PostgreSQL sink."""

from __future__ import annotations

from headrace_plugins.databases.sink import TableSink


class PostgresSink(TableSink):
    """Writes records to tables of PostgreSQL, exactly once, with COPY."""
