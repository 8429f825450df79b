"""JSON as Kafka Connect writes it, as SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sdk import Schema, Type
from headrace.sdk.connectjson import connect_json
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, VARIANT, precision_of, scale_of
from headrace.sdk.sparktypes import to_ddl
from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONG_DIGITS = 18  # what fits into 64 bits for certain
_OPTIONS = "map('ignoreNullFields', 'false')"


@dataclass(frozen=True)
class JsonWriter:
    """Writes values as JSON.

    Args:
        decimals_as_numbers: Whether Decimals become numbers, and not base64.
        defaults: Whether a default stands for a null.
        variants_as_text: Whether a Variant is written as a text that holds JSON, as its
            schema says, and not as the value that it is.
    """

    decimals_as_numbers: bool = False
    defaults: bool = True
    variants_as_text: bool = True

    def text(self, column: str, schema: Schema) -> str:
        """Return SQL for the JSON of a value; null for null."""
        if schema.type in {Type.STRUCT, Type.ARRAY} and not schema.is_logical:
            text = f"to_json({self._value(column, schema)}, {_OPTIONS})"
            return f"IF({column} IS NULL, NULL, {text})"
        return f"IF({column} IS NULL, NULL, {member_text(self._value(column, schema))})"

    def envelope(self, column: str, schema: Schema) -> str:
        """Return SQL for the value with its schema, as ``{"schema": ..., "payload": ...}``."""
        payload = f"to_json(named_struct('payload', {self._value(column, schema)}), {_OPTIONS})"
        told = connect_json(schema, decimals_as_text=not self.decimals_as_numbers)
        head = '{"schema":' + compact(told) + ","
        return f"IF({column} IS NULL, NULL, concat({literal(head)}, substring({payload}, 2)))"

    def _value(self, sql: str, schema: Schema, depth: int = 0) -> str:
        """Return SQL for what ``to_json`` writes as the payload of a value."""
        payload = self._payload(sql, schema, depth)
        if not self.defaults or schema.default is None:
            return payload
        return f"coalesce({payload}, {self._default(schema)})"

    def _payload(self, sql: str, schema: Schema, depth: int) -> str:
        if schema.is_logical:
            return sql if self._is_kept(schema) else _LOGICAL[str(schema.name)](sql, schema)
        match schema.type:
            case Type.STRUCT:
                return self._struct(sql, schema, depth)
            case Type.ARRAY if schema.value_schema is not None:
                return self._array(sql, schema.value_schema, depth)
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._map(sql, schema.key_schema, schema.value_schema, depth)
            case _:
                return sql

    def _is_kept(self, schema: Schema) -> bool:
        """Return whether ``to_json`` writes values of a logical type as they are to be."""
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
        ddl = to_ddl(Schema.struct({"v": stored}))
        return f"from_json({literal(compact({'v': tree}))}, {literal(ddl)}).v"

    def _stored(self, schema: Schema) -> Schema:
        """Return the schema of what ``_payload`` gives."""
        if schema.is_logical and self._is_kept(schema):
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
        # Only as variants can a key and a value be items of one array.
        entry = f"e{depth}"
        pair = ", ".join(
            _variant(self._value(part, own, depth + 1), own)
            for part, own in ((f"{entry}.key", keys), (f"{entry}.value", values))
        )
        return f"transform(map_entries({sql}), {entry} -> array({pair}))"


def _variant(payload: str, schema: Schema) -> str:
    compound = schema.type in {Type.STRUCT, Type.ARRAY, Type.MAP} and not schema.is_logical
    return f"to_variant_object({payload})" if compound else f"CAST({payload} AS VARIANT)"


def compact(tree: Any) -> str:
    """Write JSON as Jackson does, without spaces."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def member_text(sql: str) -> str:
    """Return SQL for the JSON of a value of any type."""
    member = f"to_json(named_struct('v', {sql}), {_OPTIONS})"
    return f"substring({member}, 6, length({member}) - 6)"


def _decimal(sql: str, schema: Schema) -> str:
    """Return SQL for the base64 of the digits, as the fewest bytes with their sign."""
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
    # Bytes that only repeat the sign say nothing.
    fewest = f"regexp_replace({text}, '^(?:(?:00)+(?=[0-7])|(?:FF)+(?=[89A-F]))', '')"
    return f"base64(unhex({fewest}))"


def _hex_of_long(number: str) -> str:
    """Return SQL for the 32 digits of a whole number of up to 38 decimal ones."""
    word = "18446744073709551616BD"
    low = f"pmod({number}, {word})"
    high = f"CAST(({number} - {low}) / {word} AS BIGINT)"
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
