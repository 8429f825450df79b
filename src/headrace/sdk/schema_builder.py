"""Builds a schema step by step, each attribute once."""

from collections.abc import Mapping
from typing import Any, final

from headrace.sdk.errors import ConfigError
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Attributes, Field, Schema

__all__ = ["SchemaBuilder"]


@final
class SchemaBuilder:
    """Builds a schema as Kafka Connect's class of that name does.

    Calls can be chained, and each attribute may be set once. For short schemas the
    constructors of `Schema` are shorter.

    Args:
        type: The type to build.
        key_schema: The schema of a MAP's keys.
        value_schema: The schema of a MAP's values or an ARRAY's items.

    Raises:
        ConfigError: By every call, when an attribute is set again or does not fit.
    """

    def __init__(
        self,
        type: Type,  # noqa: A002 - it is what Schema calls it
        *,
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        self._type = type
        self._key_schema = key_schema
        self._value_schema = value_schema
        self._attributes: Attributes = {}
        self._parameters: dict[str, str] = {}
        self._fields: dict[str, Schema] = {}

    def optional(self) -> "SchemaBuilder":
        """Let values be None."""
        return self._set("optional", {"optional": True})

    def required(self) -> "SchemaBuilder":
        """Let no value be None; also the default of the builder."""
        return self._set("optional", {"optional": False})

    def default(self, value: Any) -> "SchemaBuilder":
        """Set the value that stands for a missing one; it has to fit what is set so far."""
        if value is None and not self._attributes.get("optional", False):
            raise ConfigError(
                problem="Invalid default value: null, but the schema is not optional.",
                fix="Call optional() before, or leave the default out.",
                field="default",
            )
        builder = self._set("default", {"default": value})
        self.build()
        return builder

    def name(self, name: str) -> "SchemaBuilder":
        """Set the name."""
        return self._set("name", {"name": name})

    def version(self, version: int) -> "SchemaBuilder":
        """Set the version."""
        return self._set("version", {"version": version})

    def doc(self, doc: str) -> "SchemaBuilder":
        """Set the description."""
        return self._set("doc", {"doc": doc})

    def parameter(self, name: str, value: str) -> "SchemaBuilder":
        """Set one parameter; as in Kafka Connect, the last value of a name counts."""
        self._parameters[name] = value
        return self

    def parameters(self, parameters: Mapping[str, str]) -> "SchemaBuilder":
        """Set several parameters."""
        self._parameters.update(parameters)
        return self

    def field(self, name: str, schema: Schema) -> "SchemaBuilder":
        """Add a field to a STRUCT, after those it has."""
        if self._type is not Type.STRUCT:
            raise ConfigError(
                problem=f"Cannot create fields on type {self._type.value}", field=name
            )
        if name in self._fields:
            raise ConfigError(
                problem=f"Cannot create field because of field name duplication {name}",
                fix="Give each field of a struct a name of its own.",
                field=name,
            )
        self._fields[name] = schema
        return self

    def build(self) -> Schema:
        """Give the schema as it stands; the builder can go on."""
        fields = tuple(
            Field(name, index, schema)
            for index, (name, schema) in enumerate(self._fields.items())
        )
        attributes: Attributes = {**self._attributes, "parameters": self._parameters}
        return Schema(
            self._type,
            **attributes,
            key_schema=self._key_schema,
            value_schema=self._value_schema,
            fields=fields,
        )

    def _set(self, name: str, attribute: Attributes) -> "SchemaBuilder":
        if name in self._attributes:
            raise _set_twice(name)
        self._attributes.update(attribute)
        return self


def _set_twice(name: str) -> ConfigError:
    return ConfigError(
        problem=f"Invalid SchemaBuilder call: {name} has already been set.", field=name
    )
