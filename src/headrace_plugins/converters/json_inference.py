"""Schemas of JSON that carries none, inferred from the values of a stream.

Whole numbers are INT64, others FLOAT64. All is optional. A field that was only null so far
is left out. Where values share no type, the field is a text: a string as it is, anything
else as JSON.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from headrace.sdk import Schema, Type
from headrace.sdk.arrow import from_arrow
from headrace_plugins.converters.json_parsing import parsed

UNTYPED = {"headrace.untyped": "true"}
"""The parameters of a text that stands for a type that is not known yet."""
_UNKNOWN = Schema.string(optional=True, parameters=UNTYPED)
_INT64 = 1 << 63


def inferred(texts: pa.Array, hint: pa.DataType | None) -> pa.Array | None:
    """Parse texts and infer their type; None when some text is no JSON.

    Args:
        texts: Of type binary, without nulls.
        hint: The type of the batch before, which spares a second parse.
    """
    values = None if hint is None else parsed(texts, hint, infer=True)
    if values is None:
        values = parsed(texts, None, infer=True)
    if values is not None and _has_times(values.type):
        # The parser takes texts for times. To JSON they are texts.
        values = parsed(texts, hint_of(_without_times(values.type)), infer=True)
    return values


def hint_of(type_: pa.DataType) -> pa.DataType | None:
    """Return the type without what is not known, to parse the next batch with."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        fields = [(field.name, hint_of(field.type)) for field in type_]
        return pa.struct([(name, own) for name, own in fields if own is not None])
    if pa.types.is_list(type_):
        items = hint_of(type_.value_type)
        return None if items is None else pa.list_(items)
    return type_


def schema_of(type_: pa.DataType, *, root: bool = True) -> Schema | None:
    """Return the schema of an inferred type; None when nothing is known of it."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        if not root and type_.get_field_index("") >= 0:
            return Schema.string(optional=True)  # no schema has a field without a name
        return _struct_schema(type_, root=root)
    if pa.types.is_list(type_):
        items = schema_of(type_.value_type, root=False) or _UNKNOWN
        return Schema.array(items, optional=True)
    return from_arrow(type_).replaced(optional=True)


def _struct_schema(type_: pa.DataType, *, root: bool) -> Schema | None:
    found = {f.name: schema_of(f.type, root=False) for f in type_ if f.name}
    known = {name: schema for name, schema in found.items() if schema is not None}
    if not known and root:
        # Something must be left of a record: without a field it could not be told from null.
        known = dict.fromkeys(found, _UNKNOWN)
    return Schema.struct(known, optional=True) if known else None


def merged(known: Schema, new: Schema) -> Schema:
    """Return the schema that values of both fit into, see `fitted`."""
    if known == new or _is_unknown(new):
        return known
    if _is_unknown(known):
        return new
    if known.type is Type.STRUCT and new.type is Type.STRUCT:
        fields = {f.name: f.schema for f in known.fields}
        for field in new.fields:
            old = fields.get(field.name)
            fields[field.name] = field.schema if old is None else merged(old, field.schema)
        return Schema.struct(fields, optional=True)
    if known.value_schema and new.value_schema and known.type is new.type:
        items = merged(known.value_schema, new.value_schema)
        return Schema.array(items, optional=True)
    if {known.type, new.type} == {Type.INT64, Type.FLOAT64}:
        return Schema.float64(optional=True)
    return Schema.string(optional=True)


def _is_unknown(schema: Schema) -> bool:
    return schema.parameters == UNTYPED


def fitted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Give values the type of a merged schema, as JSON where it is a text."""
    if not _is_apart(values.type, target):
        return values
    return pa.array([_shaped(value, target) for value in values.to_pylist()], target)


def _is_apart(own: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(own) and pa.types.is_struct(target):
        return any(
            _is_apart(field.type, target.field(target.get_field_index(field.name)).type)
            for field in own
            if target.get_field_index(field.name) >= 0
        )
    if pa.types.is_list(own) and pa.types.is_list(target):
        return _is_apart(own.value_type, target.value_type)
    return bool(pa.types.is_string(target) != pa.types.is_string(own))


def array_of(trees: list[Any]) -> pa.Array:
    """Return values that were parsed one by one as one array."""
    type_ = pa.null()
    for tree in trees:
        type_ = _common(type_, _type_of(tree))
    return pa.array([_shaped(tree, type_) for tree in trees], type_)


def _type_of(tree: Any) -> pa.DataType:
    match tree:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int() if -_INT64 <= tree < _INT64:
            return pa.int64()
        case int() | float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            type_ = pa.null()
            for item in tree:
                type_ = _common(type_, _type_of(item))
            return pa.list_(type_)
        case _:
            return pa.struct([(name, _type_of(item)) for name, item in tree.items()])


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _common(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_common(one.value_type, other.value_type))
    numbers = {pa.int64(), pa.float64()}
    return pa.float64() if {one, other} == numbers else pa.string()


def _shaped(tree: Any, type_: pa.DataType) -> Any:
    if tree is None:
        return None
    if pa.types.is_string(type_):
        return tree if isinstance(tree, str) else json.dumps(tree, separators=(",", ":"))
    if isinstance(tree, str):
        return _shaped(json.loads(tree), type_)  # a text that stood for an unknown type
    if pa.types.is_floating(type_):
        return float(tree)
    if pa.types.is_struct(type_):
        return {field.name: _shaped(tree.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        return [_shaped(item, type_.value_type) for item in tree]
    return tree


def _has_times(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(_has_times(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _has_times(type_.value_type)
    return bool(pa.types.is_temporal(type_))


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _without_times(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    return pa.string() if pa.types.is_temporal(type_) else type_
