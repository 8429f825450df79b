"""Avro schemas: Apache's own library parses them and compares reader and writer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from headrace_plugins.confluent.schema_registry import InvalidSchemaError
from headrace_registry.model import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_registry.model import ParsedSchema

_ORDER = ("name", "type", "fields", "symbols", "items", "values", "size")
"""The attributes of the specification's parsing canonical form, in its order."""


@dataclass(frozen=True)
class AvroSchema:
    """See ParsedSchema."""

    value: Any
    schema: Schema

    @cached_property
    def text(self) -> str:
        return write_json(self.value)

    @cached_property
    def identity(self) -> str:
        return write_json(_plain(self.value), sort=True)

    @cached_property
    def normalized(self) -> str:
        return write_json(_ordered(_plain(self.value)))

    def unreadable(self, written: ParsedSchema) -> Sequence[str]:
        assert isinstance(written, AvroSchema)
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        result = checker.get_compatibility(self.schema, written.schema)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(dict.fromkeys(kind.name for kind in result.incompatibilities))
        places = ", ".join(sorted(result.locations))
        return [f"{kinds} at {places}: {'; '.join(sorted(result.messages))}"]


def parse_avro(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse a schema, with the referenced texts in order. Raises InvalidSchemaError."""
    names = Names()
    for each in references.values():
        _made(read_json(each, "Avro"), names)
    value = read_json(text, "Avro")
    made = _made(value, names)
    _check_aliases(value)
    return AvroSchema(value, made)


def _made(value: Any, names: Names) -> Schema:
    with warnings.catch_warnings():
        # An unknown logical type is not an error: the specification ignores it.
        warnings.simplefilter("ignore")
        try:
            return make_avsc_object(value, names)
        except (AvroException, TypeError, ValueError, KeyError, RecursionError) as error:
            # The library's validation is incomplete: some invalid schemas raise other errors.
            problem = f"Invalid Avro schema: {error}"
            raise InvalidSchemaError(problem) from None


def _check_aliases(value: Any) -> None:
    """Raise InvalidSchemaError for aliases that are not names; the library accepts them."""
    if isinstance(value, list):
        for each in value:
            _check_aliases(each)
    elif isinstance(value, dict):
        aliases = value.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
            problem = f"Invalid Avro schema: aliases must be a list of names, not {aliases!r}."
            raise InvalidSchemaError(problem)
        for key in ("type", "items", "values", "fields"):
            _check_aliases(value.get(key))


def _plain(value: Any) -> Any:
    """Return the schema with `{"type": "int"}` replaced by the equivalent `"int"`."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"type"}:
        return _plain(value["type"])
    inner = {"type", "items", "values", "fields"}
    return {key: _plain(each) if key in inner else each for key, each in value.items()}


def _ordered(value: Any) -> Any:
    """Return the schema with the attributes in the specification's order, then by name."""
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    known = [key for key in _ORDER if key in value]
    keys = [*known, *sorted(set(value) - set(known))]
    inner = {"type", "items", "values", "fields"}
    return {key: _ordered(value[key]) if key in inner else value[key] for key in keys}
