"""Takes a few records from a capture, for a preview; nothing is committed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.capture.capture import Gathering
from headrace.capture.rows import Sorter, fit
from headrace.dataplane.sources import SourceFrame
from headrace.sdk import Position, Schema
from headrace.sdk.arrow import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from headrace.capture.rows import Rejected
    from headrace.sdk import CaptureSource

PATIENCE_SECONDS = 5.0
"""How long a preview waits for records that have not come yet."""
_PAUSE_SECONDS = 0.1
_QUIET_POLLS = 3
"""Empty polls after the first records until no more are expected."""
_ERROR = pa.struct(
    [pa.field(name, pa.string()) for name in ("stage", "plugin", "exception", "message", "raw")]
)


def sample(spark: SparkSession, source: CaptureSource, topic: str, rows: int) -> SourceFrame:
    """Poll a started capture until there are ``rows`` records, or no more come.

    Records for another topic than the sample's first are left out. What cannot become a
    record has an ``error``. Without any record the frame is None.
    """
    sorter = Sorter(topic, lambda _: (None, None))
    topics, rejected = sorter.sort(_polled(source, rows).polls, datetime.now(UTC))
    tables = []
    if topics:
        name = topic if topic in topics else next(iter(topics))
        fields = [field for field in topics[name].schema().fields if field.name != "offset"]
        schema = to_arrow(Schema.struct({field.name: field.schema for field in fields}))
        batches, unfit = fit(name, topics[name], schema)
        rejected = [*rejected, *unfit]
        good = pa.Table.from_batches(batches, schema)
        tables.append(good.append_column("error", pa.nulls(good.num_rows, _ERROR)))
    if rejected:
        tables.append(_bad(rejected, tables[0].schema if tables else None))
    if not tables:
        return SourceFrame(None)
    table = pa.concat_tables(tables)
    return SourceFrame(spark.createDataFrame(table if rejected else table.drop("error")))


def _polled(source: CaptureSource, rows: int) -> Gathering:
    gathering = Gathering(Position())
    quiet = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while gathering.rows < rows and time.monotonic() < deadline:
        polled = source.poll()
        if polled:
            gathering.add(polled)
            quiet = 0
            continue
        quiet += 1
        if gathering.rows and quiet >= _QUIET_POLLS:
            break
        time.sleep(_PAUSE_SECONDS)
    return gathering


def _bad(rejected: Sequence[Rejected], schema: pa.Schema | None) -> pa.Table:
    if schema is None:
        schema = pa.schema([pa.field("value", pa.string()), pa.field("error", _ERROR)])
    errors = [
        {
            "stage": "TASK_POLL",
            "plugin": letter.topic,
            "exception": "RecordError",
            "message": letter.error,
            "raw": letter.value,
        }
        for letter in rejected
    ]
    rows = [{"error": error} for error in errors]
    return pa.Table.from_pylist(rows, schema)
