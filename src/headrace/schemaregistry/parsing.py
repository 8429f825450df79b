"""Reads schemas of whatever language, with what they refer to."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.sdk.schemaregistry import (
    InvalidSchemaError,
    SchemaReference,
    SchemaText,
    SchemaType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model import StoredSchema
    from headrace.schemaregistry.languages import ParsedSchema
    from headrace.store import RegistryRows

_NEWEST = -1


def parse_schema(schema: SchemaText, references: dict[str, str]) -> ParsedSchema:
    """Read a schema. Raises InvalidSchemaError.

    Args:
        schema: The schema.
        references: The texts of all it refers to, by name, dependencies first.
    """
    return _parse(schema.type, schema.text, tuple(references.items()))


def read_stored(rows: RegistryRows, stored: StoredSchema) -> ParsedSchema:
    """Read a schema that is in the registry."""
    references = referred_texts(rows, stored.schema)
    return parse_schema(stored.schema, references)


def fixed_references(rows: RegistryRows, schema: SchemaText) -> SchemaText:
    """Return the schema with every reference naming a version.

    Raises InvalidSchemaError for a reference that leads nowhere.
    """
    fixed = []
    for each in schema.references:
        version = each.version
        if version == _NEWEST:
            active = [row.version for row in rows.versions(each.subject) if not row.deleted]
            version = active[-1] if active else version
        fixed.append(SchemaReference(each.name, each.subject, version))
    return SchemaText(schema.text, schema.type, tuple(fixed))


def referred_texts(rows: RegistryRows, schema: SchemaText) -> dict[str, str]:
    """Return the texts of all that a schema refers to, dependencies first."""
    found: dict[str, str] = {}
    _gather(rows, schema, found)
    return found


def _gather(rows: RegistryRows, schema: SchemaText, found: dict[str, str]) -> None:
    for each in schema.references:
        if each.name in found:
            continue
        versions = {row.version: row for row in rows.versions(each.subject)}
        row = versions.get(each.version)
        stored = None if row is None else rows.schema(row.schema_id)
        if stored is None:
            problem = (
                f"No schema reference found for subject {each.subject!r} "
                f"and version {each.version}."
            )
            raise InvalidSchemaError(problem, fix="Register what is referred to first.")
        _gather(rows, stored.schema, found)
        found[each.name] = stored.schema.text


@lru_cache(maxsize=2048)
def _parse(
    kind: SchemaType, text: str, references: tuple[tuple[str, str], ...]
) -> ParsedSchema:
    if not text.strip():
        problem = "Empty schema"
        raise InvalidSchemaError(problem)
    return _parser(kind)(text, dict(references))


def _parser(kind: SchemaType) -> Callable[[str, dict[str, str]], ParsedSchema]:
    """Return what reads a language, whose library is loaded when it is first needed."""
    match kind:
        case SchemaType.AVRO:
            from headrace.schemaregistry.avro_schemas import parse_avro  # noqa: PLC0415

            return parse_avro
        case SchemaType.JSON:
            from headrace.schemaregistry.json_schemas import parse_json  # noqa: PLC0415

            return parse_json
        case SchemaType.PROTOBUF:
            from headrace.schemaregistry.proto_schemas import parse_proto  # noqa: PLC0415

            return parse_proto
