"""Registers schemas, finds them again, and checks whether they could be registered."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace_plugins.confluent.schema_registry import SchemaText
from headrace_registry import errors, levels
from headrace_registry.languages import parse_schema
from headrace_registry.languages.parsed import write_json
from headrace_registry.model import SubjectVersion
from headrace_registry.versions import fixed_references, read_stored, referred_texts, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_registry.languages.parsed import ParsedSchema
    from headrace_registry.model import Found, StoredSchema, Submitted
    from headrace_registry.store import RegistryRows


_RESERVED = {"", "__GLOBAL", "__EMPTY"}
_CONTEXT = ":."
"""How Confluent's clients begin a subject of another context; there is one context here."""


@dataclass(frozen=True)
class _Read:
    """What was submitted, once it is understood."""

    subject: str
    submitted: Submitted
    parsed: ParsedSchema
    schema: SchemaText
    fingerprint: str


def find(
    rows: RegistryRows,
    subject: str,
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
    rows: RegistryRows, subject: str, submitted: Submitted, *, normalize: bool
) -> Found:
    """Return the version that is this schema, made anew if need be.

    Raises IncompatibleSchemaError, InvalidSchemaError, and RegistryRefusedError for a name
    that no subject can have.
    """
    if subject in _RESERVED or subject.startswith(_CONTEXT) or not subject.isprintable():
        raise errors.bad_subject(subject)
    read = _read(rows, subject, submitted, normalize=normalize)
    versions = rows.versions(subject)
    active = [row for row in versions if not row.deleted]
    known = _same(rows, read, active, normalize=normalize)
    if known is not None:
        return known
    reasons = _reasons(rows, read, active)
    if reasons:
        raise errors.incompatible(subject, reasons)
    number = max((row.version for row in versions), default=0) + 1
    schema_id = rows.find(read.fingerprint)
    if schema_id is None:
        schema_id = rows.add_schema(read.fingerprint, read.schema, submitted.extras)
    for row in versions:
        # The same schema, deleted before: its new version takes the old one's place.
        stale = row.deleted and row.schema_id == schema_id
        if stale and not rows.users(subject, row.version):
            rows.remove_version(row)
    made = SubjectVersion(subject, number, schema_id)
    rows.put_version(made)
    return shown(rows, made)


def incompatibilities(
    rows: RegistryRows,
    subject: str,
    submitted: Submitted,
    against: SubjectVersion | None,
    *,
    normalize: bool,
) -> list[str]:
    """Return why a schema could not be registered, or does not fit one version."""
    read = _read(rows, subject, submitted, normalize=normalize)
    if against is not None:
        return _reasons(rows, read, [against])
    return _reasons(rows, read, [row for row in rows.versions(subject) if not row.deleted])


def _read(rows: RegistryRows, subject: str, submitted: Submitted, *, normalize: bool) -> _Read:
    schema = fixed_references(rows, submitted.schema)
    references = referred_texts(rows, schema)
    parsed = parse_schema(schema, references)
    wanted = normalize or bool(levels.config_for(rows, subject).normalize)
    text = parsed.normalized if wanted else parsed.text
    schema = SchemaText(text, schema.type, schema.references)
    identity = parse_schema(schema, references).identity
    uses = [[each.name, each.subject, each.version] for each in schema.references]
    text = write_json([schema.type.value, identity, uses, submitted.extras])
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return _Read(subject, submitted, parsed, schema, str(uuid.UUID(bytes=digest)))


def _same(
    rows: RegistryRows, read: _Read, versions: Sequence[SubjectVersion], *, normalize: bool
) -> Found | None:
    for row in reversed(versions):
        stored = rows.schema(row.schema_id)
        if stored is not None and _is_same(rows, read, stored, normalize=normalize):
            return shown(rows, row)
    return None


def _is_same(rows: RegistryRows, read: _Read, stored: StoredSchema, *, normalize: bool) -> bool:
    if stored.fingerprint == read.fingerprint:
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


def _reasons(rows: RegistryRows, read: _Read, versions: Sequence[SubjectVersion]) -> list[str]:
    level = levels.config_for(rows, read.subject).level
    assert level is not None
    if not level.transitive:
        versions = versions[-1:]
    earlier = []
    for row in reversed(versions):
        stored = rows.schema(row.schema_id)
        if stored is not None:
            earlier.append((row.version, read_stored(rows, stored)))
    return levels.incompatibilities(level, read.parsed, earlier)
