"""The nouns of the schema registry: schemas, versions of subjects, and levels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace_plugins.confluent.schema_registry import SchemaText


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


@dataclass(frozen=True)
class StoredSchema:
    """A schema as it is kept; it never changes.

    Args:
        id: Its id.
        fingerprint: The same for the same schema, however it is laid out.
        schema: Text, language and references.
        extras: What clients attach (metadata, rules), as JSON; empty if nothing.
    """

    id: int
    fingerprint: str
    schema: SchemaText
    extras: str = ""


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject; a deleted one is hidden and not yet gone."""

    subject: str
    version: int
    schema_id: int
    deleted: bool = False
