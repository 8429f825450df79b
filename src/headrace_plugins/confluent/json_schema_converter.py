"""The converter of JSON with a JSON Schema, compatible with Confluent's JsonSchemaConverter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import Converter, Schema, Type
from headrace.sdk.config import Config, setting
from headrace.sdk.connectjson import connect_json
from headrace.sdk.converter import Converted, Decoded, Group
from headrace.sdk.errors import SetupError
from headrace.sdk.schema import DECIMAL
from headrace.sdk.sqltext import literal, quote
from headrace_plugins.confluent.json_schemas import (
    CONNECT_INDEX,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    ENUM,
    KEY,
    NAMESPACE,
    NUMBERS,
    VALUE,
    is_apart,
    is_object,
    is_union,
    payload,
    schema_of_json_schema,
)
from headrace_plugins.confluent.remote_schemas import (
    UNWANTED,
    HeadedDecoder,
    RemoteSchemas,
    RemoteSettings,
    framed_sql,
    refusing,
)
from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType
from headrace_plugins.converters.json_converter import (
    JsonWriter,
    beyond_millis,
    compact,
    member_text,
    millis_faults,
)
from headrace_plugins.converters.json_decoding import decoded_payloads
from headrace_plugins.converters.scalars import ConverterSettings, DecimalSettings, unused_cache

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk import ConverterContext
    from headrace.sdk.converter import ArrowDecoder
    from headrace_plugins.confluent.remote_schemas import WriterSchema


_NULL = {"type": "null"}


def json_schema_text(schema: Schema, *, additional: bool) -> str:
    """Return the JSON Schema of the non-null values of a schema.

    If ``additional``, objects may have additional properties.
    """
    return compact(_Writing(additional).whole(schema.replaced(optional=False)))


@dataclass(frozen=True)
class _Writing:
    additional: bool

    def whole(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        """Return the JSON Schema of a value that may be null."""
        if is_union(schema):
            nothing = [_NULL] if schema.optional else []
            tree: dict[str, Any] = {"oneOf": nothing + self._members(schema)}
        else:
            tree = {**self._plain(schema), **self._facts(schema)}
            tree = {"oneOf": [_NULL, tree]} if schema.optional else tree
        return tree if index is None else {**tree, CONNECT_INDEX: index}

    def _members(self, schema: Schema) -> list[dict[str, Any]]:
        return [self.whole(f.schema.replaced(optional=False), f.index) for f in schema.fields]

    def _plain(self, schema: Schema) -> dict[str, Any]:
        if schema.type in NUMBERS:
            return {"type": NUMBERS[schema.type], CONNECT_TYPE: schema.type.value.lower()}
        match schema.type:
            case Type.BYTES:
                kind = "number" if schema.name == DECIMAL else "string"
                return {"type": kind, CONNECT_TYPE: "bytes"}
            case Type.ARRAY if schema.value_schema is not None:
                return {"type": "array", "items": self.whole(schema.value_schema)}
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._map(schema, schema.key_schema, schema.value_schema)
            case Type.STRUCT:
                closed = {} if self.additional else {"additionalProperties": False}
                own = {f.name: self.whole(f.schema, f.index) for f in schema.fields}
                return {"type": "object", "properties": own, **closed}
            case Type.STRING if ENUM in schema.parameters:
                start = f"{ENUM}."
                names = [name for name in schema.parameters if name.startswith(start)]
                return {"enum": [name.removeprefix(start) for name in names]}
            case _:
                return {"type": schema.type.value.lower()}

    def _map(self, schema: Schema, keys: Schema, values: Schema) -> dict[str, Any]:
        if is_object(schema):
            tree = {"type": "object", "additionalProperties": self.whole(values)}
        else:
            entry = {KEY: self.whole(keys, 0), VALUE: self.whole(values, 1)}
            tree = {"type": "array", "items": {"type": "object", "properties": entry}}
        return {**tree, CONNECT_TYPE: "map"}

    def _facts(self, schema: Schema) -> dict[str, Any]:
        parameters = {
            name: value
            for name, value in schema.parameters.items()
            if not name.startswith(NAMESPACE)
        }
        facts = {
            "title": schema.name,
            CONNECT_VERSION: schema.version,
            "description": schema.doc,
            CONNECT_PARAMETERS: parameters or None,
            "default": (connect_json(schema) or {}).get("default"),
        }
        return {name: fact for name, fact in facts.items() if fact is not None}


@dataclass(frozen=True)
class SchemaJsonWriter(JsonWriter):
    """Writes values in the form that their JSON Schema describes."""

    @override
    def _struct(self, sql: str, schema: Schema, depth: int) -> str:
        if not is_union(schema):
            return super()._struct(sql, schema, depth)
        members = [
            (own, member_text(self._value(own, field.schema, depth)))
            for field in schema.fields
            for own in (f"{sql}.{quote(field.name)}",)
        ]
        cases = [f"WHEN {own} IS NOT NULL THEN parse_json({text})" for own, text in members]
        return f"CASE {' '.join(cases)} END"

    @override
    def _map(self, sql: str, keys: Schema, values: Schema, depth: int) -> str:
        if keys.type is Type.STRING and not keys.optional:
            return super()._map(sql, keys, values, depth)
        entry = f"e{depth}"
        parts = ((KEY, f"{entry}.key", keys), (VALUE, f"{entry}.value", values))
        pair = ", ".join(
            f"{literal(name)}, {self._value(part, own, depth + 1)}" for name, part, own in parts
        )
        return f"transform(map_entries({sql}), {entry} -> named_struct({pair}))"


class JsonSchemaSettings(RemoteSettings, DecimalSettings, ConverterSettings, group="Schemas"):
    """The settings of ``JsonSchemaConverter``."""

    object_additional_properties: bool = setting(
        "Whether written schemas allow additional properties in objects. If they do not, "
        "fields can be added compatibly.",
        default=True,
    )
    use_optional_for_nonrequired: bool = setting(
        "Whether a property that is not required may be missing. If false, values without "
        "the property are rejected.",
        default=False,
    )
    schemas_cache_size: int = unused_cache("Confluent")


class JsonSchemaConverter(Converter):
    """Converts JSON with a JSON Schema in a schema registry.

    Preserves all types: Confluent's properties, such as ``connect.type``, store what JSON
    Schema has no syntax for. In schemas of other producers, a ``oneOf`` or ``anyOf`` becomes a
    struct with a field for each choice, unless it only adds null. Needs the extra
    `headrace[confluent]`.
    """

    aliases = ("io.confluent.connect.json.JsonSchemaConverter",)

    settings: JsonSchemaSettings

    def __init__(self, config: Config, context: ConverterContext) -> None:
        super().__init__(config, context)
        if find_spec("jsonschema_specifications") is None:
            problem = "JsonSchemaConverter needs the Python package jsonschema-specifications."
            raise SetupError(problem, fix="Install headrace[confluent].")
        self._schemas = RemoteSchemas(self.settings, context, SchemaType.JSON)

    @override
    def close(self) -> None:
        self._schemas.close()

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        text = json_schema_text(schema, additional=self.settings.object_additional_properties)
        try:
            writer = self._schemas.writer(SchemaText(text, SchemaType.JSON), schema.name)
        except UNWANTED as error:
            return refusing(column, error)
        numbers = self.settings.decimals_as_numbers
        json = SchemaJsonWriter(decimals_as_numbers=numbers).text(column, schema)
        payload_sql = f"CAST({json} AS BINARY)"
        framed = framed_sql(writer.id, payload_sql)
        faults = millis_faults(beyond_millis(column, schema))
        return Converted(framed, Schema.bytes(optional=True), faults=faults)

    @override
    def decoder(self) -> ArrowDecoder:
        optional, base64 = (
            self.settings.use_optional_for_nonrequired,
            not self.settings.decimals_as_numbers,
        )
        reader_of = partial(_reader, optional_unless_required=optional, decimals_as_text=base64)
        return HeadedDecoder(self._schemas, reader_of)


def _reader(
    writer: WriterSchema, *, optional_unless_required: bool, decimals_as_text: bool
) -> _Reader:
    schema = schema_of_json_schema(
        writer.schema.text,
        writer.references,
        optional_unless_required=optional_unless_required,
    )
    return _Reader(schema, decimals_as_text)


@dataclass(frozen=True)
class _Reader:
    schema: Schema
    decimals_as_text: bool

    def __call__(self, texts: pa.Array) -> Decoded:
        shape = partial(payload, self.schema) if is_apart(self.schema) else None
        values, faults = decoded_payloads(
            texts,
            self.schema,
            defaults=True,
            decimals_as_text=self.decimals_as_text,
            shape=shape,
        )
        return Decoded([Group(self.schema, values)], faults)
