"""Reconciles the schema of records with that of each target, according to its policy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from headrace.evolution.apply_sql import moved_shape
from headrace.evolution.diff import SchemaChange, is_retyped, relation, schema_changes, titled
from headrace.model import SchemaChangeError
from headrace.sdk.errors import ConfigError
from headrace.sdk.schema import Field, Schema, Type
from headrace.sdk.schema_evolution import (
    EVOLUTION_KINDS,
    ChangeKind,
    EvolutionPolicy,
    Handling,
    evolve,
)
from headrace.sdk.sqltext import sql_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.evolution.apply_arrow import Moves
    from headrace.sdk import FrameSink, RecordExpr, Schema, SchemaMemory


log = structlog.get_logger(__name__)

_ASIDE = "__"


@dataclass(frozen=True, slots=True)
class Move:
    """How a value is converted to the target's schema.

    Args:
        source: The value's schema; None if there is no value, which results in the target's
            default, or null.
        target: The target's schema.
        members: For a struct: the target's fields.
        key: For a map: the move of its keys.
        item: For an array or a map: the move of its items or values.
        strict: Whether values may not fit; they are rejected instead of changed.
    """

    source: Schema | None
    target: Schema
    members: tuple[Member, ...] = ()
    key: Move | None = None
    item: Move | None = None
    strict: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether the values change, and not only the annotations of their schema."""
        if self.source is None or self.strict:
            return True
        if self.members:
            names = [m.name for m in self.members]
            same = names == [m.source for m in self.members]
            same = same and names == [f.name for f in self.source.fields]
            return not same or any(m.move.is_needed for m in self.members)
        parts = [part for part in (self.key, self.item) if part is not None]
        if parts:
            return any(part.is_needed for part in parts)
        return sql_type(self.source) != sql_type(self.target)


@dataclass(frozen=True, slots=True)
class Member:
    """A field of the target, its source field (None if there is none), and the move."""

    name: str
    source: str | None
    move: Move


