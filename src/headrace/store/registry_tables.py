"""The schema registry's tables in the SQL stores."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from headrace.store.tables import Name, metadata


def _context() -> Column[str]:
    """Return a column that is the same in every row; it leads the keys of all tables."""
    return Column("context", Name, primary_key=True, default=".")


registry_schemas = Table(
    "registry_schemas",
    metadata,
    _context(),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("guid", Name, nullable=False, index=True),
    Column("type", String, nullable=False),
    Column("text", Text, nullable=False),
    Column("references", Text, nullable=False, comment="JSON: name, subject, version"),
    Column("extras", Text, nullable=False, comment="JSON: metadata and rules; or empty"),
)

registry_versions = Table(
    "registry_versions",
    metadata,
    _context(),
    Column("subject", Name, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema_id", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
)
Index(
    "registry_versions_of",
    registry_versions.c.context,
    registry_versions.c.schema_id,
)

registry_references = Table(
    "registry_references",
    metadata,
    _context(),
    Column("schema_id", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("used_subject", Name, nullable=False),
    Column("used_version", Integer, nullable=False),
)
Index(
    "registry_references_to",
    registry_references.c.used_subject,
    registry_references.c.used_version,
)

registry_settings = Table(
    "registry_settings",
    metadata,
    Column("kind", Name, primary_key=True, default="config"),
    Column("scope", Name, primary_key=True),
    Column("value", Text, nullable=False),
)

registry_ids = Table(
    "registry_ids",
    metadata,
    _context(),
    Column("last", BigInteger, nullable=False, comment="an id is never used twice"),
)
