"""The schema registry's rows in a database."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, insert, select, update
from typing_extensions import override

from headrace.model import DEFAULT_CONTEXT, StoredSchema, Subject, SubjectVersion
from headrace.sdk.schemaregistry import SchemaReference, SchemaText, SchemaType
from headrace.store.database import open_database
from headrace.store.modes import Mode, in_mode
from headrace.store.registry_tables import (
    registry_ids,
    registry_references,
    registry_schemas,
    registry_settings,
    registry_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Engine, Row

    from headrace.store.database import Place
    from headrace.store.registry_protocol import RegistryRows, RegistrySetting

_V = registry_versions.c
_S = registry_schemas.c
_R = registry_references.c


class _Rows:
    """See RegistryRows."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def subjects(self) -> Sequence[tuple[Subject, bool]]:
        query = select(_V.context, _V.subject, _V.deleted).distinct()
        found: dict[Subject, bool] = {}
        for row in self._db.execute(query.order_by(_V.context, _V.subject)):
            subject = Subject(row.subject, row.context)
            found[subject] = found.get(subject, False) or not row.deleted
        return list(found.items())

    def versions(self, subject: Subject) -> Sequence[SubjectVersion]:
        return self._versions(_is(subject))

    def versions_of(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        return self._versions(and_(_V.context == context, _V.schema_id == schema_id))

    def users(self, subject: Subject, version: int) -> Sequence[SubjectVersion]:
        uses = select(_R.number).where(
            _R.context == _V.context,
            _R.schema_id == _V.schema_id,
            _R.used_subject == str(subject),
            _R.used_version == version,
        )
        return self._versions(uses.exists())

    def schema(self, context: str, schema_id: int) -> StoredSchema | None:
        return self._schema(and_(_S.context == context, _S.id == schema_id))

    def find(self, context: str, guid: str) -> int | None:
        query = select(_S.id).where(_S.context == context, _S.guid == guid)
        return self._db.execute(query.order_by(_S.id).limit(1)).scalar()

    def by_guid(self, guid: str) -> StoredSchema | None:
        return self._schema(_S.guid == guid)

    def contexts(self) -> Sequence[str]:
        known = self._db.execute(select(registry_ids.c.context)).scalars()
        return sorted({DEFAULT_CONTEXT, *known})

    def setting(self, kind: RegistrySetting, scope: str) -> str | None:
        table = registry_settings.c
        query = select(table.value).where(table.kind == kind.value, table.scope == scope)
        return self._db.execute(query).scalar()

    def add_schema(
        self, context: str, guid: str, schema: SchemaText, extras: str, schema_id: int | None
    ) -> int:
        counter = registry_ids.c
        query = select(counter.last).where(counter.context == context)
        last = self._db.execute(query).scalar()
        made = int(last or 0) + 1 if schema_id is None else schema_id
        newest = {"last": max(int(last or 0), made)}
        if last is None:
            self._db.execute(insert(registry_ids).values(context=context, **newest))
        else:
            this = counter.context == context
            self._db.execute(update(registry_ids).where(this).values(newest))
        uses = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
        self._db.execute(
            insert(registry_schemas).values(
                context=context,
                id=made,
                guid=guid,
                type=schema.type.value,
                text=schema.text,
                references=json.dumps(uses),
                extras=extras,
            )
        )
        for number, use in enumerate(schema.references):
            row = {"context": context, "schema_id": made, "number": number}
            used = {"used_subject": use.subject, "used_version": use.version}
            self._db.execute(insert(registry_references).values(**row, **used))
        return made

    def remove_schema(self, context: str, schema_id: int) -> None:
        schema = and_(_S.context == context, _S.id == schema_id)
        self._db.execute(delete(registry_schemas).where(schema))
        uses = and_(_R.context == context, _R.schema_id == schema_id)
        self._db.execute(delete(registry_references).where(uses))

    def put_version(self, version: SubjectVersion) -> None:
        self.remove_version(version)
        self._db.execute(
            insert(registry_versions).values(
                context=version.subject.context,
                subject=version.subject.name,
                version=version.version,
                schema_id=version.schema_id,
                deleted=version.deleted,
            )
        )

    def remove_version(self, version: SubjectVersion) -> None:
        this = and_(_is(version.subject), _V.version == version.version)
        self._db.execute(delete(registry_versions).where(this))

    def put_setting(self, kind: RegistrySetting, scope: str, value: str | None) -> None:
        table = registry_settings.c
        this = and_(table.kind == kind.value, table.scope == scope)
        self._db.execute(delete(registry_settings).where(this))
        if value is not None:
            row = {"kind": kind.value, "scope": scope, "value": value}
            self._db.execute(insert(registry_settings).values(row))

    def _versions(self, where: ColumnElement[bool]) -> Sequence[SubjectVersion]:
        query = select(registry_versions).where(where)
        order = (_V.context, _V.subject, _V.version)
        return [
            SubjectVersion(
                Subject(row.subject, row.context), row.version, row.schema_id, row.deleted
            )
            for row in self._db.execute(query.order_by(*order))
        ]

    def _schema(self, where: ColumnElement[bool]) -> StoredSchema | None:
        query = select(registry_schemas).where(where).order_by(_S.context, _S.id).limit(1)
        row = self._db.execute(query).one_or_none()
        return None if row is None else _stored(row)


class SqlRegistryStore:
    """A RegistryStore in the database that holds the other state.

    It can be pickled: a copy opens the database anew, so that of a file serves on the same
    machine only.
    """

    def __init__(self, place: Place) -> None:
        """Remember the place; the first transaction opens it, and makes it if need be."""
        self._place = place
        self._lock = threading.Lock()
        self._opened: Engine | None = None

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return SqlRegistryStore, (self._place,)

    @contextmanager
    def read(self) -> Iterator[RegistryRows]:
        """See RegistryStore."""
        with in_mode(self._engine, Mode.SNAPSHOT).begin() as db:
            yield _Rows(db)

    @contextmanager
    def write(self) -> Iterator[RegistryRows]:
        """See RegistryStore."""
        with in_mode(self._engine, Mode.ALONE).begin() as db:
            yield _Rows(db)

    def close(self) -> None:
        """See RegistryStore."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.dispose()

    @property
    def _engine(self) -> Engine:
        with self._lock:
            if self._opened is None:
                self._opened = open_database(self._place)
            return self._opened


def _is(subject: Subject) -> ColumnElement[bool]:
    return and_(_V.context == subject.context, _V.subject == subject.name)


def _stored(row: Row[Any]) -> StoredSchema:
    references = tuple(SchemaReference(**each) for each in json.loads(row.references))
    schema = SchemaText(row.text, SchemaType(row.type), references)
    return StoredSchema(row.context, row.id, row.guid, schema, row.extras)
