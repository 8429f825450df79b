"""Decodes arrays of JSON: with Kafka Connect's envelope, with a given schema, or without."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.sdk import RecordError, Schema
from headrace.sdk.arrow import to_arrow_type
from headrace.sdk.connectjson import connect_schema
from headrace.sdk.converter import ArrowDecoder, Decoded, Group
from headrace.sdk.transform import DATA_EXCEPTION
from headrace_plugins.converters.json_inference import (
    array_of,
    fitted,
    hint_of,
    inferred,
    merged,
    schema_of,
)
from headrace_plugins.converters.json_parsing import loaded, members
from headrace_plugins.converters.json_payloads import NOT_JSON, Faults, decoded_payloads

if TYPE_CHECKING:
    from collections.abc import Collection

_PAYLOAD = b',"payload":'
_SCHEMA = b'{"schema":'
_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not '
    "contain additional fields. If you are trying to deserialize plain JSON data, set "
    "schemas.enable=false in your converter configuration."
)
_EMPTY = "A JSON object without any field cannot be told from null here."


@dataclass
class PlainJsonDecoder(ArrowDecoder):
    """Decodes JSON without a schema: it is inferred, and remembered."""

    remembers = True
    hint: pa.DataType | None = None

    @override
    def start(self, known: Schema | None) -> None:
        self.hint = None if known is None else _hint(known)

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        rows = pc.indices_nonzero(raw.is_valid())
        texts = raw if len(rows) == len(raw) else raw.take(rows)
        values = inferred(texts, self.hint)
        if values is not None:
            self.hint = hint_of(values.type)
            return _grouped(values, None if len(rows) == len(raw) else rows.to_pylist())
        trees, faults = _loaded(texts, rows.to_pylist())
        decoded = _grouped(array_of(list(trees.values())), list(trees))
        return Decoded(decoded.groups, {**faults, **decoded.faults})

    @override
    def merged(self, known: Schema, new: Schema) -> Schema:
        return merged(known, new)

    @override
    def fitted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        return fitted(values, target)


def _hint(schema: Schema) -> pa.DataType:
    return to_arrow_type(schema)


def _loaded(texts: pa.Array, rows: list[int]) -> tuple[dict[int, Any], Faults]:
    trees: dict[int, Any] = {}
    faults = Faults()
    for row, text in zip(rows, texts.to_pylist(), strict=True):
        try:
            trees[row] = loaded(text)
        except ValueError as error:
            faults[row] = (DATA_EXCEPTION, f"{NOT_JSON}{error}")
    return trees, faults


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
    """Make faults of objects that have a field without a name."""
    nameless = values.field(values.type.get_field_index("")).is_valid()
    numbers = rows or list(range(len(values)))
    faults = dict.fromkeys(
        (numbers[row] for row in pc.indices_nonzero(nameless).to_pylist()),
        (DATA_EXCEPTION, "A JSON object has a field whose name is empty."),
    )
    good = pc.indices_nonzero(pc.invert(nameless))
    fields = [field for field in values.type if field.name]
    kept = values.take(good)
    children = [kept.field(kept.type.get_field_index(field.name)) for field in fields]
    mask = kept.is_null()
    if not children:
        return Decoded(faults=faults)
    named = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    decoded = _grouped(named, [numbers[row] for row in good.to_pylist()])
    return Decoded(decoded.groups, {**faults, **decoded.faults})


def _pruned(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Leave out the fields that the schema does without."""
    if pa.types.is_struct(type_) and values.type.num_fields:
        children = [
            _pruned(values.field(values.type.get_field_index(own.name)), own.type)
            for own in type_
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_list(type_):
        lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        mask = values.is_null() if values.null_count else None
        items = _pruned(values.flatten(), type_.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=type_, mask=mask)
    return values if values.type.equals(type_) else fitted(values, type_).cast(type_)


@dataclass
class SchemaJsonDecoder(ArrowDecoder):
    """Decodes JSON whose schema is given beside it.

    Args:
        schema: The schema of all values.
        defaults: Whether a null becomes the default.
        decimals_as_text: Whether Decimals are usually base64.
    """

    schema: Schema
    defaults: bool
    decimals_as_text: bool = True

    @override
    def decode(self, raw: pa.Array) -> Decoded:
        rows = pc.indices_nonzero(raw.is_valid())
        return _typed(raw.take(rows), rows.to_pylist(), self.schema, self)


def _typed(
    texts: pa.Array, rows: list[int], schema: Schema, how: SchemaJsonDecoder | EnvelopeDecoder
) -> Decoded:
    if not rows:
        return Decoded()
    values, faults = decoded_payloads(
        texts, schema, defaults=how.defaults, decimals_as_text=how.decimals_as_text
    )
    found = {rows[row]: fault for row, fault in faults.items()}
    return Decoded([Group(schema, values, rows)], found)


@dataclass
class EnvelopeDecoder(ArrowDecoder):
    """Decodes ``{"schema": ..., "payload": ...}``.

    The records of a topic share a few schemas, and what Kafka Connect writes begins with
    the schema. A record whose text begins as another's did has the same schema, so only
    its payload is parsed.
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
                mine = _only_first(len(texts))
                parts = _taken_apart(texts[0].as_py())
            else:
                mine = _framed(texts, prefix)
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
        """Read again, whole, what did not end with its payload: members may follow that."""
        rows = {n for n, fault in decoded.faults.items() if fault[1].startswith(NOT_JSON)}
        if not rows:
            return decoded
        groups = [_without(group, rows) for group in decoded.groups]
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
            return _typed(texts, rows, schema, self)
        plain = PlainJsonDecoder().decode(texts)
        groups = [
            Group(g.schema, g.values, rows if g.rows is None else [rows[n] for n in g.rows])
            for g in plain.groups
        ]
        return Decoded(groups, {rows[row]: fault for row, fault in plain.faults.items()})


def _without(group: Group, rows: Collection[int]) -> Group:
    """Leave rows out of a group that names its rows."""
    own = group.rows or ()
    kept = [place for place, row in enumerate(own) if row not in rows]
    values = group.values.take(pa.array(kept, pa.int64()))
    return Group(group.schema, values, [own[place] for place in kept])


def _prefix(text: bytes) -> bytes | None:
    """Return what stands before the payload, if it is as Kafka Connect writes it."""
    end = text.find(_PAYLOAD)
    if end < 0 or not text.startswith(_SCHEMA) or not text.endswith(b"}"):
        return None
    prefix = text[: end + len(_PAYLOAD)]
    # A schema may have parameters called payload: then this is not its end.
    return prefix if _is_json(prefix[len(_SCHEMA) : -len(_PAYLOAD)]) else None


@lru_cache(maxsize=256)
def _is_json(text: bytes) -> bool:
    try:
        loaded(text)
    except ValueError:
        return False
    return True


def _framed(texts: pa.Array, prefix: bytes) -> pa.Array:
    """Return which texts begin with a prefix and end with the brace that closes it."""
    return pc.and_(
        pc.equal(pc.binary_slice(texts, 0, len(prefix)), pa.scalar(prefix, pa.binary())),
        pc.equal(pc.binary_slice(texts, -1), pa.scalar(b"}", pa.binary())),
    )


def _only_first(count: int) -> pa.Array:
    return pa.array([True, *([False] * (count - 1))], pa.bool_())


@lru_cache(maxsize=256)
def _schema(text: bytes) -> Schema | str | None:
    """Return the schema in its JSON form, or what is wrong with it."""
    try:
        return connect_schema(loaded(text))
    except RecordError as error:
        return error.problem
    except ValueError as error:
        return f"{NOT_JSON}{error}"


def _taken_apart(text: bytes) -> tuple[Schema | str | None, bytes | None]:
    """Return schema and payload of an envelope of any form, or what is wrong with it."""
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
