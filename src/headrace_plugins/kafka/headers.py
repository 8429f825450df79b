"""Headers in SQL: `array<struct<key,value,type>>`, in the order in which they were added.

A header's value is a text, as `headrace.sdk.connectjson.to_string` writes it, and its type a
name that `headrace.sdk.connectjson.type_name` gives. A header of plain JSON has no type.
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
    # In Spark a time of day is a number of microseconds.
    TIME: "date_format(timestamp_micros({0}), 'HH:mm:ss.SSS\\'Z\\'')",
    TIMESTAMP: "date_format({0}, 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS\\'Z\\'')",
}


def with_headers(headers: str, added: Sequence[str]) -> str:
    """Give the SQL of headers with more of them at the end; see `header_sql`."""
    return f"concat(coalesce({headers}, array()), array({', '.join(added)}))"


def without_headers(headers: str, names: Sequence[str]) -> str:
    """Give the SQL of headers without all that have one of these names."""
    listed = ", ".join(literal(name) for name in names)
    return f"filter({headers}, h -> h.key NOT IN ({listed}))"


def header_sql(name: str, value: str, kind: str | None) -> str:
    """Give the SQL of one header.

    Args:
        name: Its name.
        value: SQL of its text, NULL for none.
        kind: Its type's name; None for none.
    """
    type_ = "CAST(NULL AS STRING)" if kind is None else literal(kind)
    text = f"CAST({value} AS STRING)"
    return f"named_struct('key', {literal(name)}, 'value', {text}, 'type', {type_})"


def text_sql(sql: str, schema: Schema, *, embedded: bool = False, depth: int = 0) -> str:
    """Give the SQL of a value's text, in the form of `headrace.sdk.connectjson.to_string`.

    Args:
        sql: The value. It is used more than once, so it should be short.
        schema: Its schema.
        embedded: Whether it stands inside an array, a map or a struct: texts are quoted and
            nulls written out.
        depth: How many such values are around it.
    """
    written = _written(sql, schema, embedded=embedded, depth=depth)
    return f"coalesce({written}, 'null')" if embedded else written


def _written(sql: str, schema: Schema, *, embedded: bool, depth: int) -> str:
    if schema.is_logical and str(schema.name) in _LOGICAL:
        return _LOGICAL[str(schema.name)].format(sql)
    match schema.type:
        case Type.ARRAY | Type.MAP | Type.STRUCT:
            return _compound(sql, schema, depth + 1)
        case Type.STRING:
            return _quoted(sql) if embedded else sql
        case Type.BYTES if type_name(schema) == "bytes":
            return f"concat('\"', base64({sql}), '\"')" if embedded else f"base64({sql})"
        case _:
            return f"CAST({sql} AS STRING)"


def _quoted(sql: str) -> str:
    escaped = f"replace({sql}, '\\\\', '\\\\\\\\')"
    return f"concat('\"', replace({escaped}, '\"', '\\\\\"'), '\"')"


def _compound(sql: str, schema: Schema, depth: int) -> str:
    item = f"x{depth}"  # lambdas nest, so each has a name of its own
    if schema.type is Type.STRUCT:
        pairs = ", ',', ".join(
            f"{literal(_name(f.name))}, "
            # A null member gives way to its default, as in Kafka Connect.
            + text_sql(
                defaulted((f"{sql}.{quote(f.name)}", f.schema))[0],
                f.schema,
                embedded=True,
                depth=depth,
            )
            for f in schema.fields
        )
        text = f"concat('{{', {pairs}, '}}')" if pairs else "'{}'"
        return f"IF({sql} IS NULL, NULL, {text})"
    assert schema.value_schema is not None
    if schema.key_schema is None:
        text = text_sql(item, schema.value_schema, embedded=True, depth=depth)
        return f"concat('[', array_join(transform({sql}, {item} -> {text}), ','), ']')"
    key = text_sql(f"{item}.key", schema.key_schema, embedded=True, depth=depth)
    value = text_sql(f"{item}.value", schema.value_schema, embedded=True, depth=depth)
    entries = f"transform(map_entries({sql}), {item} -> concat({key}, ':', {value}))"
    return f"concat('{{', array_join({entries}, ','), '}}')"


def _name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}":'
