"""What the registry needs to know of a schema, whatever language it is written in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from headrace_plugins.confluent.schema_registry import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def read_json(text: str, language: str) -> Any:
    """Return the JSON value that a schema's text is. Raises InvalidSchemaError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        problem = f"Invalid {language} schema: it is not JSON: {error}"
        raise InvalidSchemaError(problem) from None


def write_json(value: object, *, sort: bool = False) -> str:
    """Return a JSON value's shortest text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort)


def _refuse(constant: str) -> None:
    problem = f"{constant} is not a JSON value"
    raise ValueError(problem)
