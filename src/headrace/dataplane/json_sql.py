"""SQL that converts values of any type to JSON and back, lossless if the schema is known."""

from __future__ import annotations

from collections.abc import Callable

from headrace.sdk import Schema, Type
from headrace.sdk.sqltext import JSON_OPTIONS, literal, quote, sql_type
from headrace.sdk.struct_exprs import has_variant, is_variant

CORRUPT = "corrupt"
"""The field of a parsed text that is not null if the text did not fit the schema."""

_BEFORE, _AFTER = '{"v":', "}"


def json_sql(column: str, schema: Schema | None) -> str:
    """Return SQL for a value of any type as JSON, and null for null.

    Bytes become base64; a map whose keys are not strings becomes an array of entries. Null
    fields are included, so that a person who repairs the text sees them.
    """
    if schema is None:
        return "CAST(NULL AS STRING)"
    converted = _converted(column, schema, 0, _entries)
    wrapped = f"to_json(named_struct('v', {converted}), {JSON_OPTIONS})"
    length = f"length({wrapped}) - {len(_BEFORE) + len(_AFTER)}"
    inner = f"substring({wrapped}, {len(_BEFORE) + 1}, {length})"
    return f"IF({column} IS NULL, CAST(NULL AS STRING), {inner})"


def parse_sql(text: str, schema: Schema) -> str:
    """Return SQL for a struct of ``v``, the parsed value, and ``CORRUPT``.

    Accepts times in any ISO 8601 form, since people repair them by hand.
    """
    parts = {
        "v": _written(schema).replaced(optional=True),
        CORRUPT: Schema.string(optional=True),
    }
    ddl = sql_type(Schema.struct(parts))
    wrapped = f"concat({literal(_BEFORE)}, {text}, {literal(_AFTER)})"
    options = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}'"
    return f"from_json({wrapped}, {literal(ddl)}, map({options}))"


def value_sql(parsed: str, schema: Schema) -> str:
    """Return SQL for the value, from a column that ``parse_sql`` computed."""
    return _converted(f"{parsed}.v", schema, 0, _map, with_variants=True)


def null_sql(parsed: str, schema: Schema) -> str:
    """Return SQL for whether a required value is null in a column that ``parse_sql`` computed.

    It is not true if the value as a whole is null, and may be null instead of false.
    """
    return _null(f"{parsed}.v", _written(schema).replaced(optional=True), 0) or "false"


def _null(sql: str, schema: Schema, depth: int) -> str | None:
    if is_variant(schema):
        return None if schema.optional else f"({sql} IS NULL OR is_variant_null({sql}))"
    inside = _null_inside(sql, schema, depth)
    if schema.optional:
        return None if inside is None else f"({sql} IS NOT NULL AND ({inside}))"
    return f"{sql} IS NULL" if inside is None else f"{sql} IS NULL OR {inside}"


def _null_inside(sql: str, schema: Schema, depth: int) -> str | None:
    if schema.type is Type.STRUCT:
        parts = (_null(f"{sql}.{quote(f.name)}", f.schema, depth) for f in schema.fields)
        return " OR ".join(part for part in parts if part is not None) or None
    if schema.value_schema is None:
        return None
    each = _null(item := f"x{depth}", schema.value_schema, depth + 1)
    values = f"map_values({sql})" if schema.type is Type.MAP else sql
    return None if each is None else f"exists({values}, {item} -> {each})"


def _is_odd(schema: Schema) -> bool:
    """Return whether the schema contains a map whose keys are not strings ("odd map")."""
    keys = (each.key_schema for each in schema.walk() if each.type is Type.MAP)
    return any(key is None or key.type is not Type.STRING for key in keys)


def _written(schema: Schema) -> Schema:
    """Return the schema of the JSON, in which each odd map is an array of entries."""
    if not _is_odd(schema):
        return schema
    if schema.type is Type.STRUCT:
        return schema.with_fields({f.name: _written(f.schema) for f in schema.fields})
    inner = schema.value_schema
    assert inner is not None
    if schema.type is Type.ARRAY:
        return Schema.array(_written(inner), optional=schema.optional)
    assert schema.key_schema is not None
    if schema.key_schema.type is Type.STRING:
        return Schema.map(schema.key_schema, _written(inner), optional=schema.optional)
    entry = Schema.struct({"key": _written(schema.key_schema), "value": _written(inner)})
    return Schema.array(entry, optional=schema.optional)


def _converted(
    sql: str,
    schema: Schema,
    depth: int,
    odd_map: Callable[[str, str, str, str], str],
    *,
    with_variants: bool = False,
) -> str:
    """Return SQL that applies ``odd_map`` to every odd map in ``sql``.

    With ``with_variants``, a JSON null in a VARIANT becomes null, as in a source.
    """
    if not (_is_odd(schema) or (with_variants and has_variant(schema))):
        return sql
    if is_variant(schema):
        return f"IF(is_variant_null({sql}), NULL, {sql})"

    def inside(item: str, of: Schema) -> str:
        return _converted(item, of, depth + 1, odd_map, with_variants=with_variants)

    if schema.type is Type.STRUCT:
        pairs = ", ".join(
            f"{literal(f.name)}, {inside(f'{sql}.{quote(f.name)}', f.schema)}"
            for f in schema.fields
        )
        return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
    inner, item = schema.value_schema, f"x{depth}"
    assert inner is not None
    if schema.type is Type.ARRAY:
        return f"transform({sql}, {item} -> {inside(item, inner)})"
    key = schema.key_schema
    assert key is not None
    if key.type is Type.STRING:
        return f"transform_values({sql}, (k{depth}, {item}) -> {inside(item, inner)})"
    return odd_map(sql, item, inside(f"{item}.key", key), inside(f"{item}.value", inner))


def _entries(sql: str, item: str, key: str, value: str) -> str:
    entry = f"named_struct('key', {key}, 'value', {value})"
    return f"transform(map_entries({sql}), {item} -> {entry})"


def _map(sql: str, item: str, key: str, value: str) -> str:
    entry = f"named_struct('key', {key}, 'value', {value})"
    return f"map_from_entries(transform({sql}, {item} -> {entry}))"
