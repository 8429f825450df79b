"""Schema registries: what they hold, what can be asked of them, and what goes wrong.

The converters of this package ask one, at a URL or the runtime's own; ``headrace_registry`` is
one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from typing_extensions import override

from headrace.sdk.errors import Category, HeadraceError


class SchemaType(StrEnum):
    """The language a schema is written in."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """One schema's use of another.

    Args:
        name: What the text calls it: an Avro full name, a `$ref`, or a Protobuf import.
        subject: The subject that has it.
        version: Its version there; always a number, as a reference never moves.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as it is registered.

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
    """A version of a subject. The id names the schema everywhere, in records too."""

    subject: str
    version: int
    id: int
    schema: SchemaText


@runtime_checkable
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


def resolve_references(
    target: Callable[[SchemaReference], SchemaText], schema: SchemaText
) -> dict[str, str]:
    """Return the texts of all that a schema refers to, by their names, dependencies first.

    Args:
        target: Returns what a reference names; what it raises is raised here.
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
    """A schema registry did not do what it was asked.

    Args:
        problem: What is wrong. It never holds a password or a token.
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
        """The HTTP status that goes with the code: 40401 goes with 404."""
        return int(str(self.error_code)[:3])

    @override
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "error_code": self.error_code}


class SchemaNotFoundError(SchemaRegistryError):
    """The schema registry has no such subject, version or schema."""

    code = "registry.not_found"
    usual_error_code = 40403


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema does not fit the earlier ones of its subject.

    Args:
        problem: What is wrong.
        reasons: Each incompatibility, as far as the registry reported.
        fix: What to do about it.
        field: The subject.
    """

    code = "registry.incompatible"
    usual_error_code = 409

    def __init__(
        self,
        problem: str = "",
        *,
        reasons: Sequence[str] = (),
        fix: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, fix=fix, field=field)
        self.reasons: tuple[str, ...] = tuple(reasons)


class InvalidSchemaError(SchemaRegistryError):
    """The text is not a schema of its type, or one of its references cannot be found."""

    code = "registry.invalid_schema"
    category = Category.CONFIG
    usual_error_code = 42201


class RegistryRefusedError(SchemaRegistryError):
    """The schema registry refused the request, or does not let this user make it."""

    code = "registry.refused"
    usual_error_code = 42205
