"""What came out of Spark, as JSON again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.sdk import Schema, Type
from headrace.sdk.connectjson import connect_json, json_from_native
from headrace.sdk.schema import DATE, DECIMAL, TIME, TIMESTAMP, VARIANT

if TYPE_CHECKING:
    from headrace.sdk import ValueExpr

__all__ = ["natives", "record_json"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def natives(array: pa.Array) -> list[Any]:
    """Return the values of an array as `headrace.sdk.connectjson` has them.

    Unlike ``to_pylist`` it gives dates and timestamps as numbers, which have no bounds.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [natives(column) for column in array.flatten()]
        rows = zip(*columns, strict=True) if columns else ((),) * len(array)
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif pa.types.is_map(kind):
        pairs = list(zip(natives(array.keys), natives(array.items), strict=True))
        found = _sliced(pairs, array)
    elif pa.types.is_list(kind):
        found = _sliced(natives(array.values), array)
    elif pa.types.is_date32(kind):
        return natives(array.cast(pa.int32()))
    elif pa.types.is_timestamp(kind):
        return natives(array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()))
    else:
        return list(array.to_pylist())
    valid = array.is_valid().to_pylist()
    return [value if here else None for value, here in zip(found, valid, strict=True)]


def _sliced(values: list[Any], array: pa.Array) -> list[list[Any]]:
    ends = array.offsets.to_pylist()
    return [values[start:end] for start, end in pairwise(ends)]


def record_json(state: dict[str, Any], key: ValueExpr, value: ValueExpr) -> dict[str, Any]:
    """Return a record in the form in which records are given.

    Args:
        state: Its cells: topic, partition, key, value, headers and timestamp.
        key: What its key is.
        value: What its value is.
    """
    record: dict[str, Any] = {
        "topic": state["topic"],
        "partition": state["partition"],
        "key": _payload(key, state["key"]),
        "value": _payload(value, state["value"]),
        "headers": [_header(header) for header in state["headers"] or ()],
        "timestamp": None if state["timestamp"] is None else state["timestamp"] // 1_000,
    }
    for name, part in (("key_schema", key), ("value_schema", value)):
        if part.schema is not None and not part.schemaless:
            record[name] = connect_json(part.schema)
    return record


def _header(header: dict[str, str | None]) -> dict[str, str | None]:
    told = {"key": header["key"], "value": header["value"]}
    return told if header["type"] in {None, "string"} else {**told, "type": header["type"]}


def _payload(part: ValueExpr, native: Any) -> Any:
    if part.schema is None:
        return None
    if part.schemaless:
        return _plain(part.schema, native)
    return json_from_native(part.schema, native)


def _plain(schema: Schema, native: Any) -> Any:
    """Return a value that travels without its schema: times are told in ISO's form."""
    if native is None:
        return None
    if schema.is_logical and schema.name == VARIANT:
        return json.loads(native)
    if schema.is_logical and schema.name != DECIMAL:
        return _iso(str(schema.name), native)
    match schema.type:
        case Type.STRUCT:
            return {f.name: _plain(f.schema, native[f.name]) for f in schema.fields}
        case Type.ARRAY if schema.value_schema is not None:
            return [_plain(schema.value_schema, item) for item in native]
        case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            return {str(_plain(keys, key)): _plain(values, item) for key, item in native}
        case _:
            return json_from_native(schema, native)


def _iso(name: str, native: int) -> str | int:
    try:
        unit = timedelta(days=native) if name == DATE else timedelta(microseconds=native)
        moment = _EPOCH + unit
    except OverflowError:
        return native
    millis = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    day, clock = millis.split("T")
    return {DATE: day, TIME: clock.removesuffix("Z"), TIMESTAMP: millis}[name]
