"""The schema registry's rows in a database."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    and_,
    delete,
    insert,
    inspect,
    select,
    update,
)
from typing_extensions import override

from headrace.store import Mode, Name, in_mode, open_database
from headrace_plugins.confluent.schema_registry import SchemaReference, SchemaText, SchemaType
from headrace_registry.model import StoredSchema, SubjectVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Engine

    from headrace.store import Place

metadata = MetaData()
"""The registry's tables, beside those of ``headrace.store``. They are created when the registry
is first opened, so a revision of the store that changes one has to ask whether it exists.
"""


def _context() -> Column[str]:
    """Return the column `context`, the same in all rows and first in the tables' keys."""
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

_V = registry_versions.c
_S = registry_schemas.c
_R = registry_references.c
_C = registry_settings.c
_HERE = "."
"""The value of the column `context` in all rows."""


class RegistryRows:
    """The rows of the registry in one transaction."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def subjects(self) -> Sequence[tuple[str, bool]]:
        """Return each subject, and whether it has a version that is not deleted; sorted."""
        query = select(_V.subject, _V.deleted).where(_V.context == _HERE).distinct()
        found: dict[str, bool] = {}
        for row in self._db.execute(query.order_by(_V.subject)):
            found[row.subject] = found.get(row.subject, False) or not row.deleted
        return list(found.items())

    def versions(self, subject: str) -> Sequence[SubjectVersion]:
        """Return all versions of a subject, including deleted ones, oldest first."""
        return self._versions(_V.subject == subject)

    def versions_of(self, schema_id: int) -> Sequence[SubjectVersion]:
        """Return the versions, including deleted ones, with this schema."""
        return self._versions(_V.schema_id == schema_id)

    def users(self, subject: str, version: int) -> Sequence[SubjectVersion]:
        """Return the versions, including deleted ones, whose schemas reference this version."""
        uses = select(_R.number).where(
            _R.context == _V.context,
            _R.schema_id == _V.schema_id,
            _R.used_subject == subject,
            _R.used_version == version,
        )
        return self._versions(uses.exists())

    def schema(self, schema_id: int) -> StoredSchema | None:
        """Return a schema by its id."""
        query = select(registry_schemas).where(_S.context == _HERE, _S.id == schema_id)
        row = self._db.execute(query).one_or_none()
        if row is None:
            return None
        references = tuple(SchemaReference(**each) for each in json.loads(row.references))
        schema = SchemaText(row.text, SchemaType(row.type), references)
        return StoredSchema(row.id, row.guid, schema, row.extras)

    def find(self, fingerprint: str) -> int | None:
        """Return the id of the schema with this fingerprint; None if there is none."""
        query = select(_S.id).where(_S.context == _HERE, _S.guid == fingerprint)
        return self._db.execute(query.order_by(_S.id).limit(1)).scalar()

    def setting(self, scope: str) -> str | None:
        """Return the settings of a subject, or with '' the global settings."""
        query = select(_C.value).where(_setting(scope))
        return self._db.execute(query).scalar()

    def add_schema(self, fingerprint: str, schema: SchemaText, extras: str) -> int:
        """Store a schema and return its id, which was never used before."""
        this = registry_ids.c.context == _HERE
        last = self._db.execute(select(registry_ids.c.last).where(this)).scalar()
        made = int(last or 0) + 1
        if last is None:
            self._db.execute(insert(registry_ids).values(last=made))
        else:
            self._db.execute(update(registry_ids).where(this).values(last=made))
        uses = [asdict(each) for each in schema.references]
        self._db.execute(
            insert(registry_schemas).values(
                id=made,
                guid=fingerprint,
                type=schema.type.value,
                text=schema.text,
                references=json.dumps(uses),
                extras=extras,
            )
        )
        for number, use in enumerate(schema.references):
            row = {"schema_id": made, "number": number}
            used = {"used_subject": use.subject, "used_version": use.version}
            self._db.execute(insert(registry_references).values(**row, **used))
        return made

    def remove_schema(self, schema_id: int) -> None:
        """Delete a schema; its id is never used again."""
        this = _S.context == _HERE, _S.id == schema_id
        self._db.execute(delete(registry_schemas).where(*this))
        uses = _R.context == _HERE, _R.schema_id == schema_id
        self._db.execute(delete(registry_references).where(*uses))

    def put_version(self, version: SubjectVersion) -> None:
        """Add a version, or replace the one with the same subject and number."""
        self.remove_version(version)
        self._db.execute(insert(registry_versions).values(**asdict(version)))

    def remove_version(self, version: SubjectVersion) -> None:
        """Delete a version."""
        this = (
            _V.context == _HERE,
            _V.subject == version.subject,
            _V.version == version.version,
        )
        self._db.execute(delete(registry_versions).where(*this))

    def put_setting(self, scope: str, value: str | None) -> None:
        """Set or, with None, delete the settings of a subject, or with '' the global ones."""
        self._db.execute(delete(registry_settings).where(_setting(scope)))
        if value is not None:
            self._db.execute(insert(registry_settings).values(scope=scope, value=value))

    def _versions(self, where: ColumnElement[bool]) -> Sequence[SubjectVersion]:
        query = select(registry_versions).where(_V.context == _HERE, where)
        return [
            SubjectVersion(row.subject, row.version, row.schema_id, row.deleted)
            for row in self._db.execute(query.order_by(_V.subject, _V.version))
        ]


class SqlRegistryStore:
    """The registry's durable state, in the database of Headrace's other state. Thread-safe.

    A transaction reads a snapshot of the rows at its start. A write transaction is durable when
    its block ends, and is rolled back if the block raises. Write transactions are serialized,
    across processes.

    It can be pickled: a copy opens the database again, so a database file only works on the
    same machine.
    """

    def __init__(self, place: Place) -> None:
        """Store the place; the first transaction opens the database, or creates it."""
        self._place = place
        self._lock = threading.Lock()
        self._opened: Engine | None = None

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return SqlRegistryStore, (self._place,)

    @contextmanager
    def read(self) -> Iterator[RegistryRows]:
        """Open a read-only transaction."""
        with in_mode(self._engine, Mode.SNAPSHOT).begin() as db:
            yield RegistryRows(db)

    @contextmanager
    def write(self) -> Iterator[RegistryRows]:
        """Open a write transaction."""
        with in_mode(self._engine, Mode.ALONE).begin() as db:
            yield RegistryRows(db)

    def close(self) -> None:
        """Close files and connections."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.dispose()

    @property
    def _engine(self) -> Engine:
        with self._lock:
            if self._opened is None:
                self._opened = open_database(self._place)
                _create_tables(self._opened)
            return self._opened


def _create_tables(engine: Engine) -> None:
    with engine.connect() as db:  # without a lock, as each reader of a schema comes here
        if metadata.tables.keys() <= set(inspect(db).get_table_names()):
            return
    with in_mode(engine, Mode.ALONE).begin() as db:
        metadata.create_all(db)


def _setting(scope: str) -> ColumnElement[bool]:
    return and_(_C.kind == "config", _C.scope == scope)
