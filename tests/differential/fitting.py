"""What JSON is by its schema, strictly, and by nothing that the product has."""

from __future__ import annotations

import base64
from typing import Any

Json = dict[str, Any]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_WORDS = ("NaN", "Infinity", "-Infinity")
_LOGICAL = "org.apache.kafka.connect.data."
_DIGITS = 38
_MILLI = 1_000


def fits(schema: Json | None, payload: Any) -> bool:
    """Tell whether a payload is of a schema in Kafka Connect's JSON form; null is of no type.

    A Decimal may have as many digits, and a Timestamp as many microseconds, as Spark's have.
    """
    if schema is None:
        return True
    if payload is None:
        return bool(schema.get("optional")) or schema.get("default") is not None
    name = str(schema.get("name") or "").removeprefix(_LOGICAL)
    if name == "Decimal":
        return _is_decimal(payload, int(schema["parameters"]["scale"]))
    if name == "Timestamp":
        return _is_whole(payload, 64) and _is_whole(payload * _MILLI, 64)
    return _is_plain(schema, payload)


def _is_plain(schema: Json, payload: Any) -> bool:
    match schema["type"]:
        case "boolean":
            return type(payload) is bool
        case "string":
            return type(payload) is str
        case "bytes":
            return _octets(payload) is not None
        case "float" | "double":
            return type(payload) in {int, float} or payload in _WORDS
        case "array":
            return isinstance(payload, list) and all(fits(schema["items"], i) for i in payload)
        case "map":
            return _is_map(schema, payload)
        case "struct":
            return isinstance(payload, dict) and all(
                fits(field, payload.get(field["field"])) for field in schema["fields"]
            )
        case kind:
            return _is_whole(payload, _BITS[kind])


def _is_whole(payload: Any, bits: int) -> bool:
    return type(payload) is int and -(1 << bits - 1) <= payload < 1 << bits - 1


def _octets(payload: Any) -> bytes | None:
    try:
        return base64.b64decode(payload, validate=True) if type(payload) is str else None
    except ValueError:
        return None


def _is_decimal(payload: Any, scale: int) -> bool:
    raw = _octets(payload)
    if raw is not None:
        return bool(abs(int.from_bytes(raw, "big", signed=True)) < 10**_DIGITS)
    return type(payload) in {int, float} and bool(abs(payload) < 10 ** (_DIGITS - scale))


def _is_map(schema: Json, payload: Any) -> bool:
    keys, values = schema["keys"], schema["values"]
    if keys["type"] == "string":
        return isinstance(payload, dict) and all(fits(values, i) for i in payload.values())
    return isinstance(payload, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and fits(keys, pair[0])
        and fits(values, pair[1])
        for pair in payload
    )


def ordered(schema: Json, payload: Any) -> Any:
    """Give a payload with the entries of its maps in one order, as they have none."""
    if isinstance(payload, dict) and schema["type"] == "struct":
        fields = {field["field"]: field for field in schema["fields"]}
        return {name: ordered(fields[name], item) for name, item in payload.items()}
    if isinstance(payload, dict) and schema["type"] == "map":
        return {name: ordered(schema["values"], item) for name, item in payload.items()}
    if isinstance(payload, list) and schema["type"] == "array":
        return [ordered(schema["items"], item) for item in payload]
    if isinstance(payload, list) and schema["type"] == "map":
        pairs = [[key, ordered(schema["values"], item)] for key, item in payload]
        return sorted(pairs, key=repr)
    return payload
