"""The nouns of the schema registry: subjects, their versions, levels and modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from headrace.sdk.schemaregistry import SchemaText

DEFAULT_CONTEXT = "."
"""The context of subjects that name none."""


class CompatibilityLevel(StrEnum):
    """What a new version of a subject must be able to do with the data of the earlier ones."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def backward(self) -> bool:
        """Whether the new schema must read what earlier ones wrote."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether earlier schemas must read what the new one writes."""
        return self.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        """Whether all earlier versions count, and not the newest only."""
        return self.endswith("_TRANSITIVE")


class RegistryMode(StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written."""
        return self in {RegistryMode.READONLY, RegistryMode.READONLY_OVERRIDE}


@dataclass(frozen=True)
class Subject:
    """A subject and the context it is in.

    Args:
        name: Its name within the context; empty for the context itself.
        context: The context, which begins with a dot.
    """

    name: str
    context: str = DEFAULT_CONTEXT

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Read `name`, or `:.context:name`, as Confluent writes it."""
        if not text.startswith(":."):
            return cls(text)
        context, colon, name = text[1:].partition(":")
        return cls(name, context) if colon else cls("", context)

    @override
    def __str__(self) -> str:
        """Return the text that `parse` reads; the default context is left out."""
        if self.context == DEFAULT_CONTEXT and self.name:
            return self.name
        return f":{self.context}:{self.name}"

    @property
    def valid(self) -> bool:
        """Whether a schema may be registered under it."""
        reserved = self.name in {"", "__GLOBAL", "__EMPTY"}
        return not reserved and f"{self.context}{self.name}".isprintable()


@dataclass(frozen=True)
class StoredSchema:
    """A schema as it is kept; it never changes.

    Args:
        context: The context whose ids it is counted among.
        id: Its id there.
        guid: The same for the same schema everywhere.
        schema: Text, language and references.
        extras: What clients attach (metadata, rules), as JSON; empty if nothing.
    """

    context: str
    id: int
    guid: str
    schema: SchemaText
    extras: str = ""


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject; a deleted one is hidden and not yet gone."""

    subject: Subject
    version: int
    schema_id: int
    deleted: bool = False
