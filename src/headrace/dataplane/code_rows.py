"""Runs transforms of Python code: on frames, or on rows in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.capture.rows import header_rows
from headrace.dataplane.python_frames import map_in_arrow, records_of
from headrace.dataplane.records import RecordFrame, constant_text, with_texts, with_variants
from headrace.evolution.apply_arrow import Slices, sieve
from headrace.sdk import (
    ArrowTransform,
    CodeTransform,
    ConfigError,
    FrameTransform,
    RecordError,
    RecordExpr,
    RecordTransform,
    RetriableError,
    Schema,
    TransformBatch,
    Type,
    ValueExpr,
)
from headrace.sdk.arrow import conform, to_array, to_arrow_type
from headrace.sdk.sink import class_name
from headrace.sdk.sparktypes import to_spark_json
from headrace.sdk.sqltext import literal, quote
from headrace.sdk.struct_exprs import check_variants

RECORD = ("key", "value", "headers", "timestamp", "topic", "partition")
_CHANGED = ("key", "value", "headers", "timestamp", "topic")
_AT_ONCE = 1000
"""How many records are converted to Python objects at a time."""


def run_code(
    records: RecordFrame, transform: CodeTransform, condition: str, batch: TransformBatch
) -> RecordFrame:
    """Return the records after a transform that runs Python code."""
    shape, transform = records.shape, transform.running
    if shape.value.schema is None:
        return records
    output = transform.output(shape.value.schema)
    if condition != "true" and not takes_unchanged(output, shape.value.schema):
        raise ConfigError(
            problem="Records that the predicate skips do not fit the transform's schema.",
            field=f"transforms.{transform.alias}.predicate",
            fix="Make the transform keep all fields and add only optional fields, remove the "
            "predicate, or send these records to a topic of their own.",
        )
    columns = _columns(records) | {"applies": shape.alive(condition)}
    named = [f"{sql} AS {quote(name)}" for name, sql in columns.items()]
    before = records.frame.selectExpr(*named)
    after = _ran(transform, before, shape, output, batch)
    settled = {name: name for name in ("headers", "timestamp", "partition", "dropped", "error")}
    topic = constant_text(records.frame, shape.topic)
    return RecordFrame(
        after,
        RecordExpr(
            key=_part("key", shape.key, shape.key.schema),
            value=_part("value", shape.value, output),
            topic="topic" if topic is None or transform.routes else literal(topic),
            offset="offset" if shape.offset is not None else None,
            unfit=shape.unfit,
            shared=(),
            **settled,
        ),
        "position" if records.position else None,
        records.carried,
    )


def _ran(
    transform: CodeTransform,
    before: DataFrame,
    shape: RecordExpr,
    output: Schema,
    batch: TransformBatch,
) -> DataFrame:
    if isinstance(transform, FrameTransform):
        return transform.frame(before, batch).drop("applies")
    assert isinstance(transform, ArrowTransform | RecordTransform)
    assert shape.value.schema is not None
    rows = CodeRows(transform, shape.value.schema, shape.key.schema, output)
    before = with_texts(before, shape.value.schema, shape.key.schema)
    value = Schema.struct({"value": output.replaced(optional=True)})
    kind = T.StructType.fromJson(to_spark_json(value))["value"]
    fields = [
        kind if field.name == "value" else field
        for field in before.schema.fields
        if field.name != "applies"
    ]
    after = map_in_arrow(before, rows.run, T.StructType(fields))
    return with_variants(after, output.replaced(optional=True), shape.key.schema)


def _columns(records: RecordFrame) -> dict[str, str]:
    columns = records.parts() | records.outcome()
    if records.shape.key.schema is None:
        del columns["key"]
    if records.shape.offset is not None:
        columns["offset"] = records.shape.offset
    if records.position is not None:
        columns["position"] = records.position
    return columns | {name: name for name in records.carried}


def _part(column: str, before: ValueExpr, schema: Schema | None) -> ValueExpr:
    if schema is None:
        return before
    optional = schema.replaced(optional=True)
    return ValueExpr.of(column, optional, schemaless=before.schemaless)


def takes_unchanged(output: Schema, value: Schema) -> bool:
    """Return whether values that the step skips (by its predicate) fit its output schema.

    They fit if the step keeps all fields and adds only optional fields.
    """
    wide, narrow = output.replaced(optional=True), value.replaced(optional=True)
    if wide == narrow or not wide.type is narrow.type is Type.STRUCT:
        return wide == narrow
    added = {field.name: field.schema for field in wide.fields}
    for field in narrow.fields:
        same = field.schema, field.schema.replaced(optional=True)
        if added.pop(field.name, None) not in same:
            return False
    return all(schema.optional for schema in added.values())


@dataclass(frozen=True)
class Worked:
    """The result of some rows; the column ``row`` of ``after`` contains their row numbers."""

    after: list[pa.RecordBatch]
    failed: dict[int, Exception]


@dataclass(frozen=True)
class CodeRows:
    """Runs a step's code over rows. Pickled, and used on executors."""

    transform: ArrowTransform | RecordTransform
    value: Schema
    key: Schema | None
    output: Schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch after the step, without its column ``applies``."""
        try:
            self.transform.open()
            for batch in batches:
                yield self._through(batch)
        finally:
            self.transform.close()

    def _through(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        index = np.flatnonzero(batch.column("applies").to_numpy(zero_copy_only=False))
        names = [name for name in RECORD if name in batch.schema.names]
        some = batch.take(pa.array(index)).select(names)
        some = some.append_column("row", pa.array(np.arange(len(index))))
        if isinstance(self.transform, ArrowTransform):
            worked = self._arrow(self.transform, some)
        else:
            worked = self._records(self.transform, some)
        rows = [part.column("row").to_numpy() for part in worked.after]
        returned = index[np.concatenate([*rows, np.array([], dtype=np.int64)]).astype(np.int64)]
        if len(np.unique(returned)) != len(returned):
            raise RecordError(
                problem="A transform returned a row twice.", fix="Return each row once."
            )
        columns = {n: batch.column(n) for n in batch.schema.names if n != "applies"}
        take = np.arange(batch.num_rows)
        take[returned] = batch.num_rows + np.arange(len(returned))
        for name in (name for name in _CHANGED if name in columns):
            columns[name] = self._merged(name, columns[name], worked, pa.array(take))
        gone = np.zeros(batch.num_rows, dtype=bool)
        gone[index] = True
        gone[returned] = False
        bad = {int(index[row]): error for row, error in worked.failed.items()}
        gone[list(bad)] = False
        columns["dropped"] = pc.if_else(
            pa.array(gone), pa.scalar(self.transform.alias, pa.string()), columns["dropped"]
        )
        columns["error"] = self._errors(columns["error"], bad)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _merged(self, name: str, before: pa.Array, worked: Worked, take: pa.Array) -> pa.Array:
        kind = before.type
        if name == "value":
            kind = to_arrow_type(self.output)
            if takes_unchanged(self.output, self.value):
                before = _as(before, kind)
            else:  # no predicate then: all rows were transformed, dropped or rejected
                before = pa.nulls(len(before), kind)
        after = [part.column(name) for part in worked.after]
        return pa.concat_arrays([before, *(_as(a, kind) for a in after)]).take(take)

    def _errors(self, errors: pa.Array, bad: dict[int, Exception]) -> pa.Array:
        if not bad:
            return errors
        rows = errors.to_pylist()
        for at, error in bad.items():
            rows[at] = {
                "stage": "TRANSFORMATION",
                "plugin": f"{self.transform.alias} ({self.transform.title})",
                "exception": class_name(type(error)),
                "message": getattr(error, "problem", None) or str(error),
                "raw": None,
            }
        return pa.array(rows, errors.type)

    def _arrow(self, transform: ArrowTransform, rows: pa.RecordBatch) -> Worked:
        """Run an Arrow function; after a failure, retry with halves of the rows."""

        def run(some: Any) -> pa.RecordBatch:
            return self._fitted(some.batch, transform.transform(some.batch))

        # The author's code may raise anything.
        after, failed = sieve(Slices(rows), run, Exception)
        return Worked(after, dict(failed))

    def _fitted(self, rows: pa.RecordBatch, after: pa.RecordBatch) -> pa.RecordBatch:
        """Return the function's result with all columns and the declared types."""
        names = after.schema.names
        if "row" not in names:
            if after.num_rows != rows.num_rows:
                raise RecordError(
                    problem=f"A function returned {after.num_rows} rows for {rows.num_rows}.",
                    fix="Also return the column row, which identifies the rows that are left.",
                )
            after = after.append_column("row", rows.column("row"))
        first = rows.column("row")[0].as_py()
        at = pc.subtract(after.column("row"), first)
        stay = rows.take(at)
        columns = {
            name: (after if name in names else stay).column(name) for name in rows.schema.names
        }
        columns["value"] = self._checked(columns["value"])
        return pa.RecordBatch.from_pydict(columns)

    def _checked(self, values: pa.Array) -> pa.Array:
        """Return values of the declared type; checks that variant texts are valid JSON."""
        fitted = _as(values, to_arrow_type(self.output))
        check_variants(fitted, self.output)
        return fitted

    def _records(self, transform: RecordTransform, rows: pa.RecordBatch) -> Worked:
        after: list[pa.RecordBatch] = []
        failed: dict[int, Exception] = {}
        for start in range(0, rows.num_rows, _AT_ONCE):
            some = rows.slice(start, _AT_ONCE)
            done: list[tuple[int, Any]] = []
            for at, record in enumerate(records_of(some, self.value, self.key), start):
                try:
                    transformed = transform.transform(record)
                    if transformed is not None:
                        done.append((at, transformed))
                except RetriableError:
                    raise
                except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                    failed[at] = error
            # The conversion of arbitrary values may raise anything.
            fitting, bad = sieve(done, lambda some: self._rows(some, rows), Exception)
            after += fitting
            failed |= {done[at][0]: error for at, error in bad}
        return Worked(after, failed)

    def _rows(self, some: Sequence[tuple[int, Any]], rows: pa.RecordBatch) -> pa.RecordBatch:
        records = [record for _, record in some]
        optional = self.output.replaced(optional=True)
        columns: dict[str, Any] = {"row": pa.array([at for at, _ in some], pa.int64())}
        columns["value"] = to_array([record.value for record in records], optional)
        columns["value"] = self._checked(columns["value"])
        if self.key is not None:
            key = to_array([r.key for r in records], self.key.replaced(optional=True))
            columns["key"] = _as(key, rows.column("key").type)
        headers = [header_rows(record.headers) for record in records]
        columns["headers"] = pa.array(headers, rows.column("headers").type)
        times = [record.timestamp for record in records]
        columns["timestamp"] = pa.array(times, rows.column("timestamp").type)
        columns["topic"] = pa.array([record.topic for record in records], pa.string())
        return pa.RecordBatch.from_pydict(columns)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow's own cast fails for a null struct whose fields are required.
    target = pa.schema([pa.field("it", kind)])
    return conform(pa.RecordBatch.from_pydict({"it": values}), target).column(0)
