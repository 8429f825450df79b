"""Variants: VARIANT in Spark's frames, JSON texts wherever others than Spark read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.logical import VARIANT
from headrace.sdk.scalars import Type
from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.sdk.schema import Schema

__all__ = ["has_variant", "texts_of_variants", "variants_of_texts"]


def has_variant(schema: Schema) -> bool:
    """Tell whether values of a schema are variants, or hold some."""
    if schema.is_logical:
        return schema.name == VARIANT
    parts = [field.schema for field in schema.fields]
    parts += [part for part in (schema.key_schema, schema.value_schema) if part is not None]
    return any(has_variant(part) for part in parts)


def texts_of_variants(sql: str, schema: Schema) -> str:
    """Give the SQL of a value of a frame with its variants, at any depth, as JSON texts."""
    return _sql(sql, schema, lambda part: f"to_json({part})", 0)


def variants_of_texts(sql: str, schema: Schema, *, strict: bool = True) -> str:
    """Give the SQL of a value with the JSON texts of its variants, at any depth, parsed.

    What is no JSON fails, or becomes null if not ``strict``.
    """
    parse = "parse_json" if strict else "try_parse_json"
    return _sql(sql, schema, lambda part: f"{parse}({part})", 0)


def _sql(sql: str, schema: Schema, change: Callable[[str], str], depth: int) -> str:
    if not has_variant(schema):
        return sql
    if schema.type is Type.STRUCT:
        pairs = ", ".join(
            f"{literal(f.name)}, {_sql(f'{sql}.{quote(f.name)}', f.schema, change, depth)}"
            for f in schema.fields
        )
        return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
    if schema.value_schema is None:
        return change(sql)
    inner = _sql(f"x{depth}", schema.value_schema, change, depth + 1)
    if schema.type is Type.ARRAY:
        return f"transform({sql}, x{depth} -> {inner})"
    return f"transform_values({sql}, (k{depth}, x{depth}) -> {inner})"
