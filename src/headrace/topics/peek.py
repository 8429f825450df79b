"""Shows a few records of a topic without Spark, for people."""

from __future__ import annotations

import base64
import math
from collections import deque
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.sdk import Position, ReadLimit
from headrace.topics.reader import TopicReader, parse_start
from headrace.topics.rows import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.topics.place import RowRange
    from headrace.topics.segments import TopicFile
    from headrace.topics.topic import Topic

_BATCH_ROWS = 1024
_PACKED_ROWS = 8
"""A packed row may hold megabytes."""


def peek(topic: Topic, rows: int, *, oldest: bool = False) -> list[dict[str, Any]]:
    """Return the newest or the oldest records of a topic, in order, as JSON values.

    Reads only as many files as it takes. A record has its ``version`` and the topic's
    columns; one of a packed topic has ``stream`` and ``value``.
    """
    if rows < 1 or not topic.exists():
        return []
    found = _oldest(topic, rows) if oldest else _newest(topic, rows)
    return list(found)


def _oldest(topic: Topic, rows: int) -> Iterator[dict[str, Any]]:
    start, shown = parse_start(topic, "earliest"), 0
    reader = TopicReader(topic)
    while (end := reader.latest(start, ReadLimit(rows=rows))) != start and shown < rows:
        for record in islice(_between(reader, start, end), rows - shown):
            shown += 1
            yield record
        start = end


def _newest(topic: Topic, rows: int) -> Iterable[dict[str, Any]]:
    version, first, seen = topic.log.newest(), topic.first(), 0
    end = start = _position(topic, version)
    while version >= first and seen < rows:
        seen += topic.log.commit(version).rows
        version -= 1
        start = _position(topic, version)
    return deque(_between(TopicReader(topic), start, end), maxlen=rows)


def _between(reader: TopicReader, start: Position, end: Position) -> Iterator[dict[str, Any]]:
    for file in reader.files(start, end):
        yield from _records(reader.topic, file, reader.rows(start, end))


def _position(topic: Topic, version: int) -> Position:
    return Position.of({"topic": topic.name}, {"version": version})


def _records(topic: Topic, file: TopicFile, rows: RowRange) -> Iterator[dict[str, Any]]:
    schema = topic.schema()
    names = [field.name for field in schema.fields]
    packed = PACKED in names
    size = _PACKED_ROWS if packed else _BATCH_ROWS
    for batch in rows.read(topic.location / file.file.path, [*names, "version"], size):
        for row in batch.to_pylist():
            version = row.pop("version", None)
            told = {"version": file.version if version is None else version}
            if packed:
                yield from (told | record for record in _unpacked(row))
            else:
                yield told | {name: _json(value) for name, value in row.items()}


def _unpacked(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
    batch = pa.ipc.read_record_batch(pa.py_buffer(row[PACKED]), schema)
    for value in batch.to_pylist():
        yield {"stream": row["stream"], "value": _json(value)}


def _json(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _json(item) for name, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value
