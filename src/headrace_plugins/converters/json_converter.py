"""The JSON converter, compatible with Kafka Connect's JsonConverter."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from headrace.sdk import ConfigError, Converter, RecordError, Schema, Type
from headrace.sdk.config import Importance, Lambda, invalid, setting
from headrace.sdk.connectjson import DAY_MILLIS, connect_json, connect_schema
from headrace.sdk.converter import HEADERS, Converted, Fault, HeaderConverter, RecordPart
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, VARIANT, precision_of, scale_of
from headrace.sdk.sqltext import literal, quote, sql_type
from headrace_plugins.converters.json_decoding import (
    NOT_JSON,
    EnvelopeDecoder,
    PlainJsonDecoder,
    SchemaJsonDecoder,
)
from headrace_plugins.converters.json_parsing import loaded
from headrace_plugins.converters.scalars import ConverterSettings, DecimalSettings, unused_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.sdk.converter import ArrowDecoder


_LONG_DIGITS = 18  # decimals of this precision always fit into 64 bits
_OPTIONS = "map('ignoreNullFields', 'false')"


@dataclass(frozen=True)
class JsonWriter:
    """Builds SQL that serializes values as JSON."""

    decimals_as_numbers: bool = False
    """Whether to write Decimals as numbers instead of base64."""
    defaults: bool = True
    """Whether to replace nulls by the default of their schema."""
    variants_as_text: bool = True
    """Whether to write a Variant as a string of JSON, as in its schema, and not as a value."""

    def text(self, column: str, schema: Schema) -> str:
        """Return SQL for the JSON of a value; null for null."""
        if schema.type in {Type.STRUCT, Type.ARRAY} and not schema.is_logical:
            text = f"to_json({self._value(column, schema)}, {_OPTIONS})"
            return f"IF({column} IS NULL, NULL, {text})"
        return f"IF({column} IS NULL, NULL, {member_text(self._value(column, schema))})"

    def envelope(self, column: str, schema: Schema) -> str:
        """Return SQL for the value with its schema, as ``{"schema": ..., "payload": ...}``."""
        payload = f"to_json(named_struct('payload', {self._value(column, schema)}), {_OPTIONS})"
        tree = connect_json(schema, decimals_as_text=not self.decimals_as_numbers)
        head = '{"schema":' + compact(tree) + ","
        return f"IF({column} IS NULL, NULL, concat({literal(head)}, substring({payload}, 2)))"

    def _value(self, sql: str, schema: Schema, depth: int = 0) -> str:
        """Return SQL for a value that ``to_json`` serializes to the payload."""
        payload = self._payload(sql, schema, depth)
        if not self.defaults or schema.default is None:
            return payload
        return f"coalesce({payload}, {self._default(schema)})"

    def _payload(self, sql: str, schema: Schema, depth: int) -> str:
        if schema.is_logical:
            return sql if self._is_plain(schema) else _LOGICAL[str(schema.name)](sql, schema)
        match schema.type:
            case Type.STRUCT:
                return self._struct(sql, schema, depth)
            case Type.ARRAY if schema.value_schema is not None:
                return self._array(sql, schema.value_schema, depth)
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._map(sql, schema.key_schema, schema.value_schema, depth)
            case _:
                return sql

    def _is_plain(self, schema: Schema) -> bool:
        """Return whether ``to_json`` can serialize values of a logical type unchanged."""
        numbers = schema.name == DECIMAL and self.decimals_as_numbers
        return numbers or (schema.name == VARIANT and not self.variants_as_text)

    def _default(self, schema: Schema) -> str:
        """Return SQL for the payload of a default."""
        numbers = self.decimals_as_numbers
        tree = (connect_json(schema, decimals_as_text=not numbers) or {})["default"]
        if schema.name == DECIMAL and numbers:
            tree = str(schema.default)
        elif schema.name == VARIANT and not self.variants_as_text:
            tree = json.loads(tree)
        stored = self._stored(schema).replaced(default=None, optional=True)
        ddl = sql_type(Schema.struct({"v": stored}), variant="STRING")
        return f"from_json({literal(compact({'v': tree}))}, {literal(ddl)}).v"

    def _stored(self, schema: Schema) -> Schema:
        """Return the schema of the result of ``_payload``."""
        if schema.is_logical and self._is_plain(schema):
            return schema
        if schema.is_logical:
            return Schema(_STORED[str(schema.name)], optional=True)
        parts: dict[str, Any] = {}
        if schema.type is Type.STRUCT:
            own = {field.name: self._stored(field.schema) for field in schema.fields}
            parts["fields"] = Schema.struct(own).fields
        if schema.value_schema is not None:
            parts["value_schema"] = self._stored(schema.value_schema)
        return schema.replaced(default=None, **parts)

    def _struct(self, sql: str, schema: Schema, depth: int) -> str:
        pairs, changed = [], False
        for field in schema.fields:
            member = f"{sql}.{quote(field.name)}"
            value = self._value(member, field.schema, depth)
            changed = changed or value != member
            pairs.append(f"{literal(field.name)}, {value}")
        if not changed:
            return sql
        return f"IF({sql} IS NULL, NULL, named_struct({', '.join(pairs)}))"

    def _array(self, sql: str, items: Schema, depth: int) -> str:
        item = f"x{depth}"
        value = self._value(item, items, depth + 1)
        return sql if value == item else f"transform({sql}, {item} -> {value})"

    def _map(self, sql: str, keys: Schema, values: Schema, depth: int) -> str:
        key, item = f"k{depth}", f"x{depth}"
        if keys.type is Type.STRING:
            value = self._value(item, values, depth + 1)
            if value == item:
                return sql
            return f"transform_values({sql}, ({key}, {item}) -> {value})"
        # A key and a value of different types can only share an array as variants.
        entry = f"e{depth}"
        pair = []
        for part, own in ((f"{entry}.key", keys), (f"{entry}.value", values)):
            payload = self._value(part, own, depth + 1)
            nested = own.type in {Type.STRUCT, Type.ARRAY, Type.MAP} and not own.is_logical
            made = f"to_variant_object({payload})" if nested else f"CAST({payload} AS VARIANT)"
            pair.append(made)
        return f"transform(map_entries({sql}), {entry} -> array({', '.join(pair)}))"


Conditions: TypeAlias = "Iterator[tuple[str, str]]"
"""Pairs of the path of a faulty part of a value, and the SQL condition for the fault."""


def beyond_millis(sql: str, schema: Schema, path: str = "", depth: int = 0) -> Conditions:
    """Yield the parts of a value that Kafka Connect's milliseconds cannot represent."""
    if schema.is_logical:
        if (condition := inexact_millis(sql, schema)) is not None:
            yield path, condition
        return
    for field in schema.fields:
        name = f"{path}.{field.name}".strip(".")
        yield from beyond_millis(f"{sql}.{quote(field.name)}", field.schema, name, depth)
    item = f"x{depth}"
    parts = ((schema.key_schema, "map_keys({})"), (schema.value_schema, "map_values({})"))
    for part, items in parts:
        if part is not None:
            of = sql if schema.type is Type.ARRAY else items.format(sql)
            for where, condition in beyond_millis(item, part, f"{path} item", depth + 1):
                yield where, f"exists({of}, {item} -> {condition})"


