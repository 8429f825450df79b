"""The tables of the SQL stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    false,
    insert,
    select,
)

JsonValue = bool | int | float | str | list[object] | dict[str, object] | None

Name = String().with_variant(String(collation="C"), "postgresql")
"""A text ordered by code points, regardless of the database's collation."""

metadata = MetaData()

connectors = Table(
    "connectors",
    metadata,
    Column("name", Name, primary_key=True),
    Column("uid", String, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False, default=0),
    Column("owner", Name),
    Column("expires_us", BigInteger, comment="lease end, microseconds since 1970 UTC"),
    Column("position", Text, nullable=False),
    Column("last_batch", BigInteger, nullable=False, default=0),
    Column("totals", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("trace", Text),
    Column("updated_us", BigInteger),
    Column("restarts", Integer, nullable=False, server_default="0"),
    Column("next_us", BigInteger, comment="when it is started anew by itself"),
)

retired_epochs = Table(
    "retired_epochs",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False, comment="the last of a task that was removed"),
)

facts = Table(
    "facts",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False, comment="JSON"),
)

batches = Table(
    "batches",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("id", BigInteger, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("start", Text, nullable=False),
    Column("end", Text, nullable=False),
    Column("begun_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger, comment="null while only the intent is stored"),
    Column("counts", Text),
    Column("routing", Text, comment="null where it is not known"),
)

schemas = Table(
    "schemas",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("stream", Name, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("schema", Text, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    Column("connector", Name, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("item", Text, nullable=False),
)

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
    # AUTOINCREMENT: SQLite must not reuse the ids of deleted rows.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("connector", Name, nullable=False, index=True),
    Column("task", Integer),
    Column("kind", String, nullable=False),
    Column("by", String, nullable=False),
    Column("detail", Text, nullable=False, comment="JSON"),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("name", Name, primary_key=True),
    Column("uid", String, nullable=False),
    Column("document", Text, nullable=False, comment="JSON, secrets as references"),
    Column("version", Integer, nullable=False, comment="of its document, from 1"),
    Column("state", String, nullable=False, index=True),
    Column("after", Name, index=True, comment="the job whose runs make its own"),
    Column("cursor_us", BigInteger, comment="where its next window begins"),
    Column("due_us", BigInteger, index=True, comment="when that window is due"),
    Column("why", Text),
    Column("engine", String, index=True, comment="the outside scheduler that wakes it"),
    Column("changed_us", BigInteger, nullable=False),
    Column("by", String, nullable=False),
)

registrations = Table(
    "registrations",
    metadata,
    Column("engine", String, primary_key=True, comment="an outside scheduler"),
    Column("job", Name, primary_key=True),
    Column("uid", String, nullable=False, comment="of the job that was registered"),
    Column("version", Integer, nullable=False, comment="of its document"),
    Column("active", Boolean, nullable=False, comment="whether the engine wakes it"),
    Column("registered", Boolean, nullable=False, comment="whether the engine has it so"),
    Column("error", Text),
    Column("changed_us", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    # AUTOINCREMENT: SQLite must not reuse ids, because the names of a run's tasks contain them.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job", Name, nullable=False),
    Column("kind", String, nullable=False),
    Column("lower", Text, nullable=False, comment="empty for none, so that two are equal"),
    Column("upper", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("trigger", String, nullable=False),
    Column("by", String, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("backfill", String),
    Column("attempt", Integer, nullable=False),
    Column("deaths", Integer, nullable=False, server_default="0", comment="of its workers"),
    Column("generation", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("owner", Name),
    Column("expires_us", BigInteger, comment="lease end, microseconds since 1970 UTC"),
    Column("stop_asked", Boolean, nullable=False),
    Column("began_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("counts", Text),
    Column("application", String),
    Column("error", Text),
    Column("paused", Boolean, nullable=False, server_default=false(), comment="its backfill"),
    Column("late", Boolean, nullable=False, server_default=false(), comment="an alert said so"),
    UniqueConstraint("job", "kind", "lower", "upper", name="runs_window"),
    Index("runs_due", "state", "due_us"),
    Index("runs_of_job", "job", "state"),
    sqlite_autoincrement=True,
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("alert", String, nullable=False, comment="the same in all channels"),
    Column("channel", Name, nullable=False),
    Column("job", Name, nullable=False, index=True),
    Column("at_us", BigInteger, nullable=False),
    Column("content", Text, nullable=False, comment="JSON"),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_us", BigInteger, nullable=False, comment="of the next attempt"),
    Column("owner", Name),
    Column("expires_us", BigInteger, comment="lease end, microseconds since 1970 UTC"),
    Column("ended_us", BigInteger),
    Column("error", Text),
    UniqueConstraint("alert", "channel", name="alerts_once"),
    Index("alerts_due", "state", "channel", "due_us"),
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


ENDPOINTS = "endpoints {}"
"""The name of the fact with the source and targets of a connector, or of a run of a job."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: datetime) -> int:
    """Return an aware time as microseconds since 1970 UTC."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def now() -> datetime:
    """Return the current time of this machine's clock, aware."""
    return datetime.now(UTC)


def time_of(number: int) -> datetime:
    """Return the aware time of microseconds since 1970 UTC."""
    return _EPOCH + timedelta(microseconds=number)


def fact(db: Connection, name: str) -> JsonValue:
    """Return the value of a fact; None if it is not set."""
    text = db.execute(select(facts.c.value).where(facts.c.name == name)).scalar()
    found: JsonValue = None if text is None else json.loads(text)
    return found


def put_fact(db: Connection, name: str, value: JsonValue) -> None:
    """Set the value of a fact."""
    db.execute(delete(facts).where(facts.c.name == name))
    db.execute(insert(facts).values(name=name, value=json.dumps(value)))
