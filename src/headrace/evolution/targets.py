"""Keeps each target's schema in step with what is written to it, as its policy says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from headrace.evolution.apply_sql import moved_shape
from headrace.evolution.diff import SchemaChange, schema_changes
from headrace.evolution.plan import Handled, Move, Reconciled, reconcile
from headrace.sdk.schema_evolution import EVOLUTION_KINDS, ChangeKind, EvolutionPolicy, Handling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.evolution.apply_arrow import Moves
    from headrace.sdk import FrameSink, RecordExpr, Schema, SchemaMemory

log = structlog.get_logger(__name__)

_KEY = re.compile(r"sink [^ :]+: (?P<topic>.*)", re.DOTALL)


def topic_of(key: str) -> str:
    """Return the topic or stream that a schema is remembered of, under whatever name."""
    found = _KEY.fullmatch(key)
    return key if found is None else found["topic"]


@dataclass
class Reconciliations:
    """What became of the newest schemas of some targets. Each change is logged once."""

    _newest: dict[str, tuple[Schema, Schema, Reconciled]] = field(default_factory=dict)
    _logged: set[tuple[str, Handled]] = field(default_factory=set)

    def of(
        self, key: str, topic: str, known: Schema, brought: Schema, policy: EvolutionPolicy
    ) -> Reconciled:
        """Reconcile the schema of a target with the one that its records bring.

        ``key`` names the target, which always has the same policy. Raises SchemaChangeError:
        the policy rejects a change.
        """
        # Whether the value as a whole may be null is no matter of the target's schema.
        known = known.replaced(optional=brought.optional)
        before = self._newest.get(key)
        if before is None or before[:2] != (known, brought):
            before = known, brought, reconcile(known, brought, policy)
            self._newest[key] = before
        for handled in before[2].handled:
            if (key, handled) not in self._logged:
                self._logged.add((key, handled))
                level = log.warning if handled.handling is Handling.IGNORE else log.info
                change, handling = str(handled.change), handled.handling.value
                level("schema change", topic=topic, change=change, handling=handling)
        return before[2]

    def retypes(self, key: str) -> Sequence[SchemaChange]:
        """Return how types have changed in what a target was last reconciled with."""
        handled = self._newest[key][2].handled if key in self._newest else ()
        return [each.change for each in handled if each.change.kind is ChangeKind.RETYPE]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the records of one stream go.

    Args:
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
    _reconciled: Reconciliations = field(default_factory=Reconciliations)
    _moves: dict[int, Moves] = field(default_factory=dict)
    _assumed: dict[str, Schema] | None = None

    def policy(self, number: int) -> EvolutionPolicy:
        return self.policies[number] if self.policies else EvolutionPolicy()

    def fitted(self, shape: RecordExpr, target: Target) -> RecordExpr:
        """Return records with the schema that a target is to be given.

        Raises SchemaChangeError: the policy rejects a change.
        """
        brought, known = shape.value.schema, self._known_schema(target)
        key = target.key
        if known is None or brought is None:
            self._assume(key, brought)
            return shape
        policy = self.policy(target.number)
        reconciled = self._reconciled.of(key, target.topic, known, brought, policy)
        self._assume(key, reconciled.schema)
        return moved_shape(shape, reconciled.move)

    def retypes(self, target: Target) -> Sequence[SchemaChange]:
        """Return how types have changed in the newest records that were fitted to a target."""
        return self._reconciled.retypes(target.key)

    def guessed_moves(self, number: int) -> Moves:
        """Return the moves that the streams of a packed topic needed last."""
        return self._moves.get(number, {})

    def stream_moves(
        self,
        schema_of: Callable[[str], Schema | None],
        number: int,
        brought: Sequence[tuple[str, Schema]],
    ) -> Moves:
        """Return which rows of a packed topic need another schema than they have.

        ``brought`` has each stream with each schema that its rows have, in their order;
        ``schema_of`` returns the newest schema of a stream in the topic. Raises
        SchemaChangeError: the policy rejects a change.
        """
        known: dict[str, Schema] = {}
        needed: dict[tuple[str, Schema], Move] = {}
        for stream, schema in dict.fromkeys(brought):
            before = known.get(stream) or schema_of(stream)
            if before is None:
                known[stream] = schema
                continue
            key, policy = f"sink {number}: {stream}", self.policy(number)
            reconciled = self._reconciled.of(key, stream, before, schema, policy)
            known[stream] = reconciled.schema
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
        stored = target.schema()
        if stored is not None or self.memory is None:
            return stored
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
