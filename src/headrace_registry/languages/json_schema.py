"""JSON Schemas: jsonschema validates them, referencing resolves their references."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from headrace_plugins.confluent.schema_registry import InvalidSchemaError
from headrace_registry.languages.json_differences import Node, differences
from headrace_registry.model import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from referencing import Registry, Specification

    from headrace_registry.model import ParsedSchema


@dataclass(frozen=True)
class JsonSchema:
    """See ParsedSchema."""

    value: Any
    root: Node

    @cached_property
    def text(self) -> str:
        return write_json(self.value)

    @property
    def identity(self) -> str:
        return self.text

    @cached_property
    def normalized(self) -> str:
        return write_json(self.value, sort=True)

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        assert isinstance(written, JsonSchema)
        try:
            found = differences(written.root, self.root)
        except Unresolvable as error:
            problem = f"Invalid JSON schema: unknown reference {error.ref!r}."
            raise InvalidSchemaError(problem) from None
        return [f"{each.name} at #/{each.path}" for each in found]


def parse_json(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema. Raises InvalidSchemaError, also for an unknown reference.

    ``references`` contains the referenced texts by their names in the schema.
    """
    value = read_json(text, "JSON")
    draft = _checked(value)
    identity = draft.id_of(value) or ""
    known: Registry[Any] = REGISTRY  # the drafts' own schemas, from jsonschema
    for name, each in references.items():
        used = read_json(each, "JSON")
        resource = _checked(used).create_resource(used)
        known = known.with_resources([(name, resource), (urljoin(identity, name), resource)])
    resolver = known.resolver_with_root(draft.create_resource(value))
    root = Node(value, resolver, draft)
    for node, reference in _references(root):
        try:
            node.resolver.lookup(reference)
        except Unresolvable:
            problem = f"Invalid JSON schema: unknown reference {reference!r}."
            fix = "Correct the $ref, or register the schema and list it in references."
            raise InvalidSchemaError(problem, fix=fix) from None
    return JsonSchema(value, root)


def _checked(value: Any) -> Specification[Any]:
    """Return the draft of a schema that jsonschema accepts."""
    if not isinstance(value, bool | dict):
        problem = "Invalid JSON schema: it must be an object, true or false."
        raise InvalidSchemaError(problem)
    named = value.get("$schema") if isinstance(value, dict) else None
    if named is not None and not isinstance(named, str):
        problem = "Invalid JSON schema: $schema is not a string."
        raise InvalidSchemaError(problem)
    try:
        validator_for(value, default=Draft7Validator).check_schema(cast("Any", value))
    except (SchemaError, RecursionError) as error:
        where = getattr(error, "json_path", "$")
        said = error.message if isinstance(error, SchemaError) else "it is nested too deeply"
        problem = f"Invalid JSON schema: {said} ({where})"
        raise InvalidSchemaError(problem) from None
    if named is None:
        return DRAFT7  # as in Confluent's registry
    return specification_with(named, default=DRAFT7)


def _references(root: Node) -> Iterator[tuple[Node, str]]:
    """Yield every reference with the schema that contains it, also in embedded documents."""
    left = [root]
    while left:
        node = left.pop()
        if isinstance(node.raw, dict):
            if isinstance(node.raw.get("$ref"), str):
                yield node, node.raw["$ref"]
            # subresources_of also returns lists if dependencies are of both kinds.
            inner = node.draft.subresources_of(node.raw)
            left += [node.inner(raw) for raw in inner if isinstance(raw, bool | dict)]
