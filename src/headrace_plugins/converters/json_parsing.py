"""Parses arrays of JSON texts, as columns where possible, and infers their schemas."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from headrace.sdk import Schema, Type
from headrace.sdk.arrow import from_arrow
from headrace_plugins.arrow_json import is_finite, merged_type, objects, type_of, without_times

# Values other than objects are wrapped in a list in an object: the parser needs objects, and a
# malformed text cannot close both brackets.
_OPEN, _CLOSE = b'{"v":[', b"]}"
_NO_NUMBER = re.compile(rb"(?:^|[\[{:,\s-])(?:NaN|Inf)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SPACES = frozenset(" \t\r\n")
_ROOM = 1024  # the parser requires a block that is larger than its input


def parsed(texts: pa.Array, type_: pa.DataType | None, *, infer: bool) -> pa.Array | None:
    """Parse texts, of type binary and without nulls, into one array of a type.

    If the type is None, it is inferred. Fields that are not in the type are inferred with
    ``infer``, else ignored. Returns None if any text is not JSON or does not fit.
    """
    if not len(texts):
        return pa.array([], type_ or pa.null())
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # some text is not UTF-8
    one = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    body = pc.binary_join(one, b"\n")[0].as_buffer().to_pybytes()
    if _count(body, b"\n") != len(texts) - 1 or b"\r" in body:
        lines = pc.replace_substring_regex(texts.cast(pa.string()), "[\r\n]", " ")
        return parsed(lines.cast(pa.binary()), type_, infer=infer)
    if not infer and _may_name_numbers(body) and _NO_NUMBER.search(body):
        return None  # the parser accepts these words as numbers, even in ignored fields
    is_row = type_ is None or (pa.types.is_struct(type_) and type_.num_fields > 0)
    parse = _rows if is_row and _are_objects(body, len(texts)) else _items
    values = parse(body, len(texts), type_, infer=infer)
    return None if values is None or (infer and not is_finite(values)) else values


def _count(body: bytes, sign: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(sign)))


def _may_name_numbers(body: bytes) -> bool:
    """Return whether a text may contain NaN or Inf: a cheaper test than _NO_NUMBER."""
    signs = np.frombuffer(body, np.uint8)
    begins, goes_on = signs[:-1], signs[1:]
    pairs = ((begins == ord(one)) & (goes_on == ord(two)) for one, two in ("Na", "In"))
    return any(bool(found.any()) for found in pairs)


def _are_objects(body: bytes, count: int) -> bool:
    try:
        return objects(body) == count
    except pa.ArrowInvalid:
        return False


def _rows(
    body: bytes, count: int, type_: pa.DataType | None, *, infer: bool
) -> pa.Array | None:
    """Parse lines of one object each; None if the row count shows a line with more."""
    table = _read(body, None if type_ is None else pa.schema(list(type_)), infer=infer)
    if table is None or table.num_rows != count:
        # A table without columns has no rows.
        return _items(body, count, type_, infer=infer) if table and not table.schema else None
    # One block is one chunk. Combining chunks fails for lists that contain only nulls.
    columns = [_valid(column.chunk(0)) for column in table.itercolumns()]
    if any(column is None for column in columns):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))


def _items(
    body: bytes, count: int, type_: pa.DataType | None, *, infer: bool
) -> pa.Array | None:
    """Parse lines with values of any type."""
    body = b"".join((_OPEN, body.replace(b"\n", _CLOSE + b"\n" + _OPEN), _CLOSE))
    schema = None if type_ is None else pa.schema([("v", pa.list_(type_))])
    table = _read(body, schema, infer=infer)
    if table is None or table.num_rows != count:
        return None
    lists = table.column("v").chunk(0)
    if not pa.types.is_list(lists.type):
        return None
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    if not pc.all(pc.equal(lengths, 1)).as_py():
        return None
    return _valid(lists.flatten())


def _valid(values: pa.Array) -> pa.Array | None:
    try:
        # The parser miscounts the items of lists that contain only nulls.
        values.validate()
    except pa.ArrowInvalid:
        return None
    return values


def _read(body: bytes, schema: pa.Schema | None, *, infer: bool) -> pa.Table | None:
    try:
        return pa_json.read_json(
            pa.BufferReader(body),
            pa_json.ReadOptions(use_threads=False, block_size=len(body) + _ROOM),
            pa_json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if infer else "ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None


def loaded(text: bytes, *, exact: bool = False) -> Any:
    """Parse one text as Jackson does: UTF-8 only, and no NaN. Raises ValueError.

    Also rejects unpaired surrogates, which Arrow's strings do not support. With ``exact``,
    numbers with a decimal point become Decimals.
    """
    number = Decimal if exact else float
    try:
        tree = json.loads(text.decode(), parse_constant=_refuse, parse_float=number)
    except RecursionError as error:
        message = "The JSON is nested too deeply."
        raise ValueError(message) from error
    if _SURROGATE.search(text):
        json.dumps(tree, ensure_ascii=False, default=str).encode()  # raises for an unpaired one
    return tree


def members(text: str) -> dict[str, str]:
    """Return the unparsed texts of the members of a JSON object. Raises ValueError."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    found: dict[str, str] = {}
    place = _past(text, 0, "{")
    while text[place : place + 1] != "}":
        name, place = decoder.raw_decode(text, place)
        start = _past(text, _space(text, place), ":")
        _, end = decoder.raw_decode(text, start)
        found[name] = text[start:end]
        place = _space(text, end)
        if text[place : place + 1] == ",":
            place = _space(text, place + 1)
    return found


