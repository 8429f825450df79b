"""The operations of the schema registry, each in one transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
)
from headrace_registry import subjects
from headrace_registry.model import CompatibilityLevel, Listing, SubjectVersion
from headrace_registry.subjects import LATEST, Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_registry.model import Found, ParsedSchema, StoredSchema, Submitted
    from headrace_registry.store import RegistryRows, SqlRegistryStore
    from headrace_registry.subjects import Read


_ACTIVE = Listing()
_RESERVED = {"", "__GLOBAL", "__EMPTY"}
_CONTEXT = ":."
"""The prefix of a subject in another context in Confluent's clients; here is one context."""
_PERMANENT = "Set permanent=true to delete permanently"
_BEFORE = "before being permanently deleted"


class RegistryService:
    """A schema registry with a store. Thread-safe.

    It raises the errors of `headrace_plugins.confluent.schema_registry`, with the codes of
    Confluent's REST API.
    """

    def __init__(self, store: SqlRegistryStore) -> None:
        """Use a store, which may be shared."""
        self._store = store

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return RegistryService, (self._store,)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def register(self, subject: str, submitted: Submitted, *, normalize: bool = False) -> Found:
        """Return the version with this schema; register a new one if there is none.

        Raises IncompatibleSchemaError, InvalidSchemaError, and RegistryRefusedError for an
        invalid subject name.
        """
        with self._store.read() as rows:
            # By far the most frequent case, an already registered schema, needs no write lock.
            known = subjects.find(rows, subject, submitted, normalize=normalize)
        if known is not None:
            return known
        if subject in _RESERVED or subject.startswith(_CONTEXT) or not subject.isprintable():
            problem = f"The specified subject '{subject}' is not a valid subject."
            raise RegistryRefusedError(problem, error_code=42208, field=subject)
        with self._store.write() as rows:
            read = subjects.read_submitted(rows, subject, submitted, normalize=normalize)
            versions = rows.versions(subject)
            active = [row for row in versions if not row.deleted]
            known = subjects.same(rows, read, active, normalize=normalize)
            if known is not None:
                return known
            if reasons := _violations(rows, read, active):
                problem = (
                    "Schema being registered is incompatible with an earlier schema for "
                    f'subject "{subject}", details: [{", ".join(reasons)}]'
                )
                raise IncompatibleSchemaError(problem, field=subject)
            schema_id = rows.find(read.fingerprint)
            if schema_id is None:
                schema_id = rows.add_schema(read.fingerprint, read.schema, submitted.extras)
            for row in versions:
                # The same schema was deleted before: the new version replaces the old one.
                stale = row.deleted and row.schema_id == schema_id
                if stale and not rows.users(subject, row.version):
                    rows.remove_version(row)
            number = max((row.version for row in versions), default=0) + 1
            made = SubjectVersion(subject, number, schema_id)
            rows.put_version(made)
            return subjects.shown(rows, made)

    def lookup(
        self,
        subject: str,
        submitted: Submitted,
        *,
        normalize: bool = False,
        deleted: bool = False,
    ) -> Found:
        """Return the version with this schema. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            subjects.versions_of(rows, subject, deleted=deleted)
            found = subjects.find(
                rows, subject, submitted, normalize=normalize, deleted=deleted
            )
        if found is None:
            raise subjects.no_schema()
        return found

    def incompatibilities(
        self,
        subject: str,
        submitted: Submitted,
        version: str | None = None,
        *,
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema is incompatible with a version; empty if it is compatible.

        With None, return why it could not be registered.
        """
        with self._store.read() as rows:
            against = [row for row in rows.versions(subject) if not row.deleted]
            if version is not None:
                number = subjects.read_version(version)
                if number == LATEST and not rows.versions(subject):
                    return []
                against = [subjects.one_version(rows, subject, number, deleted=False)]
            read = subjects.read_submitted(rows, subject, submitted, normalize=normalize)
            return _violations(rows, read, against)

    def version(
        self, subject: str, version: str, *, deleted: bool = False, form: str = ""
    ) -> Found:
        """Return a version by number or `latest`. Raises SchemaNotFoundError."""
        number = subjects.read_version(version)
        with self._store.read() as rows:
            row = subjects.one_version(rows, subject, number, deleted=deleted)
            return subjects.shown(rows, row, form)

    def versions(self, subject: str, listing: Listing = _ACTIVE) -> list[int]:
        """Return a subject's versions. Raises SchemaNotFoundError."""
        deleted = listing.deleted or listing.only_deleted
        with self._store.read() as rows:
            found = subjects.versions_of(rows, subject, deleted=deleted)
        return [row.version for row in found if row.deleted or not listing.only_deleted]

    def subjects(self, listing: Listing = _ACTIVE) -> list[str]:
        """Return the subjects, sorted."""
        with self._store.read() as rows:
            return [
                subject
                for subject, active in rows.subjects()
                if subject.startswith(listing.prefix)
                and (not active if listing.only_deleted else active or listing.deleted)
            ]

    def schemas(self, listing: Listing, *, latest_only: bool) -> list[Found]:
        """Return the versions of many subjects with their schemas."""
        found = []
        with self._store.read() as rows:
            for name, active in rows.subjects():
                if name.startswith(listing.prefix) and (active or listing.deleted):
                    listed = subjects.versions_of(rows, name, deleted=listing.deleted)
                    shown = listed[-1:] if latest_only else listed
                    found += [subjects.shown(rows, row) for row in shown]
        return found

    def by_id(self, schema_id: int, form: str = "") -> tuple[StoredSchema, str]:
        """Return a schema by its id, and its text in a form. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            stored = subjects.by_id(rows, schema_id)
            return stored, subjects.text_of(rows, stored, form)

    def versions_by_id(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions with a schema, by the schema's id. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            stored = subjects.by_id(rows, schema_id)
            found = rows.versions_of(stored.id)
        return [row for row in found if deleted or not row.deleted]

    def users(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that reference a version."""
        number = subjects.read_version(version)
        with self._store.read() as rows:
            row = subjects.one_version(rows, subject, number, deleted=True)
            users = rows.users(subject, row.version)
        return sorted({user.schema_id for user in users if not user.deleted})

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions and return them."""
        with self._store.write() as rows:
            versions = subjects.versions_of(rows, subject, deleted=True)
            active = [row for row in versions if not row.deleted]
            if permanent and active:
                problem = f"Subject '{subject}' was not deleted first {_BEFORE}"
                raise SchemaNotFoundError(problem, error_code=40405, field=subject)
            if not permanent and not active:
                problem = f"Subject '{subject}' was soft deleted. {_PERMANENT}"
                raise SchemaNotFoundError(problem, error_code=40404, field=subject)
            going = versions if permanent else active
            for row in going:
                # Versions that are deleted together may reference each other.
                _check_unused(rows, row, permanent=permanent, going=subject)
            for row in going:
                _delete(rows, row, permanent=permanent)
            return [row.version for row in going]

    def delete_version(self, subject: str, version: str, *, permanent: bool = False) -> int:
        """Delete a version and return it."""
        number = subjects.read_version(version)
        with self._store.write() as rows:
            row = subjects.one_version(rows, subject, number, deleted=number != LATEST)
            named = f"Subject '{subject}' Version {row.version} was"
            if permanent and not row.deleted:
                problem = f"{named} not deleted first {_BEFORE}"
                raise SchemaNotFoundError(problem, error_code=40407, field=subject)
            if not permanent and row.deleted:
                problem = f"{named} soft deleted. {_PERMANENT}"
                raise SchemaNotFoundError(problem, error_code=40406, field=subject)
            _check_unused(rows, row, permanent=permanent)
            _delete(rows, row, permanent=permanent)
            return row.version

    def config(self, subject: str | None, *, inherited: bool = False) -> Config:
        """Return the settings of a subject, or the global ones; ``inherited`` adds defaults."""
        with self._store.read() as rows:
            if inherited or subject is None:
                return subjects.config_for(rows, subject or subjects.GLOBAL)
            found = subjects.config_of(rows, subject)
        if found is None:
            problem = (
                f"Subject '{subject}' does not have subject-level compatibility configured"
            )
            raise SchemaNotFoundError(problem, error_code=40408, field=subject)
        return found

    def set_config(self, subject: str | None, config: Config) -> None:
        """Update the settings of a subject, or the global settings."""
        with self._store.write() as rows:
            scope = subject or subjects.GLOBAL
            old = subjects.config_of(rows, scope) or Config()
            normalize = old.normalize if config.normalize is None else config.normalize
            new = Config(config.level or old.level, normalize)
            rows.put_setting(scope, json.dumps(new.to_json()))

    def drop_config(self, subject: str | None) -> Config:
        """Delete a subject's settings, or the global settings, and return the deleted ones."""
        with self._store.write() as rows:
            scope = subject or subjects.GLOBAL
            found = subjects.config_of(rows, scope)
            if found is None and scope != subjects.GLOBAL:
                raise subjects.no_subject(scope)
            rows.put_setting(scope, None)
            return found or Config(CompatibilityLevel.BACKWARD)


