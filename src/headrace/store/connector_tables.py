"""The tables of what is wanted of connectors, in the SQL stores."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, String, Table, Text

from headrace.store.tables import Name, metadata

managed = Table(
    "managed_connectors",
    metadata,
    Column("name", Name, primary_key=True),
    Column("uid", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("version", Integer, nullable=False, comment="of its configuration, from 1"),
    Column("target", String, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("worker", String, nullable=False),
    Column("trace", Text),
    Column("updated_us", BigInteger, nullable=False),
    Column("next_us", BigInteger, comment="when it is started anew by itself"),
)

configs = Table(
    "connector_configs",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("config", Text, nullable=False, comment="JSON, secrets as references"),
    Column("at_us", BigInteger, nullable=False),
    Column("by", String, nullable=False),
)

task_configs = Table(
    "task_configs",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("config", Text, nullable=False, comment="JSON"),
    Column("restarts", Integer, nullable=False),
)

topics_in_use = Table(
    "topics_in_use",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("topic", Name, primary_key=True),
)

events = Table(
    "events",
    metadata,
    # Kept apart from rowid reuse: an id of a deleted row is never given again.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("connector", Name, nullable=False, index=True),
    Column("task", Integer),
    Column("kind", String, nullable=False),
    Column("by", String, nullable=False),
    Column("detail", Text, nullable=False, comment="JSON"),
    sqlite_autoincrement=True,
)

servers = Table(
    "servers",
    metadata,
    Column("place", String, primary_key=True, comment="what one server does at a time"),
    Column("owner", String, nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)
