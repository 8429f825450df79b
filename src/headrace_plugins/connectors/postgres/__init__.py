"""The sink of PostgreSQL."""

from headrace_plugins.connectors.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
