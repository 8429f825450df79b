"""PostgreSQL: the source that follows changes, and the sink."""

from headrace_plugins.connectors.postgres.sink import PostgresSink
from headrace_plugins.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
