"""Converts polled values to rows of topics, infers their schemas, and separates bad records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.evolution.apply_arrow import Slices, sieve
from headrace.evolution.diff import is_retyped
from headrace.sdk import (
    CapturedBatch,
    ConfigError,
    Header,
    Record,
    RecordError,
    Schema,
    SourceError,
    Struct,
    Type,
)
from headrace.sdk.arrow import conform, from_arrow, to_array, to_arrow
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling, evolve
from headrace.topics import LETTERS, letter_headers, topic_row_schema

if TYPE_CHECKING:
    from headrace.capture.capture_thread import Polled


def infer(values: Sequence[Any]) -> Schema | None:
    """Return the inferred schema of plain JSON values; None if all are null.

    Omits fields that are always null until their type is known. Raises RecordError if the
    values have no common schema.
    """
    try:
        found = pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"The values have no common schema: {error}"
        raise RecordError(problem) from error
    pruned = _pruned(found)
    return None if pruned is None else from_arrow(pruned).replaced(optional=True)


def widen(known: Schema | None, values: Sequence[Any]) -> Schema | None:
    """Return ``known`` extended for ``values``. Raises RecordError if that is impossible."""
    shown = infer(values)
    if known is None or shown is None:
        return shown if known is None else known
    try:
        return evolve(known, shown)
    except ConfigError as error:
        raise RecordError(error.problem, fix=error.fix, field=error.field) from error


def brought(
    known: Schema | None, values: Sequence[Any], policy: EvolutionPolicy
) -> Schema | None:
    """Return the schema to assume for plain JSON values; None if all are null.

    The schema is ``known`` extended for the values, since a missing field is not a dropped
    field. Changes that the policy must decide keep the inferred form: renamed fields and,
    unless the policy for them is evolve, fields of another type. Raises RecordError: the values
    have no common schema, with each other or with ``known``.
    """
    if not policy.renames and policy.of(ChangeKind.RETYPE) is Handling.EVOLVE:
        return widen(known, values)
    shown = infer(values)
    if known is None or shown is None:
        return shown if known is None else known
    return _completed(known, shown, policy, "")


def _completed(known: Schema, shown: Schema, policy: EvolutionPolicy, path: str) -> Schema:
    if known.type is Type.STRUCT and shown.type is Type.STRUCT:
        fields = {}
        for field in known.fields:
            where = f"{path}.{field.name}".strip(".")
            own = shown.field(field.name)
            if own is not None:
                fields[field.name] = _completed(field.schema, own.schema, policy, where)
            elif not _has_another_name(field.name, where, known, shown, policy):
                fields[field.name] = field.schema.replaced(optional=True)
        added = (field for field in shown.fields if known.field(field.name) is None)
        fields |= {field.name: field.schema.replaced(optional=True) for field in added}
        return known.with_fields(fields).replaced(optional=True)
    if is_retyped(known, shown) and policy.of(ChangeKind.RETYPE) is not Handling.EVOLVE:
        return shown
    try:
        return evolve(known, shown)
    except ConfigError as error:
        raise RecordError(error.problem, fix=error.fix, field=path or None) from error


def _has_another_name(
    name: str, where: str, known: Schema, shown: Schema, policy: EvolutionPolicy
) -> bool:
    """Return whether a field's values have another name: renamed, or of another type."""
    renamed = policy.renames.get(where, "").rpartition(".")[2]
    base = name.rpartition("__")[0]
    lenient = policy.of(ChangeKind.RETYPE) is Handling.LENIENT
    aside = lenient and bool(base) and known.field(base) is not None
    return shown.field(renamed) is not None or aside


def _pruned(arrow: pa.DataType) -> pa.DataType | None:
    """Return the type without the parts that are always null."""
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_struct(arrow):
        fields = [(field.name, _pruned(field.type)) for field in arrow]
        named = [pa.field(name, kind) for name, kind in fields if kind is not None]
        return pa.struct(named) if named else None
    if pa.types.is_list(arrow):
        items = _pruned(arrow.value_type)
        return None if items is None else pa.list_(items)
    return arrow


TEXT = Schema.string(optional=True)
_ROWS = to_arrow(LETTERS)
_HEADERS = _ROWS.field("headers").type
_TIME = _ROWS.field("timestamp").type
_HEADER_TYPES = {bool: "boolean", int: "int64", float: "float64", bytes: "bytes"}


