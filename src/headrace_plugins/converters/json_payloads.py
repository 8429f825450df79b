"""Decodes JSON payloads of a known schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import connect_json, native_from_json
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.converters.json_arrays import (
    MisfitError,
    finished,
    stored_type,
    with_default,
)
from headrace_plugins.converters.json_parsing import loaded, parsed

Faults = dict[int, tuple[str, str]]
Shape = Callable[[Any], Any]
_PAIR = 2

_SLICE = 1024  # rows that are parsed anew when one of a batch is bad
NOT_JSON = "Converting byte[] to Kafka Connect data failed due to serialization error: "


def decoded_payloads(
    texts: pa.Array,
    schema: Schema,
    *,
    defaults: bool,
    decimals_as_text: bool = True,
    shape: Shape | None = None,
) -> tuple[pa.Array, Faults]:
    """Decode payloads; return the values, null where there is a fault, and the faults.

    Args:
        texts: Of type binary, without nulls.
        schema: The schema of all of them.
        defaults: Whether a null becomes the default where there is one.
        decimals_as_text: Which form of Decimals is the usual one; the other is slower.
        shape: Makes Kafka Connect's form of another one, value by value, which is slow; it
            raises RecordError where it cannot.
    """
    if shape is not None:
        return _one_by_one(texts, schema, defaults=defaults, shape=shape)
    stored = stored_type(schema, decimals_as_text=decimals_as_text)
    fast = None if stored is None else _fast(texts, schema, stored, defaults=defaults)
    if fast is not None:
        return fast
    if stored is None or len(texts) <= _SLICE:
        return _one_by_one(texts, schema, defaults=defaults)
    arrays, faults = [], Faults()
    for start in range(0, len(texts), _SLICE):
        part = texts.slice(start, _SLICE)
        values, found = _fast(part, schema, stored, defaults=defaults) or _one_by_one(
            part, schema, defaults=defaults
        )
        arrays.append(values)
        faults |= {start + row: fault for row, fault in found.items()}
    return pa.concat_arrays(arrays), faults


def _fast(
    texts: pa.Array, schema: Schema, stored: pa.DataType, *, defaults: bool
) -> tuple[pa.Array, Faults] | None:
    values = parsed(texts, stored, infer=False)
    if values is None:
        return None
    try:
        final, bad = finished(values, schema, defaults=defaults)
    except MisfitError:
        return None
    if defaults:
        final = with_default(final, schema)
    if not schema.optional and final.null_count:
        bad = final.is_null()
    if bad is None:
        return final, {}
    rows = pc.indices_nonzero(bad)
    _, found = _one_by_one(texts.take(rows), schema, defaults=defaults)
    numbers = rows.to_pylist()
    return final, {numbers[row]: fault for row, fault in found.items()}


def _one_by_one(
    texts: pa.Array, schema: Schema, *, defaults: bool, shape: Shape | None = None
) -> tuple[pa.Array, Faults]:
    natives: list[Any] = []
    faults = Faults()
    type_ = to_arrow_type(schema)
    for row, text in enumerate(texts.to_pylist()):
        native, fault = _native(text, schema, type_, defaults=defaults, shape=shape)
        natives.append(native)
        if fault is not None:
            faults[row] = (DATA_EXCEPTION, fault)
    return pa.array(natives, type_), faults


def _native(
    text: bytes, schema: Schema, type_: pa.DataType, *, defaults: bool, shape: Shape | None
) -> tuple[Any, str | None]:
    try:
        tree = loaded(text, exact=True)
    except ValueError as error:
        return None, f"{NOT_JSON}{error}"
    try:
        tree = tree if shape is None else shape(tree)
        if defaults:
            native = native_from_json(schema, filled(schema, tree))
        else:
            native = native_from_json(_without_defaults(schema), tree)
        pa.array([native], type_)
    except RecordError as error:
        where = f" in field {error.field}" if error.field else ""
        return None, f"{error.problem}{where}"
    except (pa.ArrowException, ValueError, OverflowError) as error:
        return None, f"The value does not fit its schema: {error}"
    return native, None


@lru_cache(maxsize=256)
def _without_defaults(schema: Schema) -> Schema:
    """Return a schema that requires what has a default."""
    parts: dict[str, Any] = {}
    if schema.type is Type.STRUCT:
        members = {field.name: _without_defaults(field.schema) for field in schema.fields}
        parts["fields"] = Schema.struct(members).fields
    if schema.key_schema is not None:
        parts["key_schema"] = _without_defaults(schema.key_schema)
    if schema.value_schema is not None:
        parts["value_schema"] = _without_defaults(schema.value_schema)
    return schema.replaced(default=None, **parts)


def filled(schema: Schema, tree: Any) -> Any:
    """Put defaults, as JSON, where a payload has nulls."""
    if tree is None:
        return None if schema.default is None else (connect_json(schema) or {})["default"]
    if schema.fields and isinstance(tree, dict):
        return {f.name: filled(f.schema, tree.get(f.name)) for f in schema.fields}
    values = schema.value_schema
    if values is None:
        return tree
    if isinstance(tree, dict):
        return {key: filled(values, item) for key, item in tree.items()}
    if not isinstance(tree, list):
        return tree
    if schema.key_schema is None:
        return [filled(values, item) for item in tree]
    return [_filled_entry(schema.key_schema, values, entry) for entry in tree]


def _filled_entry(keys: Schema, values: Schema, entry: Any) -> Any:
    if not isinstance(entry, list) or len(entry) != _PAIR:
        return entry  # which its reader refuses
    return [filled(keys, entry[0]), filled(values, entry[1])]
