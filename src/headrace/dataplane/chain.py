"""A chain of transforms, laid over a record frame as one Spark stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from headrace.dataplane.code_steps import run_code
from headrace.sdk import (
    CodeTransform,
    ConfigError,
    Part,
    Shape,
    TransformBatch,
    TypedTransform,
    UnfitRecordError,
    sql_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataplane.records import RecordFrame
    from headrace.sdk import Predicate, Transform, Types

_FIRST = TransformBatch(1, "", datetime.fromtimestamp(0, UTC))
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"


# Conditions that are known before any record is seen, such as one on a constant topic.
_SAME_FOR_ALL = {"true": True, "false": False}


@dataclass(frozen=True)
class Step:
    """A transform with the predicate that limits it.

    Args:
        transform: What to do.
        predicate: To which records; None for all.
        negate: Whether to do it where the predicate is false.
    """

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    @property
    def uses_names(self) -> bool:
        """Return whether the step holds SQL that names fields."""
        return self.transform.uses_names or bool(self.predicate and self.predicate.uses_names)

    def apply(self, shape: Shape, types: Types | None = None) -> Shape:
        """Return the shape after this step; records that do not fit are rejected in it.

        A TypedTransform needs ``types``.
        """
        condition = self.condition(shape)
        if condition == "false":
            return shape
        transform = self.transform
        try:
            if isinstance(transform, TypedTransform):
                assert types is not None
                after = transform.apply_typed(shape, types)
            else:
                after = transform.apply(shape)
        except UnfitRecordError as error:
            after = replace(transform.refusing(shape, error), unfit=True)
        if condition == "true":
            return after
        return _where(condition, after, shape, self.transform.alias)

    def condition(self, shape: Shape) -> str:
        """Return SQL that is true for the records that the step is meant for."""
        if self.predicate is None:
            return "true"
        condition = self.predicate.condition(shape)
        if condition in _SAME_FOR_ALL:
            return "true" if _SAME_FOR_ALL[condition] is not self.negate else "false"
        return f"NOT ({condition})" if self.negate else f"({condition})"


def apply_chain(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> RecordFrame:
    """Return the records after all steps, which belong to ``batch``.

    Builds expressions; a job runs only where a step of code needs one for its state.
    Without a batch the records are taken for a first one.
    """
    for step in steps:
        records = _apply(records, step, batch or _FIRST)
    return records


def _apply(records: RecordFrame, step: Step, batch: TransformBatch) -> RecordFrame:
    before = records.named() if step.uses_names else records
    try:
        if isinstance(step.transform, CodeTransform):
            return _run_code(before, step, step.transform, batch)
        shape = step.apply(before.shape, before.types)
        if shape.shared and not before.is_flat:
            # A struct that goes through two projections is made anew for each record.
            before = before.named()
            shape = step.apply(before.shape, before.types)
        return replace(before, shape=shape).settled()
    except AnalysisException as error:
        wrong = _not_analysed(before, step, error)
    except ConfigError as error:
        wrong = error
    if not before.shape.unfit:
        raise wrong
    # A step before has rejected records, so these fields are not those that this step was
    # made for: that it does not fit says nothing about its configuration.
    refusal = UnfitRecordError(message=wrong.problem, exception=_CONFIG_EXCEPTION)
    return replace(before, shape=step.transform.refusing(before.shape, refusal)).settled()


def _run_code(
    before: RecordFrame, step: Step, transform: CodeTransform, batch: TransformBatch
) -> RecordFrame:
    try:
        return run_code(before, transform, step.condition(before.shape), batch)
    except UnfitRecordError as error:
        refused = transform.refusing(before.shape, error)
        return replace(before, shape=replace(refused, unfit=True)).settled()


def _not_analysed(before: RecordFrame, step: Step, error: AnalysisException) -> ConfigError:
    message = (error.getMessage() or str(error)).partition("\n")[0]
    wrong = ConfigError(
        problem=f"Spark cannot run this step: {message}",
        field=f"transforms.{step.transform.alias}",
        fix=f"The fields here are: {', '.join(before.shape.value.fields) or 'none'}.",
    )
    wrong.__cause__ = error
    return wrong


def chain_frames(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> list[RecordFrame]:
    """Return the records before the first step and after each, for a preview."""
    frames = [records]
    for step in steps:
        frames.append(_apply(frames[-1], step, batch or _FIRST))
    return frames


def _where(condition: str, after: Shape, before: Shape, alias: str) -> Shape:
    def choose(new: str | None, old: str | None) -> str | None:
        if new == old or new is None:
            return new
        other = old if old is not None else "NULL"
        return f"CASE WHEN {condition} THEN {new} ELSE {other} END"

    return Shape(
        key=_part_where(condition, after.key, before.key, alias),
        value=_part_where(condition, after.value, before.value, alias),
        topic=choose(after.topic, before.topic) or before.topic,
        partition=choose(after.partition, before.partition) or before.partition,
        headers=choose(after.headers, before.headers) or before.headers,
        timestamp=choose(after.timestamp, before.timestamp) or before.timestamp,
        offset=before.offset,
        dropped=choose(after.dropped, before.dropped),
        error=choose(after.error, before.error),
        unfit=after.unfit,
        shared=after.shared,
    )


def _part_where(condition: str, after: Part, before: Part, alias: str) -> Part:
    """Merge both outcomes into one schema: a field that one lacks is null there."""
    if after == before:
        return after
    if after.schema is None or before.schema is None:
        return _one_where(condition, after, before)
    missing = after.missing
    if after.missing != before.missing:
        missing = _choice(condition, after.missing or "false", before.missing or "false")
    if not (after.is_struct and before.is_struct):
        if after.schema.bare() == before.schema.bare():
            whole = _choice(condition, after.whole, before.whole)
            merged = replace(after, whole=whole, missing=missing)
            return _optional(merged) if before.schema.optional else merged
        raise _misfit(alias, "the whole")
    new, old = after.columns(), before.columns()
    columns = {}
    for name in [*old, *(name for name in new if name not in old)]:
        new_sql, new_schema = new.get(name, ("NULL", None))
        old_sql, old_schema = old.get(name, ("NULL", None))
        if new_schema and old_schema and sql_type(new_schema) != sql_type(old_schema):
            raise _misfit(alias, f"field {name}")
        schema = new_schema or old_schema
        assert schema is not None
        optional = schema.optional or not (new_schema and old_schema) or old_schema.optional
        sql = _choice(condition, new_sql, old_sql)
        columns[name] = (sql, schema.replaced(optional=optional))
    merged = replace(before.with_fields(columns), missing=missing)
    return _optional(merged) if missing else merged


def _choice(condition: str, new: str, old: str) -> str:
    return new if new == old else f"CASE WHEN {condition} THEN {new} ELSE {old} END"


def _one_where(condition: str, after: Part, before: Part) -> Part:
    """Merge a part with none: it is null where it is not made."""
    part, own = (
        (after, f"({condition})") if before.schema is None else (before, f"NOT ({condition})")
    )
    if part.schema is None:
        return part
    if part.is_struct:
        return _optional(replace(part, missing=f"(NOT {own} OR {part.is_null()})"))
    return _optional(replace(part, whole=f"IF({own}, {part.sql()}, NULL)", missing=None))


def _optional(part: Part) -> Part:
    assert part.schema is not None
    return replace(part, schema=part.schema.replaced(optional=True))


def _misfit(alias: str, what: str) -> ConfigError:
    return ConfigError(
        problem=f"gives {what} another type, but its predicate spares some records.",
        field=f"transforms.{alias}.predicate",
        fix="Remove the predicate, or send these records to a topic of their own.",
    )
