"""Finds versions of subjects and their schemas in the registry's rows, and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_plugins.confluent.schema_registry import (
    InvalidSchemaError,
    SchemaReference,
    SchemaText,
    SchemaType,
)
from headrace_registry import errors
from headrace_registry.languages import parse_schema
from headrace_registry.model import Found, SubjectVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_registry.languages.parsed import ParsedSchema
    from headrace_registry.model import StoredSchema
    from headrace_registry.store import RegistryRows

LATEST = -1
_MAX_NUMBER = 2**31 - 1


def read_version(text: str) -> int:
    """Read a version: a number from 1, or `latest`, which -1 means too."""
    if text in {"latest", str(LATEST)}:
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_NUMBER:
        raise errors.bad_version(text)
    return int(text)


def versions_of(rows: RegistryRows, subject: str, *, deleted: bool) -> list[SubjectVersion]:
    """Return a subject's versions. Raises SchemaNotFoundError if there is none."""
    found = [row for row in rows.versions(subject) if deleted or not row.deleted]
    if not found:
        raise errors.no_subject(subject)
    return found


def one_version(
    rows: RegistryRows, subject: str, version: int, *, deleted: bool
) -> SubjectVersion:
    """Return one version. Raises SchemaNotFoundError if the subject or version is not there."""
    found = versions_of(rows, subject, deleted=deleted)
    if version == LATEST:
        return found[-1]
    for row in found:
        if row.version == version:
            return row
    raise errors.no_version(subject, version)


def shown(rows: RegistryRows, version: SubjectVersion, form: str = "") -> Found:
    """Return a version with its schema's text in a form."""
    stored = rows.schema(version.schema_id)
    if stored is None:
        raise errors.no_schema(version.schema_id)
    return Found(version, stored, text_of(rows, stored, form))


def text_of(rows: RegistryRows, stored: StoredSchema, form: str) -> str:
    """Return a schema's text as it was registered.

    The form `serialized` is a Protobuf schema's descriptor in Base64, which Confluent's
    deserializers ask for.
    """
    if form == "serialized" and stored.schema.type is SchemaType.PROTOBUF:
        return read_stored(rows, stored).identity
    return stored.schema.text


def by_id(rows: RegistryRows, schema_id: int) -> StoredSchema:
    """Return a schema by id. Raises SchemaNotFoundError."""
    found = rows.schema(schema_id) if 0 <= schema_id <= _MAX_NUMBER else None
    if found is None:
        raise errors.no_schema(schema_id)
    return found


def read_stored(rows: RegistryRows, stored: StoredSchema) -> ParsedSchema:
    """Read a schema that is in the registry."""
    references = referred_texts(rows, stored.schema)
    return parse_schema(stored.schema, references)


def fixed_references(rows: RegistryRows, schema: SchemaText) -> SchemaText:
    """Return the schema with every reference naming a version.

    Raises InvalidSchemaError for a reference that leads nowhere.
    """
    fixed = []
    for each in schema.references:
        version = each.version
        if version == LATEST:
            active = [row.version for row in rows.versions(each.subject) if not row.deleted]
            version = active[-1] if active else version
        fixed.append(SchemaReference(each.name, each.subject, version))
    return SchemaText(schema.text, schema.type, tuple(fixed))


def referred_texts(rows: RegistryRows, schema: SchemaText) -> dict[str, str]:
    """Return the texts of all that a schema refers to, dependencies first."""
    found: dict[str, str] = {}
    _gather(rows, schema, found)
    return found


def _gather(rows: RegistryRows, schema: SchemaText, found: dict[str, str]) -> None:
    for each in schema.references:
        if each.name in found:
            continue
        versions = {row.version: row for row in rows.versions(each.subject)}
        row = versions.get(each.version)
        stored = None if row is None else rows.schema(row.schema_id)
        if stored is None:
            problem = (
                f"No schema reference found for subject {each.subject!r} "
                f"and version {each.version}."
            )
            raise InvalidSchemaError(problem, fix="Register what is referred to first.")
        _gather(rows, stored.schema, found)
        found[each.name] = stored.schema.text


def subject_names(
    rows: RegistryRows, prefix: str, *, deleted: bool, only_deleted: bool
) -> Sequence[str]:
    """Return the subjects whose names begin so."""
    return [
        subject
        for subject, active in rows.subjects()
        if subject.startswith(prefix) and (not active if only_deleted else active or deleted)
    ]


def delete_subject(rows: RegistryRows, subject: str, *, permanent: bool) -> list[int]:
    """Delete all versions and return them. Raises SchemaNotFoundError, RegistryRefusedError."""
    versions = rows.versions(subject)
    if not versions:
        raise errors.no_subject(subject)
    active = [row for row in versions if not row.deleted]
    if permanent and active:
        raise errors.subject_not_deleted(subject)
    if not permanent and not active:
        raise errors.subject_deleted(subject)
    going = versions if permanent else active
    for row in going:
        # What goes with it may refer to it.
        _check_unused(rows, row, permanent=permanent, going=subject)
    for row in going:
        _delete(rows, row, permanent=permanent)
    return [row.version for row in going]


def delete_version(rows: RegistryRows, subject: str, version: int, *, permanent: bool) -> int:
    """Delete a version and return it. Raises SchemaNotFoundError, RegistryRefusedError."""
    row = one_version(rows, subject, version, deleted=version != LATEST)
    if permanent and not row.deleted:
        raise errors.version_not_deleted(row)
    if not permanent and row.deleted:
        raise errors.version_deleted(row)
    _check_unused(rows, row, permanent=permanent, going=None)
    _delete(rows, row, permanent=permanent)
    return row.version


def _check_unused(
    rows: RegistryRows, row: SubjectVersion, *, permanent: bool, going: str | None
) -> None:
    users = rows.users(row.subject, row.version)
    if any(user.subject != going and (permanent or not user.deleted) for user in users):
        raise errors.in_use(row)


def _delete(rows: RegistryRows, row: SubjectVersion, *, permanent: bool) -> None:
    if not permanent:
        rows.put_version(SubjectVersion(row.subject, row.version, row.schema_id, deleted=True))
        return
    rows.remove_version(row)
    if not rows.versions_of(row.schema_id):
        rows.remove_schema(row.schema_id)
    if not rows.versions(row.subject):
        rows.put_setting(row.subject, None)
