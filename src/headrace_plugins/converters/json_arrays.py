"""JSON payloads of a known schema, from what a JSON parser gives to the schema's Arrow types.

A parser gives whole numbers for dates and times, and base64 for bytes and Decimals, as Kafka
Connect writes them.
"""

from __future__ import annotations

import base64
import binascii
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.arrow import to_arrow_field, to_arrow_type
from headrace.sdk.connectjson import DAY_MILLIS, connect_json, native_from_json
from headrace.sdk.schema import (
    DATE,
    DECIMAL,
    MAX_PRECISION,
    TIME,
    TIMESTAMP,
    VARIANT,
    scale_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DIGITS = Context(prec=MAX_PRECISION)
_MILLI = 1000


class MisfitError(Exception):
    """Some value does not fit its schema, and which cannot be said for a whole array."""


def stored_type(schema: Schema, *, decimals_as_text: bool) -> pa.DataType | None:
    """Return the type that a parser is to give for payloads of this schema.

    None where a parser of columns cannot: for maps, whose keys are data.
    """
    if schema.is_logical:
        if schema.name == DECIMAL and decimals_as_text:
            return pa.string()
        return to_arrow_type(schema) if schema.name == DECIMAL else _LOGICAL[str(schema.name)]
    if schema.type is Type.BYTES:
        return pa.string()
    if schema.type is Type.MAP:
        return None
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        items = stored_type(schema.value_schema, decimals_as_text=decimals_as_text)
        return None if items is None else pa.list_(items)
    if schema.type is not Type.STRUCT:
        return to_arrow_type(schema)
    own = {
        field.name: stored_type(field.schema, decimals_as_text=decimals_as_text)
        for field in schema.fields
    }
    return None if None in own.values() else pa.struct(list(own.items()))


_LOGICAL: Mapping[str, pa.DataType] = {
    DATE: pa.int32(),
    TIME: pa.int32(),
    TIMESTAMP: pa.int64(),
    VARIANT: pa.string(),
}


def finished(
    stored: pa.Array, schema: Schema, *, defaults: bool
) -> tuple[pa.Array, pa.Array | None]:
    """Give parsed values their final types.

    Args:
        stored: Of the type that ``stored_type`` gives.
        schema: The schema; null is taken as allowed for the whole.
        defaults: Whether a null becomes the default where there is one.

    Returns:
        The values, and which rows have a null where the schema requires a value; None
        when none has.

    Raises:
        MisfitError: A value does not fit, or is null inside a list.
    """
    if schema.is_logical:
        return _LOGICAL_FINISHERS[str(schema.name)](stored, schema), None
    if schema.type is Type.BYTES:
        return _bytes(stored), None
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return _list(stored, schema, schema.value_schema, defaults=defaults), None
    if schema.type is Type.STRUCT:
        return _struct(stored, schema, defaults=defaults)
    return stored, None


def with_default(values: pa.Array, schema: Schema) -> pa.Array:
    """Give the schema's default in place of nulls."""
    if schema.default is None or not values.null_count:
        return values
    tree = (connect_json(schema) or {})["default"]
    native = native_from_json(schema.replaced(default=None), tree)
    both = pa.concat_arrays([values, pa.array([native], values.type)])
    places = pa.array(range(len(values)), pa.int64())
    return both.take(pc.if_else(values.is_valid(), places, len(values)))


def _struct(
    stored: pa.StructArray, schema: Schema, *, defaults: bool
) -> tuple[pa.Array, pa.Array | None]:
    children, bad = [], None
    present = stored.is_valid()
    for field, child in zip(schema.fields, stored.flatten(), strict=True):
        own = field.schema
        values, wrong = finished(child, own, defaults=defaults)
        if defaults:
            values = with_default(values, own)
        if not own.optional and values.null_count:
            missing = pc.and_(values.is_null(), present)
            bad = missing if bad is None else pc.or_(bad, missing)
        if wrong is not None:
            bad = wrong if bad is None else pc.or_(bad, wrong)
        children.append(values)
    fields = [to_arrow_field(field.name, field.schema) for field in schema.fields]
    if bad is not None and not pc.any(bad).as_py():
        bad = None
    mask = None if not stored.null_count and bad is None else pc.invert(present)
    if bad is not None:
        mask = pc.or_(mask, bad)
    if not children:
        return pa.array(
            [{} if here else None for here in present.to_pylist()], pa.struct([])
        ), bad
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask), bad


def _list(stored: pa.ListArray, schema: Schema, items: Schema, *, defaults: bool) -> pa.Array:
    values, bad = finished(stored.flatten(), items, defaults=defaults)
    if defaults:
        values = with_default(values, items)
    if bad is not None or (not items.optional and values.null_count):
        raise MisfitError
    lengths = pc.fill_null(pc.list_value_length(stored), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    mask = stored.is_null() if stored.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=to_arrow_type(schema), mask=mask)


def _decoded(stored: pa.Array) -> list[bytes | None]:
    try:
        return [
            None if text is None else base64.b64decode(text, validate=True)
            for text in stored.to_pylist()
        ]
    except binascii.Error as error:
        raise MisfitError from error


def _bytes(stored: pa.Array) -> pa.Array:
    return pa.array(_decoded(stored), pa.binary())


def _decimal(stored: pa.Array, schema: Schema) -> pa.Array:
    if not pa.types.is_string(stored.type):
        return stored
    scale = scale_of(schema.parameters) or 0
    values = [
        None
        if raw is None
        else Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _DIGITS)
        for raw in _decoded(stored)
    ]
    try:
        return pa.array(values, to_arrow_type(schema))
    except pa.ArrowInvalid as error:  # more digits than the type has
        raise MisfitError from error


def _time(stored: pa.Array, _: Schema) -> pa.Array:
    if pc.any(pc.or_(pc.less(stored, 0), pc.greater(stored, DAY_MILLIS))).as_py():
        raise MisfitError
    return pc.multiply(stored.cast(pa.int64()), _MILLI)


def _timestamp(stored: pa.Array, schema: Schema) -> pa.Array:
    try:
        return pc.multiply_checked(stored, _MILLI).cast(to_arrow_type(schema))
    except pa.ArrowInvalid as error:  # beyond the years that microseconds reach
        raise MisfitError from error


def _variant(stored: pa.Array, schema: Schema) -> pa.Array:
    """Check that each text is JSON: who reads it later could only make a null of it."""
    try:
        for text in stored.to_pylist():
            native_from_json(schema.replaced(optional=True), text)
    except RecordError as error:
        raise MisfitError from error
    return stored


_LOGICAL_FINISHERS: Mapping[str, Callable[[pa.Array, Schema], pa.Array]] = {
    DECIMAL: _decimal,
    DATE: lambda stored, _: stored.cast(pa.date32()),
    TIME: _time,
    TIMESTAMP: _timestamp,
    VARIANT: _variant,
}
