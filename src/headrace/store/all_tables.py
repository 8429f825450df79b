"""All tables of the SQL stores, for whoever needs them together."""

from headrace.store import connector_tables, registry_tables
from headrace.store.tables import metadata

__all__ = ["connector_tables", "metadata", "registry_tables"]
