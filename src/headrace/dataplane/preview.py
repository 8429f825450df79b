"""Shows a few records at the source and after each step, without writing anything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.capture.capture_thread import Gathering
from headrace.capture.rows import Rejected, Sorter, fit
from headrace.dataplane.chain import Step, chain_frames
from headrace.dataplane.failures import translated
from headrace.dataplane.records import ARROW_ERROR, RecordFrame, record_frame, rejection
from headrace.dataplane.sources import SourceFrame, SourceReader, frame_of_rows
from headrace.sdk import CaptureSource, Position, ReadLimit, Schema
from headrace.sdk.arrow import to_arrow
from headrace.sdk.schema import VARIANT
from headrace.sdk.sparktypes import to_spark_json

PATIENCE_SECONDS = 5.0
"""How long a preview waits for records to arrive."""
_PAUSE_SECONDS = 0.1
_QUIET_POLLS = 3
"""After this many empty polls since the last records, the preview stops polling."""


def sample(spark: SparkSession, source: CaptureSource, topic: str, rows: int) -> SourceFrame:
    """Poll a started capture until there are ``rows`` records, or no more arrive.

    Omits records of topics other than the sample's first. Input that cannot become a record
    has an ``error``. The frame is None if there is no record.
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
        tables.append(good.append_column("error", pa.nulls(good.num_rows, ARROW_ERROR)))
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
        schema = pa.schema([pa.field("value", pa.string()), pa.field("error", ARROW_ERROR)])
    errors = [rejection(letter.topic, letter.value, letter.error) for letter in rejected]
    rows = [{"error": error} for error in errors]
    return pa.Table.from_pylist(rows, schema)


@dataclass(frozen=True)
class Stage:
    """The records at one stage of the flow.

    Args:
        name: ``source``, or the alias of the preceding step.
        fields: Name and type of the value's fields, or ``value`` for a scalar.
        records: ``{"key", "value", "dropped", "error"}`` of each record that reaches the
            stage; dropped and error only if it ends here.
        reader: The reader of the source and the reason for its choice, if there are several.
    """

    name: str
    fields: dict[str, str]
    records: list[dict[str, Any]]
    reader: str | None = None


def preview(
    spark: SparkSession,
    source: SourceReader | CaptureSource,
    topic: str,
    steps: Sequence[Step],
    rows: int,
) -> list[Stage]:
    """Return the first ``rows`` records at the source and after each step.

    Reads from the source's beginning, regardless of the task's position. A capture must be
    started; polled records are not acknowledged, so the system keeps them.
    """
    with translated("reading a preview"):
        data = _data(spark, source, topic, rows)
        frame = data.frame
        if data.streams:
            topic, frame = data.streams[0].stream, frame_of_rows(spark, data.streams[0].rows)
        if data.packed is not None and (found := data.packed.streams(spark)):
            topic = found[0].name
            frame = data.packed.rows(spark, found[0])
        if frame is None:
            return []
        few = frame.limit(rows)
        # Read once, so that every stage shows the same rows.
        frame = spark.createDataFrame(few.collect(), few.schema)
        frames = chain_frames(record_frame(frame, topic), steps)
        names = ["source", *(step.transform.alias for step in steps)]
        stages = [_stage(name, records) for name, records in zip(names, frames, strict=True)]
        return [*_reached([replace(stages[0], reader=data.reader), *stages[1:]])]


def _reached(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Yield the stages without the records that have ended at an earlier one."""
    ended: set[int] = set()
    for stage in stages:
        numbered = [(n, each) for n, each in enumerate(stage.records) if n not in ended]
        yield replace(stage, records=[each for _, each in numbered])
        ended.update(n for n, each in numbered if "dropped" in each or "error" in each)


def _data(
    spark: SparkSession, source: SourceReader | CaptureSource, topic: str, rows: int
) -> SourceFrame:
    if isinstance(source, CaptureSource):
        return sample(spark, source, topic, rows)
    start, few = Position(), ReadLimit(rows=rows)
    end = source.latest(start, few)
    if end == start:
        # New data may have to settle first; a call without a limit waits for that.
        source.latest(start, ReadLimit())
        end = source.latest(start, few)
    return source.read(spark, start, end)


def _stage(name: str, records: RecordFrame) -> Stage:
    shape = records.shape
    columns = {
        "key": shape.key.sql(),
        "value": shape.value.sql(),
        "dropped": shape.dropped,
        "error": shape.error,
    }
    chosen = [f"{sql} AS {name}" for name, sql in columns.items() if sql is not None]
    rows = records.frame.selectExpr(f"to_json(struct({', '.join(chosen)}))").collect()
    return Stage(name, _fields(records), [_record(_parsed(row[0])) for row in rows])


def _parsed(text: str) -> Any:
    """Parse JSON; fractions that a float cannot represent exactly become strings."""
    return json.loads(text, parse_float=_fraction)


def _fraction(text: str) -> float | str:
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


def _record(record: dict[str, Any]) -> dict[str, Any]:
    return {"key": record.get("key"), "value": record.get("value")} | {
        name: record[name] for name in ("dropped", "error") if record.get(name) is not None
    }


def _fields(records: RecordFrame) -> dict[str, str]:
    part = records.shape.value
    if part.schema is None:
        return {}
    schema = part.schema if part.is_struct else Schema.struct({"value": part.schema})
    kinds = {f["name"]: f["type"] for f in to_spark_json(schema)["fields"]}
    types = {n: kind if isinstance(kind, str) else kind["type"] for n, kind in kinds.items()}
    variants = {f.name: "variant" for f in schema.fields if f.schema.name == VARIANT}
    return types | variants
