"""Deletes versions and subjects: first they are hidden, then they may go for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model import SubjectVersion
from headrace.schemaregistry import faults, scopes
from headrace.schemaregistry.reading import LATEST, one_version
from headrace.store import RegistrySetting

if TYPE_CHECKING:
    from headrace.model import Subject
    from headrace.store import RegistryRows


def delete_subject(rows: RegistryRows, subject: Subject, *, permanent: bool) -> list[int]:
    """Delete all versions and return them. Raises SchemaNotFoundError, RegistryRefusedError."""
    scopes.check_writable(rows, subject)
    versions = rows.versions(subject)
    if not versions:
        raise faults.no_subject(subject)
    active = [row for row in versions if not row.deleted]
    if permanent and active:
        raise faults.subject_not_deleted(subject)
    if not permanent and not active:
        raise faults.subject_deleted(subject)
    going = versions if permanent else active
    for row in going:
        # What goes with it may refer to it.
        _check_unused(rows, row, permanent=permanent, going=subject)
    for row in going:
        _delete(rows, row, permanent=permanent)
    return [row.version for row in going]


def delete_version(
    rows: RegistryRows, subject: Subject, version: int, *, permanent: bool
) -> int:
    """Delete a version and return it. Raises SchemaNotFoundError, RegistryRefusedError."""
    scopes.check_writable(rows, subject)
    row = one_version(rows, subject, version, deleted=version != LATEST)
    if permanent and not row.deleted:
        raise faults.version_not_deleted(row)
    if not permanent and row.deleted:
        raise faults.version_deleted(row)
    _check_unused(rows, row, permanent=permanent, going=None)
    _delete(rows, row, permanent=permanent)
    return row.version


def _check_unused(
    rows: RegistryRows, row: SubjectVersion, *, permanent: bool, going: Subject | None
) -> None:
    users = rows.users(row.subject, row.version)
    if any(user.subject != going and (permanent or not user.deleted) for user in users):
        raise faults.in_use(row)


def _delete(rows: RegistryRows, row: SubjectVersion, *, permanent: bool) -> None:
    if not permanent:
        rows.put_version(SubjectVersion(row.subject, row.version, row.schema_id, deleted=True))
        return
    rows.remove_version(row)
    if not rows.versions_of(row.subject.context, row.schema_id):
        rows.remove_schema(row.subject.context, row.schema_id)
    if not rows.versions(row.subject):
        for kind in RegistrySetting:
            rows.put_setting(kind, str(row.subject), None)
