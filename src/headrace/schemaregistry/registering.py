"""Registers schemas, finds them again, and checks whether they could be registered."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.model import RegistryMode, SubjectVersion
from headrace.schemaregistry import faults, scopes
from headrace.schemaregistry.languages import write_json
from headrace.schemaregistry.levels import misfits
from headrace.schemaregistry.parsing import (
    fixed_references,
    guid_names,
    parse_schema,
    read_stored,
    referred_texts,
)
from headrace.schemaregistry.reading import shown
from headrace.sdk.schemaregistry import InvalidSchemaError, SchemaText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model import StoredSchema, Subject
    from headrace.schemaregistry.languages import ParsedSchema
    from headrace.schemaregistry.reading import Found
    from headrace.store import RegistryRows


@dataclass(frozen=True)
class Submitted:
    """What a client wants to register or to find.

    Args:
        schema: The schema.
        extras: Metadata and rules, as JSON; empty if there are none.
        id: The id it must get; for imports.
        version: The version it must get; for imports.
    """

    schema: SchemaText
    extras: str = ""
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class _Read:
    """What was submitted, once it is understood."""

    subject: Subject
    submitted: Submitted
    parsed: ParsedSchema
    schema: SchemaText
    guid: str


def find(
    rows: RegistryRows,
    subject: Subject,
    submitted: Submitted,
    *,
    normalize: bool,
    deleted: bool = False,
) -> Found | None:
    """Return the newest version that is this schema. Raises InvalidSchemaError."""
    read = _read(rows, subject, submitted, normalize=normalize)
    versions = [row for row in rows.versions(subject) if deleted or not row.deleted]
    return _same(rows, read, versions, normalize=normalize)


def register(
    rows: RegistryRows, subject: Subject, submitted: Submitted, *, normalize: bool
) -> Found:
    """Return the version that is this schema, made anew if need be.

    Raises IncompatibleSchemaError, InvalidSchemaError, and RegistryRefusedError where the
    subject's mode does not permit it.
    """
    if not subject.valid:
        raise faults.bad_subject(str(subject))
    mode = scopes.check_writable(rows, subject)
    importing = mode is RegistryMode.IMPORT
    _check_mode(subject, submitted, importing=importing)
    read = _read(rows, subject, submitted, normalize=normalize)
    versions = rows.versions(subject)
    active = [row for row in versions if not row.deleted]
    known = None if importing else _same(rows, read, active, normalize=normalize)
    if known is not None:
        return known
    if not importing:
        reasons = _misfits(rows, read, active)
        if reasons:
            raise faults.incompatible(subject, reasons)
    number = _number(submitted, versions, importing=importing)
    schema_id = _schema_id(rows, read)
    for row in versions:
        # The same schema, deleted before: its new version takes the old one's place.
        stale = row.deleted and row.schema_id == schema_id
        if stale and not rows.users(subject, row.version):
            rows.remove_version(row)
    made = SubjectVersion(subject, number, schema_id)
    rows.put_version(made)
    return shown(rows, made)


def misfits_of(
    rows: RegistryRows,
    subject: Subject,
    submitted: Submitted,
    against: SubjectVersion | None,
    *,
    normalize: bool,
) -> list[str]:
    """Return why a schema could not be registered, or does not fit one version."""
    read = _read(rows, subject, submitted, normalize=normalize)
    if against is not None:
        return _misfits(rows, read, [against])
    return _misfits(rows, read, [row for row in rows.versions(subject) if not row.deleted])


def _check_mode(subject: Subject, submitted: Submitted, *, importing: bool) -> None:
    if submitted.id is not None and not importing:
        problem = f"Subject {subject} is not in import mode"
        raise faults.not_permitted(problem)
    if submitted.id is None and importing:
        problem = f"Subject {subject} in context {subject.context} is not in read-write mode"
        raise faults.not_permitted(problem, "Give the schema's id, or leave import mode.")


def _read(
    rows: RegistryRows, subject: Subject, submitted: Submitted, *, normalize: bool
) -> _Read:
    schema = fixed_references(rows, subject.context, submitted.schema)
    parsed = parse_schema(schema, referred_texts(rows, subject.context, schema))
    wanted = normalize or bool(scopes.config_for(rows, str(subject)).normalize)
    text = parsed.normalized if wanted else parsed.text
    schema = SchemaText(text, schema.type, schema.references)
    identity = parsed.normalized if wanted else parsed.identity
    guid = _guid(schema, identity, submitted.extras)
    return _Read(subject, submitted, parsed, schema, guid)


def _guid(schema: SchemaText, identity: str, extras: str) -> str:
    told = write_json([schema.type.value, identity, guid_names(schema), extras])
    digest = hashlib.md5(told.encode(), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest))


def _same(
    rows: RegistryRows, read: _Read, versions: Sequence[SubjectVersion], *, normalize: bool
) -> Found | None:
    for row in reversed(versions):
        stored = rows.schema(row.subject.context, row.schema_id)
        if stored is not None and _is_same(rows, read, stored, normalize=normalize):
            return shown(rows, row)
    return None


def _is_same(rows: RegistryRows, read: _Read, stored: StoredSchema, *, normalize: bool) -> bool:
    if stored.guid == read.guid:
        return True
    alike = (
        stored.schema.type is read.schema.type
        and stored.schema.references == read.schema.references
        and stored.extras == read.submitted.extras
    )
    if not alike:
        return False
    other = read_stored(rows, stored)
    if other.identity == read.parsed.identity:
        return True
    return normalize and other.normalized == read.parsed.normalized


def _misfits(rows: RegistryRows, read: _Read, versions: Sequence[SubjectVersion]) -> list[str]:
    level = scopes.config_for(rows, str(read.subject)).level
    assert level is not None
    if not level.transitive:
        versions = versions[-1:]
    earlier = []
    for row in reversed(versions):
        stored = rows.schema(row.subject.context, row.schema_id)
        if stored is not None:
            earlier.append((row.version, read_stored(rows, stored)))
    return misfits(level, read.parsed, earlier)


def _number(
    submitted: Submitted, versions: Sequence[SubjectVersion], *, importing: bool
) -> int:
    following = max((row.version for row in versions), default=0) + 1
    wanted = submitted.version
    if wanted is None:
        return following
    if wanted != following and not importing:
        problem = "Version is not one more than previous version"
        raise InvalidSchemaError(problem)
    return wanted


def _schema_id(rows: RegistryRows, read: _Read) -> int:
    """Return the id of the schema in the subject's context, which it keeps for ever."""
    context, wanted = read.subject.context, read.submitted.id
    known = rows.find(context, read.guid)
    if known is not None and wanted in {None, known}:
        return known
    if wanted is not None and rows.schema(context, wanted) is not None:
        problem = f"Overwrite new schema with id {wanted} is not permitted."
        raise faults.not_permitted(problem)
    return rows.add_schema(context, read.guid, read.schema, read.submitted.extras, wanted)
