"""Every schema that a topic's records, or those of its streams, have had.

A topic's log tells all of it: a commit that changes the table's schema holds it, whoever
made the commit, and a commit that adds packed rows names the schemas that are new to a
stream. Retention forgets commits, though, so upkeep keeps what they tell in a file beside
the log before they go, and a topic that is moved or copied takes its history along.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.sdk.sparktypes import from_spark_json, schema_from_json, schema_to_json
from headrace.topics.rows import PACKED
from headrace.topics.segments import rows_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.sdk import Schema
    from headrace.sdk.location import Location
    from headrace.topics.log import Commit, DeltaLog

__all__ = ["SchemaHistory", "SchemaVersion", "told_schemas"]

_SAVED_EVERY = 1000
"""So many commits at most are read before a process knows the history."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a stream.

    Args:
        stream: The stream; for a topic that is one stream, the topic's name.
        number: Counts the stream's schemas, from 1.
        version: The table's version from which it applies.
        time: When that was committed.
        value: The schema of the records' values.
        key: That of their keys; None when they have none.
        application: Who wrote the first batch with it, if there was one yet.
        batch: The number of that batch.
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
        """Read the history of the topic ``name`` in folder ``table``."""
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
        """Return the newest schema of a stream."""
        return next(reversed(self.versions(stream)), None)

    def unseen(self, schemas: Iterable[tuple[str, Schema]]) -> list[tuple[str, Schema]]:
        """Return those schemas that their stream has never had, each once."""
        seen = {(v.stream, v.value) for v in self.versions()}
        return [pair for pair in dict.fromkeys(schemas) if pair not in seen]

    def keep(self) -> None:
        """Save what the log tells. Called before commits are forgotten, and cheap."""
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
            # What is gone by now was kept by whoever let it go.
            with suppress(FileNotFoundError):
                self._take(self._log.commit(version))
        if newest < self._scanned:  # the topic was removed and made anew
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
        """Note the first batch behind a change: it is in the commit that follows, or later."""
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
        """Take what another process has kept, and count anew."""
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
            told = json.loads(self._path.read_text())
        except FileNotFoundError:
            return []
        self._saved = int(told["scanned"])
        self._scanned = max(self._scanned, self._saved)
        return [_from_json(entry) for entry in told["schemas"]]

    def _save(self) -> None:
        scanned = self._scanned
        self._merge(self._read())
        told = {"scanned": scanned, "schemas": [_to_json(v) for v in self._found]}
        self._path.put(json.dumps(told), up_to=self._path.parent.parent)
        self._scanned = self._saved = scanned


def told_schemas(schemas: Iterable[tuple[str, Schema]]) -> str:
    """Return what a commit says of schemas that are new to their streams."""
    return json.dumps([[stream, schema_to_json(schema)] for stream, schema in schemas])


def _stream_schemas(commit: Commit) -> list[tuple[str, str]]:
    return [(str(stream), str(text)) for stream, text in json.loads(commit.schemas or "[]")]


def _to_json(version: SchemaVersion) -> dict[str, Any]:
    return {
        "stream": version.stream,
        "number": version.number,
        "version": version.version,
        "time": version.time.isoformat(),
        "value": schema_to_json(version.value),
        "key": None if version.key is None else schema_to_json(version.key),
        "application": version.application,
        "batch": version.batch,
    }


def _from_json(entry: dict[str, Any]) -> SchemaVersion:
    return SchemaVersion(
        stream=entry["stream"],
        number=entry["number"],
        version=entry["version"],
        time=datetime.fromisoformat(entry["time"]),
        value=schema_from_json(entry["value"]),
        key=None if entry["key"] is None else schema_from_json(entry["key"]),
        application=entry["application"],
        batch=entry["batch"],
    )
