"""JSON, as Kafka Connect's own converter reads and writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, Converter, RecordError, Schema
from headrace.sdk.config import (
    ConfigType,
    Importance,
    Lambda,
    invalid,
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
from headrace_plugins.converters.keys import (
    converter_def,
    decimals_as_numbers,
    decimals_def,
    unused_cache_def,
)

if TYPE_CHECKING:
    from headrace.sdk.config import ConfigDef
    from headrace.sdk.converter import ArrowDecoder

_SCHEMAS = "schemas.enable"
_DEFAULTS = "replace.null.with.default"
_CONTENT = "schema.content"
_NUMBERS = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN")
_CONTROLS = range(32)
_ESCAPE = "\\u{:04x}"


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

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            converter_def()
            .define(
                _SCHEMAS,
                ConfigType.BOOLEAN,
                default=True,
                importance=Importance.HIGH,
                doc="Whether each value carries its schema.",
                group="Schemas",
            )
            .merged(
                unused_cache_def(
                    "schemas.cache.size", sake="Kafka Connect", importance=Importance.HIGH
                )
            )
            .merged(decimals_def())
            .define(
                _DEFAULTS,
                ConfigType.BOOLEAN,
                default=True,
                importance=Importance.LOW,
                doc="Whether a null becomes the default of its field, if that has one.",
                group="Serialization",
            )
            .define(
                _CONTENT,
                ConfigType.STRING,
                None,
                validator=Lambda(_check_content, "a schema in Kafka Connect's JSON form"),
                importance=Importance.HIGH,
                doc="The schema of all values, in Kafka Connect's JSON form; the values then "
                "carry none, whatever schemas.enable says.",
                group="Schemas",
            )
        )

    @override
    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        enveloped = self.config.get_bool(_SCHEMAS) and self._content() is None
        writer = replace(self._writer(), variants_as_text=enveloped)
        text = writer.envelope(column, schema) if enveloped else writer.text(column, schema)
        return Converted(f"CAST({text} AS BINARY)", Schema.bytes(optional=True))

    @override
    def decoder(self) -> ArrowDecoder:
        defaults = self.config.get_bool(_DEFAULTS)
        base64 = not self._writer().decimals_as_numbers
        if (content := self._content()) is not None:
            return SchemaJsonDecoder(content, defaults=defaults, decimals_as_text=base64)
        if self.config.get_bool(_SCHEMAS):
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
        if self.config.get_bool(_SCHEMAS):
            raise ConfigError(
                problem="The JSON of a header carries no schema here.",
                field=f"header.converter.{_SCHEMAS}",
                fix="Set it to false, or use SimpleHeaderConverter.",
            )

    def _writer(self) -> JsonWriter:
        numeric = decimals_as_numbers(self.config)
        return JsonWriter(decimals_as_numbers=numeric, defaults=self.config.get_bool(_DEFAULTS))

    def _content(self) -> Schema | None:
        text = self.config.find_str(_CONTENT)
        return connect_schema(loaded(text.encode())) if text else None


def _escaped(text: str) -> str:
    """Return SQL for a text of a list or a map, which has control characters as they are."""
    for code in _CONTROLS:
        text = f"replace({text}, char({code}), {literal(_ESCAPE.format(code))})"
    return text


def _check_content(name: str, value: object) -> None:
    if not value:
        return
    try:
        connect_schema(loaded(str(value).encode()))
    except (RecordError, ValueError) as error:
        raise invalid(name, value, str(error)) from error