@dataclass(frozen=True, slots=True)
class Rejected:
    """One record that cannot become a row.

    Args:
        raw: The source's unchanged bytes, which do not match a topic's schema.
    """

    topic: str
    value: str | None
    error: str
    raw: bytes = b""
    key: str | None = None
    headers: tuple[dict[str, str | None], ...] = ()
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one topic with one schema: columns value, headers, timestamp, optionally key.

    ``inferred`` is whether the values had no schema, so that it was inferred.
    """

    batch: pa.RecordBatch
    value: Schema
    key: Schema | None
    inferred: bool = False


@dataclass
class TopicRows:
    """All rows of a batch for one topic, in order."""

    parts: list[Part] = field(default_factory=list)

    def schema(self) -> Schema:
        """Return the row schema that fits all parts. Raises ConfigError if there is none."""
        value, key = self.parts[0].value, self.parts[0].key
        for part in self.parts[1:]:
            value = value if part.value == value else evolve(value, part.value)
            if part.key is not None and part.key != key:
                key = part.key if key is None else evolve(key, part.key)
        return topic_row_schema(value, key)


@dataclass
class Sorter:
    """Sorts polls by topic. Each capture has its own, as it caches inferred schemas.

    Args:
        own: The topic of records that do not name one.
        shape: Returns the known schemas of a topic's key and value, as the base of inference.
        policy: The evolution policy, as far as it affects the inference from values.
        stream: An alias of ``own``; if set, records may not name any other topic.
    """

    own: str
    shape: Callable[[str], tuple[Schema | None, Schema | None]]
    policy: EvolutionPolicy = field(default_factory=EvolutionPolicy)
    stream: str = ""
    inferred: dict[str, tuple[Schema | None, Schema | None]] = field(default_factory=dict)

    def sort(
        self, polls: Iterable[Polled], now: datetime
    ) -> tuple[dict[str, TopicRows], list[Rejected]]:
        """Return the rows of each topic, and the rejected records."""
        topics: dict[str, TopicRows] = {}
        rejected: list[Rejected] = []
        for polled in polls:
            if isinstance(polled, CapturedBatch):
                parts = self._captured(polled, now, rejected)
            else:
                parts = self._records(polled, now, rejected)
            for topic, part in parts:
                topics.setdefault(topic, TopicRows()).parts.append(part)
        return topics, rejected

    def settle(self, topic: str, value: Schema) -> None:
        """Set the known schema of a topic's values without a schema."""
        if topic in self.inferred:
            self.inferred[topic] = self.inferred[topic][0], value

    def _topic(self, named: str | None) -> str:
        if not named or (self.stream and named == self.stream):
            return self.own
        if self.stream:
            # Nothing would read it there: the transforms and sinks read only the own topic.
            raise SourceError(
                problem=f"A record names topic {named}, which the transforms and sinks of its "
                "connector do not read.",
                fix=f"Change the plugin to name {self.stream} or no topic, or move the "
                f"transforms and sinks to a connector that reads {named}.",
            )
        return named

    def _captured(
        self, polled: CapturedBatch, now: datetime, rejected: list[Rejected]
    ) -> list[tuple[str, Part]]:
        topic, rows = self._topic(polled.topic), polled.values
        rejected += [
            Rejected(topic, raw.decode(errors="replace"), why, raw)
            for raw, why in polled.rejected
        ]
        if not rows.num_rows:
            return []
        if polled.scalar:
            schema = _row_schema(rows.schema).fields[0].schema.replaced(optional=True)
            value = rows.column(0)
        else:
            schema = _row_schema(rows.schema)
            value = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        count = rows.num_rows
        times = pa.repeat(pa.scalar(now, _TIME), count)
        columns = {"value": value, "headers": pa.nulls(count, _HEADERS), "timestamp": times}
        return [(topic, Part(pa.RecordBatch.from_pydict(columns), schema, None))]

    def _records(
        self, records: list[Record], now: datetime, rejected: list[Rejected]
    ) -> list[tuple[str, Part]]:
        by_topic: dict[str, list[Record]] = {}
        for record in records:
            by_topic.setdefault(self._topic(record.topic), []).append(record)
        found: list[tuple[str, Part]] = []
        for topic, mine in by_topic.items():
            for _, alike in groupby(mine, key=attrgetter("key_schema", "value_schema")):
                some = list(alike)
                parts, bad = sieve(some, partial(self._part, topic, now), RecordError)
                found += [(topic, part) for part in parts]
                rejected += [_rejected(topic, some[at], error) for at, error in bad]
        return found

    def _part(self, topic: str, now: datetime, records: Sequence[Record]) -> Part:
        first = records[0]
        keys = [record.key for record in records]
        values = [record.value for record in records]
        key, value = first.key_schema, first.value_schema
        known_key, known_value = self._known(topic)
        if key is None:
            key = known_key = widen(known_key, keys)
        if inferred := value is None:
            known_value = brought(known_value, values, self.policy)
            value = known_value or TEXT
        columns = {} if key is None else {"key": to_array(keys, key)}
        columns["value"] = to_array(values, value)
        columns["headers"] = pa.array([header_rows(r.headers) for r in records], _HEADERS)
        columns["timestamp"] = pa.array([r.timestamp or now for r in records], _TIME)
        # Stored only now: rejected values must not affect the inferred schema.
        self.inferred[topic] = (known_key, known_value)
        return Part(pa.RecordBatch.from_pydict(columns), value, key, inferred)

    def _known(self, topic: str) -> tuple[Schema | None, Schema | None]:
        if topic not in self.inferred:
            self.inferred[topic] = self.shape(topic)
        return self.inferred[topic]


