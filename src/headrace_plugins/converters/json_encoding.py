"""JSON as Kafka Connect writes it, as SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sdk import Schema, Type, literal, quote, to_ddl
from headrace.sdk.connectjson import connect_json
from headrace.sdk.logical import DATE, DECIMAL, TIME, TIMESTAMP, precision_of, scale_of

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
    """

    decimals_as_numbers: bool = False
    defaults: bool = True

    def text(self, column: str, schema: Schema) -> str:
        """Return SQL for the JSON of a value; null for null."""
        if schema.type in {Type.STRUCT, Type.ARRAY} and not schema.is_logical:
            text = f"to_json({self._value(column, schema)}, {_OPTIONS})"
            return f"IF({column} IS NULL, NULL, {text})"
        return f"IF({column} IS NULL, NULL, {member_text(self._value(column, schema))})"

    def envelope(self, column: str, schema: Schema) -> str:
        """Return SQL for the value with its schema, as ``{"schema": ..., "payload": ...}``."""
        payload = f"to_json(named_struct('payload', {self._value(column, schema)}), {_OPTIONS})"
        head = '{"schema":' + compact(connect_json(schema)) + ","
        return f"IF({column} IS NULL, NULL, concat({literal(head)}, substring({payload}, 2)))"

    def _value(self, sql: str, schema: Schema, depth: int = 0) -> str:
        """Return SQL for what ``to_json`` writes as the payload of a value."""
        if self.defaults and schema.default is not None:
            sql = f"coalesce({sql}, {_default(schema)})"
        if schema.is_logical:
            if schema.name == DECIMAL and self.decimals_as_numbers:
                return sql
            return _LOGICAL[str(schema.name)](sql, schema)
        match schema.type:
            case Type.STRUCT:
                return self._struct(sql, schema, depth)
            case Type.ARRAY if schema.value_schema is not None:
                return self._array(sql, schema.value_schema, depth)
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                return self._map(sql, schema.key_schema, schema.value_schema, depth)
            case _:
                return sql

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
        # Pairs of different types are no array to Spark, so they are written as text first.
        entry = f"e{depth}"
        pair = ", ',', ".join(
            member_text(self._value(part, own, depth + 1))
            for part, own in ((f"{entry}.key", keys), (f"{entry}.value", values))
        )
        pairs = f"transform(map_entries({sql}), {entry} -> concat('[', {pair}, ']'))"
        text = f"concat('[', array_join({pairs}, ','), ']')"
        return f"IF({sql} IS NULL, NULL, parse_json({text}))"


def compact(tree: Any) -> str:
    """Write JSON as Jackson does, without spaces."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def member_text(sql: str) -> str:
    """Return SQL for the JSON of a value of any type."""
    member = f"to_json(named_struct('v', {sql}), {_OPTIONS})"
    return f"substring({member}, 6, length({member}) - 6)"


def _default(schema: Schema) -> str:
    wrapped = Schema.struct({"v": schema.replaced(default=None, optional=True)})
    tree = {"v": (connect_json(schema) or {})["default"]}
    return f"from_json({literal(compact(tree))}, {literal(to_ddl(wrapped))}).v"


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


_LOGICAL: Mapping[str, Callable[[str, Schema], str]] = {
    DECIMAL: _decimal,
    DATE: lambda sql, _: f"unix_date({sql})",
    TIME: lambda sql, _: f"CAST({sql} DIV 1000 AS INT)",
    TIMESTAMP: lambda sql, _: f"unix_millis({sql})",
}