def _space(text: str, place: int) -> int:
    while text[place : place + 1] in _SPACES:
        place += 1
    return place


def _past(text: str, place: int, sign: str) -> int:
    place = _space(text, place)
    if text[place : place + 1] != sign:
        message = f"Expecting {sign!r}: char {place}"
        raise ValueError(message)
    return _space(text, place + 1)


def _refuse(word: str) -> NoReturn:
    message = f"{word} is not JSON."
    raise ValueError(message)


UNTYPED = {"headrace.untyped": "true"}
"""The parameters of a string schema that is a placeholder for a type not known yet."""
_UNKNOWN = Schema.string(optional=True, parameters=UNTYPED)


def inferred(texts: pa.Array, hint: pa.DataType | None) -> pa.Array | None:
    """Parse texts, without nulls, and infer their type; None if any text is not JSON.

    ``hint`` is the type of the previous batch, which can save a second parse.
    """
    values = None if hint is None else parsed(texts, hint, infer=True)
    if values is None:
        values = parsed(texts, None, infer=True)
    if values is not None and not values.type.equals(plain := without_times(values.type)):
        # The parser infers times from strings, which JSON does not have.
        values = parsed(texts, hint_of(plain), infer=True)
    return values


def hint_of(type_: pa.DataType) -> pa.DataType | None:
    """Return the type without its unknown (null) parts, for parsing the next batch."""
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
    """Return the schema of an inferred type; None if nothing is known about it."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        if not root and type_.get_field_index("") >= 0:
            return Schema.string(optional=True)  # no schema has a field without a name
        found = {f.name: schema_of(f.type, root=False) for f in type_ if f.name}
        known = {name: schema for name, schema in found.items() if schema is not None}
        if not known and root:
            # A struct needs at least one field: without any it would look like null.
            known = dict.fromkeys(found, _UNKNOWN)
        return Schema.struct(known, optional=True) if known else None
    if pa.types.is_list(type_):
        items = schema_of(type_.value_type, root=False) or _UNKNOWN
        return Schema.array(items, optional=True)
    return from_arrow(type_).replaced(optional=True)


def merged(known: Schema, new: Schema) -> Schema:
    """Return a schema for the values of both schemas; see `fitted`."""
    if known == new or new.parameters == UNTYPED:
        return known
    if known.parameters == UNTYPED:
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


def fitted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values to the type of a merged schema; values for a string become JSON text."""
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
    """Combine values that were parsed one by one into one array."""
    type_ = reduce(merged_type, map(type_of, trees), pa.null())
    return pa.array([_shaped(tree, type_) for tree in trees], type_)


def _shaped(tree: Any, type_: pa.DataType) -> Any:
    if tree is None:
        return None
    if pa.types.is_string(type_):
        return tree if isinstance(tree, str) else json.dumps(tree, separators=(",", ":"))
    if isinstance(tree, str):
        return _shaped(
            json.loads(tree), type_
        )  # the type was unknown, so it was stored as JSON
    if pa.types.is_floating(type_):
        return float(tree)
    if pa.types.is_struct(type_):
        return {field.name: _shaped(tree.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        return [_shaped(item, type_.value_type) for item in tree]
    return tree
