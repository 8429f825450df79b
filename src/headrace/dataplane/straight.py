"""Straight copies: rows that Python workers read and write, without a way through the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.dataplane.failures import not_tolerated
from headrace.dataplane.records import over_parts
from headrace.dataplane.sources import rejection
from headrace.model import Counts
from headrace.sdk import ArrowParts, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.sink import ArrowWrite

_COUNTED = "rows BIGINT, rejected BIGINT, first STRING"


def copy_straight(
    spark: SparkSession, arrow: ArrowParts, schema: Schema, to: ArrowWrite, *, tolerant: bool
) -> Counts:
    """Write the rows of all parts; only counts go through the JVM.

    Raises ToleranceExceededError: a row is rejected, and none is tolerated.
    """
    target, read, write, plugin = to_arrow(schema), arrow.read, to.write, arrow.plugin

    def copied(part: tuple[int, Any]) -> Iterator[pa.RecordBatch]:
        number, payload = part
        written, rejected = 0, 0
        first: str | None = None

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal written, rejected, first
            for batch, bad in read(payload):
                if bad and first is None:
                    first = rejection(plugin, *bad[0])
                rejected += len(bad)
                if rejected and not tolerant:
                    return
                written += batch.num_rows
                if batch.num_rows:
                    yield conform(batch, target)

        write(number, rows())
        yield pa.RecordBatch.from_pydict(
            {"rows": [written], "rejected": [rejected], "first": pa.array([first], pa.string())}
        )

    found = over_parts(spark, list(enumerate(arrow.parts)), copied, _COUNTED).collect()
    firsts = [row["first"] for row in found if row["first"] is not None]
    if firsts and not tolerant:
        raise not_tolerated(firsts[0])
    written, rejected = (sum(row[name] for row in found) for name in ("rows", "rejected"))
    return Counts(read=written + rejected, written=written, rejected=rejected)
