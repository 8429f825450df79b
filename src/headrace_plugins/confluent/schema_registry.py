"""The interface of schema registries: their data types, methods and errors.

The converters of this package use a registry, at a URL or the embedded one, which is
``headrace_registry``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from typing_extensions import override

from headrace.sdk.errors import Category, HeadraceError


class SchemaType(StrEnum):
    """The language of a schema."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference of a schema to another schema.

    Args:
        name: The name in the text: an Avro full name, a `$ref`, or a Protobuf import.
        subject: The subject of the referenced schema.
        version: The version in the subject; always a number, so a reference never changes.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The registered form of a schema.

    Args:
        text: Avro or JSON Schema in JSON; Protobuf as a .proto file's text, or as the Base64 of
            its FileDescriptorProto.
        type: The language.
        references: The schemas of other subjects that the text uses.
    """

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject. The id identifies the schema everywhere, also in records."""

    subject: str
    version: int
    id: int
    schema: SchemaText


@runtime_checkable
class SchemaRegistry(Protocol):
    """Schemas by subject and version, and by the id in records.

    Thread-safe and picklable: a copy in another process opens its own connections at its first
    call. Every method raises RetriableError if the registry cannot be reached or is overloaded,
    after its own retries, and RegistryRefusedError if the user has no permission. Errors never
    contain a password or a token.
    """

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        """Return the schema's id, and register a new version if the subject does not have it.

        Idempotent. With `normalize`, equivalent texts are the same schema. Raises
        IncompatibleSchemaError and InvalidSchemaError.
        """

    def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the subject's version with this schema; registers nothing.

        Raises SchemaNotFoundError if the subject does not have it.
        """

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema with this id, also if its versions are deleted.

        The result never changes, so it is cached. Raises SchemaNotFoundError.
        """

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version. Raises SchemaNotFoundError."""

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version, deleted or not. Raises SchemaNotFoundError."""

    def versions(self, subject: str) -> list[int]:
        """Return the versions that are not deleted. Raises SchemaNotFoundError."""

    def subjects(self) -> list[str]:
        """Return the subjects with at least one version that is not deleted."""

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        """Return why the schema cannot be registered in the subject; empty if it can.

        Raises InvalidSchemaError.
        """

    def close(self) -> None:
        """Close the connections; the next call opens them again."""


class SchemaRegistryAdmin(SchemaRegistry, Protocol):
    """The additional methods for administrators.

    A subject of None means the global setting of the registry. Raises RegistryRefusedError for
    operations that are not permitted, such as deleting a schema in use.
    """

    def all_subjects(self) -> list[str]:
        """Return all subjects, including those with only deleted versions."""

    def all_versions(self, subject: str) -> list[int]:
        """Return all versions, including deleted ones. Raises SchemaNotFoundError."""

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions and return them; permanently only if already deleted."""

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Delete a version and return it; permanently only if it is already deleted."""

    def compatibility(self, subject: str | None) -> str:
        """Return the effective compatibility level of a subject: its own or the global one."""

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        """Set a compatibility level; None resets it to the global level, or to BACKWARD."""


def resolve_references(
    target: Callable[[SchemaReference], SchemaText], schema: SchemaText
) -> dict[str, str]:
    """Return the texts of all schemas that a schema references, by name, dependencies first.

    Args:
        target: Returns the schema of a reference. Its exceptions are passed on.
        schema: The schema.
    """
    found: dict[str, str] = {}

    def resolve(schema: SchemaText) -> None:
        for reference in schema.references:
            if reference.name not in found:
                used = target(reference)
                resolve(used)
                found[reference.name] = used.text

    resolve(schema)
    return found


class SchemaRegistryError(HeadraceError):
    """A request to a schema registry failed.

    Args:
        problem: What is wrong. Never contains a password or a token.
        error_code: The code of Confluent's REST API, such as 40401.
        fix: What to do about it.
        field: The subject or key concerned.
    """

    code = "registry.failed"
    usual_error_code: ClassVar[int] = 50001

    def __init__(
        self,
        problem: str = "",
        *,
        error_code: int | None = None,
        fix: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, fix=fix, field=field)
        self.error_code = self.usual_error_code if error_code is None else error_code

    @property
    def status(self) -> int:
        """The HTTP status of the code: 404 for 40401."""
        return int(str(self.error_code)[:3])

    @override
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "error_code": self.error_code}


class SchemaNotFoundError(SchemaRegistryError):
    """The subject, version or schema does not exist in the schema registry."""

    code = "registry.not_found"
    usual_error_code = 40403


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema is incompatible with earlier versions of its subject."""

    code = "registry.incompatible"
    usual_error_code = 409


class InvalidSchemaError(SchemaRegistryError):
    """The text is not a schema of its type, or one of its references cannot be found."""

    code = "registry.invalid_schema"
    category = Category.CONFIG
    usual_error_code = 42201


class RegistryRefusedError(SchemaRegistryError):
    """The schema registry rejected the request, or the user has no permission for it."""

    code = "registry.refused"
    usual_error_code = 42205