@dataclass(frozen=True, slots=True)
class Handled:
    """A schema change and its handling."""

    change: SchemaChange
    handling: Handling


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result of reconciling two schemas."""

    move: Move
    handled: tuple[Handled, ...]

    @property
    def schema(self) -> Schema:
        return self.move.target


def reconcile(known: Schema, brought: Schema, policy: EvolutionPolicy) -> Reconciled:
    """Return how records are converted for a target, with the target's new schema.

    ``known`` is the schema of the values that the target has so far, ``brought`` that of the
    new values. Raises SchemaChangeError: a change is rejected, or cannot be ignored.
    """
    if known == brought:
        return Reconciled(Move(brought, brought), ())
    reconciler = _Reconciler(policy)
    move = reconciler.value(known, brought, "")
    if reconciler.rejected:
        raise _rejected(reconciler.rejected)
    return Reconciled(move, tuple(reconciler.handled))


def _rejected(rejected: list[tuple[SchemaChange, str]]) -> SchemaChangeError:
    changes = "; ".join(f"{change}{why}" for change, why in rejected)
    keys = dict.fromkeys(f"schema.evolution.{change.kind}" for change, _ in rejected)
    return SchemaChangeError(
        problem=f"The schema of the records has changed: {changes}. Nothing was written.",
        fix=f"Set {' and '.join(keys)} to evolve, lenient or ignore, or adapt the target's "
        "schema by hand.",
        field=next(iter(keys)),
    )


@dataclass(slots=True)
class _Reconciler:
    policy: EvolutionPolicy
    handled: list[Handled] = field(default_factory=list)
    rejected: list[tuple[SchemaChange, str]] = field(default_factory=list)

    def value(self, old: Schema, new: Schema, path: str) -> Move:
        """Move a value without a name for an additional field: the whole value, items, keys."""
        if old == new:
            return Move(new, new)
        kind = relation(old, new)
        if kind is ChangeKind.RETYPE:
            handling = self._handle(SchemaChange(kind, path, titled(old), titled(new)))
            # There cannot be an additional field for the values.
            if handling in {Handling.IGNORE, Handling.LENIENT}:
                return Move(new, old, strict=True)
            return Move(new, new)
        return self._compatible(old, new, path, kind)

    def _handle(self, change: SchemaChange) -> Handling:
        handling = self.policy.of(change.kind)
        if handling is Handling.REJECT:
            self.rejected.append((change, ""))
        else:
            self.handled.append(Handled(change, handling))
        return handling

    def _compatible(self, old: Schema, new: Schema, path: str, kind: ChangeKind | None) -> Move:
        if kind is None and new.optional and not old.optional:
            kind = ChangeKind.WIDEN
        optional = old.optional or new.optional
        if kind is None:
            # Required values fit an optional target: nothing changes for the target.
            return self._inside(old, new, path, optional=optional)
        handling = self._handle(SchemaChange(kind, path, titled(old), titled(new)))
        if kind is ChangeKind.WIDEN and handling is Handling.IGNORE:
            if old.type is new.type and not old.is_logical:
                return replace(self._inside(old, new, path, optional=False), strict=True)
            return Move(new, old, strict=True)
        if old.type is new.type and not old.is_logical:
            return self._inside(old, new, path, optional=optional)
        if kind is ChangeKind.NARROW:
            return Move(new, old.replaced(optional=optional))
        wider = _merged(old, new)
        # The result must not depend on whether the target was already widened.
        target = new if relation(wider, new) is None else wider
        return Move(new, target.replaced(optional=optional))

    def _inside(self, old: Schema, new: Schema, path: str, *, optional: bool) -> Move:
        """Move the parts of a struct, an array or a map; other types do not change."""
        base = new.replaced(optional=optional)
        if new.type is Type.STRUCT:
            members = self._members(old, new, path)
            target = base.with_fields({m.name: m.move.target for m in members})
            target = base if target.fields == new.fields else target
            return Move(new, target, members=tuple(members))
        if old.value_schema is None or new.value_schema is None:
            return Move(new, base)
        part = "element" if new.type is Type.ARRAY else "value"
        item = self.value(old.value_schema, new.value_schema, f"{path} {part}".strip())
        key = None
        if old.key_schema is not None and new.key_schema is not None:
            key = self.value(old.key_schema, new.key_schema, f"{path} key".strip())
        target, keys = base, None if key is None else key.target
        if (item.target, keys) != (new.value_schema, new.key_schema):
            target = replace(base, default=None, value_schema=item.target, key_schema=keys)
        return Move(new, target, key=key, item=item)

    def _members(self, old: Schema, new: Schema, path: str) -> list[Member]:
        members: list[Member] = []
        done: set[str] = set()
        for known in old.fields:
            where, same = _at(path, known.name), new.field(known.name)
            renamed = self._renamed(new, where) if same is None else None
            if known.name in done:
                continue
            if same is not None:
                done.add(known.name)
                members += self._kept(old, known, same.schema, where)
            elif renamed is not None:
                members += self._renaming(old, known, renamed, where, done)
            elif not self._is_aside(known.name, old, new):
                members += self._dropped(known.name, known.schema, where)
        for added in new.fields:
            if added.name not in done:
                beside = self._is_aside(added.name, old, new)
                where = _at(path, added.name)
                members += self._added(added.name, added.schema, where, beside=beside)
        members += self._asides(old, members)
        return self._ordered(old, new, members, path)

    def _kept(self, struct: Schema, known: Field, new: Schema, where: str) -> list[Member]:
        name, old = known.name, known.schema
        if not is_retyped(old, new):
            return [Member(name, name, self.value(old, new, where))]
        handling = self._handle(
            SchemaChange(ChangeKind.RETYPE, where, titled(old), titled(new))
        )
        if handling is Handling.LENIENT:
            aside = f"{name}{_ASIDE}{_word(new)}"
            before = struct.field(aside)
            own = new.replaced(optional=True)
            beside = self.value(before.schema, own, where) if before else Move(new, own)
            null = Move(None, old.replaced(optional=True))
            return [Member(name, None, null), Member(aside, name, beside)]
        strict = handling is Handling.IGNORE
        return [Member(name, name, Move(new, old if strict else new, strict=strict))]

    def _renamed(self, new: Schema, where: str) -> Field | None:
        return new.field(self.policy.renames.get(where, "").rpartition(".")[2])

    def _renaming(
        self, old: Schema, known: Field, renamed: Field, where: str, done: set[str]
    ) -> list[Member]:
        name, of_new = renamed.name, old.field(renamed.name)
        handling = self.policy.of(ChangeKind.RENAME)
        if of_new is None:
            handling = self._handle(SchemaChange(ChangeKind.RENAME, where, known.name, name))
        members = []
        if handling in {Handling.LENIENT, Handling.IGNORE}:
            move = self.value(known.schema, renamed.schema, where)
            members.append(Member(known.name, name, move))
        if name not in done and (of_new is not None or handling is not Handling.IGNORE):
            before = renamed.schema.replaced(optional=True) if of_new is None else of_new.schema
            own = self.value(before, renamed.schema, _at(where.rpartition(".")[0], name))
            members.append(Member(name, name, own))
        done.add(name)
        return members

    def _dropped(self, name: str, old: Schema, where: str) -> list[Member]:
        change = SchemaChange(ChangeKind.DROP, where, old=titled(old))
        handling = self._handle(change)
        if handling is Handling.LENIENT:
            return [Member(name, None, Move(None, old.replaced(optional=True)))]
        if handling is Handling.IGNORE:
            if not old.optional and old.default is None:
                why = " (it must not be null and has no default, so it cannot be ignored)"
                self.rejected.append((change, why))
            return [Member(name, None, Move(None, old))]
        return []

    def _added(
        self, name: str, new: Schema, where: str, *, beside: bool = False
    ) -> list[Member]:
        # A topic before this target may have added the field for values of another type.
        kind = ChangeKind.RETYPE if beside else ChangeKind.ADD
        handling = self._handle(SchemaChange(kind, where, new=titled(new)))
        if handling is Handling.IGNORE:
            return []
        # Existing rows of the target have no value for the field.
        return [Member(name, name, Move(new, new.replaced(optional=True)))]

    def _is_aside(self, name: str, old: Schema, new: Schema) -> bool:
        """Return whether a field is an additional field for values of another type."""
        base = name.rpartition(_ASIDE)[0]
        lenient = self.policy.of(ChangeKind.RETYPE) is Handling.LENIENT
        return lenient and old.field(base) is not None and new.field(base) is not None

    def _asides(self, old: Schema, members: list[Member]) -> list[Member]:
        """Keep existing additional fields, with null if there are no values for them."""
        names = {member.name for member in members}
        return [
            Member(f.name, None, Move(None, f.schema.replaced(optional=True)))
            for f in old.fields
            if f.name not in names
            and f.name.rpartition(_ASIDE)[0] in names
            and self.policy.of(ChangeKind.RETYPE) is Handling.LENIENT
        ]

    def _ordered(
        self, old: Schema, new: Schema, members: list[Member], path: str
    ) -> list[Member]:
        before = [f.name for f in old.fields if new.field(f.name) is not None]
        after = [f.name for f in new.fields if old.field(f.name) is not None]
        handling = self.policy.of(ChangeKind.REORDER)
        if before != after:
            change = SchemaChange(ChangeKind.REORDER, path, ", ".join(before), ", ".join(after))
            handling = self._handle(change)
        _check_names(members, path)
        if handling is not Handling.EVOLVE:
            return members
        places = {f.name: number for number, f in enumerate(new.fields)}
        return sorted(members, key=lambda m: places.get(m.source or m.name, len(places)))


def _merged(old: Schema, new: Schema) -> Schema:
    # Merge only the types; the other properties come from the new schema.
    merged = evolve(old.replaced(default=None), new.replaced(default=None))
    return merged.replaced(doc=new.doc, version=new.version or merged.version)


def _check_names(members: list[Member], path: str) -> None:
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                problem="The additional field for changed types has the name of another field.",
                fix="Rename that field with a transform, or set schema.evolution.retype.",
                field=_at(path, name),
            )


def _word(schema: Schema) -> str:
    """Return the first word of a type, as in price__decimal."""
    return sql_type(schema).partition("<")[0].partition("(")[0].lower()


def _at(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")


_KEY = re.compile(r"sink [^ :]+: (?P<topic>.*)", re.DOTALL)


def _key(sink: str | int, topic: str) -> str:
    return f"sink {sink}: {topic}"


def topic_of(key: str) -> str:
    """Return the topic or stream of a key under which a schema is remembered."""
    found = _KEY.fullmatch(key)
    return key if found is None else found["topic"]


@dataclass
class Reconciliations:
    """Caches the newest reconciliation of each target. Logs each change once."""

    _newest: dict[str, tuple[Schema, Schema, Reconciled]] = field(default_factory=dict)
    _logged: set[tuple[str, Handled]] = field(default_factory=set)

    def of(
        self, key: str, topic: str, known: Schema, brought: Schema, policy: EvolutionPolicy
    ) -> Reconciled:
        """Reconcile the schema of a target with the schema of its records.

        ``key`` identifies the target, which always has the same policy. Raises
        SchemaChangeError: the policy rejects a change.
        """
        # The nullability of the whole value is not part of the target's schema.
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
        """Return the type changes of a target's last reconciliation."""
        handled = self._newest[key][2].handled if key in self._newest else ()
        return [each.change for each in handled if each.change.kind is ChangeKind.RETYPE]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the records of one stream.

    Args:
        number: The sink's number in the task.
        name: The sink's name in marks, which does not change when sinks are added or removed.
        topic: The topic that the records have or come from.
        is_one: Whether all records have that topic; otherwise each record has its own.
    """

    sink: FrameSink
    number: int
    name: str
    topic: str
    is_one: bool = True

    @property
    def key(self) -> str:
        """The key under which the target's schema is remembered."""
        return _key(self.name, self.topic)

    def schema(self) -> Schema | None:
        """Return the schema that the target itself stores, if any."""
        return self.sink.known_schema(self.topic) if self.is_one else None


