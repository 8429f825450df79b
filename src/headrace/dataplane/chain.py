"""A chain of transforms, laid over a record frame as one Spark stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from headrace.sdk import ConfigError, Part, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataplane.records import RecordFrame
    from headrace.sdk import Predicate, Transform


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

    def apply(self, shape: Shape) -> Shape:
        """Return the shape after this step."""
        after = self.transform.apply(shape)
        if self.predicate is None:
            return after
        condition = self.predicate.condition(shape)
        condition = f"NOT ({condition})" if self.negate else f"({condition})"
        return _where(condition, after, shape, self.transform.alias)


def apply_chain(records: RecordFrame, steps: Sequence[Step]) -> RecordFrame:
    """Return the records after all steps. Builds expressions; no job runs."""
    for step in steps:
        records = _apply(records, step)
    return records


def _apply(records: RecordFrame, step: Step) -> RecordFrame:
    before = records.named() if step.uses_names else records
    try:
        return replace(before, shape=step.apply(before.shape)).settled()
    except AnalysisException as error:
        message = (error.getMessage() or str(error)).partition("\n")[0]
        raise ConfigError(
            problem=f"Spark cannot run this step: {message}",
            field=f"transforms.{step.transform.alias}",
            fix=f"The fields here are: {', '.join(before.shape.value.fields) or 'none'}.",
        ) from error


def chain_frames(records: RecordFrame, steps: Sequence[Step]) -> list[RecordFrame]:
    """Return the records before the first step and after each, for a preview."""
    frames = [records]
    for step in steps:
        frames.append(_apply(frames[-1], step))
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
        dropped=choose(after.dropped, before.dropped),
        error=choose(after.error, before.error),
    )


def _part_where(condition: str, after: Part, before: Part, alias: str) -> Part:
    """Merge both outcomes into one schema: a field that one lacks is null there."""
    if after == before:
        return after
    if not (after.is_struct and before.is_struct):
        if after.schema == before.schema:
            whole = f"CASE WHEN {condition} THEN {after.whole} ELSE {before.whole} END"
            return replace(after, whole=whole)
        raise _misfit(alias, "the whole")
    new, old = after.columns(), before.columns()
    columns = {}
    for name in [*old, *(name for name in new if name not in old)]:
        new_sql, new_schema = new.get(name, ("NULL", None))
        old_sql, old_schema = old.get(name, ("NULL", None))
        if new_schema and old_schema and new_schema.type is not old_schema.type:
            raise _misfit(alias, f"field {name}")
        schema = new_schema or old_schema
        assert schema is not None
        if new_sql == old_sql:
            columns[name] = (new_sql, schema)
            continue
        sql = f"CASE WHEN {condition} THEN {new_sql} ELSE {old_sql} END"
        optional = schema.optional or new_schema is None or old_schema is None
        columns[name] = (sql, schema.replaced(optional=optional))
    return before.with_fields(columns)


def _misfit(alias: str, what: str) -> ConfigError:
    return ConfigError(
        problem=f"gives {what} another type, but its predicate spares some records.",
        field=f"transforms.{alias}.predicate",
        fix="Remove the predicate, or send these records to a topic of their own.",
    )