def fit(
    topic: str, rows: TopicRows, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], list[Rejected]]:
    """Convert all parts to the topic's schema; rows that do not fit are rejected."""
    good: list[pa.RecordBatch] = []
    rejected: list[Rejected] = []

    def fitted(some: Any) -> pa.RecordBatch:
        return conform(some.batch, schema)

    for part in rows.parts:
        batches, bad = sieve(Slices(part.batch), fitted, RecordError)
        good += batches
        rejected += [rejected_row(topic, part.batch.slice(at, 1), error) for at, error in bad]
    return good, rejected


def letters(
    rejected: Sequence[Rejected],
    context: dict[str, Any],
    now: datetime,
    *,
    schemas: Callable[[str], tuple[str | None, str | None]] = lambda _: (None, None),
    headers: bool = False,
) -> pa.RecordBatch:
    """Return the rows of the dead-letter topic."""
    rows = []
    for number, letter in enumerate(rejected):
        key_schema, value_schema = schemas(letter.topic)
        cause = {
            **context,
            "rejected": now,
            "exception": "RecordError",
            "message": letter.error,
            "stacktrace": f"RecordError: {letter.error}",
            "topic": letter.topic,
            "key_schema": key_schema,
            "value_schema": value_schema,
            "raw": letter.raw or (letter.value or "").encode(),
        }
        row = {
            "key": letter.key,
            "value": letter.value,
            "headers": [*letter.headers, *(_context(cause) if headers else ())],
            "timestamp": letter.timestamp or now,
            "offset": number,
            "cause": cause,
        }
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=_ROWS)


def _context(cause: dict[str, Any]) -> list[dict[str, str | None]]:
    facts = {key: cause.get(field) for key, field in letter_headers().items()}
    return [
        {"key": key, "value": None if value is None else str(value), "type": "string"}
        for key, value in facts.items()
    ]


def header_rows(headers: tuple[Header, ...]) -> list[dict[str, str | None]] | None:
    """Return headers in the form that topics store."""
    if not headers:
        return None
    return [
        {"key": header.key, "value": _text(header.value), "type": _type_name(header)}
        for header in headers
    ]


def _type_name(header: Header) -> str:
    if header.schema is not None:
        return header.schema.type.value.lower()
    return _HEADER_TYPES.get(type(header.value), "string")


def _text(value: object) -> str | None:
    """Return a value as text: strings unchanged, other values as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Struct):
        value = value.to_dict()
    return json.dumps(value, default=str, ensure_ascii=False)


def _message(error: RecordError) -> str:
    return f"{error.field}: {error.problem}" if error.field else error.problem


def _rejected(topic: str, record: Record, error: RecordError) -> Rejected:
    return Rejected(
        topic=topic,
        value=_text(record.value),
        error=_message(error),
        key=_text(record.key),
        headers=tuple(header_rows(record.headers) or ()),
        timestamp=record.timestamp,
    )


def rejected_row(topic: str, row: pa.RecordBatch, error: RecordError) -> Rejected:
    """Return the rejected record of a batch with one row."""
    values = row.to_pylist()[0]
    return Rejected(
        topic=topic,
        value=_text(values["value"]),
        error=_message(error),
        key=_text(values.get("key")),
        headers=tuple(values["headers"] or ()),
        timestamp=values["timestamp"].astimezone(UTC),
    )


def _row_schema(arrow: pa.Schema) -> Schema:
    return _read_schema(arrow.serialize().to_pybytes())


@lru_cache(maxsize=256)
def _read_schema(arrow: bytes) -> Schema:
    # Cached by the bytes, as Arrow's equality ignores the metadata.
    return from_arrow(pa.ipc.read_schema(pa.py_buffer(arrow)))
