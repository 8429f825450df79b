"""Changes the schema of a topic's table, in one commit that moves no data.

``deltalake`` can add columns, but it can neither widen a type nor make a nested field
optional, so the commit is written here, as the transaction log protocol defines it
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-metadata).

Files that are there keep their narrow types until a compaction rewrites them. Readers give
their values the table's types: Spark, deltalake, DuckDB and pyarrow all do so for the
changes that ``check_types`` lets through.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, Schema, Type
from headrace.sdk.deltalog import write_commit
from headrace.sdk.schema import DECIMAL, MAX_PRECISION, precision_of, scale_of
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics.rows import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from deltalake import DeltaTable

    from headrace.sdk.location import Location

_WIDER = {
    Type.INT8: {Type.INT16, Type.INT32, Type.INT64, Type.FLOAT64},
    Type.INT16: {Type.INT32, Type.INT64, Type.FLOAT64},
    Type.INT32: {Type.INT64, Type.FLOAT64},
    Type.FLOAT32: {Type.FLOAT64},
}
"""The widenings that every reader of Parquet makes by itself, those of Delta's own
``typeWidening`` (https://docs.delta.io/latest/delta-type-widening.html)."""

_DIGITS = {Type.INT8: 10, Type.INT16: 10, Type.INT32: 10, Type.INT64: 20}
"""Digits before the point that a Decimal needs for Spark to read it from whole numbers."""


def check_kind(topic: str, known: Schema, rows: Schema) -> None:
    """Raise ConfigError for packed rows of a typed topic, and for typed rows of a packed one.

    Their columns would fit beside each other, but every reader of a topic takes all of its rows
    for one or the other.
    """
    packed = rows.field(PACKED) is not None
    if packed is (known.field(PACKED) is not None):
        return
    whole, single = "whole batches of many streams", "single records"
    holds, brought = (single, whole) if packed else (whole, single)
    problem = (
        f"Topic {topic} holds {holds}, and is now to get {brought}, as when transforms or "
        "converters are added to a source of many streams, or removed."
    )
    fix = "Write into another topic, or configure the source as it was."
    raise ConfigError(problem, field="topic", fix=fix)


def check_types(topic: str, known: Schema, merged: Schema) -> None:
    """Raise ConfigError when files with the known types cannot be read with the merged."""
    for path, old, new in _pairs(known, merged, ""):
        if not _can_read(old, new):
            problem = (
                f"Topic {topic} holds {_title(old)} here, and its records now bring what "
                f"needs {_title(new)}, which the stored rows cannot be read as."
            )
            fix = (
                "Cast the field to the topic's type with a transform, or write to a new topic."
            )
            raise ConfigError(problem, field=path, fix=fix)


def _can_read(old: Schema, new: Schema) -> bool:
    digits, had = _digits(new), _digits(old)
    if digits is not None and had is not None:
        return had[0] <= digits[0] and had[1] <= digits[1]
    if digits is not None:
        return not old.is_logical and _DIGITS.get(old.type, MAX_PRECISION + 1) <= digits[0]
    if old.is_logical or new.is_logical:
        return old.type is new.type and old.name == new.name
    return old.type is new.type or new.type in _WIDER.get(old.type, set())


def _digits(schema: Schema) -> tuple[int, int] | None:
    """Return the digits of a Decimal before and after the point; None for other types."""
    if not schema.is_logical or schema.name != DECIMAL:
        return None
    scale = scale_of(schema.parameters) or 0
    return (precision_of(schema.parameters) or MAX_PRECISION) - scale, scale


def commit_definition(
    path: Location,
    table: DeltaTable,
    now: datetime,
    *,
    schema: Schema | None = None,
    properties: Mapping[str, str] | None = None,
    by: str = "",
) -> bool:
    """Give the table another schema or properties; False when another commit came first.

    Args:
        path: The table's folder.
        table: The table, loaded anew.
        now: The present.
        schema: The table's schema from now on; None leaves it as it is.
        properties: Those to set; the others stay.
        by: Who changes it, if that is a person.
    """
    text = table.schema().to_json() if schema is None else json.dumps(to_spark_json(schema))
    metadata = table.metadata()
    info: dict[str, object] = {
        "timestamp": int(now.timestamp() * 1000),
        "operation": "SET TBLPROPERTIES" if schema is None else "CHANGE COLUMNS",
        "operationParameters": {},
        **({"userName": by} if by else {}),
    }
    definition = {
        "id": str(metadata.id),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": {**metadata.configuration, **(properties or {})},
        "createdTime": metadata.created_time,
    }
    version = int(table.version()) + 1
    return write_commit(path, version, {"commitInfo": info}, {"metaData": definition})


def _pairs(old: Schema, new: Schema, path: str) -> Iterator[tuple[str, Schema, Schema]]:
    """Yield all parts that both schemas have, with the path to each."""
    yield path, old, new
    for field in old.fields if old.type is Type.STRUCT else ():
        other = new.field(field.name)
        if other is not None:
            yield from _pairs(field.schema, other.schema, f"{path}.{field.name}".strip("."))
    for part in ("key_schema", "value_schema"):
        inner, other = getattr(old, part), getattr(new, part)
        if inner is not None and other is not None:
            yield from _pairs(inner, other, f"{path} {part.partition('_')[0]}")


def _title(schema: Schema) -> str:
    if not schema.is_logical:
        return schema.type.value
    sizes = ", ".join(f"{name} {size}" for name, size in schema.parameters.items())
    return f"{str(schema.name).rpartition('.')[2]}({sizes})"
