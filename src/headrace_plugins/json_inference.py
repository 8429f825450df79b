"""The types that columns of JSON values have, where nothing but the values says so."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import pyarrow as pa

TEXT = pa.string()


def type_of(value: Any, conflict: pa.DataType = TEXT) -> pa.DataType:
    """Return the type of a parsed value; see ``merged_type`` for ``conflict``."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int() if -(2**63) <= value < 2**63:
            return pa.int64()
        case int() | float():
            return pa.float64()
        case dict():
            return pa.struct([(name, type_of(item, conflict)) for name, item in value.items()])
        case list():
            items = (type_of(item, conflict) for item in value)
            return pa.list_(reduce(partial(merged_type, conflict=conflict), items, pa.null()))
        case _:
            return TEXT


def merged_type(
    old: pa.DataType, new: pa.DataType, conflict: pa.DataType = TEXT
) -> pa.DataType:
    """Return a type for the values of both; ``conflict`` when they share no shape."""
    if old.equals(new) or pa.types.is_null(new):
        return old
    if pa.types.is_null(old):
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        types = {field.name: field.type for field in old}
        for field in new:
            before = types.get(field.name, pa.null())
            types[field.name] = merged_type(before, field.type, conflict)
        return pa.struct(list(types.items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merged_type(old.value_type, new.value_type, conflict))
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in (old, new)):
        return pa.float64()
    if all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in (old, new)):
        return pa.timestamp("us", "UTC")
    return conflict


def without_times(kind: pa.DataType) -> pa.DataType:
    """Return the type with texts for times: JSON says what is what, and Arrow guesses."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_times(kind.value_type))
    return TEXT if pa.types.is_temporal(kind) else kind
