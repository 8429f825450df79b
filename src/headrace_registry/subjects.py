"""Reads the registry's rows: versions of subjects, their schemas and their settings.

The codes and messages of errors are those of Confluent's REST API:
docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace_plugins.confluent.schema_registry import (
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaType,
    resolve_references,
)
from headrace_registry.languages import parse_schema
from headrace_registry.model import CompatibilityLevel, Found, SubjectVersion, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_plugins.confluent.schema_registry import SchemaReference, SchemaText
    from headrace_registry.model import ParsedSchema, StoredSchema, Submitted
    from headrace_registry.store import RegistryRows


LATEST = -1


def no_subject(subject: str) -> SchemaNotFoundError:
    """Return the error for a subject without versions."""
    problem = f"Subject '{subject}' not found."
    return SchemaNotFoundError(problem, error_code=40401, field=subject)


def no_schema(name: int | str | None = None) -> SchemaNotFoundError:
    """Return the error for a schema that is not registered."""
    shown = "" if name is None else f" {name}"
    return SchemaNotFoundError(f"Schema{shown} not found", error_code=40403)


_MAX_NUMBER = 2**31 - 1


def read_version(text: str) -> int:
    """Parse a version: a number from 1, or `latest` or -1 for the newest."""
    if text in {"latest", str(LATEST)}:
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_NUMBER:
        problem = (
            f"The specified version '{text}' is not a valid version id. Allowed values are "
            'between [1, 2^31-1] and the string "latest"'
        )
        raise InvalidSchemaError(problem, error_code=42202)
    return int(text)


def versions_of(rows: RegistryRows, subject: str, *, deleted: bool) -> list[SubjectVersion]:
    """Return a subject's versions. Raises SchemaNotFoundError if there is none."""
    found = [row for row in rows.versions(subject) if deleted or not row.deleted]
    if not found:
        raise no_subject(subject)
    return found


def one_version(
    rows: RegistryRows, subject: str, version: int, *, deleted: bool
) -> SubjectVersion:
    """Return one version. Raises SchemaNotFoundError if the subject or version is missing."""
    found = versions_of(rows, subject, deleted=deleted)
    if version == LATEST:
        return found[-1]
    for row in found:
        if row.version == version:
            return row
    problem = f"Version {version} not found."
    raise SchemaNotFoundError(problem, error_code=40402, field=subject)


def shown(rows: RegistryRows, version: SubjectVersion, form: str = "") -> Found:
    """Return a version with its schema's text in a form."""
    stored = rows.schema(version.schema_id)
    if stored is None:
        raise no_schema(version.schema_id)
    return Found(version, stored, text_of(rows, stored, form))


def text_of(rows: RegistryRows, stored: StoredSchema, form: str) -> str:
    """Return a schema's text as it was registered.

    The form `serialized` is a Protobuf schema's descriptor in Base64, which Confluent's
    deserializers request.
    """
    if form == "serialized" and stored.schema.type is SchemaType.PROTOBUF:
        return read_stored(rows, stored).identity
    return stored.schema.text


def by_id(rows: RegistryRows, schema_id: int) -> StoredSchema:
    """Return a schema by id. Raises SchemaNotFoundError."""
    found = rows.schema(schema_id) if 0 <= schema_id <= _MAX_NUMBER else None
    if found is None:
        raise no_schema(schema_id)
    return found


def read_stored(rows: RegistryRows, stored: StoredSchema) -> ParsedSchema:
    """Parse a stored schema."""
    references = referred_texts(rows, stored.schema)
    return parse_schema(stored.schema, references)


def referred_texts(rows: RegistryRows, schema: SchemaText) -> dict[str, str]:
    """Return the texts of all schemas that a schema references, dependencies first."""

    def target(reference: SchemaReference) -> SchemaText:
        versions = rows.versions(reference.subject)
        ids = (row.schema_id for row in versions if row.version == reference.version)
        stored = rows.schema(next(ids, -1))
        if stored is None:
            problem = (
                f"No schema reference found for subject {reference.subject!r} "
                f"and version {reference.version}."
            )
            raise InvalidSchemaError(problem, fix="Register the referenced schema first.")
        return stored.schema

    return resolve_references(target, schema)


