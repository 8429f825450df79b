"""Looks things up in the registry's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.model import DEFAULT_CONTEXT, Subject
from headrace.schemaregistry import faults
from headrace.schemaregistry.parsing import read_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model import StoredSchema, SubjectVersion
    from headrace.store import RegistryRows

LATEST = -1
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Found:
    """A version of a subject with its schema, as it is shown.

    Args:
        version: The version.
        stored: The schema.
        text: Its text in the form that was asked for.
    """

    version: SubjectVersion
    stored: StoredSchema
    text: str


def read_version(text: str) -> int:
    """Read a version: a number from 1, or `latest`, which -1 means too."""
    if text in {"latest", str(LATEST)}:
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_NUMBER:
        raise faults.bad_version(text)
    return int(text)


def versions_of(rows: RegistryRows, subject: Subject, *, deleted: bool) -> list[SubjectVersion]:
    """Return a subject's versions. Raises SchemaNotFoundError if there is none."""
    found = [row for row in rows.versions(subject) if deleted or not row.deleted]
    if not found:
        raise faults.no_subject(subject)
    return found


def one_version(
    rows: RegistryRows, subject: Subject, version: int, *, deleted: bool
) -> SubjectVersion:
    """Return one version. Raises SchemaNotFoundError if the subject or version is not there."""
    found = versions_of(rows, subject, deleted=deleted)
    if version == LATEST:
        return found[-1]
    for row in found:
        if row.version == version:
            return row
    raise faults.no_version(subject, version)


def shown(rows: RegistryRows, version: SubjectVersion, form: str = "") -> Found:
    """Return a version with its schema's text in a form."""
    stored = rows.schema(version.subject.context, version.schema_id)
    if stored is None:
        raise faults.no_schema(version.schema_id)
    return Found(version, stored, text_of(rows, stored, form))


def text_of(rows: RegistryRows, stored: StoredSchema, form: str) -> str:
    """Return a schema's text in a form."""
    return read_stored(rows, stored).shown(form)


def by_id(rows: RegistryRows, schema_id: int, subject: Subject | None) -> StoredSchema:
    """Return a schema by id. Raises SchemaNotFoundError.

    It is looked for in the subject's context; then, if the subject names no context, where
    that subject has it.
    """
    if not 0 <= schema_id <= _MAX_NUMBER:
        raise faults.no_schema(schema_id)
    context = DEFAULT_CONTEXT if subject is None else subject.context
    found = rows.schema(context, schema_id)
    if found is None and subject is not None and context == DEFAULT_CONTEXT:
        for each in rows.contexts():
            users = {row.subject.name for row in rows.versions_of(each, schema_id)}
            if subject.name in users:
                found = rows.schema(each, schema_id)
    if found is None:
        raise faults.no_schema(schema_id)
    return found


def subject_names(
    rows: RegistryRows, prefix: str, *, deleted: bool, only_deleted: bool
) -> Sequence[str]:
    """Return the subjects whose names begin so; `:*:` stands for every context."""
    found = []
    for subject, active in rows.subjects():
        if active if only_deleted else not (active or deleted):
            continue
        wildcard = prefix.startswith(":*:")
        name = subject.name if wildcard else str(subject)
        if name.startswith(prefix.removeprefix(":*:") if wildcard else prefix):
            found.append(str(subject))
    return found
