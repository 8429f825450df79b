"""The columns of a topic's table, and the record columns made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dataplane.topics.segments import VERSION
from headrace.sdk import Schema, to_spark_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headrace.dataplane.topics.segments import TopicFile

HEADERS = Schema.array(
    Schema.struct(
        {
            "key": Schema.string(optional=True),
            "value": Schema.string(optional=True),
            "type": Schema.string(optional=True),
        },
        optional=True,
    ),
    optional=True,
)
"""Headers keep their order and may repeat; a value is text, with the name of its type."""

PACKED = "payload"
"""The column that tells a packed topic from a typed one."""


def topic_row_schema(value: Schema, key: Schema | None) -> Schema:
    """Return the table's schema for records of these schemas.

    ``offset`` orders the rows within a version. ``position`` is the order that the
    source gave, where it gave one.
    """
    fields = {} if key is None else {"key": key.replaced(optional=True)}
    fields |= {
        "value": value.replaced(optional=True),
        "headers": HEADERS,
        "timestamp": Schema.timestamp(optional=True),
        "offset": Schema.int64(optional=True),
    }
    return Schema.struct(fields)


def packed_row_schema() -> Schema:
    """Return the table's schema for packed batches, see ``headrace.dataplane.packed``."""
    return Schema.struct(
        {
            "stream": Schema.string(optional=True),
            "schema_id": Schema.int64(optional=True),
            "schema": Schema.bytes(optional=True),
            "rows": Schema.int64(optional=True),
            PACKED: Schema.bytes(optional=True),
            "offset": Schema.int64(optional=True),
        }
    )


def topic_rows(frame: DataFrame, *more: str, has_key: bool) -> DataFrame:
    """Turn a record frame into rows of a topic, and ``more`` of its columns."""
    key = ["key"] if has_key else []
    offset = "monotonically_increasing_id() AS offset"
    return frame.selectExpr(*key, "value", "headers", "timestamp", offset, *more)


def fitted(frame: DataFrame, schema: Schema) -> DataFrame:
    """Give rows of a topic the types and the fields that its table has."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - plugin hosts have no Spark

    # Spark refuses what it believes to be nullable for what must not be null; whether
    # values are null was checked when the records got their schema.
    return frame.to(T.StructType.fromJson(_nullable(to_spark_json(schema))))


def _nullable(spark_json: Any) -> Any:
    if isinstance(spark_json, list):
        return [_nullable(item) for item in spark_json]
    if not isinstance(spark_json, dict):
        return spark_json
    flags = ("nullable", "containsNull", "valueContainsNull")
    return {
        key: True if key in flags else item if key == "metadata" else _nullable(item)
        for key, item in spark_json.items()
    }


def position_sql(files: Sequence[TopicFile]) -> str:
    """Return the SQL of ``position``, an array that orders all rows of these files."""
    single = [file for file in files if file.segment is None]
    versions = sorted({file.version for file in single})
    if not versions:
        return f"array({VERSION}, offset)"
    if len(versions) == 1:
        version = f"{versions[0]}L"
    else:
        names = ", ".join("'" + file.file.path.rsplit("/", 1)[-1] + "'" for file in single)
        numbers = ", ".join(f"{file.version}L" for file in single)
        by_name = f"map_from_arrays(array({names}), array({numbers}))"
        version = f"element_at({by_name}, _metadata.file_name)"
    return f"array(coalesce({VERSION}, {version}), offset)"
