"""A generator of rows: the source for tests, demonstrations and measurements."""

from headrace_plugins.connectors.datagen.connector import DEFAULT_SCHEMA, DatagenSource

__all__ = ["DEFAULT_SCHEMA", "DatagenSource"]