def inexact_millis(sql: str, schema: Schema) -> str | None:
    """Return the condition for scalars that are not exact in milliseconds; None for never."""
    if schema.name == TIMESTAMP:
        return f"unix_micros({sql}) % 1000 <> 0"
    if schema.name == TIME:
        return f"({sql} % 1000 <> 0 OR {sql} NOT BETWEEN 0 AND {DAY_MILLIS}000)"
    return None


def millis_faults(conditions: Conditions) -> tuple[Fault, ...]:
    """Return the faults of values that would be rounded silently."""
    return tuple(
        Fault(
            condition,
            literal(
                "The format only supports milliseconds, but the time at "
                f"{path or 'the top level'} is more precise: round it in a transform, for "
                "example with date_trunc"
            ),
        )
        for path, condition in conditions
    )


def compact(tree: Any) -> str:
    """Serialize JSON as Jackson does, without spaces."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def member_text(sql: str) -> str:
    """Return SQL for the JSON of a value of any type."""
    member = f"to_json(named_struct('v', {sql}), {_OPTIONS})"
    return f"substring({member}, 6, length({member}) - 6)"


def _decimal(sql: str, schema: Schema) -> str:
    """Return SQL for the base64 of the unscaled value, in the fewest two's complement bytes."""
    scale = scale_of(schema.parameters) or 0
    precision = precision_of(schema.parameters)
    digits = f"replace(CAST({sql} AS STRING), '.', '')"
    if precision is not None and precision <= _LONG_DIGITS:
        number = f"CAST({digits} AS BIGINT)"
        if not scale:
            number = f"CAST({sql} AS BIGINT)"
        text = f"lpad(hex({number}), 16, '0')"
    else:
        text = _hex_of_long(f"CAST({digits} AS DECIMAL(38, 0))")
    # Remove leading bytes that only repeat the sign.
    fewest = f"regexp_replace({text}, '^(?:(?:00)+(?=[0-7])|(?:FF)+(?=[89A-F]))', '')"
    return f"base64(unhex({fewest}))"


