"""Subjects: their versions, their compatibility levels, and how a schema is registered."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace_plugins.confluent.schema_registry import (
    InvalidSchemaError,
    SchemaReference,
    SchemaText,
    SchemaType,
)
from headrace_registry import errors
from headrace_registry.languages import parse_schema
from headrace_registry.model import CompatibilityLevel, Found, SubjectVersion, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_registry.model import ParsedSchema, StoredSchema, Submitted
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


GLOBAL = ""
_LEVEL = "compatibilityLevel"


@dataclass(frozen=True)
class Config:
    """What is set of a subject or of all, or holds for it.

    Args:
        level: The compatibility level, None if it is not set.
        normalize: Whether schemas are normalized unasked, None if it is not set.
    """

    level: CompatibilityLevel | None = None
    normalize: bool | None = None

    def to_json(self, level: str = _LEVEL) -> dict[str, Any]:
        """Return it as the REST API does, which names the level so or so."""
        given = {level: self.level, "normalize": self.normalize}
        return {key: value for key, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Config:
        """Read what a client sends, or what `to_json` gave. Raises RegistryRefusedError."""
        values = {key: each for key, each in value.items() if each is not None}
        named, text = values.pop(_LEVEL, None), values.pop("compatibility", None)
        text = text or named
        normalize = values.pop("normalize", None)
        if values:
            problem = f"Unknown settings for this registry: {', '.join(sorted(values))}."
            raise errors.not_permitted(problem, "Leave them out.")
        level = None
        if text is not None:
            level = _level(str(text))
        return cls(level, None if normalize is None else bool(normalize))


def config_of(rows: RegistryRows, scope: str) -> Config | None:
    """Return what is set for a subject or for all itself."""
    text = rows.setting(scope)
    return None if text is None else Config.from_json(json.loads(text))


def config_for(rows: RegistryRows, scope: str) -> Config:
    """Return what holds for a subject: its own setting, else that of all, else BACKWARD."""
    own = config_of(rows, scope) or Config()
    common = config_of(rows, GLOBAL) or Config()
    normalize = common.normalize if own.normalize is None else own.normalize
    level = own.level or common.level or CompatibilityLevel.BACKWARD
    return Config(level, bool(normalize))


def put_config(rows: RegistryRows, scope: str, config: Config) -> None:
    """Set what the given values say, and leave the others as they were."""
    old = config_of(rows, scope) or Config()
    new = Config(
        config.level or old.level,
        old.normalize if config.normalize is None else config.normalize,
    )
    rows.put_setting(scope, json.dumps(new.to_json()))


def drop_config(rows: RegistryRows, scope: str) -> Config:
    """Unset a subject or all and return what was set. Raises SchemaNotFoundError if nothing."""
    found = config_of(rows, scope)
    if found is None and scope != GLOBAL:
        raise errors.no_subject(scope)
    rows.put_setting(scope, None)
    return found or Config(CompatibilityLevel.BACKWARD)


def violations(
    level: CompatibilityLevel,
    schema: ParsedSchema,
    earlier: Sequence[tuple[int, ParsedSchema]],
) -> list[str]:
    """Return why the schema does not fit; empty if it does.

    Args:
        level: What is asked of it.
        schema: The schema.
        earlier: The versions it is held against, the newest first. Only the first of them
            counts where the level is not transitive.
    """
    counted = earlier if level.transitive else earlier[:1]
    for version, other in counted if level.backward or level.forward else ():
        found = _between(level, schema, other)
        if found:
            return [*found, f"{{oldSchemaVersion: {version}}}", f"{{compatibility: '{level}'}}"]
    return []


def _between(level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if type(new) is not type(old):
        return ["Incompatible because of different schema type"]
    found: list[str] = []
    try:
        if level.backward:
            why = new.unreadable(old)
            found += [f"the new schema cannot read old data: {each}" for each in why]
        if level.forward:
            why = old.unreadable(new)
            found += [f"the old schema cannot read new data: {each}" for each in why]
    except RecursionError:
        problem = "The schema is nested too deeply to be compared."
        raise InvalidSchemaError(problem) from None
    return found


def _level(text: str) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(text.upper())
    except ValueError:
        raise errors.bad_level(text) from None


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
    wanted = normalize or bool(config_for(rows, subject).normalize)
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
    level = config_for(rows, read.subject).level
    assert level is not None
    if not level.transitive:
        versions = versions[-1:]
    earlier = []
    for row in reversed(versions):
        stored = rows.schema(row.schema_id)
        if stored is not None:
            earlier.append((row.version, read_stored(rows, stored)))
    return violations(level, read.parsed, earlier)
