"""JSON whose JSON Schema is in a registry, as Confluent's converter reads and writes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Converter, Schema, SetupError
from headrace.sdk.config import Config, setting
from headrace.sdk.converter import Converted, Decoded, Group
from headrace_plugins.confluent.json_schema_payloads import is_apart, payload
from headrace_plugins.confluent.json_schema_writing import SchemaJsonWriter, json_schema_text
from headrace_plugins.confluent.remote_schemas import (
    UNWANTED,
    HeadedDecoder,
    RemoteSchemas,
    RemoteSettings,
    refusing,
)
from headrace_plugins.confluent.schema_registry import SchemaText, SchemaType
from headrace_plugins.confluent.wireform import framed_sql
from headrace_plugins.converters.json_payloads import decoded_payloads
from headrace_plugins.converters.keys import ConverterSettings, DecimalSettings, unused_cache

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sdk import ConverterContext
    from headrace.sdk.converter import ArrowDecoder
    from headrace_plugins.confluent.remote_schemas import WriterSchema


class JsonSchemaSettings(RemoteSettings, DecimalSettings, ConverterSettings, group="Schemas"):
    """What JSON Schemas allow."""

    object_additional_properties: bool = setting(
        "Whether the schemas that are written allow objects to have more properties; where "
        "they do not, fields can be added compatibly.",
        default=True,
    )
    use_optional_for_nonrequired: bool = setting(
        "Whether a property that is not required may be missing; if not, a value that lacks "
        "it is refused.",
        default=False,
    )
    schemas_cache_size: int = unused_cache("Confluent")


class JsonSchemaConverter(Converter):
    """Converts JSON whose schema, a JSON Schema, is in a schema registry.

    All types of records are kept: what JSON Schema has no word for stands beside it in
    Confluent's ``connect.type`` and its like. Of a schema that another wrote a ``oneOf`` or
    ``anyOf`` becomes a struct with a field for each choice, unless it only adds null.
    Needs the extra `headrace[confluent]`.
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
        return Converted(framed_sql(writer.id, payload_sql), Schema.bytes(optional=True))

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
    # It needs the extra, and this plugin is listed without it.
    from headrace_plugins.confluent.json_schema_reading import (  # noqa: PLC0415
        schema_of_json_schema,
    )

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
