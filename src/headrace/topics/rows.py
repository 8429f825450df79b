"""The columns of a topic's table, also of dead letters, and SQL of the record columns."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sdk import Schema
from headrace.topics.segments import VERSION, TopicFile

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
"""The column that only packed topics have."""


def topic_row_schema(value: Schema, key: Schema | None) -> Schema:
    """Return the table's schema for records of these schemas.

    ``offset`` orders the rows within a version.
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


_TEXT = Schema.string(optional=True)

CAUSE = Schema.struct(
    {
        "connector": _TEXT,
        "task": Schema.int32(optional=True),
        "batch": Schema.int64(optional=True),
        "rejected": Schema.timestamp(optional=True),
        "stage": _TEXT,
        "class": _TEXT,
        "exception": _TEXT,
        "message": _TEXT,
        "stacktrace": _TEXT,
        "topic": _TEXT,
        "partition": Schema.int32(optional=True),
        "position": _TEXT,
        "key_schema": _TEXT,
        "value_schema": _TEXT,
        "raw": Schema.bytes(optional=True),
        "sink": Schema.int32(optional=True),
        "sink_name": _TEXT,
    },
    optional=True,
)
"""Why a record was rejected, and the data to replay it exactly.

``topic``, ``partition`` and ``position`` (JSON) are those of the original record, and
``rejected`` is when its batch began. The key and the value are JSON, and the schemas (in the
format of ``schema_to_json``) contain their types. If the input could not become a record,
``raw`` has the input's bytes, and the value shows them as text. ``sink`` is the number of the
only sink that refused the record; null if no sink received the record. ``sink_name`` is that
sink's name in marks, which does not change when sinks are added or removed.
"""

LETTERS = Schema.struct(
    {f.name: f.schema for f in topic_row_schema(_TEXT, _TEXT).fields} | {"cause": CAUSE}
)
"""The rows of a dead-letter topic: the columns of any topic, and ``cause``."""

_PREFIX = "__connect.errors."

CONTEXT = {
    "topic": "topic",
    "partition": "partition",
    "offset": "position",
    "connector.name": "connector",
    "task.id": "task",
    "stage": "stage",
    "class.name": "class",
    "exception.class.name": "exception",
    "exception.message": "message",
    "exception.stacktrace": "stacktrace",
}
"""Kafka Connect's context headers, without their prefix, and the field of each."""


def letter_headers() -> dict[str, str]:
    """Return the keys of the context headers, in Kafka Connect's order, and their fields."""
    return {_PREFIX + name: field for name, field in CONTEXT.items()}
