"""Decodes arrays of JSON: with Kafka Connect's envelope, with a known schema, or with none.

The parser returns integers for dates and times, and base64 for bytes and Decimals, as Kafka
Connect writes them (the "stored" type); `finished` converts these to the final types.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import RecordError, Schema, Type
from headrace.sdk.arrow import to_arrow_field, to_arrow_type
from headrace.sdk.connectjson import DAY_MILLIS, connect_json, connect_schema, native_from_json
from headrace.sdk.converter import ArrowDecoder, Decoded, Group
from headrace.sdk.schema import DATE, DECIMAL, MAX_PRECISION, TIME, TIMESTAMP, VARIANT, scale_of
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.converters.json_parsing import (
    array_of,
    fitted,
    hint_of,
    inferred,
    loaded,
    members,
    merged,
    parsed,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_DIGITS = Context(prec=MAX_PRECISION)
_MILLI = 1000


class MisfitError(Exception):
    """Some value of an array does not fit its schema; which one is not known."""


def stored_type(schema: Schema, *, decimals_as_text: bool) -> pa.DataType | None:
    """Return the type that the parser must return for payloads of a schema.

    None for schemas that contain a map: the columnar parser does not support data as keys.
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
    """Convert parsed values from their ``stored_type`` to their final types.

    The whole value may be null; with ``defaults`` other nulls become their default.

    Returns:
        The values, and a mask of the rows that have a null in a required place; None if no
        row has.

    Raises:
        MisfitError: A value does not fit, or a required item of a list is null.
    """
    if schema.is_logical:
        return _LOGICAL_FINISHERS[str(schema.name)](stored, schema), None
    if schema.type is Type.BYTES:
        return pa.array(_decoded(stored), pa.binary()), None
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return _list(stored, schema, schema.value_schema, defaults=defaults), None
    if schema.type is Type.STRUCT:
        return _struct(stored, schema, defaults=defaults)
    return stored, None


def with_default(values: pa.Array, schema: Schema) -> pa.Array:
    """Replace nulls by the schema's default."""
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
    return _listed(stored, values, to_arrow_type(schema))


def _listed(lists: pa.ListArray, items: pa.Array, type_: pa.DataType) -> pa.Array:
    """Replace the items of lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(offsets, items, type=type_, mask=mask)


def _decoded(stored: pa.Array) -> list[bytes | None]:
    try:
        return [
            None if text is None else base64.b64decode(text, validate=True)
            for text in stored.to_pylist()
        ]
    except binascii.Error as error:
        raise MisfitError from error


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
    except pa.ArrowInvalid as error:  # out of the range of microseconds in 64 bits
        raise MisfitError from error


def _variant(stored: pa.Array, schema: Schema) -> pa.Array:
    """Check that each text is valid JSON: a later reader could only replace it by null."""
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


Faults = dict[int, tuple[str, str]]
Shape = Callable[[Any], Any]
_PAIR = 2

_SLICE = 1024  # rows that are parsed again if one of them is bad
NOT_JSON = "Converting byte[] to Kafka Connect data failed due to serialization error: "


def decoded_payloads(
    texts: pa.Array,
    schema: Schema,
    *,
    defaults: bool,
    decimals_as_text: bool = True,
    shape: Shape | None = None,
) -> tuple[pa.Array, Faults]:
    """Decode payloads; return the values, with null for each bad one, and the faults by row.

    Args:
        texts: The payloads, of type binary, without nulls.
        schema: The schema of all payloads.
        defaults: Whether to replace nulls by their default.
        decimals_as_text: Whether Decimals are expected as base64, not numbers. The format that
            is not expected is slower.
        shape: Converts each value from another form of JSON to Kafka Connect's, which is slow;
            raises RecordError for bad values.
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
    """Return the schema without defaults: a null is then a fault of a required field."""
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
    """Replace the nulls of a payload by their defaults, as JSON."""
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
    keys = schema.key_schema
    if keys is None:
        return [filled(values, item) for item in tree]
    return [
        [filled(keys, entry[0]), filled(values, entry[1])]
        if isinstance(entry, list) and len(entry) == _PAIR
        else entry  # native_from_json rejects it
        for entry in tree
    ]


_PAYLOAD = b',"payload":'
_SCHEMA = b'{"schema":'
_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not '
    "contain additional fields. If you are trying to deserialize plain JSON data, set "
    "schemas.enable=false in your converter configuration."
)
_EMPTY = "A JSON object without fields is not supported: it cannot be distinguished from null."


