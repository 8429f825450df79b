"""The languages of schemas: each parses a text, and compares two schemas."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.sdk.errors import SetupError
from headrace_plugins.confluent.schema_registry import (
    InvalidSchemaError,
    SchemaText,
    SchemaType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_registry.model import ParsedSchema

__all__ = ["parse_schema"]


def parse_schema(schema: SchemaText, references: dict[str, str]) -> ParsedSchema:
    """Parse a schema, with the texts of all referenced schemas, by name, dependencies first.

    Raises InvalidSchemaError, and SetupError if the packages for its language are missing.
    """
    return _parse(schema.type, schema.text, tuple(references.items()))


@lru_cache(maxsize=2048)
def _parse(
    kind: SchemaType, text: str, references: tuple[tuple[str, str], ...]
) -> ParsedSchema:
    if not text.strip():
        problem = "Empty schema"
        raise InvalidSchemaError(problem)
    try:
        parser = _parser(kind)
    except ImportError as error:
        extra = "protobuf" if kind is SchemaType.PROTOBUF else "registry"
        problem = f"{kind} schemas need Python packages that are not installed: {error.name}."
        raise SetupError(problem, fix=f"Install headrace[{extra}].") from None
    return parser(text, dict(references))


def _parser(kind: SchemaType) -> Callable[[str, dict[str, str]], ParsedSchema]:
    """Return the parser of a language; its library is imported at the first use."""
    match kind:
        case SchemaType.AVRO:
            from headrace_registry.languages.avro import parse_avro  # noqa: PLC0415

            return parse_avro
        case SchemaType.JSON:
            from headrace_registry.languages.json_schema import parse_json  # noqa: PLC0415

            return parse_json
        case SchemaType.PROTOBUF:
            from headrace_registry.languages.protobuf import parse_proto  # noqa: PLC0415

            return parse_proto
