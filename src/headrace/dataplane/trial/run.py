"""Runs a chain on a few records, all steps at once, and tells what each step made."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.chain import apply_chain
from headrace.dataplane.failures import translate
from headrace.dataplane.records import RecordFrame
from headrace.dataplane.trial.given import read_given
from headrace.dataplane.trial.told import natives, record_json
from headrace.sdk import HeadraceError, RecordError
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.struct_exprs import has_variant, texts_of_variants, variants_of_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from headrace.dataplane.chain import Step
    from headrace.dataplane.trial.given import Given, Kind
    from headrace.sdk import RecordExpr, ValueExpr

__all__ = ["try_chain"]

_NUMBER = "__number"


def try_chain(
    spark: SparkSession, steps: Sequence[Step], records: Sequence[object]
) -> list[dict[str, Any]]:
    """Tell what each step makes of each record; nothing is read or written.

    Records of one schema go through Spark together, all steps in one plan, as in a batch.

    Args:
        spark: The session.
        steps: The chain.
        records: Records as `headrace.dataplane.trial.given` describes them.

    Returns:
        For each record ``{"steps": [...]}`` with one of ``record``, ``dropped`` (the alias of
        the step) and ``error`` (``{"class", "message"}``); a step is ``{"name"}`` with one of
        the same three. Steps after a record was dropped or rejected are not listed.
    """
    results: list[dict[str, Any]] = [{} for _ in records]
    found: dict[int, Given] = {}
    for number, record in enumerate(records):
        try:
            found[number] = read_given(record)
        except RecordError as error:
            results[number] = {"steps": [], "error": _error(error)}
    groups: dict[Kind, list[tuple[int, Given]]] = defaultdict(list)
    kinds = [given.kind for given in found.values()]
    for number, given in found.items():
        groups[given.kind.completed(kinds)].append((number, given))
    for kind, members in groups.items():
        rows = [given.row for _, given in members]
        told = _Trial(spark, kind, steps).outcomes(rows)
        for (number, _), outcome in zip(members, told, strict=True):
            results[number] = outcome
    return results


@dataclass(frozen=True)
class _Laid:
    """The steps laid over the records of one kind.

    Args:
        records: The records after the last step; each step's outcome is kept in a column.
        shapes: The shape after each step.
        failure: Why the step after the last cannot take these records.
    """

    records: RecordFrame
    shapes: tuple[RecordExpr, ...] = ()
    failure: HeadraceError | None = None


@dataclass(frozen=True)
class _Trial:
    spark: SparkSession
    kind: Kind
    steps: Sequence[Step]

    def outcomes(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            return self.run(rows)
        except (PySparkException, Py4JError) as error:
            # Spark failed at one of the records: each goes alone, so the others are told.
            if len(rows) > 1:
                return [outcome for row in rows for outcome in self.outcomes([row])]
            return [self._failed(rows, translate(error, "trying a record"))]

    def run(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        laid = self._laid(rows)
        kept = laid.records.kept
        # toArrow() itself fails at a map inside a struct, which it casts to its own type.
        frame: Any = laid.records.frame.select(*kept)
        table = pa.Table.from_batches(frame._collect_as_arrow())  # noqa: SLF001
        cells = {name: natives(table[name].combine_chunks()) for name in kept}
        outcomes: list[dict[str, Any]] = [{} for _ in rows]
        for place, number in enumerate(cells[_NUMBER]):
            states = [cells[name][place] for name in kept[1:]]
            outcomes[number] = self._told(laid, states)
        return outcomes

    def _failed(self, rows: list[dict[str, Any]], error: HeadraceError) -> dict[str, Any]:
        """Return the outcome of a record at which Spark fails, by finding the step."""
        for count in range(len(self.steps) - 1, -1, -1):
            before = _Trial(self.spark, self.kind, self.steps[:count])
            try:
                (outcome,) = before.run(rows)
            except (PySparkException, Py4JError) as earlier:
                error = translate(earlier, "trying a record")
            else:
                return _ended(outcome, self.steps[count].transform.alias, error)
        return {"steps": [], "error": _error(error)}

    def _laid(self, rows: list[dict[str, Any]]) -> _Laid:
        frame = self.spark.createDataFrame(self.kind.table(rows))
        for part, of in (("key", self.kind.key), ("value", self.kind.value)):
            if of.schema is not None and has_variant(of.schema):
                frame = frame.withColumn(part, F.expr(variants_of_texts(part, of.schema)))
        records = RecordFrame(frame, self.kind.shape(), kept=(_NUMBER,))
        records = _with_state(records, "__given")
        shapes = [records.shape]
        for number, step in enumerate(self.steps):
            try:
                records = _with_state(apply_chain(records, [step]), f"__step{number}")
            except HeadraceError as error:
                return _Laid(records, tuple(shapes), error)
            shapes.append(records.shape)
        return _Laid(records, tuple(shapes))

    def _told(self, laid: _Laid, states: list[dict[str, Any]]) -> dict[str, Any]:
        given, *after = zip(states, laid.shapes, strict=True)
        fate = _fate(*given)
        told = []
        for step, (state, shape) in zip(self.steps, after, strict=False):
            fate = _fate(state, shape)
            told.append({"name": step.transform.alias, **fate})
            if "record" not in fate:
                return {"steps": told, **fate}
        if laid.failure is None:
            return {"steps": told, **fate}
        failed = self.steps[len(after)]
        return _ended({"steps": told}, failed.transform.alias, laid.failure)


def _with_state(records: RecordFrame, name: str) -> RecordFrame:
    """Keep what the record is now in a column of its own."""
    shape = records.shape
    cells = {
        "key": _plain(shape.key),
        "value": _plain(shape.value),
        "topic": shape.topic,
        "partition": shape.partition,
        "headers": shape.headers,
        "timestamp": shape.timestamp,
        "dropped": shape.dropped or "CAST(NULL AS STRING)",
        "error": shape.error or f"CAST(NULL AS {ERROR_TYPE})",
    }
    pairs = ", ".join(f"'{cell}', {sql}" for cell, sql in cells.items())
    frame = records.frame.selectExpr("*", f"named_struct({pairs}) AS {name}")
    return replace(records, frame=frame, kept=(*records.kept, name))


def _plain(part: ValueExpr) -> str:
    """Return SQL for a part as Arrow can have it: variants are JSON texts there."""
    return part.sql() if part.schema is None else texts_of_variants(part.sql(), part.schema)


def _fate(state: dict[str, Any], shape: RecordExpr) -> dict[str, Any]:
    if state["error"] is not None:
        error = state["error"]
        return {"error": {"class": error["exception"], "message": error["message"]}}
    if state["dropped"] is not None:
        return {"dropped": state["dropped"]}
    return {"record": record_json(state, shape.key, shape.value)}


def _ended(outcome: dict[str, Any], alias: str, error: HeadraceError) -> dict[str, Any]:
    if "dropped" in outcome or "error" in outcome:
        return outcome
    told = {"error": _error(error)}
    return {"steps": [*outcome["steps"], {"name": alias, **told}], **told}


def _error(error: HeadraceError) -> dict[str, str]:
    where = f"{error.field}: " if error.field else ""
    return {"class": type(error).__name__, "message": f"{where}{error.problem}"}
