"""Moves values from one schema to another in Arrow, as ``apply_sql`` does in SQL.

Used where there is no Spark: in plugin hosts, and where packed rows are read and written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from headrace.evolution.apply_sql import NESTED, castable
from headrace.sdk import RecordError, RetriableError, Schema, Type
from headrace.sdk.arrow import (
    conform,
    entries,
    offsets,
    remapped,
    to_array,
    to_arrow,
    to_arrow_field,
    to_arrow_type,
)
from headrace.sdk.connectjson import to_string
from headrace.sdk.schema import VARIANT
from headrace.sdk.sqltext import sql_type

if TYPE_CHECKING:
    from headrace.evolution.targets import Move

T = TypeVar("T")
S = TypeVar("S")
E = TypeVar("E", bound=Exception)

_INT64_DIGITS = 19
_MOST_DIGITS = 38


def moved_array(move: Move, array: pa.Array, path: str = "") -> pa.Array:
    """Return the values in the target's type.

    ``array`` has exactly the Arrow type of ``move.source``. Raises RecordError: a value does
    not fit, and the target's type must not change. Other values may fit: the caller finds the
    bad values by bisection.
    """
    if move.strict and not move.target.optional and array.null_count:
        raise _misfit(path, f"{sql_type(move.target)} NOT NULL")
    if not move.is_needed or move.source is None:
        return array
    if move.members:
        return _struct(move, array, path)
    if move.item is not None:
        return _map(move, array, path) if move.key else _list(move, array, path)
    return _scalar(move, move.source, array, path)


def _struct(move: Move, array: pa.StructArray, path: str) -> pa.Array:
    if array.null_count:
        # A null struct has no fields to check.
        dense = _struct(move, array.drop_null(), path)
        present = array.is_valid()
        places = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return dense.take(pc.if_else(present, places, None))
    children, fields = [], []
    for member in move.members:
        target = member.move.target
        fields.append(to_arrow_field(member.name, target))
        if member.source is None:
            children.append(_absent(target, len(array)))
            continue
        child = pc.struct_field(array, [array.type.get_field_index(member.source)])
        children.append(moved_array(member.move, child, f"{path}.{member.name}".strip(".")))
    return pa.StructArray.from_arrays(children, fields=fields)


def _absent(schema: Schema, count: int) -> pa.Array:
    if schema.default is None:
        return pa.nulls(count, to_arrow_type(schema))
    return pa.repeat(to_array([schema.default], schema)[0], count)


def _list(move: Move, array: pa.ListArray, path: str) -> pa.Array:
    assert move.item is not None
    items = moved_array(move.item, array.flatten(), f"{path} item")
    kind = to_arrow_type(move.target)
    return pa.ListArray.from_arrays(offsets(array), items, type=kind, mask=array.is_null())


def _map(move: Move, array: pa.MapArray, path: str) -> pa.Array:
    assert move.item is not None
    assert move.key is not None
    pairs = entries(array)
    keys, values = pairs.flatten().flatten()
    keys = moved_array(move.key, keys, f"{path} key")
    values = moved_array(move.item, values, f"{path} item")
    return remapped(pairs, keys, values, to_arrow_type(move.target))


def _scalar(move: Move, source: Schema, array: pa.Array, path: str) -> pa.Array:
    target, kind = move.target, to_arrow_type(move.target)
    if target.name == VARIANT or (source.type in NESTED and target.type is Type.STRING):
        values = array.to_pylist(maps_as_pydicts="lossy")
        return pa.array([json_text(value) for value in values], pa.string())
    if array.type.equals(kind):
        return array
    if not castable(source, target):
        if move.strict and array.null_count < len(array):
            raise _misfit(path, sql_type(target))
        return pa.nulls(len(array), kind)
    if not move.strict:
        return _cast(array, kind, safe=False)
    try:
        there = _cast(array, kind)
        back = _cast(there, array.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _misfit(path, sql_type(target)) from error
    if not _is_same(back, array):
        raise _misfit(path, sql_type(target))
    return there


def _is_same(back: pa.Array, array: pa.Array) -> bool:
    same = pc.equal(back, array)
    if pa.types.is_floating(array.type):  # NaN is not equal to itself
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    return bool(pc.all(pc.fill_null(same, array.is_null())).as_py() is not False)


def _cast(array: pa.Array, kind: pa.DataType, *, safe: bool = True) -> pa.Array:
    if pa.types.is_string(kind):
        return _texts(array)
    if pa.types.is_timestamp(kind) and pa.types.is_string(array.type):
        return pc.assume_timezone(array.cast(pa.timestamp("us")), "UTC").cast(kind)
    if pa.types.is_integer(array.type) and pa.types.is_decimal(kind):
        # Arrow requires digits for all numbers of the type, regardless of the values.
        digits = min(_INT64_DIGITS + kind.scale, _MOST_DIGITS)
        array = array.cast(pa.decimal128(digits, kind.scale))
    return array.cast(kind, safe=safe)


def _texts(array: pa.Array) -> pa.Array:
    """Return values as text in Spark's format."""
    if pa.types.is_floating(array.type):
        short = pa.types.is_float32(array.type)
        # Arrow writes 1 for 1.0. Slow, but only used if a field's type has changed.
        texts = [to_string(value, float32=short) for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_timestamp(array.type):
        texts = pc.strftime(array, format="%Y-%m-%d %H:%M:%S")
        whole = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
        return pc.replace_substring_regex(whole, r"\.$", "")
    return array.cast(pa.string())


def json_text(value: Any) -> str | None:
    """Return a value as JSON; None for null."""
    if value is None:
        return None
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def _misfit(path: str, kind: str) -> RecordError:
    where = f"The field {path}" if path else "The value"
    return RecordError(f"{where} does not fit the target's {kind}, which does not change.")


Moves = Mapping[tuple[str, Schema], "Move"]
"""The move of rows to their target schema, by stream and current schema."""


def moved_rows(
    batch: pa.RecordBatch, move: Move
) -> tuple[list[pa.RecordBatch], list[tuple[int, RecordError]]]:
    """Return rows in the target's schema, and the number and the error of each misfit."""
    assert move.source is not None
    target = to_arrow(move.target.replaced(optional=False))
    rows = conform(batch, to_arrow(move.source.replaced(optional=False)))

    def moved(some: Any) -> pa.RecordBatch:
        fields = list(some.batch.schema)
        value = pa.StructArray.from_arrays(some.batch.columns, fields=fields)
        return conform(pa.RecordBatch.from_struct_array(moved_array(move, value)), target)

    return sieve(Slices(rows), moved, RecordError)


def sieve(
    items: Sequence[T], make: Callable[[Sequence[T]], S], refusal: type[E]
) -> tuple[list[S], list[tuple[int, E]]]:
    """Call ``make`` on slices of the items; isolate items that raise an error by bisection.

    Returns the results, in order, and the index and the error of each bad item. Raises
    RetriableError, which is not about items.
    """
    made: list[S] = []
    bad: list[tuple[int, E]] = []
    waiting = [(0, len(items))] if len(items) else []
    while waiting:
        start, end = waiting.pop()
        try:
            made.append(make(items[start:end]))
        except RetriableError:
            raise
        except refusal as error:
            if end - start == 1:
                bad.append((start, error))
                continue
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return made, bad


class Slices(Sequence[Any]):
    """An Arrow batch as a sequence that supports slices."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    @override
    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @override
    def __getitem__(self, index: Any) -> Slices:
        return Slices(self.batch.slice(index.start, index.stop - index.start))
