"""Spark SQL text of identifiers, texts, types and values."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from headrace.sdk.logical import DATE, DECIMAL, TIMESTAMP, VARIANT, precision_of, scale_of
from headrace.sdk.metadata import native_head
from headrace.sdk.scalars import Type
from headrace.sdk.schema import Schema
from headrace.sdk.struct import Struct

__all__ = ["literal", "literal_text", "quote", "sql_null", "sql_type", "sql_value"]

_LITERAL = re.compile(r"'((?:[^'\\]|\\['\\])*)'\Z")
_ESCAPE = re.compile(r"\\(.)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_NAMES: Mapping[Type, str] = {
    Type.INT8: "TINYINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "FLOAT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "STRING",
    Type.BYTES: "BINARY",
}
_LOGICAL_NAMES: Mapping[str, str] = {DATE: "DATE", TIMESTAMP: "TIMESTAMP"}


def quote(identifier: str) -> str:
    """Quote a column or field name for Spark SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Write a string as a Spark SQL literal, in a form no escape can break out of."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal_text(sql: str) -> str | None:
    """Return the string that ``literal`` wrote as ``sql``; None for any other SQL."""
    found = _LITERAL.match(sql)
    return found and _ESCAPE.sub(r"\1", found.group(1))


def sql_type(schema: Schema) -> str:
    """Give the type that values of a schema have in Spark, all parts of it nullable.

    A Time is a BIGINT, microseconds since midnight; see `to_spark_json`. A Variant is a
    VARIANT, as it is in frames.

    Raises:
        ConfigError: A Decimal's scale does not fit into Spark's types.
    """
    if schema.is_logical and schema.name == VARIANT:
        return "VARIANT"
    head = native_head(schema)
    if head.name == DECIMAL:
        return f"DECIMAL({precision_of(head.parameters)}, {scale_of(head.parameters)})"
    if head.name is not None:
        return _LOGICAL_NAMES[head.name]
    if head.type is Type.STRUCT:
        fields = (f"{quote(field.name)}: {sql_type(field.schema)}" for field in schema.fields)
        return f"STRUCT<{', '.join(fields)}>"
    if schema.value_schema is None:
        return _NAMES[head.type]
    if schema.key_schema is None:
        return f"ARRAY<{sql_type(schema.value_schema)}>"
    return f"MAP<{sql_type(schema.key_schema)}, {sql_type(schema.value_schema)}>"


def sql_null(schema: Schema) -> str:
    """Give the null of a schema's type."""
    return f"CAST(NULL AS {sql_type(schema)})"


def sql_value(schema: Schema, value: Any) -> str:
    """Give a value, such as a default, as a constant of the schema's type.

    Args:
        schema: The schema.
        value: A value that fits it; None for null.
    """
    if value is None:
        return sql_null(schema)
    if isinstance(value, datetime):
        return f"timestamp_micros({(value - _EPOCH) // _MICROSECOND})"
    if schema.is_logical and schema.name == VARIANT:
        return f"parse_json({literal(value)})"
    text = _compound(schema, value) or _scalar(value)
    return f"CAST({text} AS {sql_type(schema)})"


def _scalar(value: Any) -> str:
    writer = next((w for kind, w in _WRITERS.items() if isinstance(value, kind)), None)
    return literal(str(value)) if writer is None else writer(value)


def _compound(schema: Schema, value: Any) -> str | None:
    if isinstance(value, Struct):
        pairs = (
            f"{literal(f.name)}, {sql_value(f.schema, value.get_without_default(f))}"
            for f in value.schema.fields
        )
        return f"named_struct({', '.join(pairs)})"
    if schema.key_schema is not None and schema.value_schema is not None:
        keys, values = schema.key_schema, schema.value_schema
        items = (f"{sql_value(keys, k)}, {sql_value(values, v)}" for k, v in value.items())
        return f"map({', '.join(items)})"
    if schema.value_schema is not None:
        member = schema.value_schema
        return f"array({', '.join(sql_value(member, item) for item in value)})"
    return None


def _micros(value: time) -> str:
    since = timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    )
    return str(since // _MICROSECOND)


_WRITERS: Mapping[type | tuple[type, ...], Callable[[Any], str]] = {
    (bytes, bytearray, memoryview): lambda value: f"X'{bytes(value).hex()}'",
    bool: lambda value: str(value).lower(),
    time: _micros,
    Decimal: lambda value: literal(format(value, "f")),
    date: lambda value: literal(value.isoformat()),
}
