"""The schema history of a topic and its streams, and schema changes of its table.

The history comes from the topic's log: a commit that changes the table's schema contains the
schema, whichever program wrote the commit, and a commit that adds packed rows lists the schemas
that are new to a stream. Before retention deletes commits, upkeep stores their schemas in a
file beside the log, so that a topic that is moved or copied keeps its history.

A schema change is one commit that moves no data. ``deltalake`` can add columns, but it can
neither widen a type nor make a nested field optional, so this module writes the commit as the
transaction log protocol defines it
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-metadata). Existing files keep
their narrow types until a compaction rewrites them. Readers convert their values to the table's
types: Spark, deltalake, DuckDB and pyarrow do so for all changes that ``check_types`` allows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from deltalake import DeltaTable

from headrace.sdk import ConfigError, Schema, Type
from headrace.sdk.deltalog import write_commit
from headrace.sdk.location import Location
from headrace.sdk.schema import DECIMAL, MAX_PRECISION, precision_of, scale_of
from headrace.sdk.sparktypes import (
    from_spark_json,
    schema_from_json,
    schema_to_json,
    to_spark_json,
)
from headrace.topics.segments import PACKED, rows_schema
from headrace.topics.table_log import Commit, DeltaLog

_WIDER = {
    Type.INT8: {Type.INT16, Type.INT32, Type.INT64, Type.FLOAT64},
    Type.INT16: {Type.INT32, Type.INT64, Type.FLOAT64},
    Type.INT32: {Type.INT64, Type.FLOAT64},
    Type.FLOAT32: {Type.FLOAT64},
}
"""The widenings that every Parquet reader supports, those of Delta's ``typeWidening``
(https://docs.delta.io/latest/delta-type-widening.html)."""

_DIGITS = {Type.INT8: 10, Type.INT16: 10, Type.INT32: 10, Type.INT64: 20}
"""Digits before the point that a Decimal needs so that Spark can read integers as it."""


def check_kind(topic: str, known: Schema, rows: Schema) -> None:
    """Raise ConfigError for packed rows in a typed topic, and for typed rows in a packed topic.

    A table could have the columns of both, but readers expect all rows of a topic to be of one
    kind.
    """
    packed = rows.field(PACKED) is not None
    if packed is (known.field(PACKED) is not None):
        return
    whole, single = "whole batches of many streams", "single records"
    holds, brought = (single, whole) if packed else (whole, single)
    problem = (
        f"Topic {topic} contains {holds}, but would now get {brought}, for example because "
        "transforms or converters were added to a source of many streams, or removed."
    )
    fix = "Write to another topic, or restore the source's previous configuration."
    raise ConfigError(problem, field="topic", fix=fix)


def check_types(topic: str, known: Schema, merged: Schema) -> None:
    """Raise ConfigError if files with the known types cannot be read with the merged types."""
    for path, old, new in _pairs(known, merged, ""):
        if not _can_read(old, new):
            problem = (
                f"Topic {topic} has type {_title(old)} here, but the new records need type "
                f"{_title(new)}, and the stored rows cannot be read with that type."
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
    """Change the table's schema or properties; return False if another commit was first."""
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
    """Yield all parts that both schemas have, with their paths."""
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


_SAVED_EVERY = 1000
"""The most commits that a process must read to know the history."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a stream.

    Args:
        stream: The stream; for a topic of one stream, the topic's name.
        number: The number of the schema in its stream, from 1.
        version: The first table version with this schema.
        time: When that version was committed.
        value: The schema of the records' values.
        key: The schema of the keys; None if records have no keys.
        application: The writer of the first batch with this schema, if there is one yet.
    """

    stream: str
    number: int
    version: int
    time: datetime
    value: Schema
    key: Schema | None = None
    application: str | None = None
    batch: int | None = None


class SchemaHistory:
    """The schemas of one topic. Safe to use from many threads and processes."""

    def __init__(self, name: str, table: Location, log: DeltaLog) -> None:
        self._name = name
        self._path = table / "_headrace" / "schemas.json"
        self._log = log
        self._lock = threading.Lock()
        self._scanned = -1
        self._saved = -1
        self._found: list[SchemaVersion] = []
        self._loaded = False

    def versions(self, stream: str | None = None) -> Sequence[SchemaVersion]:
        """Return all schemas, oldest first, of all streams or of one. Reads new commits."""
        with self._lock:
            self._scan()
            return [v for v in self._found if stream in {None, v.stream}]

    def newest(self, stream: str) -> SchemaVersion | None:
        return next(reversed(self.versions(stream)), None)

    def unseen(self, schemas: Iterable[tuple[str, Schema]]) -> list[tuple[str, Schema]]:
        """Return the schemas that are new to their stream, without duplicates."""
        seen = {(v.stream, v.value) for v in self.versions()}
        return [pair for pair in dict.fromkeys(schemas) if pair not in seen]

    def keep(self) -> None:
        """Save the history from the log. Called before commits are deleted; cheap."""
        with self._lock:
            before = list(self._found)
            self._scan()
            due = self._scanned - self._saved >= _SAVED_EVERY
            if self._found != before or due or (self._found and self._saved < 0):
                self._save()

    def _scan(self) -> None:
        if not self._loaded:
            self._merge(self._read())
            self._loaded = True
        newest = self._log.newest(self._scanned)
        for version in range(max(self._scanned + 1, self._log.oldest()), newest + 1):
            # Upkeep has stored the schemas of deleted commits.
            with suppress(FileNotFoundError):
                self._take(self._log.commit(version))
        if newest < self._scanned:  # the topic was deleted and created again
            self._found.clear()
        self._scanned = newest

    def _take(self, commit: Commit) -> None:
        if commit.added:
            self._begun(commit)
        if commit.schema_json is not None:
            rows = rows_schema(from_spark_json(json.loads(commit.schema_json)))
            parts = {field.name: field.schema for field in rows.fields}
            value = parts.get("value")
            if PACKED not in parts and value is not None:
                self._add(commit, self._name, value, parts.get("key"))
        for stream, text in _stream_schemas(commit):
            self._add(commit, stream, schema_from_json(text), None)

    def _begun(self, commit: Commit) -> None:
        """Set the first batch after a change, which is in the next commit or a later one."""
        for place, known in enumerate(self._found):
            if known.batch is None and known.version <= commit.version:
                batch = replace(known, application=commit.application, batch=commit.batch)
                self._found[place] = batch

    def _add(self, commit: Commit, stream: str, value: Schema, key: Schema | None) -> None:
        own = [known for known in self._found if known.stream == stream]
        if own and (own[-1].value, own[-1].key) == (value, key):
            return
        if any(known.version == commit.version and known.value == value for known in own):
            return
        added = commit.added and commit.batch is not None
        self._found.append(
            SchemaVersion(
                stream=stream,
                number=len(own) + 1,
                version=commit.version,
                time=commit.time,
                value=value,
                key=key,
                application=commit.application if added else None,
                batch=commit.batch if added else None,
            )
        )

    def _merge(self, others: Iterable[SchemaVersion]) -> None:
        """Add the schemas that another process has stored, and renumber all."""
        known = {(v.stream, v.version, v.value): v for v in self._found}
        for other in others:
            mine = known.setdefault((other.stream, other.version, other.value), other)
            if mine.batch is None:
                known[other.stream, other.version, other.value] = other
        counts: dict[str, int] = {}
        found = []
        for version in sorted(known.values(), key=lambda v: (v.version, v.number)):
            counts[version.stream] = counts.get(version.stream, 0) + 1
            found.append(replace(version, number=counts[version.stream]))
        self._found = found

    def _read(self) -> list[SchemaVersion]:
        try:
            stored = json.loads(self._path.read_text())
        except FileNotFoundError:
            return []
        self._saved = int(stored["scanned"])
        self._scanned = max(self._scanned, self._saved)
        return [_from_json(entry) for entry in stored["schemas"]]

    def _save(self) -> None:
        scanned = self._scanned
        self._merge(self._read())
        stored = {"scanned": scanned, "schemas": [_to_json(v) for v in self._found]}
        self._path.put(json.dumps(stored), up_to=self._path.parent.parent)
        self._scanned = self._saved = scanned


def schemas_json(schemas: Iterable[tuple[str, Schema]]) -> str:
    """Return the JSON for a commit with schemas that are new to their streams."""
    return json.dumps([[stream, schema_to_json(schema)] for stream, schema in schemas])


def _stream_schemas(commit: Commit) -> list[tuple[str, str]]:
    return [(str(stream), str(text)) for stream, text in json.loads(commit.schemas or "[]")]


def _to_json(version: SchemaVersion) -> dict[str, Any]:
    plain = {field.name: getattr(version, field.name) for field in fields(version)}
    key = None if version.key is None else schema_to_json(version.key)
    value, time = schema_to_json(version.value), version.time.isoformat()
    return plain | {"time": time, "value": value, "key": key}


def _from_json(entry: dict[str, Any]) -> SchemaVersion:
    key = None if entry["key"] is None else schema_from_json(entry["key"])
    value, time = schema_from_json(entry["value"]), datetime.fromisoformat(entry["time"])
    return SchemaVersion(**{**entry, "time": time, "value": value, "key": key})
