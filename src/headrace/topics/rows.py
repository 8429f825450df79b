"""The columns of a topic's table, and the record columns made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import Schema
from headrace.topics.segments import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.topics.segments import TopicFile

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