@dataclass
class PlainJsonDecoder(ArrowDecoder):
    """Decodes JSON without a schema; infers the schema and keeps it for later batches."""

    remembers = True
    hint: pa.DataType | None = None

    @override
    def start(self, known: Schema | None) -> None:
        self.hint = None if known is None else to_arrow_type(known)

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        rows = pc.indices_nonzero(raw.is_valid())
        texts = raw if len(rows) == len(raw) else raw.take(rows)
        values = inferred(texts, self.hint)
        if values is not None:
            self.hint = hint_of(values.type)
            return _grouped(values, None if len(rows) == len(raw) else rows.to_pylist())
        trees: dict[int, Any] = {}
        faults = Faults()
        for row, text in zip(rows.to_pylist(), texts.to_pylist(), strict=True):
            try:
                trees[row] = loaded(text)
            except ValueError as error:
                faults[row] = (DATA_EXCEPTION, f"{NOT_JSON}{error}")
        decoded = _grouped(array_of(list(trees.values())), list(trees))
        return Decoded(decoded.groups, {**faults, **decoded.faults})

    @override
    def merged(self, known: Schema, new: Schema) -> Schema:
        return merged(known, new)

    @override
    def fitted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        return fitted(values, target)


def _grouped(values: pa.Array, rows: list[int] | None) -> Decoded:
    if pa.types.is_struct(values.type) and values.type.get_field_index("") >= 0:
        return _named(values, rows)
    schema = schema_of(values.type)
    if schema is None:
        if not pa.types.is_struct(values.type):
            return Decoded()  # nothing but nulls
        numbers = rows or range(len(values))
        return Decoded(faults=dict.fromkeys(numbers, (DATA_EXCEPTION, _EMPTY)))
    return Decoded([Group(schema, _pruned(values, to_arrow_type(schema)), rows)])


def _named(values: pa.StructArray, rows: list[int] | None) -> Decoded:
    """Report objects that have a field with an empty name as faults."""
    nameless = values.field(values.type.get_field_index("")).is_valid()
    numbers = rows or list(range(len(values)))
    faults = dict.fromkeys(
        (numbers[row] for row in pc.indices_nonzero(nameless).to_pylist()),
        (DATA_EXCEPTION, "A JSON object has a field whose name is empty."),
    )
    good = pc.indices_nonzero(pc.invert(nameless))
    fields = [field for field in values.type if field.name]
    named_rows = values.take(good)
    children = [
        named_rows.field(named_rows.type.get_field_index(field.name)) for field in fields
    ]
    mask = named_rows.is_null()
    if not children:
        return Decoded(faults=faults)
    named = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    decoded = _grouped(named, [numbers[row] for row in good.to_pylist()])
    return Decoded(decoded.groups, {**faults, **decoded.faults})


