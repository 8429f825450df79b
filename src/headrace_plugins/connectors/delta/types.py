"""Spark's types in their JSON form: how one becomes another, in Delta and in SQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.sdk.sqltext import literal, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Json", "ddl", "moved", "nullable", "required", "same", "widens"]

Json: TypeAlias = "str | Mapping[str, Any]"

_WHOLE_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_WHOLE = list(_WHOLE_DIGITS)
# A time without a zone is taken as UTC everywhere in Headrace.
_KEPT_AS = {"void": "string", "timestamp_ntz": "timestamp"}
# What a value keeps its meaning in, beside larger whole numbers and decimals.
_UPCASTS = {
    ("float", "double"),
    *((whole, "double") for whole in _WHOLE[:3]),
    *((whole, "float") for whole in _WHOLE[:2]),
    ("timestamp_ntz", "timestamp"),
    ("void", "string"),
}


def widens(narrow: Json, wide: Json) -> bool:
    """Return whether every value of the scalar type ``narrow`` has its like in ``wide``."""
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    if narrow in (wide, "void") or (narrow, wide) in _UPCASTS:
        return True
    if narrow in _WHOLE and wide in _WHOLE:
        return _WHOLE.index(narrow) <= _WHOLE.index(wide)
    before, after = _digits(narrow), _DECIMAL.fullmatch(wide)
    if before is None or after is None:
        return False
    precision, scale = int(after[1]), int(after[2])
    return before[0] <= precision - scale and before[1] <= scale


def same(one: Json, other: Json) -> bool:
    """Return whether two types are the same but for nullability and comments."""
    return ddl(one) == ddl(other)


def nullable(kind: Json) -> Json:
    """Return the type with everything in it allowed to be null, and comments only."""
    if isinstance(kind, str):
        return _KEPT_AS.get(kind, kind)
    match kind["type"]:
        case "struct":
            return {"type": "struct", "fields": [_nullable_field(f) for f in kind["fields"]]}
        case "array":
            element = nullable(kind["elementType"])
            return {"type": "array", "elementType": element, "containsNull": True}
        case "map":
            return {
                "type": "map",
                "keyType": nullable(kind["keyType"]),
                "valueType": nullable(kind["valueType"]),
                "valueContainsNull": True,
            }
        case _:
            return kind


def _nullable_field(field: Mapping[str, Any]) -> dict[str, Any]:
    comment = (field.get("metadata") or {}).get("comment")
    return {
        "name": field["name"],
        "type": nullable(field["type"]),
        "nullable": True,
        "metadata": {} if comment is None else {"comment": comment},
    }


def required(kind: Json) -> bool:
    """Return whether anything inside the type must not be null (keys of maps aside)."""
    if isinstance(kind, str):
        return False
    match kind["type"]:
        case "struct":
            return any(not f["nullable"] or required(f["type"]) for f in kind["fields"])
        case "array":
            return not kind["containsNull"] or required(kind["elementType"])
        case "map":
            return not kind["valueContainsNull"] or required(kind["valueType"])
        case _:
            return False


def ddl(kind: Json) -> str:
    """Return the type as SQL."""
    if isinstance(kind, str):
        return _NAMES.get(kind, kind.upper())
    match kind["type"]:
        case "struct":
            fields = (f"{quote(f['name'])}: {ddl(f['type'])}" for f in kind["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        case "array":
            return f"ARRAY<{ddl(kind['elementType'])}>"
        case "map":
            return f"MAP<{ddl(kind['keyType'])}, {ddl(kind['valueType'])}>"
        case other:
            return str(other).upper()


def moved(sql: str, source: Json, target: Json, depth: int = 0) -> str:
    """Return the SQL that turns a value of one type into the other.

    Fields of structs go by name: those the source lacks become null, those the target lacks
    are left out. ``depth`` keeps the variables of nested lambdas apart.
    """
    if same(source, target):
        return sql
    if isinstance(source, str) or isinstance(target, str):
        return f"CAST({sql} AS {ddl(target)})"
    item = f"x{depth}"
    match target["type"]:
        case "struct":
            pairs = ", ".join(_member(sql, source, field, depth) for field in target["fields"])
            return f"IF({sql} IS NULL, NULL, named_struct({pairs}))"
        case "array":
            inner = moved(item, source["elementType"], target["elementType"], depth + 1)
            return f"transform({sql}, {item} -> {inner})"
        case _:
            keys = moved(item, source["keyType"], target["keyType"], depth + 1)
            values = moved(item, source["valueType"], target["valueType"], depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({sql}), {item} -> {keys}), "
                f"transform(map_values({sql}), {item} -> {values}))"
            )


def _member(sql: str, source: Mapping[str, Any], field: Mapping[str, Any], depth: int) -> str:
    name = field["name"]
    given = [f for f in source["fields"] if f["name"].lower() == name.lower()]
    if not given:
        return f"{literal(name)}, CAST(NULL AS {ddl(field['type'])})"
    inner = f"{sql}.{quote(given[0]['name'])}"
    return f"{literal(name)}, {moved(inner, given[0]['type'], field['type'], depth)}"


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the digits before and after the point."""
    if kind in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]) - int(found[2]), int(found[2]))
