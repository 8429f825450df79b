"""Keeps each target's schema in step with what is written to it, as its policy says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from headrace.dataplane.moving import misfits, moved
from headrace.sdk import EVOLUTION_KINDS, EvolutionPolicy, Handling, literal, reconcile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataplane.records import RecordFrame
    from headrace.dataplane.topics import TopicWriter
    from headrace.sdk import (
        FrameSink,
        Handled,
        Move,
        Reconciled,
        Schema,
        SchemaMemory,
        Shape,
    )

__all__ = ["Evolution", "Target"]

log = structlog.get_logger(__name__)

_STAGE = "TASK_PUT"
_PLUGIN = "schema.evolution"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the records of one stream go.

    Args:
        sink: The sink.
        number: Which of the task's sinks it is.
        topic: The topic that the records have or come from.
        is_one: Whether all of them have that topic; otherwise each says where it goes.
    """

    sink: FrameSink
    number: int
    topic: str
    is_one: bool = True

    @property
    def key(self) -> str:
        """Return the name that its schema is remembered under."""
        return f"sink {self.number}: {self.topic}"

    def schema(self) -> Schema | None:
        """Return the schema that it keeps itself, if it does."""
        return self.sink.known_schema(self.topic) if self.is_one else None


@dataclass(kw_only=True)
class Evolution:
    """What the sinks of one task do about changes of schemas. Used by one thread at a time.

    A target that keeps a schema itself, such as a topic, is asked for it. For all others the
    schema that they were given last is remembered under the connector's name.

    Args:
        policies: One for each sink; none is to follow every change.
        memory: Where schemas are remembered; None remembers none, so that what comes is
            always taken as it is by the sinks that keep no schema.
    """

    policies: Sequence[EvolutionPolicy] = ()
    memory: SchemaMemory | None = None
    _known: dict[str, Schema] = field(default_factory=dict)
    _reconciled: dict[str, tuple[Schema, Schema, Reconciled]] = field(default_factory=dict)
    _told: set[tuple[str, Handled]] = field(default_factory=set)

    def policy(self, number: int) -> EvolutionPolicy:
        """Return the policy of a sink."""
        return self.policies[number] if self.policies else EvolutionPolicy()

    def fitted(self, records: RecordFrame, target: Target) -> RecordFrame:
        """Return the records with the schema that a target is to be given. No job runs.

        Raises:
            SchemaChangeError: The policy rejects a change.
        """
        brought = records.shape.value.schema
        known = self._known_schema(target)
        if known is None or brought is None:
            return records
        key, number = target.key, target.number
        # Whether the value as a whole may be null is no matter of the target's schema.
        known = known.replaced(optional=brought.optional)
        before = self._reconciled.get(key)
        if before is None or before[:2] != (known, brought):
            before = known, brought, reconcile(known, brought, self.policy(number))
            self._reconciled[key] = before
        for handled in before[2].handled:
            self._tell(target, handled)
        shape = _moved(records.shape, before[2].move)
        return records if shape is records.shape else replace(records, shape=shape).settled()

    def check_streams(
        self, topic: TopicWriter, number: int, schemas: Sequence[tuple[str, Schema]]
    ) -> None:
        """Raise SchemaChangeError when a packed stream has changed in a rejected way.

        Packed rows carry their schema, so a topic takes any other change as it is; what
        reads the streams from there has a policy of its own.
        """
        policy = self.policy(number)
        rejected = [kind for kind in EVOLUTION_KINDS if policy.of(kind) is Handling.REJECT]
        if not rejected:
            return
        only = EvolutionPolicy(handlings=dict.fromkeys(rejected, Handling.REJECT))
        only = replace(only, renames=policy.renames)
        known: dict[str, Schema] = {}
        for stream, schema in schemas:
            before = known.get(stream) or topic.stream_schema(stream)
            known[stream] = schema if before is None else reconcile(before, schema, only).schema

    def accept(self, target: Target, schema: Schema) -> None:
        """Remember the schema that a target has taken. Called once its batch is durable."""
        key = target.key
        if self.memory is None or target.schema() is not None:
            return
        if self._known.get(key) != schema:
            self.memory.put(key, schema)
            self._known[key] = schema

    def _known_schema(self, target: Target) -> Schema | None:
        kept = target.schema()
        if kept is not None or self.memory is None:
            return kept
        key = target.key
        if key not in self._known:
            stored = self.memory.get(key)
            if stored is None:
                return None
            self._known[key] = stored
        return self._known[key]

    def _tell(self, target: Target, handled: Handled) -> None:
        """Say once in a run what becomes of a change."""
        if (target.key, handled) in self._told:
            return
        self._told.add((target.key, handled))
        level = log.warning if handled.handling is Handling.IGNORE else log.info
        level(
            "schema change",
            topic=target.topic,
            change=str(handled.change),
            handling=handled.handling.value,
        )


def _moved(shape: Shape, move: Move) -> Shape:
    """Return the shape whose value has the target's schema, and rejects what does not fit."""
    part = shape.value
    if not move.is_needed:
        same = part.schema == move.target
        return shape if same else replace(shape, value=replace(part, schema=move.target))
    if not (part.is_struct and move.members):
        shape = _rejecting(shape, move, part.sql(), "", part.missing)
        return replace(shape, value=part.with_whole(moved(move, part.sql()), move.target))
    columns = {}
    for member in move.members:
        sql = None if member.source is None else part.fields[member.source]
        columns[member.name] = moved(member.move, sql), member.move.target
        if sql is not None:
            shape = _rejecting(shape, member.move, sql, member.name, part.missing)
    return replace(shape, value=part.with_fields(columns))


def _rejecting(shape: Shape, move: Move, sql: str, path: str, missing: str | None) -> Shape:
    for found in misfits(move, sql, path):
        condition = found.condition
        if missing is not None:  # a tombstone has no fields that could be amiss
            condition = f"NOT ({missing}) AND {condition}"
        where = f"The field {found.path}" if found.path else "The value"
        message = f"{where} does not fit the target's {found.kind}, which ignores the change."
        shape = shape.failing(
            condition,
            stage=_STAGE,
            plugin=_PLUGIN,
            exception="RecordError",
            message=literal(message),
        )
    return shape
