"""What the runtime and its converters ask of a schema registry."""

from typing import Protocol

from headrace.sdk.schemaregistry.schema import RegisteredSchema, SchemaText

__all__ = ["SchemaRegistry", "SchemaRegistryAdmin", "resolve_references"]


class SchemaRegistry(Protocol):
    """Schemas by subject and version, and by the id that records carry.

    Any thread may call it, and it can be pickled: a copy in another process opens its own
    connections at its first call. Every method raises RetriableError when the registry cannot
    be reached or is overloaded, after it has tried again itself, and RegistryRefusedError when
    the user may not ask. No error holds a password or a token.
    """

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        """Return the schema's id, and make a version of the subject if it is new there.

        Calling it again changes nothing. With `normalize`, texts that mean the same count as
        the same. Raises IncompatibleSchemaError and InvalidSchemaError.
        """

    def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of the subject that is this schema; registers nothing.

        Raises SchemaNotFoundError when the subject does not have it.
        """

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema that records name by this id; deleted versions count.

        The answer never changes, so it is kept. Raises SchemaNotFoundError.
        """

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version. Raises SchemaNotFoundError."""

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version, deleted or not. Raises SchemaNotFoundError."""

    def versions(self, subject: str) -> list[int]:
        """Return the versions that are not deleted. Raises SchemaNotFoundError."""

    def subjects(self) -> list[str]:
        """Return the subjects that have a version that is not deleted."""

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        """Return why the schema could not be registered under the subject; empty if it could.

        Raises InvalidSchemaError.
        """

    def close(self) -> None:
        """Let go of connections; the next call opens them again."""


class SchemaRegistryAdmin(SchemaRegistry, Protocol):
    """What those who look after a registry ask besides.

    Subjects may be None where a setting of the whole registry is meant. Raises
    RegistryRefusedError for what is not permitted, such as deleting a schema in use.
    """

    def all_subjects(self) -> list[str]:
        """Return the subjects, with those whose versions are all deleted."""

    def all_versions(self, subject: str) -> list[int]:
        """Return the versions, deleted ones too. Raises SchemaNotFoundError."""

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions and return them; permanently only what was deleted before."""

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Delete a version and return it; permanently only if it was deleted before."""

    def compatibility(self, subject: str | None) -> str:
        """Return the level that holds for a subject, its own or the registry's."""

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        """Set a level; None goes back to the registry's, or to BACKWARD."""


def resolve_references(registry: SchemaRegistry, schema: SchemaText) -> dict[str, str]:
    """Return the texts of all that a schema refers to, by their names, dependencies first.

    Raises SchemaNotFoundError when one does not exist.
    """
    found: dict[str, str] = {}
    _resolve(registry, schema, found)
    return found


def _resolve(registry: SchemaRegistry, schema: SchemaText, found: dict[str, str]) -> None:
    for reference in schema.references:
        if reference.name in found:
            continue
        target = registry.version(reference.subject, reference.version).schema
        _resolve(registry, target, found)
        found[reference.name] = target.text
