"""Transfers frames to Python and back: null lists, and records as objects.

Spark writes each null of a list or map through Arrow's `ListVector.setNull`, which rewrites the
offsets of all nulls before it: a batch of 65,536 records without headers costs 300 microseconds
per record, while empty lists cost 2. So null lists are sent as empty lists, together with masks
of the nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.records import in_workers
from headrace.sdk import Header, Record, Schema, Struct, Type
from headrace.sdk.sqltext import literal, quote

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


_NULLS = "__nulls"


def map_in_arrow(frame: DataFrame, run: Run, schema: T.StructType | str) -> DataFrame:
    """Return what ``frame.mapInArrow`` returns; ``run`` gets the same batches.

    Lists within lists are not changed.
    """
    masks: list[str] = []
    columns, nodes = [], {}
    for field in frame.schema.fields:
        name = quote(field.name)
        sql, node = _node(name, field.dataType, masks, nullable=field.nullable)
        columns.append(f"{sql} AS {name}" if node else name)
        if node is not None:
            nodes[field.name] = node
    if not nodes:
        return in_workers(frame, run, schema)
    pairs = ", ".join(f"'n{number}', {mask}" for number, mask in enumerate(masks))
    masked = frame.selectExpr(*columns, f"named_struct({pairs}) AS {_NULLS}")
    return in_workers(masked, _Restoring(run, nodes), schema)


@dataclass(frozen=True)
class _Node:
    """A list or map, or a struct that contains some.

    Args:
        mask: The number of the node's null mask; None if the node is never null.
        parts: The nodes among a struct's fields, by name.
    """

    mask: int | None
    parts: Mapping[str, _Node]

    def restored(self, array: pa.Array, masks: pa.StructArray) -> pa.Array:
        if self.parts:
            children, fields = [], []
            for number, field in enumerate(array.type):
                child, node = array.field(number), self.parts.get(field.name)
                if node is not None:
                    child = node.restored(child, masks)
                    field = pa.field(field.name, child.type)  # noqa: PLW2901 - the same, nullable
                children.append(child)
                fields.append(field)
            array = pa.StructArray.from_arrays(children, fields=fields)
        if self.mask is None or not pc.any(masks.field(self.mask)).as_py():
            return array
        return pc.if_else(masks.field(self.mask), pa.scalar(None, array.type), array)


@dataclass(frozen=True)
class _Restoring:
    """Restores the nulls of the batches on executors."""

    run: Run
    nodes: Mapping[str, _Node]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.run(self._restored(batch) for batch in batches)

    def _restored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        masks = batch.column(batch.num_columns - 1)
        arrays, fields = [], []
        for field, array in zip(list(batch.schema)[:-1], batch.columns, strict=False):
            node = self.nodes.get(field.name)
            own = array if node is None else node.restored(array, masks)
            arrays.append(own)
            fields.append(field if node is None else pa.field(field.name, own.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _node(
    sql: str, kind: T.DataType, masks: list[str], *, nullable: bool
) -> tuple[str, _Node | None]:
    """Return SQL of a value without null lists, and the node that restores the nulls."""
    if isinstance(kind, T.ArrayType | T.MapType):
        if not nullable:
            return sql, None
        masks.append(f"{sql} IS NULL")
        empty = "array()" if isinstance(kind, T.ArrayType) else "map()"
        return f"coalesce({sql}, {empty})", _Node(len(masks) - 1, {})
    if not isinstance(kind, T.StructType):
        return sql, None
    pairs, parts = [], {}
    for field in kind.fields:
        own = f"{sql}.{quote(field.name)}"
        # In a null struct, the lists are also null.
        part, node = _node(own, field.dataType, masks, nullable=nullable or field.nullable)
        pairs.append(f"{literal(field.name)}, {part}")
        if node is not None:
            parts[field.name] = node
    if not parts:
        return sql, None
    mask = None
    if nullable:
        masks.append(f"{sql} IS NULL")
        mask = len(masks) - 1
    return f"named_struct({', '.join(pairs)})", _Node(mask, parts)


def records_of(
    rows: pa.RecordBatch, schema: Schema | None, key_schema: Schema | None
) -> list[Record]:
    """Return a record for each row of the record columns; costs about 10 µs per record.

    Args:
        rows: Columns ``value``, ``headers``, ``timestamp``, ``topic`` and ``partition``,
            and ``key`` if records have one.
        schema: The values' schema.
        key_schema: The keys' schema.
    """
    return [
        Record(
            topic=row["topic"],
            key=_value(row.get("key"), key_schema),
            key_schema=key_schema,
            value=_value(row["value"], schema),
            value_schema=schema,
            partition=row["partition"],
            headers=tuple(Header(h["key"], h["value"]) for h in row["headers"] or ()),
            timestamp=row["timestamp"],
        )
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


def _value(value: Any, schema: Schema | None) -> Any:
    if value is None or schema is None or schema.type is not Type.STRUCT:
        return value
    return Struct.of(schema, value)
