"""What Spark's Python workers do for a step that is code of Arrow batches or of records."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.rows import header_rows
from headrace.dataplane.python_frames import records_of
from headrace.sdk import ArrowTransform, RecordError, RecordTransform, RetriableError, Type
from headrace.sdk import Schema as RecordSchema
from headrace.sdk.arrow import conform, to_array, to_arrow
from headrace.sdk.struct_exprs import check_variants

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = ("key", "value", "headers", "timestamp", "topic", "partition")
_CHANGED = ("key", "value", "headers", "timestamp", "topic")
_AT_ONCE = 1000
"""How many records are objects at a time."""


def takes_spared(output: RecordSchema, value: RecordSchema) -> bool:
    """Return whether values that a predicate spares fit what a step makes of the others.

    They do where the step keeps all fields and adds only such as may be null.
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
    """What became of some rows: ``kept`` has their numbers in ``row``."""

    kept: list[pa.RecordBatch]
    failed: dict[int, Exception]


@dataclass(frozen=True)
class CodeRows:
    """Runs a step's code over rows. It is pickled, and used on executors.

    Args:
        transform: The code.
        value: The values' schema before the step.
        key: The keys' schema.
        output: The values' schema after it.
    """

    transform: ArrowTransform | RecordTransform
    value: RecordSchema
    key: RecordSchema | None
    output: RecordSchema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch after the step, without its column ``applies``."""
        with _opened(self.transform):
            for batch in batches:
                yield self._through(batch)

    def _work(self, rows: pa.RecordBatch) -> Worked:
        if isinstance(self.transform, ArrowTransform):
            return self._arrow(self.transform, rows)
        return self._records(self.transform, rows)

    def _through(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        index = np.flatnonzero(batch.column("applies").to_numpy(zero_copy_only=False))
        names = [name for name in RECORD if name in batch.schema.names]
        some = batch.take(pa.array(index)).select(names)
        worked = self._work(some.append_column("row", pa.array(np.arange(len(index)))))
        rows = [part.column("row").to_numpy() for part in worked.kept]
        returned = index[np.concatenate([*rows, np.array([], dtype=np.int64)]).astype(np.int64)]
        if len(np.unique(returned)) != len(returned):
            raise RecordError(problem="A transform gave a row twice.", fix="Keep one of each.")
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
            kind = _arrow(self.output)
            if takes_spared(self.output, self.value):
                before = _conformed(before, self.output)
            else:  # a predicate spares none then, and the others are gone or rejected
                before = pa.nulls(len(before), kind)
        after = [part.column(name) for part in worked.kept]
        return pa.concat_arrays([before, *(_as(a, kind) for a in after)]).take(take)

    def _errors(self, errors: pa.Array, bad: dict[int, Exception]) -> pa.Array:
        if not bad:
            return errors
        rows = errors.to_pylist()
        for at, error in bad.items():
            kind = type(error)
            rows[at] = {
                "stage": "TRANSFORMATION",
                "plugin": f"{self.transform.alias} ({self.transform.title})",
                "exception": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
                "message": getattr(error, "problem", None) or str(error),
                "raw": None,
            }
        return pa.array(rows, errors.type)

    def _arrow(self, transform: ArrowTransform, rows: pa.RecordBatch) -> Worked:
        """Run an Arrow function, over halves of what it fails on."""
        kept, failed = [], {}
        waiting = [rows] if rows.num_rows else []
        while waiting:
            some = waiting.pop()
            try:
                kept.append(self._fitted(some, transform.transform(some)))
            except RetriableError:
                raise
            except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                if some.num_rows == 1:
                    failed[some.column("row")[0].as_py()] = error
                    continue
                middle = some.num_rows // 2
                waiting += [some.slice(middle), some.slice(0, middle)]
        return Worked(kept, failed)

    def _fitted(self, rows: pa.RecordBatch, after: pa.RecordBatch) -> pa.RecordBatch:
        """Return what a function gave, with all columns and the declared types."""
        names = after.schema.names
        if "row" not in names:
            if after.num_rows != rows.num_rows:
                raise RecordError(
                    problem=f"A function gave {after.num_rows} rows for {rows.num_rows}.",
                    fix="Return the column row as well, so that it is known which are left.",
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
        """Return values of the declared type, in which texts for variants are JSON."""
        fitted = _conformed(values, self.output)
        check_variants(fitted, self.output)
        return fitted

    def _records(self, transform: RecordTransform, rows: pa.RecordBatch) -> Worked:
        kept: list[pa.RecordBatch] = []
        failed: dict[int, Exception] = {}
        for start in range(0, rows.num_rows, _AT_ONCE):
            some = rows.slice(start, _AT_ONCE)
            done: list[tuple[int, Any]] = []
            for at, record in enumerate(records_of(some, self.value, self.key), start):
                try:
                    after = transform.transform(record)
                    if after is not None:
                        done.append((at, after))
                except RetriableError:
                    raise
                except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                    failed[at] = error
            self._gather(done, rows, kept, failed)
        return Worked(kept, failed)

    def _gather(
        self,
        done: list[tuple[int, Any]],
        rows: pa.RecordBatch,
        kept: list[pa.RecordBatch],
        failed: dict[int, Exception],
    ) -> None:
        waiting = [done] if done else []
        while waiting:
            some = waiting.pop()
            try:
                kept.append(self._rows(some, rows))
            except Exception as error:  # noqa: BLE001 - values of any kind may not fit in any way
                if len(some) == 1:
                    failed[some[0][0]] = error
                    continue
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]

    def _rows(self, some: list[tuple[int, Any]], rows: pa.RecordBatch) -> pa.RecordBatch:
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


def _arrow(schema: RecordSchema) -> pa.DataType:
    return to_arrow(_value_only(schema)).field("value").type


def _value_only(schema: RecordSchema) -> RecordSchema:
    return RecordSchema.struct({"value": schema.replaced(optional=True)})


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow's own cast refuses a null struct whose fields are required.
    target = pa.schema([pa.field("it", kind)])
    return conform(pa.RecordBatch.from_pydict({"it": values}), target).column(0)


def _conformed(values: pa.Array, schema: RecordSchema) -> pa.Array:
    target = to_arrow(_value_only(schema))
    return conform(pa.RecordBatch.from_pydict({"value": values}), target).column(0)


@contextmanager
def _opened(transform: ArrowTransform | RecordTransform) -> Iterator[None]:
    try:
        transform.open()
        yield
    finally:
        transform.close()