GLOBAL = ""
_LEVEL = "compatibilityLevel"


@dataclass(frozen=True)
class Config:
    """The settings of a subject, or the global settings.

    Args:
        level: The compatibility level; None if not set.
        normalize: Whether schemas are always normalized; None if not set.
    """

    level: CompatibilityLevel | None = None
    normalize: bool | None = None

    def to_json(self, level: str = _LEVEL) -> dict[str, Any]:
        """Return the settings for the REST API, where the name of the level's key varies."""
        pairs = {level: self.level, "normalize": self.normalize}
        return {key: value for key, value in pairs.items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Config:
        """Parse a client's JSON, or the result of `to_json`. Raises RegistryRefusedError."""
        values = {key: each for key, each in value.items() if each is not None}
        named, text = values.pop(_LEVEL, None), values.pop("compatibility", None)
        text = text or named
        normalize = values.pop("normalize", None)
        if values:
            problem = f"Unknown settings for this registry: {', '.join(sorted(values))}."
            raise RegistryRefusedError(problem, error_code=42205, fix="Remove them.")
        level = None
        if text is not None:
            level = _level(str(text))
        return cls(level, None if normalize is None else bool(normalize))


def config_of(rows: RegistryRows, scope: str) -> Config | None:
    """Return a scope's own settings, without defaults; None if not set."""
    text = rows.setting(scope)
    return None if text is None else Config.from_json(json.loads(text))


def config_for(rows: RegistryRows, scope: str) -> Config:
    """Return a subject's effective settings: its own, the global ones, or BACKWARD."""
    own = config_of(rows, scope) or Config()
    common = config_of(rows, GLOBAL) or Config()
    normalize = common.normalize if own.normalize is None else own.normalize
    level = own.level or common.level or CompatibilityLevel.BACKWARD
    return Config(level, bool(normalize))


def _level(text: str) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(text.upper())
    except ValueError:
        problem = (
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            f"backward_transitive, forward_transitive, and full_transitive; not {text!r}."
        )
        raise RegistryRefusedError(problem, error_code=42203) from None


@dataclass(frozen=True)
class Read:
    """A submitted schema after parsing."""

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
    """Return the newest version with this schema. Raises InvalidSchemaError."""
    read = read_submitted(rows, subject, submitted, normalize=normalize)
    versions = [row for row in rows.versions(subject) if deleted or not row.deleted]
    return same(rows, read, versions, normalize=normalize)


def read_submitted(
    rows: RegistryRows, subject: str, submitted: Submitted, *, normalize: bool
) -> Read:
    """Parse a schema; references to the newest version are replaced by its number.

    Raises InvalidSchemaError, also for a reference to a missing version.
    """
    fixed = []
    for each in submitted.schema.references:
        active = [row.version for row in rows.versions(each.subject) if not row.deleted]
        newest = each.version == LATEST and active
        fixed.append(replace(each, version=active[-1]) if newest else each)
    schema = replace(submitted.schema, references=tuple(fixed))
    references = referred_texts(rows, schema)
    parsed = parse_schema(schema, references)
    normalizes = normalize or bool(config_for(rows, subject).normalize)
    text = parsed.normalized if normalizes else parsed.text
    schema = replace(schema, text=text)
    identity = parse_schema(schema, references).identity
    uses = [[each.name, each.subject, each.version] for each in schema.references]
    text = write_json([schema.type.value, identity, uses, submitted.extras])
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return Read(subject, submitted, parsed, schema, str(uuid.UUID(bytes=digest)))


def same(
    rows: RegistryRows, read: Read, versions: Sequence[SubjectVersion], *, normalize: bool
) -> Found | None:
    """Return the newest of the versions with this schema."""
    for row in reversed(versions):
        stored = rows.schema(row.schema_id)
        if stored is not None and _is_same(rows, read, stored, normalize=normalize):
            return shown(rows, row)
    return None


def _is_same(rows: RegistryRows, read: Read, stored: StoredSchema, *, normalize: bool) -> bool:
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
