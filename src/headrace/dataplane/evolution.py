"""Keeps each target's schema in step with what is written to it, as its policy says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from headrace.evolution import reconcile, schema_changes
from headrace.evolution.apply_sql import misfits, moved
from headrace.sdk.schema_evolution import EVOLUTION_KINDS, ChangeKind, EvolutionPolicy, Handling
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataplane.packedmoves import Moves
    from headrace.dataplane.records import RecordFrame
    from headrace.dataplane.topic_sinks import TopicWriter
    from headrace.evolution import Handled, Move, Reconciled
    from headrace.sdk import FrameSink, RecordExpr, Schema, SchemaMemory

__all__ = ["PLUGIN", "STAGE", "Evolution", "Target"]

log = structlog.get_logger(__name__)

STAGE = "TASK_PUT"
PLUGIN = "schema.evolution"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the records of one stream go.

    Args:
        sink: The sink.
        number: Which of the task's sinks it is.
        name: What it is called in marks, which stays when other sinks come and go.
        topic: The topic that the records have or come from.
        is_one: Whether all of them have that topic; otherwise each says where it goes.
    """

    sink: FrameSink
    number: int
    name: str
    topic: str
    is_one: bool = True

    @property
    def key(self) -> str:
        """Return the name that its schema is remembered under."""
        return f"sink {self.name}: {self.topic}"

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
    _moves: dict[int, Moves] = field(default_factory=dict)
    _assumed: dict[str, Schema] | None = None

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
        key, number = target.key, target.number
        if known is None or brought is None:
            self._assume(key, brought)
            return records
        # Whether the value as a whole may be null is no matter of the target's schema.
        known = known.replaced(optional=brought.optional)
        before = self._reconciled.get(key)
        if before is None or before[:2] != (known, brought):
            before = known, brought, reconcile(known, brought, self.policy(number))
            self._reconciled[key] = before
        for handled in before[2].handled:
            self._tell(key, target.topic, handled)
        self._assume(key, before[2].schema)
        shape = _moved(records.shape, before[2].move)
        return records if shape is records.shape else replace(records, shape=shape).settled()

    def guessed_moves(self, number: int) -> Moves:
        """Return the moves that the streams of a packed topic needed last."""
        return self._moves.get(number, {})

    def stream_moves(
        self, topic: TopicWriter, number: int, brought: Sequence[tuple[str, Schema]]
    ) -> Moves:
        """Say which rows of a packed topic need another schema than they have.

        Args:
            topic: The topic.
            number: Which of the task's sinks it is.
            brought: Each stream with each schema that its rows have, in their order.

        Raises:
            SchemaChangeError: The policy rejects a change.
        """
        known: dict[str, Schema] = {}
        needed: dict[tuple[str, Schema], Move] = {}
        for stream, schema in dict.fromkeys(brought):
            before = known.get(stream) or topic.stream_schema(stream)
            if before is None:
                known[stream] = schema
                continue
            before = before.replaced(optional=schema.optional)
            reconciled = reconcile(before, schema, self.policy(number))
            known[stream] = reconciled.schema
            for handled in reconciled.handled:
                self._tell(f"sink {number}: {stream}", stream, handled)
            if reconciled.move.is_needed:
                needed[stream, schema] = reconciled.move
        others = {k: m for k, m in self.guessed_moves(number).items() if k not in brought}
        self._moves[number] = others | needed
        return needed

    def keeps_apart(self, before: Schema, after: Schema) -> bool:
        """Return whether rows of one schema must not be taken together with those before.

        Together they have a schema that takes both. It hides what was dropped, say, and
        some policy may have to know.
        """
        changes = {change.kind for change in schema_changes(before, after)}
        if ChangeKind.RETYPE in changes:
            return True
        renames = any(policy.renames for policy in self.policies)
        heeded = {Handling.IGNORE, Handling.REJECT}
        return (renames and ChangeKind.DROP in changes) or any(
            policy.of(kind) in heeded for policy in self.policies for kind in changes
        )

    @property
    def may_reject(self) -> bool:
        """Return whether any policy rejects any kind of change."""
        kinds = [policy.of(kind) for policy in self.policies for kind in EVOLUTION_KINDS]
        return Handling.REJECT in kinds

    def rehearsal(self) -> Evolution:
        """Return a twin that takes each schema as known once it was fitted to it."""
        return replace(self, _assumed={})

    def accept(self, target: Target, schema: Schema) -> None:
        """Remember the schema that a target has taken. Called once its batch is durable."""
        key = target.key
        if self.memory is None or target.schema() is not None:
            return
        if self._known.get(key) != schema:
            self.memory.put(key, schema)
            self._known[key] = schema

    def _assume(self, key: str, schema: Schema | None) -> None:
        if self._assumed is not None and schema is not None:
            self._assumed[key] = schema

    def _known_schema(self, target: Target) -> Schema | None:
        if self._assumed is not None and target.key in self._assumed:
            return self._assumed[target.key]
        kept = target.schema()
        if kept is not None or self.memory is None:
            return kept
        key = target.key
        if key not in self._known:
            stored = self.memory.get(key)
            if stored is None:
                return self._numbered(self.memory, target)
            self._known[key] = stored
        return self._known[key]

    def _numbered(self, memory: SchemaMemory, target: Target) -> Schema | None:
        """Return what was remembered when targets still went by their numbers.

        Among several sinks a number may have been another's.
        """
        alone = len(self.policies) == 1
        return memory.get(f"sink {target.number}: {target.topic}") if alone else None

    def _tell(self, key: str, topic: str, handled: Handled) -> None:
        """Say once in a run what becomes of a change."""
        if (key, handled) in self._told:
            return
        self._told.add((key, handled))
        level = log.warning if handled.handling is Handling.IGNORE else log.info
        level(
            "schema change",
            topic=topic,
            change=str(handled.change),
            handling=handled.handling.value,
        )


def _moved(shape: RecordExpr, move: Move) -> RecordExpr:
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


def _rejecting(
    shape: RecordExpr, move: Move, sql: str, path: str, missing: str | None
) -> RecordExpr:
    for found in misfits(move, sql, path):
        condition = found.condition
        if missing is not None:  # a tombstone has no fields that could be amiss
            condition = f"NOT ({missing}) AND {condition}"
        where = f"The field {found.path}" if found.path else "The value"
        message = f"{where} does not fit the target's {found.kind}, which ignores the change."
        shape = shape.failing(
            condition,
            stage=STAGE,
            plugin=PLUGIN,
            exception="RecordError",
            message=literal(message),
        )
    return shape
