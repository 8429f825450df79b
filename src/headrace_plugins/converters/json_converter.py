"""JSON, as Kafka Connect's own converter reads and writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, Converter, RecordError, Schema
from headrace.sdk.config import (
    Importance,
    Lambda,
    invalid,
    setting,
)
from headrace.sdk.connectjson import connect_schema
from headrace.sdk.converter import HEADERS, Converted, Fault, HeaderConverter, RecordPart
from headrace.sdk.sqltext import literal
from headrace_plugins.converters.json_decoding import (
    EnvelopeDecoder,
    PlainJsonDecoder,
    SchemaJsonDecoder,
)
from headrace_plugins.converters.json_encoding import JsonWriter
from headrace_plugins.converters.json_parsing import loaded
from headrace_plugins.converters.json_payloads import NOT_JSON
from headrace_plugins.converters.keys import ConverterSettings, DecimalSettings, unused_cache

if TYPE_CHECKING:
    from headrace.sdk.converter import ArrowDecoder

_NUMBERS = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN")
_CONTROLS = range(32)
_ESCAPE = "\\u{:04x}"


def _check_content(name: str, value: object) -> None:
    if not value:
        return
    try:
        connect_schema(loaded(str(value).encode()))
    except (RecordError, ValueError) as error:
        raise invalid(name, value, str(error)) from error


class JsonSettings(DecimalSettings, ConverterSettings):
    """How JSON carries schemas."""

    schemas_enable: bool = setting(
        "Whether each value carries its schema.",
        default=True,
        importance=Importance.HIGH,
        group="Schemas",
    )
    schemas_cache_size: int = unused_cache("Kafka Connect", Importance.HIGH)
    replace_null_with_default: bool = setting(
        "Whether a null becomes the default of its field, if that has one.",
        default=True,
        importance=Importance.LOW,
        group="Serialization",
    )
    schema_content: str | None = setting(
        "The schema of all values, in Kafka Connect's JSON form; the values then carry none, "
        "whatever schemas.enable says.",
        default=None,
        validator=Lambda(_check_content, "a schema in Kafka Connect's JSON form"),
        importance=Importance.HIGH,
        group="Schemas",
    )


class JsonConverter(Converter, HeaderConverter):
    """Converts JSON, with the schema beside each value or without.

    With a schema, a value is ``{"schema": ..., "payload": ...}``, which keeps all types.
    Without, numbers are INT64 or FLOAT64, and the schema is inferred from the values of
    the topic, kept, and widened when they change.
    """

    aliases = (
        "org.apache.kafka.connect.json.JsonConverter",
        "org.apache.rocketmq.connect.runtime.converter.record.json.JsonConverter",
    )
    parts = frozenset(RecordPart)

    settings: JsonSettings

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        enveloped = self.settings.schemas_enable and self._content() is None
        writer = replace(self._writer(), variants_as_text=enveloped)
        text = writer.envelope(column, schema) if enveloped else writer.text(column, schema)
        return Converted(f"CAST({text} AS BINARY)", Schema.bytes(optional=True))

    @override
    def decoder(self) -> ArrowDecoder:
        defaults = self.settings.replace_null_with_default
        base64 = not self._writer().decimals_as_numbers
        if (content := self._content()) is not None:
            return SchemaJsonDecoder(content, defaults=defaults, decimals_as_text=base64)
        if self.settings.schemas_enable:
            return EnvelopeDecoder(defaults=defaults, decimals_as_text=base64)
        return PlainJsonDecoder()

    @override
    def encode_headers(self, headers: str, made: str) -> Converted:
        self._check_headers()
        numbers = ", ".join(f"'{name}'" for name in _NUMBERS)
        escaped = _escaped("h.value")
        quoted = "substring(to_json(named_struct('v', h.value)), 6)"
        text = (
            f"CASE WHEN h.value IS NULL THEN 'null' "
            f"WHEN upper(coalesce(h.type, '')) IN ({numbers}, 'ARRAY', 'MAP', 'STRUCT') "
            f"AND try_parse_json({escaped}) IS NOT NULL THEN {escaped} "
            f"ELSE substring({quoted}, 1, length({quoted}) - 1) END"
        )
        header = f"named_struct('key', h.key, 'value', {text}, 'type', CAST(NULL AS STRING))"
        return Converted(f"transform({headers}, h -> {header})", HEADERS)

    @override
    def decode_headers(self, headers: str, made: str) -> Converted:
        self._check_headers()
        parsed = f"transform({headers}, h -> try_parse_json(h.value))"
        kind = "schema_of_variant(v)"
        type_ = (
            f"CASE WHEN {kind} = 'BIGINT' THEN 'int64' WHEN {kind} = 'BOOLEAN' THEN 'boolean' "
            f"WHEN {kind} = 'DOUBLE' OR {kind} LIKE 'DECIMAL%' THEN 'float64' "
            f"WHEN {kind} LIKE 'ARRAY%' THEN 'array' WHEN {kind} LIKE 'OBJECT%' THEN 'map' "
            "WHEN is_variant_null(v) THEN NULL ELSE 'string' END"
        )
        value = "IF(is_variant_null(v), NULL, CAST(v AS STRING))"
        header = f"named_struct('key', h.key, 'value', {value}, 'type', {type_})"
        bad = f"exists({headers}, h -> h.value IS NOT NULL AND try_parse_json(h.value) IS NULL)"
        message = literal(f"{NOT_JSON}the value of a header is no JSON.")
        return Converted(
            f"IF({bad}, {headers}, zip_with({headers}, {made}, (h, v) -> {header}))",
            HEADERS,
            made=parsed,
            faults=(Fault(bad, message),),
        )

    def _check_headers(self) -> None:
        if self.settings.schemas_enable:
            raise ConfigError(
                problem="The JSON of a header carries no schema here.",
                field="header.converter.schemas.enable",
                fix="Set it to false, or use SimpleHeaderConverter.",
            )

    def _writer(self) -> JsonWriter:
        numeric = self.settings.decimals_as_numbers
        return JsonWriter(
            decimals_as_numbers=numeric, defaults=self.settings.replace_null_with_default
        )

    def _content(self) -> Schema | None:
        text = self.settings.schema_content
        return connect_schema(loaded(text.encode())) if text else None


def _escaped(text: str) -> str:
    """Return SQL for a text of a list or a map, which has control characters as they are."""
    for code in _CONTROLS:
        text = f"replace({text}, char({code}), {literal(_ESCAPE.format(code))})"
    return text
