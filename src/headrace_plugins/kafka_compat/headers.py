"""Headers in SQL: `array<struct<key,value,type>>`, in the order in which they were added.

A header's value is the text from `headrace.sdk.connectjson.to_string`, its type the name from
`headrace.sdk.connectjson.type_name`. A header from a schemaless value has no type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.connectjson import type_name
from headrace.sdk.schema import DATE, TIME, TIMESTAMP, Type
from headrace.sdk.sqltext import literal, quote
from headrace.sdk.struct_exprs import defaulted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sdk.schema import Schema

_LOGICAL = {
    DATE: "date_format({0}, 'yyyy-MM-dd')",
    # In Spark columns, a Time is a number of microseconds.
    TIME: "date_format(timestamp_micros({0}), 'HH:mm:ss.SSS\\'Z\\'')",
    TIMESTAMP: "date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS\\'Z\\'')",
}


def with_headers(headers: str, added: Sequence[str]) -> str:
    """Return SQL that appends headers; see `header_sql`."""
    return f"concat(coalesce({headers}, array()), array({', '.join(added)}))"


def without_headers(headers: str, names: Sequence[str]) -> str:
    """Return SQL that removes all headers with these names."""
    listed = ", ".join(literal(name) for name in names)
    return f"filter({headers}, h -> h.key NOT IN ({listed}))"


def header_sql(name: str, value: str, kind: str | None) -> str:
    """Return SQL of one header; ``value`` is SQL of its text, ``kind`` the name of its type."""
    type_ = "CAST(NULL AS STRING)" if kind is None else literal(kind)
    text = f"CAST({value} AS STRING)"
    return f"named_struct('key', {literal(name)}, 'value', {text}, 'type', {type_})"


def text_sql(sql: str, schema: Schema, *, embedded: bool = False, depth: int = 0) -> str:
    """Return SQL of a value's text, in the format of `headrace.sdk.connectjson.to_string`.

    Repeats the SQL of the value. If ``embedded`` in an array, a map or a struct, strings are
    quoted and nulls are written as null; ``depth`` is the number of enclosing values.
    """
    text = f"CAST({sql} AS STRING)"
    if schema.is_logical and str(schema.name) in _LOGICAL:
        text = _LOGICAL[str(schema.name)].format(sql)
    elif schema.type in (Type.ARRAY, Type.MAP, Type.STRUCT):
        text = _compound(sql, schema, depth + 1)
    elif schema.type is Type.BYTES and type_name(schema) == "bytes":
        text = f"concat('\"', base64({sql}), '\"')" if embedded else f"base64({sql})"
    elif schema.type is Type.STRING:
        escaped = f"replace(replace({sql}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
        text = f"concat('\"', {escaped}, '\"')" if embedded else sql
    return f"coalesce({text}, 'null')" if embedded else text


def _compound(sql: str, schema: Schema, depth: int) -> str:
    item = f"x{depth}"  # nested lambdas need different names
    if schema.type is Type.STRUCT:
        pairs = []
        for field in schema.fields:
            name = field.name.replace("\\", "\\\\").replace('"', '\\"')
            quoted = literal(f'"{name}":')
            # A null member is replaced by its default, as in Kafka Connect.
            member, _ = defaulted((f"{sql}.{quote(field.name)}", field.schema))
            text = text_sql(member, field.schema, embedded=True, depth=depth)
            pairs.append(f"{quoted}, {text}")
        members = ", ',', ".join(pairs)
        text = f"concat('{{', {members}, '}}')" if pairs else "'{}'"
        return f"IF({sql} IS NULL, NULL, {text})"
    assert schema.value_schema is not None
    if schema.key_schema is None:
        text = text_sql(item, schema.value_schema, embedded=True, depth=depth)
        return f"concat('[', array_join(transform({sql}, {item} -> {text}), ','), ']')"
    key = text_sql(f"{item}.key", schema.key_schema, embedded=True, depth=depth)
    value = text_sql(f"{item}.value", schema.value_schema, embedded=True, depth=depth)
    entries = f"transform(map_entries({sql}), {item} -> concat({key}, ':', {value}))"
    return f"concat('{{', array_join({entries}, ','), '}}')"
