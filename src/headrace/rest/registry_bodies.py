"""The bodies of Confluent's Schema Registry API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headrace.schemaregistry import Submitted
from headrace.sdk.schemaregistry import (
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaReference,
    SchemaText,
    SchemaType,
)

if TYPE_CHECKING:
    from headrace.model import StoredSchema
    from headrace.schemaregistry import Found

_NEXT = {None, -1, 0}
"""What clients send for an id or a version that the registry is to choose."""

Number = Annotated[int, Field(ge=-1, le=2**31 - 1)]


def _empty_if_null(value: object) -> object:
    return () if value is None else value


class ReferenceBody(BaseModel):
    """A reference to another schema."""

    name: str
    subject: str
    version: Number


class SchemaBody(BaseModel):
    """A schema that a client sends."""

    model_config = ConfigDict(populate_by_name=True)

    text: str | None = Field(default=None, alias="schema")
    language: str | None = Field(default=None, alias="schemaType")
    references: Annotated[tuple[ReferenceBody, ...], BeforeValidator(_empty_if_null)] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = Field(default=None, alias="ruleSet")
    id: Number | None = None
    version: Number | None = None

    def submitted(self) -> Submitted:
        """Return it as the registry takes it.

        Raises InvalidSchemaError, and RegistryRefusedError for a chosen id or version.
        """
        if self.id not in _NEXT or self.version not in _NEXT:
            problem = "The registry chooses the ids and versions of schemas itself."
            raise RegistryRefusedError(problem, fix="Leave id and version out.")
        if not _is_text(self):
            problem = "The schema holds halves of surrogate pairs, which are no characters."
            raise InvalidSchemaError(problem)
        language = self.language or SchemaType.AVRO.value
        if language not in list(SchemaType):
            problem = f"Invalid schema type {language}"
            fix = f"Use one of: {', '.join(SchemaType)}."
            raise InvalidSchemaError(problem, fix=fix)
        references = tuple(
            SchemaReference(each.name, each.subject, each.version) for each in self.references
        )
        extras = {"metadata": self.metadata, "ruleSet": self.rules}
        given = {key: value for key, value in extras.items() if value}
        return Submitted(
            SchemaText(self.text or "", SchemaType(language), references),
            json.dumps(given, sort_keys=True) if given else "",
        )


def _is_text(body: SchemaBody) -> bool:
    try:
        body.model_dump_json()
    except ValueError:
        return False
    return True


def schema_json(stored: StoredSchema, text: str) -> dict[str, Any]:
    """Return a schema as the API shows it, without its subject."""
    value: dict[str, Any] = {"schema": text}
    if stored.schema.type is not SchemaType.AVRO:
        value["schemaType"] = stored.schema.type.value
    if stored.schema.references:
        value["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in stored.schema.references
        ]
    return {**value, **(json.loads(stored.extras) if stored.extras else {})}


def found_json(found: Found) -> dict[str, Any]:
    """Return a version of a subject as the API shows it."""
    version = found.version
    value = {
        "subject": version.subject,
        "version": version.version,
        "id": found.stored.id,
        **schema_json(found.stored, found.text),
    }
    return {**value, "deleted": True} if version.deleted else value
