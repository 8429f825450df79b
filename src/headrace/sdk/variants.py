"""Variants: VARIANT in Spark's frames, JSON texts wherever others than Spark read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.sdk.errors import RecordError
from headrace.sdk.logical import VARIANT
from headrace.sdk.scalars import Type
from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.sdk.schema import Schema

__all__ = [
    "check_json",
    "check_variants",
    "has_variant",
    "texts_of_variants",
    "variants_of_texts",
]


def has_variant(schema: Schema) -> bool:
    """Tell whether values of a schema are variants, or hold some."""
    if schema.is_logical:
        return schema.name == VARIANT
    parts = [field.schema for field in schema.fields]
    parts += [part for part in (schema.key_schema, schema.value_schema) if part is not None]
    return any(has_variant(part) for part in parts)


def check_json(text: str, *, path: str = "") -> None:
    """Check that a text is one that Spark makes a VARIANT of.

    Raises:
        RecordError: It is no JSON, or an object in it has a name twice; `field` is the path.
    """
    try:
        json.loads(text, parse_constant=_no_constant, object_pairs_hook=_each_once)
    except ValueError as error:
        raise RecordError(
            problem=f"A Variant is no JSON: {error}",
            fix="Give a JSON text, in which a text stands in double quotes.",
            field=path or None,
        ) from error


def check_variants(values: pa.Array, schema: Schema, *, path: str = "") -> None:
    """Check the JSON texts in values of a schema that has variants.

    Raises:
        RecordError: As `check_json`, for the first that is at fault.
    """
    if not has_variant(schema):
        return
    if schema.type is Type.STRUCT:
        for field, part in zip(schema.fields, values.flatten(), strict=True):
            check_variants(part, field.schema, path=f"{path}.{field.name}".strip("."))
    elif schema.value_schema is not None:
        items = _items(values) if schema.type is Type.MAP else values.flatten()
        check_variants(items, schema.value_schema, path=path)
    else:
        for text in values.drop_null().to_pylist():
            check_json(text, path=path)


def _items(values: pa.MapArray) -> pa.Array:
    # The items of a slice are those of the whole.
    start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return values.items.slice(start, end - start)


def _no_constant(name: str) -> None:
    problem = f"{name} is no JSON"
    raise ValueError(problem)


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        problem = "a name is there twice in one object"
        raise ValueError(problem)


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
