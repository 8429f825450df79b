"""The schema registry: what can be asked of it, each question one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace_registry import errors, subjects
from headrace_registry.model import Listing
from headrace_registry.subjects import LATEST

if TYPE_CHECKING:
    from headrace_registry.model import Found, StoredSchema, SubjectVersion, Submitted
    from headrace_registry.store import SqlRegistryStore
    from headrace_registry.subjects import Config


_ACTIVE = Listing()


class RegistryService:
    """A schema registry over a store. Any thread may use it.

    The errors are those of `headrace_plugins.confluent.schema_registry`, with the codes of
    Confluent's REST API.
    """

    def __init__(self, store: SqlRegistryStore) -> None:
        """Use a store, which others may use at the same time."""
        self._store = store

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return RegistryService, (self._store,)

    def close(self) -> None:
        """Let go of the store's files."""
        self._store.close()

    def register(self, subject: str, submitted: Submitted, *, normalize: bool = False) -> Found:
        """Return the version that is this schema, made anew if need be."""
        with self._store.read() as rows:
            # What is there already, by far the most asked for, needs no write lock.
            known = subjects.find(rows, subject, submitted, normalize=normalize)
        if known is not None:
            return known
        with self._store.write() as rows:
            return subjects.register(rows, subject, submitted, normalize=normalize)

    def lookup(
        self,
        subject: str,
        submitted: Submitted,
        *,
        normalize: bool = False,
        deleted: bool = False,
    ) -> Found:
        """Return the version that is this schema. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            subjects.versions_of(rows, subject, deleted=deleted)
            found = subjects.find(
                rows, subject, submitted, normalize=normalize, deleted=deleted
            )
        if found is None:
            raise errors.no_schema()
        return found

    def incompatibilities(
        self,
        subject: str,
        submitted: Submitted,
        version: str | None = None,
        *,
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema does not fit a version, or could not be registered if None."""
        with self._store.read() as rows:
            against = None
            if version is not None:
                number = subjects.read_version(version)
                if number == LATEST and not rows.versions(subject):
                    return []
                against = subjects.one_version(rows, subject, number, deleted=False)
            return subjects.incompatibilities(
                rows, subject, submitted, against, normalize=normalize
            )

    def version(
        self, subject: str, version: str, *, deleted: bool = False, form: str = ""
    ) -> Found:
        """Return a version, `latest` too. Raises SchemaNotFoundError."""
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
            found = subjects.subject_names(
                rows,
                listing.prefix,
                deleted=listing.deleted,
                only_deleted=listing.only_deleted,
            )
        return list(found)

    def schemas(self, listing: Listing, *, latest_only: bool, form: str = "") -> list[Found]:
        """Return the versions of many subjects with their schemas."""
        found = []
        with self._store.read() as rows:
            names = subjects.subject_names(
                rows, listing.prefix, deleted=listing.deleted, only_deleted=False
            )
            for name in names:
                listed = subjects.versions_of(rows, name, deleted=listing.deleted)
                wanted = listed[-1:] if latest_only else listed
                found += [subjects.shown(rows, row, form) for row in wanted]
        return found

    def by_id(self, schema_id: int, form: str = "") -> tuple[StoredSchema, str]:
        """Return a schema by its id, and its text in a form. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            stored = subjects.by_id(rows, schema_id)
            return stored, subjects.text_of(rows, stored, form)

    def versions_by_id(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions that are a schema. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            stored = subjects.by_id(rows, schema_id)
            found = rows.versions_of(stored.id)
        return [row for row in found if deleted or not row.deleted]

    def users(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        number = subjects.read_version(version)
        with self._store.read() as rows:
            row = subjects.one_version(rows, subject, number, deleted=True)
            users = rows.users(subject, row.version)
        return sorted({user.schema_id for user in users if not user.deleted})

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions and return them."""
        with self._store.write() as rows:
            return subjects.delete_subject(rows, subject, permanent=permanent)

    def delete_version(self, subject: str, version: str, *, permanent: bool = False) -> int:
        """Delete a version and return it."""
        number = subjects.read_version(version)
        with self._store.write() as rows:
            return subjects.delete_version(rows, subject, number, permanent=permanent)

    def config(self, subject: str | None, *, inherited: bool = False) -> Config:
        """Return what is set for a subject or for all, or what holds for it."""
        with self._store.read() as rows:
            if inherited or subject is None:
                return subjects.config_for(rows, subject or subjects.GLOBAL)
            found = subjects.config_of(rows, subject)
        if found is None:
            raise errors.not_configured(subject)
        return found

    def set_config(self, subject: str | None, config: Config) -> None:
        """Set what the values say for a subject or for all."""
        with self._store.write() as rows:
            subjects.put_config(rows, subject or subjects.GLOBAL, config)

    def drop_config(self, subject: str | None) -> Config:
        """Unset a subject's values, or those for all, and return what was set."""
        with self._store.write() as rows:
            return subjects.drop_config(rows, subject or subjects.GLOBAL)