@dataclass(kw_only=True)
class Evolution:
    """Handles schema changes for the sinks of one task. Not thread-safe.

    Targets that store a schema themselves, such as topics, return it. For all others the last
    schema is remembered under the connector's name.

    Args:
        policies: One per sink; empty to adopt every change.
        memory: Stores schemas; None to remember none, so that sinks without a schema of their
            own always get records unchanged.
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
        """Return records with the schema for a target.

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
        """Return the type changes in the last records that were fitted to a target."""
        return self._reconciled.retypes(target.key)

    def guessed_moves(self, number: int) -> Moves:
        """Return the moves that the streams of a packed topic last needed."""
        return self._moves.get(number, {})

    def stream_moves(
        self,
        schema_of: Callable[[str], Schema | None],
        number: int,
        brought: Sequence[tuple[str, Schema]],
    ) -> Moves:
        """Return the moves of rows of a packed topic that need another schema.

        ``brought`` has each stream with each schema of its rows, in order; ``schema_of``
        returns the newest schema of a stream in the topic. Raises SchemaChangeError: the policy
        rejects a change.
        """
        known: dict[str, Schema] = {}
        needed: dict[tuple[str, Schema], Move] = {}
        for stream, schema in dict.fromkeys(brought):
            before = known.get(stream) or schema_of(stream)
            if before is None:
                known[stream] = schema
                continue
            key, policy = _key(number, stream), self.policy(number)
            reconciled = self._reconciled.of(key, stream, before, schema, policy)
            known[stream] = reconciled.schema
            if reconciled.move.is_needed:
                needed[stream, schema] = reconciled.move
        others = {k: m for k, m in self.guessed_moves(number).items() if k not in brought}
        self._moves[number] = others | needed
        return needed

    def keeps_apart(self, before: Schema, after: Schema) -> bool:
        """Return whether rows of a new schema must not be combined with the rows before.

        Combined rows have a schema that fits both. It hides dropped fields, for example, which
        a policy may have to handle.
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
        """Return a copy that assumes each fitted schema as known, for a dry run."""
        return replace(self, _assumed={})

    def accept(self, target: Target, schema: Schema) -> None:
        """Remember the schema that a target has accepted. Called when its batch is durable."""
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
        if key not in self._known and (stored := self.memory.get(key)) is not None:
            self._known[key] = stored
        return self._known.get(key)
