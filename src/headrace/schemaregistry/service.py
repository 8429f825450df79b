"""The schema registry: what can be asked of it, each question one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.model import RegistryMode, Subject
from headrace.schemaregistry import faults, reading, registering, removing, scopes
from headrace.schemaregistry.reading import LATEST, Found

if TYPE_CHECKING:
    from headrace.model import StoredSchema, SubjectVersion
    from headrace.schemaregistry.registering import Submitted
    from headrace.schemaregistry.scopes import Config
    from headrace.store import RegistryStore


@dataclass(frozen=True)
class Listing:
    """Which of many things are asked for.

    Args:
        prefix: How the subjects' names begin; `:*:` stands for every context.
        deleted: Whether deleted ones count too.
        only_deleted: Whether none but deleted ones count.
    """

    prefix: str = ":*:"
    deleted: bool = False
    only_deleted: bool = False


class RegistryService:
    """A schema registry over a store. Any thread may use it.

    Subjects are texts as clients send them, `:.context:` in front where they name one. The
    errors are those of `headrace.sdk.schemaregistry`, with Confluent's codes.
    """

    def __init__(self, store: RegistryStore) -> None:
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
        parsed = Subject.parse(subject)
        with self._store.read() as rows:
            # What is there already, by far the most asked for, needs no write lock.
            mode = scopes.check_writable(rows, parsed)
            if mode is not RegistryMode.IMPORT and submitted.id is None:
                known = registering.find(rows, parsed, submitted, normalize=normalize)
                if known is not None:
                    return known
        with self._store.write() as rows:
            return registering.register(rows, parsed, submitted, normalize=normalize)

    def lookup(
        self,
        subject: str,
        submitted: Submitted,
        *,
        normalize: bool = False,
        deleted: bool = False,
    ) -> Found:
        """Return the version that is this schema. Raises SchemaNotFoundError."""
        parsed = Subject.parse(subject)
        with self._store.read() as rows:
            reading.versions_of(rows, parsed, deleted=deleted)
            found = registering.find(
                rows, parsed, submitted, normalize=normalize, deleted=deleted
            )
        if found is None:
            raise faults.no_schema()
        return found

    def misfits(
        self,
        subject: str,
        submitted: Submitted,
        version: str | None = None,
        *,
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema does not fit a version, or could not be registered if None."""
        parsed = Subject.parse(subject)
        with self._store.read() as rows:
            against = None
            if version is not None:
                number = reading.read_version(version)
                if number == LATEST and not rows.versions(parsed):
                    return []
                against = reading.one_version(rows, parsed, number, deleted=False)
            return registering.misfits_of(rows, parsed, submitted, against, normalize=normalize)

    def version(
        self, subject: str, version: str, *, deleted: bool = False, form: str = ""
    ) -> Found:
        """Return a version, `latest` too. Raises SchemaNotFoundError."""
        parsed, number = Subject.parse(subject), reading.read_version(version)
        with self._store.read() as rows:
            row = reading.one_version(rows, parsed, number, deleted=deleted)
            return reading.shown(rows, row, form)

    def versions(self, subject: str, listing: Listing = Listing()) -> list[int]:
        """Return a subject's versions. Raises SchemaNotFoundError."""
        deleted = listing.deleted or listing.only_deleted
        with self._store.read() as rows:
            found = reading.versions_of(rows, Subject.parse(subject), deleted=deleted)
        return [row.version for row in found if row.deleted or not listing.only_deleted]

    def subjects(self, listing: Listing = Listing()) -> list[str]:
        """Return the subjects, sorted."""
        with self._store.read() as rows:
            found = reading.subject_names(
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
            names = reading.subject_names(
                rows, listing.prefix, deleted=listing.deleted, only_deleted=False
            )
            for name in names:
                versions = reading.versions_of(
                    rows, Subject.parse(name), deleted=listing.deleted
                )
                wanted = versions[-1:] if latest_only else versions
                found += [reading.shown(rows, row, form) for row in wanted]
        return found

    def by_id(
        self, schema_id: int, subject: str | None = None, form: str = ""
    ) -> tuple[StoredSchema, str]:
        """Return a schema by its id, and its text in a form. Raises SchemaNotFoundError."""
        parsed = None if subject is None else Subject.parse(subject)
        with self._store.read() as rows:
            stored = reading.by_id(rows, schema_id, parsed)
            return stored, reading.text_of(rows, stored, form)

    def by_guid(self, guid: str, form: str = "") -> tuple[StoredSchema, str]:
        """Return a schema by its guid, and its text. Raises SchemaNotFoundError."""
        with self._store.read() as rows:
            stored = rows.by_guid(guid)
            if stored is None:
                raise faults.no_schema(guid)
            return stored, reading.text_of(rows, stored, form)

    def versions_by_id(
        self, schema_id: int, subject: str | None = None, *, deleted: bool = False
    ) -> list[SubjectVersion]:
        """Return the versions that are a schema. Raises SchemaNotFoundError."""
        parsed = None if subject is None else Subject.parse(subject)
        with self._store.read() as rows:
            stored = reading.by_id(rows, schema_id, parsed)
            found = rows.versions_of(stored.context, stored.id)
        return [row for row in found if deleted or not row.deleted]

    def users(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        parsed, number = Subject.parse(subject), reading.read_version(version)
        with self._store.read() as rows:
            row = reading.one_version(rows, parsed, number, deleted=True)
            users = rows.users(parsed, row.version)
        return sorted({user.schema_id for user in users if not user.deleted})

    def contexts(self) -> list[str]:
        """Return the contexts, sorted."""
        with self._store.read() as rows:
            return list(rows.contexts())

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions and return them."""
        with self._store.write() as rows:
            return removing.delete_subject(rows, Subject.parse(subject), permanent=permanent)

    def delete_version(self, subject: str, version: str, *, permanent: bool = False) -> int:
        """Delete a version and return it."""
        parsed, number = Subject.parse(subject), reading.read_version(version)
        with self._store.write() as rows:
            return removing.delete_version(rows, parsed, number, permanent=permanent)

    def config(self, subject: str | None, *, inherited: bool = False) -> Config:
        """Return what is set for a subject or for all, or what holds for it."""
        scope = scopes.scope_of(subject)
        with self._store.read() as rows:
            if inherited or subject is None:
                return scopes.config_for(rows, scope)
            found = scopes.config_of(rows, scope)
        if found is None:
            raise faults.not_configured(scope, "compatibility")
        return found

    def set_config(self, subject: str | None, config: Config) -> None:
        """Set what the values say for a subject or for all."""
        with self._store.write() as rows:
            scopes.put_config(rows, scopes.scope_of(subject), config)

    def drop_config(self, subject: str | None) -> Config:
        """Unset a subject's values, or those for all, and return what was set."""
        with self._store.write() as rows:
            return scopes.drop_config(rows, scopes.scope_of(subject))

    def mode(self, subject: str | None, *, inherited: bool = False) -> RegistryMode:
        """Return the mode that is set for a subject or for all, or that holds for it."""
        scope = scopes.scope_of(subject)
        with self._store.read() as rows:
            if inherited or subject is None:
                return scopes.mode_for(rows, scope)
            found = scopes.mode_of(rows, scope)
        if found is None:
            raise faults.not_configured(scope, "mode")
        return found

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> RegistryMode:
        """Set the mode of a subject or of all, and return it."""
        wanted = scopes.read_mode(mode)
        with self._store.write() as rows:
            scopes.put_mode(rows, scopes.scope_of(subject), wanted, force=force)
        return wanted

    def drop_mode(self, subject: str | None) -> RegistryMode:
        """Unset a subject's mode, or that of all, and return what was set."""
        with self._store.write() as rows:
            return scopes.drop_mode(rows, scopes.scope_of(subject))
