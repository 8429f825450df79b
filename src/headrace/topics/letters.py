"""The rows of a dead-letter topic: records that were rejected, each with its cause."""

from __future__ import annotations

from headrace.sdk import Schema
from headrace.topics.rows import topic_row_schema

__all__ = ["CONTEXT", "LETTERS", "letter_headers"]

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
"""Why a record was rejected, and what it takes to replay it exactly.

``topic``, ``partition`` and ``position`` (JSON) are those that the record came with, and
``rejected`` is when its batch was begun. The key and the value are JSON, and the schemas
(as ``schema_to_json`` writes them) say which types they have. Where no record could be
made, ``raw`` has the input's bytes, and the value shows them as text. ``sink`` is the number
that the sink had which alone has refused the record; null where it arrived nowhere.
``sink_name`` is what marks call that sink: it holds when other sinks come and go.
"""

LETTERS = Schema.struct(
    {f.name: f.schema for f in topic_row_schema(_TEXT, _TEXT).fields} | {"cause": CAUSE}
)
"""The rows of a dead-letter topic: those of any topic, and ``cause``."""

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