def _violations(
    rows: RegistryRows, read: Read, versions: Sequence[SubjectVersion]
) -> list[str]:
    """Return why a schema is incompatible with the newest incompatible version, if any."""
    level = subjects.config_for(rows, read.subject).level
    assert level is not None
    if not (level.backward or level.forward):
        return []
    for row in reversed(versions if level.transitive else versions[-1:]):
        stored = rows.schema(row.schema_id)
        if stored is None:
            continue
        found = _between(level, read.parsed, subjects.read_stored(rows, stored))
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {row.version}}}",
                f"{{compatibility: '{level}'}}",
            ]
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


def _check_unused(
    rows: RegistryRows, row: SubjectVersion, *, permanent: bool, going: str | None = None
) -> None:
    users = rows.users(row.subject, row.version)
    if any(user.subject != going and (permanent or not user.deleted) for user in users):
        problem = (
            "One or more references exist to the schema "
            f"{{subject={row.subject},version={row.version}}}."
        )
        raise RegistryRefusedError(problem, error_code=42206, field=row.subject)


def _delete(rows: RegistryRows, row: SubjectVersion, *, permanent: bool) -> None:
    if not permanent:
        rows.put_version(SubjectVersion(row.subject, row.version, row.schema_id, deleted=True))
        return
    rows.remove_version(row)
    if not rows.versions_of(row.schema_id):
        rows.remove_schema(row.schema_id)
    if not rows.versions(row.subject):
        rows.put_setting(row.subject, None)