def _pruned(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Remove the fields that are not in the schema."""
    if pa.types.is_struct(type_) and values.type.num_fields:
        children = [
            _pruned(values.field(values.type.get_field_index(own.name)), own.type)
            for own in type_
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_list(type_):
        return _listed(values, _pruned(values.flatten(), type_.value_type), type_)
    return values if values.type.equals(type_) else fitted(values, type_).cast(type_)


@dataclass
class SchemaJsonDecoder(ArrowDecoder):
    """Decodes JSON of one known schema."""

    schema: Schema
    defaults: bool
    decimals_as_text: bool = True
    """Whether Decimals are expected as base64."""

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        rows = pc.indices_nonzero(raw.is_valid())
        return self.typed(raw.take(rows), rows.to_pylist())

    def typed(self, texts: pa.Array, rows: list[int]) -> Decoded:
        """Decode values; ``rows`` are their row numbers."""
        if not rows:
            return Decoded()
        values, faults = decoded_payloads(
            texts, self.schema, defaults=self.defaults, decimals_as_text=self.decimals_as_text
        )
        found = {rows[row]: fault for row, fault in faults.items()}
        return Decoded([Group(self.schema, values, rows)], found)


@dataclass
class EnvelopeDecoder(ArrowDecoder):
    """Decodes ``{"schema": ..., "payload": ...}``.

    The records of a topic share a few schemas, and Kafka Connect writes the schema first. If
    two records start with the same text, they have the same schema, so only the payload of
    the second one is parsed.
    """

    defaults: bool
    decimals_as_text: bool = True

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        found: dict[Schema | None, list[tuple[pa.Array, list[int]]]] = {}
        faults = Faults()
        left = pc.indices_nonzero(raw.is_valid())
        texts = raw if len(left) == len(raw) else raw.take(left)
        while len(texts):
            prefix = _prefix(texts[0].as_py())
            if prefix is None:
                mine = pa.array([True, *([False] * (len(texts) - 1))], pa.bool_())
                parts = _taken_apart(texts[0].as_py())
            else:
                # Texts that begin with the prefix and end with the closing brace.
                start = pc.binary_slice(texts, 0, len(prefix))
                mine = pc.and_(
                    pc.equal(start, pa.scalar(prefix, pa.binary())),
                    pc.equal(pc.binary_slice(texts, -1), pa.scalar(b"}", pa.binary())),
                )
                parts = _schema(prefix[len(_SCHEMA) : -len(_PAYLOAD)]), None
            rows = left.filter(mine).to_pylist()
            schema, payload = parts
            if isinstance(schema, str):
                faults |= dict.fromkeys(rows, (DATA_EXCEPTION, schema))
            else:
                payloads = (
                    pc.binary_slice(texts.filter(mine), len(prefix or b""), -1)
                    if payload is None
                    else pa.array([payload], pa.binary())
                )
                found.setdefault(schema, []).append((payloads, rows))
            rest = pc.invert(mine)
            texts, left = texts.filter(rest), left.filter(rest)
        groups: list[Group] = []
        for schema, pieces in found.items():
            decoded = self._decoded(schema, pieces)
            groups += decoded.groups
            faults |= decoded.faults
        return self._judged(raw, Decoded(groups, faults))

    def _judged(self, raw: pa.Array, decoded: Decoded) -> Decoded:
        """Parse whole records again if their payload is not JSON: members may follow it."""
        rows = {n for n, fault in decoded.faults.items() if fault[1].startswith(NOT_JSON)}
        if not rows:
            return decoded
        groups = []
        for group in decoded.groups:
            own = group.rows or ()  # these groups name their rows
            places = [place for place, row in enumerate(own) if row not in rows]
            values = group.values.take(pa.array(places, pa.int64()))
            groups.append(Group(group.schema, values, [own[place] for place in places]))
        faults = dict(decoded.faults)
        for row in rows:
            del faults[row]
            schema, payload = _taken_apart(raw[row].as_py())
            if payload is None or isinstance(schema, str):
                faults[row] = (DATA_EXCEPTION, str(schema))
                continue
            again = self._decoded(schema, [(pa.array([payload], pa.binary()), [row])])
            groups += again.groups
            faults |= again.faults
        return Decoded(groups, faults)

    def _decoded(
        self, schema: Schema | None, pieces: list[tuple[pa.Array, list[int]]]
    ) -> Decoded:
        texts = pa.concat_arrays([texts for texts, _ in pieces])
        rows = [row for _, own in pieces for row in own]
        if schema is not None:
            typed = SchemaJsonDecoder(schema, self.defaults, self.decimals_as_text)
            return typed.typed(texts, rows)
        plain = PlainJsonDecoder().decode(texts)
        groups = [
            Group(g.schema, g.values, rows if g.rows is None else [rows[n] for n in g.rows])
            for g in plain.groups
        ]
        return Decoded(groups, {rows[row]: fault for row, fault in plain.faults.items()})


def _prefix(text: bytes) -> bytes | None:
    """Return the text before the payload if it has Kafka Connect's form, else None."""
    end = text.find(_PAYLOAD)
    if end < 0 or not text.startswith(_SCHEMA) or not text.endswith(b"}"):
        return None
    prefix = text[: end + len(_PAYLOAD)]
    # A schema may have a parameter named payload: then the schema does not end here.
    return prefix if _is_json(prefix[len(_SCHEMA) : -len(_PAYLOAD)]) else None


@lru_cache(maxsize=256)
def _is_json(text: bytes) -> bool:
    try:
        loaded(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _schema(text: bytes) -> Schema | str | None:
    """Return the schema for its JSON form, or the error message."""
    try:
        return connect_schema(loaded(text))
    except RecordError as error:
        return error.problem
    except ValueError as error:
        return f"{NOT_JSON}{error}"


def _taken_apart(text: bytes) -> tuple[Schema | str | None, bytes | None]:
    """Return schema and payload of an envelope in any form, or the error and None."""
    try:
        tree = loaded(text)
    except ValueError as error:
        return f"{NOT_JSON}{error}", None
    if not isinstance(tree, dict) or tree.keys() != {"schema", "payload"}:
        return _ENVELOPE, None
    try:
        schema = connect_schema(tree["schema"])
    except RecordError as error:
        return error.problem, None
    return schema, members(text.decode())["payload"].encode()
