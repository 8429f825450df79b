"""A source of tables whose schemas are known before they are read, in files of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.integration.dataplane.flow_doubles import place, row_of

from headrace.sdk import (
    ArrowParts,
    Position,
    ReadLimit,
    Schema,
    StreamFrameSource,
    StreamRows,
    Type,
)
from headrace.sdk.arrow import to_array, to_arrow, to_batch
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]
PLUGIN = "tests.Tables"


@dataclass(frozen=True)
class Table:
    """The rows of a table in a range.

    Args:
        parts: Its rows; a text is one that cannot be read.
        raw: Whether it can also be read as bytes, by the name of their format.
    """

    schema: Schema
    parts: Sequence[Sequence[Row | str]]
    count: int | None = None
    raw: str | None = None


def read(
    schema: Schema, readings: Path, part: Sequence[Row | str]
) -> Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]:
    """Read a part, and leave a trace of that."""
    (readings / uuid.uuid4().hex).touch()
    good = [row for row in part if not isinstance(row, str)]
    bad = [(row, "Not a row.") for row in part if isinstance(row, str)]
    if schema.type is Type.STRUCT:
        yield to_batch(good, schema), bad
    else:
        values = [row["value"] for row in good]
        yield pa.RecordBatch.from_arrays([to_array(values, schema)], ["value"]), bad


def read_raw(part: Sequence[Row | str]) -> Iterator[bytes]:
    for row in part:
        if isinstance(row, str):
            raise OSError(row)
        yield json.dumps(row).encode() + b"\n"


@dataclass
class Tables(StreamFrameSource):
    """Each position brings the next batch of some tables.

    Args:
        readings: A folder that gets a file for each part that is read as Arrow.
        framed: Whether Spark reads them, from frames.
    """

    batches: Sequence[Mapping[str, Table]]
    readings: Path
    framed: bool = False
    keyed: bool = False
    asked: list[tuple[int, int]] = field(default_factory=list)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(min(row_of(start) + 1, len(self.batches)))

    def streams(
        self, spark: SparkSession, start: Position, end: Position
    ) -> Sequence[StreamRows]:
        self.asked.append((row_of(start), row_of(end)))
        (tables,) = self.batches[row_of(start) : row_of(end)]
        return [
            StreamRows(
                name,
                self._frame(spark, table) if self.framed else self._parts(table),
                table.count,
            )
            for name, table in tables.items()
            if table.parts or not self.framed
        ]

    def _parts(self, table: Table) -> ArrowParts:
        reader = partial(read, table.schema, self.readings)
        raw = {} if table.raw is None else {"other": read_raw, table.raw: read_raw}
        return ArrowParts(table.schema, table.parts, reader, PLUGIN, raw)

    def _frame(self, spark: SparkSession, table: Table) -> DataFrame:
        every = [row for part in table.parts for row in part]
        good = [row for row in every if not isinstance(row, str)]
        rows = pa.Table.from_batches([to_batch(good, table.schema)], to_arrow(table.schema))
        types: Any = type(spark.range(0).schema)
        frame = spark.createDataFrame(rows, schema=types.fromJson(to_spark_json(table.schema)))
        key = ["'k' AS key"] if self.keyed else []
        frame = frame.selectExpr(
            "struct(*) AS value", f"CAST(NULL AS {ERROR_TYPE}) AS error", *key
        )
        for text in (row for row in every if isinstance(row, str)):
            error = (
                f"named_struct('stage', 'TASK_POLL', 'plugin', {literal(PLUGIN)}, 'exception', "
                f"'RecordError', 'message', 'Not a row.', 'raw', {literal(text)}) AS error"
            )
            frame = frame.union(spark.range(1).selectExpr("NULL AS value", error, *key))
        return frame

    def read_parts(self) -> int:
        """Return how often a part was read, and forget it."""
        found = [*self.readings.iterdir()]
        for file in found:
            file.unlink()
        return len(found)


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ORDERS = Schema.struct(
    {
        "id": Schema.int64(),
        "price": Schema.decimal(2, precision=12),
        "at": Schema.timestamp(optional=True),
        "tags": Schema.array(Schema.string(optional=True), optional=True),
    }
)
PEOPLE = Schema.struct(
    {"name": Schema.string(), "born": Schema.date(optional=True), "photo": Schema.bytes()}
)


def order(number: int, **more: Any) -> dict[str, Any]:
    tags = ["a", None] if number % 2 else None
    return {"id": number, "price": Decimal(number) / 4, "at": NOON, "tags": tags, **more}


def person(name: str) -> dict[str, Any]:
    return {"name": name, "born": date(1990, 1, 2), "photo": name.encode()}


FIRST = {
    "orders": Table(ORDERS, [[order(1), order(2)], [order(3)]]),
    "people": Table(PEOPLE, [[person("Ann")]]),
    "none": Table(PEOPLE, []),
}
"""The first batch of two tables, and one without rows."""
WIDER = ORDERS.with_fields(
    {**{f.name: f.schema for f in ORDERS.fields}, "note": Schema.string(optional=True)}
)
SECOND = {
    "orders": Table(WIDER, [[order(4, note="new")]]),
    "people": Table(PEOPLE, [[person("Bob")]]),
}
"""The second, in which one has another column."""
ALL_ORDERS = [*(order(n) | {"note": None} for n in (1, 2, 3)), order(4, note="new")]


def with_bad(tables: Mapping[str, Table]) -> Mapping[str, Table]:
    """Return tables, of which the first has a row that cannot be read."""
    (name, table), *_ = tables.items()
    parts = [[*table.parts[0], "oops"], *table.parts[1:]]
    return {**tables, name: replace(table, parts=parts)}
