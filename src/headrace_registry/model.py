"""The nouns of the schema registry, and what it needs to know of a schema in any language."""

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
    """A schema as it is stored; it never changes."""

    id: int
    fingerprint: str
    """The same for the same schema, however it is laid out."""
    schema: SchemaText
    extras: str = ""
    """What clients attach (metadata, rules), as JSON; empty if nothing."""


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject; a deleted one is hidden and not yet gone."""

    subject: str
    version: int
    schema_id: int
    deleted: bool = False


@dataclass(frozen=True)
class Found:
    """A version of a subject with its schema, as it is shown."""

    version: SubjectVersion
    stored: StoredSchema
    text: str
    """The schema's text in the form that was asked for."""


@dataclass(frozen=True)
class Submitted:
    """A schema to register or to find; ``extras`` as in ``StoredSchema``."""

    schema: SchemaText
    extras: str = ""


@dataclass(frozen=True)
class Listing:
    """Which subjects or versions are asked for, such as deleted ones too."""

    prefix: str = ""
    """How the subjects' names begin."""
    deleted: bool = False
    only_deleted: bool = False


class ParsedSchema(Protocol):
    """A schema that was understood, with all that it refers to."""

    @property
    def text(self) -> str:
        """The text to keep and to show."""

    @property
    def identity(self) -> str:
        """A text that is the same for the same schema, however it is laid out."""

    @property
    def normalized(self) -> str:
        """The text in one form for all schemas that mean the same."""

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        """Return why data written with the other schema may not be read with this one.

        Empty if it can. Both are of the same language.
        """


_MOST_LEVELS = 200
"""How deep a schema may be nested, as functions that follow it call themselves."""


def read_json(text: str, language: str) -> Any:
    """Return the JSON value that a schema's text is. Raises InvalidSchemaError."""
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
    """Return a JSON value's shortest text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort)


def _refuse(constant: str) -> None:
    problem = f"{constant} is not a JSON value"
    raise ValueError(problem)
