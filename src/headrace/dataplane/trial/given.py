"""Records as a user gives them, in JSON, read into rows for Arrow.

A record is ``{"topic", "partition", "key", "value", "headers": [{"key", "value", "type"}],
"timestamp", "offset", "key_schema", "value_schema"}``; all may be missing. The timestamp is in
milliseconds since 1970. A schema is in Kafka Connect's JSON form, and the payload with it; a
key or value without one is schemaless: it goes through the chain as plain JSON would.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from headrace.sdk import RecordError, RecordExpr, Schema, Type, ValueExpr
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import connect_schema, native_from_json
from headrace.sdk.schema import VARIANT
from headrace.sdk.struct_exprs import has_variant

__all__ = ["Given", "Kind", "PartKind", "read_given"]

DEFAULT_TOPIC = "topic"

_KEYS = (
    "topic",
    "partition",
    "key",
    "value",
    "headers",
    "timestamp",
    "offset",
    "key_schema",
    "value_schema",
)
_HEADERS = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.string()), ("type", pa.string())])
)
_LOWEST = -(1 << 63)
_SCALARS = {
    bool: Schema.boolean(),
    int: Schema.int64(),
    float: Schema.float64(),
    str: Schema.string(),
}
_HEADER_TYPES = {bool: "boolean", int: "int64", float: "float64"}


@dataclass(frozen=True)
class PartKind:
    """What the keys or values of a group of records have in common.

    Args:
        schema: Their schema, given or inferred; None where there is nothing.
        schemaless: Whether it was inferred.
    """

    schema: Schema | None = None
    schemaless: bool = False

    def part(self, column: str) -> ValueExpr:
        """Return the part that a column of this kind holds."""
        if self.schema is None:
            return ValueExpr(None)
        return ValueExpr.of(column, self.schema, schemaless=self.schemaless)

    @property
    def arrow(self) -> pa.DataType:
        """Return the type of the column."""
        return pa.string() if self.schema is None else to_arrow_type(self.schema)


@dataclass(frozen=True)
class Kind:
    """What the records of one group have in common: they go through Spark together."""

    key: PartKind
    value: PartKind
    placed: bool

    def completed(self, others: Iterable[Kind]) -> Kind:
        """Return the kind with what the first of others says of values that are null here.

        In a stream tombstones are among records with values, and have their fields.
        """
        if self.value.schema is not None:
            return self
        value = next((kind.value for kind in others if kind.value.schemaless), self.value)
        if value.schema is None:
            return self
        return replace(self, value=replace(value, schema=value.schema.replaced(optional=True)))

    def shape(self) -> RecordExpr:
        """Return the shape of the records in the columns of ``table``."""
        return RecordExpr(
            key=self.key.part("key"),
            value=self.value.part("value"),
            topic="topic",
            partition="partition",
            headers="headers",
            timestamp="timestamp",
            offset="offset" if self.placed else None,
        )

    def table(self, rows: list[dict[str, Any]]) -> pa.Table:
        """Return the rows as Arrow has them, numbered in the column ``__number``."""
        fields = {
            "topic": pa.string(),
            "partition": pa.int32(),
            "key": self.key.arrow,
            "value": self.value.arrow,
            "headers": _HEADERS,
            "timestamp": pa.timestamp("us", tz="UTC"),
            "offset": pa.int64(),
        }
        columns = {
            name: pa.array([row[name] for row in rows], kind) for name, kind in fields.items()
        }
        return pa.table({**columns, "__number": pa.array(range(len(rows)), pa.int32())})


@dataclass(frozen=True)
class Given:
    """One record: its kind, and its cells by column."""

    kind: Kind
    row: dict[str, Any]


def read_given(record: object) -> Given:
    """Read one record.

    Raises:
        RecordError: It is not of the form, or does not fit its schema; `field` is the path.
    """
    if not isinstance(record, Mapping):
        raise RecordError(
            problem=f"A record is a JSON object, not {_word(record)}.",
            fix='Write it as {"value": ...}.',
        )
    _check_keys(record)
    key_kind, key = _part(record, "key")
    value_kind, value = _part(record, "value")
    row = {
        "topic": _text(record, "topic", DEFAULT_TOPIC),
        "partition": _whole(record, "partition", 32),
        "key": key,
        "value": value,
        "headers": _headers(record.get("headers")),
        "timestamp": _micros(_whole(record, "timestamp", 54)),  # micros fit 64 bits
        "offset": _whole(record, "offset", 64),
    }
    return Given(Kind(key_kind, value_kind, row["offset"] is not None), row)


def _check_keys(record: Mapping[str, Any]) -> None:
    for name in record:
        if name not in _KEYS:
            close = get_close_matches(str(name), _KEYS, n=1)
            fix = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(_KEYS)}."
            raise RecordError(problem="A record has no such key.", field=str(name), fix=fix)


def _text(record: Mapping[str, Any], name: str, default: str) -> str:
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise RecordError(problem=f"Should be a text, not {_word(value)}.", field=name)
    return value


def _whole(record: Mapping[str, Any], name: str, bits: int) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise RecordError(problem=f"Should be a whole number, not {value!r}.", field=name)
    return value


def _micros(millis: int | None) -> int | None:
    return None if millis is None else millis * 1_000


def _headers(headers: object) -> list[dict[str, str | None]]:
    if headers is None:
        return []
    if not isinstance(headers, list) or not all(
        isinstance(header, Mapping) and isinstance(header.get("key"), str) for header in headers
    ):
        raise RecordError(
            problem="Headers are a list of objects with a key and a value.", field="headers"
        )
    return [_header(header) for header in headers]


def _header(header: Mapping[str, Any]) -> dict[str, str | None]:
    value = header.get("value")
    kind = header.get("type") or _HEADER_TYPES.get(type(value), "string")
    text = value if value is None or isinstance(value, str) else json.dumps(value)
    return {"key": header["key"], "value": text, "type": str(kind)}


def _part(record: Mapping[str, Any], name: str) -> tuple[PartKind, Any]:
    payload = record.get(name)
    given = f"{name}_schema"
    if record.get(given) is None:
        return (PartKind(), None) if payload is None else _inferred(payload, name)
    try:
        schema = connect_schema(record[given])
    except RecordError as error:
        where = ".".join(part for part in (given, error.field) if part)
        raise RecordError(error.problem, field=where) from error
    assert schema is not None
    return PartKind(schema), native_from_json(schema, payload, path=name)


def _inferred(payload: object, name: str) -> tuple[PartKind, Any]:
    schema = _finished(_shape_of(payload, name))
    plain = payload if not has_variant(schema) else _with_texts(schema, payload)
    return PartKind(schema, schemaless=True), native_from_json(schema, plain, path=name)


def _with_texts(schema: Schema, value: Any) -> Any:
    """Return a value with JSON texts for what is a Variant in it."""
    if value is None:
        return None
    if schema.is_logical and schema.name == VARIANT:
        return json.dumps(value)
    if isinstance(value, list) and schema.value_schema is not None:
        return [_with_texts(schema.value_schema, item) for item in value]
    if isinstance(value, dict):
        parts = ((field, value.get(field.name)) for field in schema.fields)
        return {field.name: _with_texts(field.schema, part) for field, part in parts}
    return value


def _finished(schema: Schema | None) -> Schema:
    # Of what is only ever null nothing is known; a text is what Spark takes it for, too.
    return schema or Schema.string(optional=True)


def _shape_of(value: object, path: str) -> Schema | None:
    """Return the schema of a JSON value; None of a null."""
    if isinstance(value, list):
        items: Schema | None = None
        for index, item in enumerate(value):
            found = _shape_of(item, f"{path}[{index}]")
            items = found if index == 0 else _merged(items, found)
        return Schema.array(_finished(items))
    if isinstance(value, dict):
        shapes = {key: _shape_of(item, f"{path}.{key}") for key, item in value.items()}
        if "" in shapes:
            raise RecordError(problem="A field needs a name.", field=path)
        return Schema.struct({key: _finished(shape) for key, shape in shapes.items()})
    if type(value) is int and not _LOWEST <= value <= ~_LOWEST:
        raise RecordError(problem=f"{value} does not fit 64 bits.", field=path)
    return None if value is None else _SCALARS[type(value)]


def _merged(one: Schema | None, other: Schema | None) -> Schema | None:
    """Return the schema that two items of a list fit."""
    if one is None or other is None:
        known = one or other
        return known and known.replaced(optional=True)
    optional = one.optional or other.optional
    kinds = {one.type, other.type}
    if kinds == {Type.INT64, Type.FLOAT64}:
        return Schema.float64(optional=optional)
    variant = VARIANT in {one.name, other.name} and one.is_logical | other.is_logical
    if len(kinds) > 1 or variant:
        return Schema.variant(optional=True)
    if one.type is Type.STRUCT:
        return _merged_structs(one, other).replaced(optional=optional)
    if one.value_schema is not None and other.value_schema is not None:
        items = _merged(one.value_schema, other.value_schema)
        return Schema.array(_finished(items), optional=optional)
    return one.replaced(optional=optional)


def _merged_structs(one: Schema, other: Schema) -> Schema:
    fields: dict[str, Schema] = {}
    for name in dict.fromkeys(field.name for field in (*one.fields, *other.fields)):
        mine, theirs = one.field(name), other.field(name)
        merged = _merged(mine.schema if mine else None, theirs.schema if theirs else None)
        fields[name] = _finished(merged)
    return Schema.struct(fields)


def _word(value: object) -> str:
    return "null" if value is None else json.dumps(value)[:50]
