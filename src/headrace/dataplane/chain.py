"""A chain of transforms, laid over a record frame as one Spark stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from headrace.dataplane.code_steps import run_code
from headrace.dataplane.spared import merged_where
from headrace.sdk import (
    CodeTransform,
    ConfigError,
    RecordExpr,
    Schema,
    TransformBatch,
    UnfitRecordError,
    ValueExpr,
)
from headrace.sdk.sqltext import literal, literal_text
from headrace.sdk.transform import TypedTransform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataplane.records import RecordFrame
    from headrace.sdk import Predicate, Transform
    from headrace.sdk.transform import Types

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

    def apply(self, shape: RecordExpr, types: Types | None = None) -> RecordExpr:
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
        return merged_where(condition, after, shape, self.transform)

    def condition(self, shape: RecordExpr) -> str:
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


def constant_topic(steps: Sequence[Step], topic: str) -> str | None:
    """Return the topic that records of ``topic`` have after all steps; None if unknown.

    Tells it without any record, and so only where no step looks at more than the topic.
    """
    # Nothing is to be constant but the topic: a part that is not there is a tombstone.
    key = ValueExpr.of("key", Schema.string(optional=True))
    value = ValueExpr.of("value", Schema.struct({}, optional=True))
    shape = RecordExpr(key, value, literal(topic), "partition", "headers", "timestamp")
    try:
        for step in steps:
            if not step.transform.routes:
                continue
            condition = step.condition(shape)
            if isinstance(step.transform, CodeTransform | TypedTransform) or condition not in (
                _SAME_FOR_ALL
            ):
                return None
            shape = replace(shape, topic=step.apply(shape).topic)
    except Exception:  # noqa: BLE001 - plugins may raise anything
        return None
    return literal_text(shape.topic)


def chain_frames(
    records: RecordFrame, steps: Sequence[Step], batch: TransformBatch | None = None
) -> list[RecordFrame]:
    """Return the records before the first step and after each, for a preview."""
    frames = [records]
    for step in steps:
        frames.append(_apply(frames[-1], step, batch or _FIRST))
    return frames
