"""What the schema registry asks of durable state."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from headrace.model import StoredSchema, Subject, SubjectVersion
    from headrace.sdk.schemaregistry import SchemaText


class RegistrySetting(StrEnum):
    """What can be set for the registry, a context or a subject."""

    CONFIG = "config"
    MODE = "mode"


class RegistryRows(Protocol):
    """The rows of the registry as one transaction sees them."""

    def subjects(self) -> Sequence[tuple[Subject, bool]]:
        """Return each subject, and whether it has a version that is not deleted; sorted."""

    def versions(self, subject: Subject) -> Sequence[SubjectVersion]:
        """Return all versions of a subject, deleted ones too, the oldest first."""

    def versions_of(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        """Return the versions, deleted ones too, that are this schema."""

    def users(self, subject: Subject, version: int) -> Sequence[SubjectVersion]:
        """Return the versions, deleted ones too, whose schemas refer to this version."""

    def schema(self, context: str, schema_id: int) -> StoredSchema | None:
        """Return a schema by its id."""

    def find(self, context: str, guid: str) -> int | None:
        """Return the id of the schema in a context, if it is there."""

    def by_guid(self, guid: str) -> StoredSchema | None:
        """Return a schema of any context by its guid."""

    def contexts(self) -> Sequence[str]:
        """Return the contexts that have had a schema, sorted; the default one always."""

    def setting(self, kind: RegistrySetting, scope: str) -> str | None:
        """Return what is set for a scope: a subject's text, a context's, or '' for all."""

    def add_schema(
        self, context: str, guid: str, schema: SchemaText, extras: str, schema_id: int | None
    ) -> int:
        """Keep a schema and return its id: the given one, else one never used there before."""

    def remove_schema(self, context: str, schema_id: int) -> None:
        """Forget a schema; its id is not used again."""

    def put_version(self, version: SubjectVersion) -> None:
        """Add a version, or replace the one of that subject and number."""

    def remove_version(self, version: SubjectVersion) -> None:
        """Forget a version."""

    def put_setting(self, kind: RegistrySetting, scope: str, value: str | None) -> None:
        """Set or, with None, unset what holds for a scope."""


class RegistryStore(Protocol):
    """The registry's durable state. Any thread may use it.

    A transaction sees the rows as they are when it begins. What a writing one did is durable
    when its block ends, and undone when the block raises; no two writing ones overlap, in
    whatever process they are.
    """

    def read(self) -> AbstractContextManager[RegistryRows]:
        """Open a transaction that only reads."""

    def write(self) -> AbstractContextManager[RegistryRows]:
        """Open a transaction that may write."""

    def close(self) -> None:
        """Let go of files and connections."""