def _hex_of_long(number: str) -> str:
    """Return SQL for the 32 hexadecimal digits of an integer with up to 38 decimal digits."""
    word = "18446744073709551616BD"
    low = f"pmod({number}, {word})"
    # Not (number - low) / word: that difference could have 39 digits.
    high = f"(({number} DIV {word}) - IF({number} % {word} < 0, 1L, 0L))"
    signed = f"CAST(IF({low} >= 9223372036854775808BD, {low} - {word}, {low}) AS BIGINT)"
    return f"concat(lpad(hex({high}), 16, '0'), lpad(hex({signed}), 16, '0'))"


_STORED: Mapping[str, Type] = {
    DECIMAL: Type.STRING,
    DATE: Type.INT32,
    TIME: Type.INT32,
    TIMESTAMP: Type.INT64,
    VARIANT: Type.STRING,
}
_LOGICAL: Mapping[str, Callable[[str, Schema], str]] = {
    DECIMAL: _decimal,
    DATE: lambda sql, _: f"unix_date({sql})",
    TIME: lambda sql, _: f"CAST({sql} DIV 1000 AS INT)",
    TIMESTAMP: lambda sql, _: f"unix_millis({sql})",
    VARIANT: lambda sql, _: f"to_json({sql})",
}


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
    """The settings of ``JsonConverter``."""

    schemas_enable: bool = setting(
        "Whether each value includes its schema.",
        default=True,
        importance=Importance.HIGH,
        group="Schemas",
    )
    schemas_cache_size: int = unused_cache("Kafka Connect", Importance.HIGH)
    replace_null_with_default: bool = setting(
        "Whether a null is replaced by the default of its field, if it has one.",
        default=True,
        importance=Importance.LOW,
        group="Serialization",
    )
    schema_content: str | None = setting(
        "The schema of all values, in Kafka Connect's JSON form. The values then do not "
        "include a schema, and schemas.enable is ignored.",
        default=None,
        validator=Lambda(_check_content, "a schema in Kafka Connect's JSON form"),
        importance=Importance.HIGH,
        group="Schemas",
    )


class JsonConverter(Converter, HeaderConverter):
    """Converts JSON, with or without a schema in each value.

    With a schema, a value is ``{"schema": ..., "payload": ...}``, which preserves all types.
    Without a schema, numbers are INT64 or FLOAT64, and the schema is inferred from the values
    of the topic, stored, and widened when they change.
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
        faults = millis_faults(beyond_millis(column, schema))
        return Converted(f"CAST({text} AS BINARY)", Schema.bytes(optional=True), faults=faults)

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
        # The text of an array or a map contains unescaped control characters.
        escaped = "h.value"
        for code in _CONTROLS:
            escaped = f"replace({escaped}, char({code}), {literal(_ESCAPE.format(code))})"
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
        message = literal(f"{NOT_JSON}the value of a header is not JSON.")
        return Converted(
            f"IF({bad}, {headers}, zip_with({headers}, {made}, (h, v) -> {header}))",
            HEADERS,
            made=parsed,
            faults=(Fault(bad, message),),
        )

    def _check_headers(self) -> None:
        if self.settings.schemas_enable:
            raise ConfigError(
                problem="The JSON of a header cannot include a schema.",
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
