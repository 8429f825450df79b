"""The domain types of the schema registry, and the interface of a schema in any language."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace_plugins.confluent.schema_registry import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_plugins.confluent.schema_registry import SchemaText


class CompatibilityLevel(StrEnum):
    """The required compatibility of a new version of a subject with earlier versions."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def backward(self) -> bool:
        """Whether the new schema must read data of earlier schemas."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether earlier schemas must read data of the new schema."""
        return self.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        """Whether all earlier versions are checked, not only the newest."""
        return self.endswith("_TRANSITIVE")


@dataclass(frozen=True)
class StoredSchema:
    """A stored schema; it never changes."""

    id: int
    fingerprint: str
    """The same for equal schemas, independent of their layout."""
    schema: SchemaText
    extras: str = ""
    """Metadata and rules from clients, as JSON; empty if none."""


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject; a (soft) deleted version is hidden, but still stored."""

    subject: str
    version: int
    schema_id: int
    deleted: bool = False


@dataclass(frozen=True)
class Found:
    """A version of a subject with its schema, for responses."""

    version: SubjectVersion
    stored: StoredSchema
    text: str
    """The schema's text in the requested form."""


@dataclass(frozen=True)
class Submitted:
    """A schema to register or to look up; ``extras`` as in ``StoredSchema``."""

    schema: SchemaText
    extras: str = ""


@dataclass(frozen=True)
class Listing:
    """A filter for subjects or versions, such as whether to include deleted ones."""

    prefix: str = ""
    """The prefix of the subjects' names."""
    deleted: bool = False
    only_deleted: bool = False


class ParsedSchema(Protocol):
    """A parsed schema, with all schemas that it references."""

    @property
    def text(self) -> str:
        """The text to store and to return."""

    @property
    def identity(self) -> str:
        """A text that is the same for equal schemas, independent of their layout."""

    @property
    def normalized(self) -> str:
        """The canonical text of all schemas with the same meaning."""

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        """Return why data written with the other schema cannot be read with this schema.

        Empty if it can. Both schemas have the same language.
        """


_MOST_LEVELS = 200
"""The maximum nesting depth of a schema, as it is processed recursively."""


def read_json(text: str, language: str) -> Any:
    """Parse a schema's text as JSON. Raises InvalidSchemaError."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        problem = f"Invalid {language} schema: it is not JSON: {error}"
        raise InvalidSchemaError(problem) from None
    level, depth = [value], 0
    while level := [
        inner
        for each in level
        if isinstance(each, dict | list)
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
        if depth > _MOST_LEVELS:
            problem = f"Invalid {language} schema: it is nested more than {_MOST_LEVELS} deep."
            raise InvalidSchemaError(problem)
    return value


def write_json(value: object, *, sort: bool = False) -> str:
    """Serialize a JSON value without whitespace."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort)


def _refuse(constant: str) -> None:
    problem = f"{constant} is not a JSON value"
    raise ValueError(problem)
