"""Views and changes offsets of stopped connectors, and gives up their unfinished batches."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.control.config_infos import configured_plugin
from headrace.control.task_plans import REPLAYS
from headrace.model import (
    Batch,
    BatchState,
    Connector,
    ConnectorKind,
    ConnectorState,
    Stamp,
    TargetState,
    TaskId,
)
from headrace.sdk import ConfigError, Position, SourceConnector, StateError
from headrace.store import ConnectorChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from headrace.control.connectors import Connectors
    from headrace.model import Event
    from headrace.sdk import Connector as Plugin
    from headrace.sdk.config import Config
    from headrace.store import Store

    Place = tuple[datetime, Position]


class OffsetEffect(StrEnum):
    """The effect of an offset change on the records between the old and the new offset.

    Records that are read again are in new batches, so only an upsert target ends up with the
    same data (Guarantee 2 covers retries of one batch only).
    """

    REPEATED = "repeated"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


_WORDS = {
    OffsetEffect.REPEATED: "are read again, and duplicated if the target appends",
    OffsetEffect.SKIPPED: "are skipped and never delivered",
    OffsetEffect.UNKNOWN: "may be read again or skipped; only the source can tell",
}


@dataclass(frozen=True)
class OffsetChange:
    """An offset change of a partition; None stands for the beginning.

    ``is_back`` means that the offset certainly moves back, even if the values do not show it.
    """

    partition: Json
    before: Json | None
    after: Json | None
    is_back: bool = False

    @property
    def effect(self) -> OffsetEffect:
        if self.after is None or self.is_back:
            return OffsetEffect.REPEATED
        if self.before is None:
            return OffsetEffect.SKIPPED
        differing = self._differing
        if len(differing) != 1 or not all(type(value) is int for value in differing[0]):
            return OffsetEffect.UNKNOWN
        [(old, new)] = differing
        assert isinstance(old, int)
        assert isinstance(new, int)
        return OffsetEffect.REPEATED if new < old else OffsetEffect.SKIPPED

    @property
    def meaning(self) -> str:
        places = [_place(each) for each in (self.before, self.after)]
        partition = _place(self.partition)
        between = f"{places[0]} and {places[1]}"
        if len(self._differing) > 1:
            between = "the old and the new offset"
        return f"The records between {between} of {partition} {_WORDS[self.effect]}."

    @property
    def _differing(self) -> list[tuple[object, object]]:
        if self.before is None or self.after is None:
            return []
        keys = self.before.keys() | self.after.keys()
        pairs = [(self.before.get(key), self.after.get(key)) for key in keys]
        return [(old, new) for old, new in pairs if old != new]


@dataclass(frozen=True)
class OffsetUpdate:
    """A change of a connector's offsets in the past.

    Args:
        id: The id of its event.
        action: ``alter``, ``reset``, ``rewind``, ``undo`` or ``give-up``.
    """

    id: int
    action: str
    at: datetime
    by: str
    changes: Sequence[OffsetChange]


def changes_between(
    before: Iterable[Offset], after: Iterable[Offset], *, is_back: bool = False
) -> list[OffsetChange]:
    """Return the partitions that differ, in a fixed order."""
    old, new = _by_partition(before), _by_partition(after)
    found = []
    for key, seen in sorted({**old, **new}.items(), key=lambda pair: pair[0].to_json()):
        here, there = (
            None if each is None else each.offset for each in (old.get(key), new.get(key))
        )
        if here != there:
            found.append(OffsetChange(seen.partition, here, there, is_back))
    return found


def _by_partition(offsets: Iterable[Offset]) -> Mapping[Position, Offset]:
    return {Position.of(each.partition, {}): each for each in offsets}


def _place(value: Json | None) -> str:
    if value is None:
        return "the beginning"
    return ", ".join(f"{key} {each}" for key, each in value.items())


_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_WHOLE = f"Set {_OFFSET} to an integer of at least 0: the next offset to read."
Json: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class Offset:
    """The offset of a connector in one partition of its input.

    Args:
        partition: The partition in the source's format; for a topic in Kafka Connect's format.
        offset: The offset; None stands for the beginning.
    """

    partition: Json
    offset: Json | None


def shown_offsets(connector: Connector, position: Position) -> Iterator[Offset]:
    """Yield the offsets of a task's position, one per partition, in the public format."""
    own = {"topic": f"{connector.name}.capture"}
    for partition, offset in position.items():
        if partition == own:
            continue  # internal: how far the chain has read the capture's topic
        if connector.kind is ConnectorKind.SINK and "version" in offset:
            # Kafka's offset is the next to read, ours is the last version that was read. A
            # version that was read only in part is still the next.
            whole = "index" not in offset
            yield Offset(
                {_TOPIC: partition["topic"], _PARTITION: 0},
                {_OFFSET: int(offset["version"]) + whole},
            )
        else:
            yield Offset(dict(partition), dict(offset))


def own_offset(connector: Connector, requested: Offset) -> tuple[Json, Json | None]:
    """Return a partition and its offset in the internal format."""
    if connector.kind is not ConnectorKind.SINK:
        return requested.partition, requested.offset
    if not {_TOPIC, _PARTITION} <= requested.partition.keys():
        problem = (
            "The partition for a sink connector offset must contain the keys "
            f"'{_TOPIC}' and '{_PARTITION}'"
        )
        fix = f'Write it as {{"{_TOPIC}": "TOPIC", "{_PARTITION}": 0}}.'
        raise ConfigError(problem, field="partition", fix=fix)
    topic, number = requested.partition[_TOPIC], requested.partition[_PARTITION]
    if not isinstance(topic, str) or str(number) != "0":
        problem = f"{topic!r} has no partition {number!r}: every topic has only partition 0."
        raise ConfigError(problem, field="partition", fix=f"Set {_PARTITION} to 0.")
    partition = {"topic": topic}
    if requested.offset is None:
        return partition, None
    if _OFFSET not in requested.offset:
        problem = (
            "The offset for a sink connector should either be null or contain the key "
            f"'{_OFFSET}'"
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    value = requested.offset[_OFFSET]
    try:
        number = int(str(value))
    except ValueError:
        problem = (
            "Failed to parse the following Kafka offset value in the provided offsets: "
            f"'{value}'. Offset values for sink connectors need to be integers."
        )
        raise ConfigError(problem, field="offset", fix=_WHOLE) from None
    if number < 0:
        problem = f"Invalid offset {number}; expected an integer of at least 0."
        raise ConfigError(problem, field="offset", fix=_WHOLE)
    return partition, {"version": number - 1}


def task_of(name: str, positions: Mapping[TaskId, Position], partition: Json) -> TaskId:
    """Return the task that has an offset in a partition; if none has, the first task."""
    for task, position in sorted(positions.items()):
        if position.offset(partition) is not None:
            return task
    return min(positions, default=TaskId(name, 0))


def stood_at(
    to: datetime, task: TaskId, stands: Position, state: Store, changes: Sequence[Place]
) -> Position:
    """Return the position of a task at a time, or an earlier one if that is not known exactly.

    If the clock was set back, the first of several equal times counts. ``changes`` are the
    manual changes of the position since the connector was created, oldest first. Raises
    ConfigError if no position that old is known.
    """
    places: list[Place] = []
    is_newest = True
    batch = state.batch_at(task, to)
    if batch is not None:
        done = batch.finished is not None and batch.finished <= to
        [newest] = state.batches(task, 1)
        is_newest = done and newest.id == batch.id
        places.append((batch.finished or to, batch.end) if done else (batch.begun, batch.start))
    known = list(takewhile(lambda place: place[0] <= to, changes))
    places.extend(known[-1:])
    if places:
        is_newest = is_newest and len(known) == len(changes)
        return stands if is_newest else max(places, key=lambda place: place[0])[1]
    oldest = state.oldest_batch(task)
    if oldest is not None and (oldest.id == 1 or not len(oldest.start)):
        return oldest.start
    since = [oldest.begun] if oldest is not None else []
    since += [at for at, _ in changes[:1]]
    only = f", only since {min(since).isoformat()}" if since else ""
    raise ConfigError(
        problem=f"The position of the connector is unknown at {to.isoformat()}{only}.",
        field="to",
        fix="Use that or a later time, or alter or reset the offsets."
        if since
        else "Alter or reset the offsets.",
    )


_EVENT, _MADE, _GIVE_UP = "offsets", "created", "give-up"
_PAGE = 1000


@dataclass(frozen=True)
class Offsets:
    """The offsets of an installation's connectors. Thread-safe.

    Methods that change offsets raise StateError unless the connector is stopped and has no
    unfinished batch, and raise the plugin's error if it rejects the offsets. Each change is an
    event with its user and time; the last change can be undone.
    """

    connectors: Connectors

    def view(self, name: str) -> list[Offset]:
        return _all_shown(self.connectors.get(name), self._positions(name))

    def alter(self, name: str, offsets: Sequence[Offset], by: str) -> list[OffsetChange]:
        """Set offsets of a stopped connector; other partitions stay unchanged.

        Raises ConfigError if ``offsets`` is empty, or the connector rejects an offset.
        """
        found = self._stopped(name)
        if not offsets:
            problem = "Partitions / offsets need to be provided for an alter offsets request"
            raise ConfigError(problem, field="offsets")
        owned = [own_offset(found, each) for each in offsets]
        self._check(found, Position((p, offset) for p, offset in owned if offset is not None))

        def altered(positions: Mapping[TaskId, Position]) -> Mapping[TaskId, Position]:
            changed: dict[TaskId, Position] = {}
            for partition, offset in owned:
                # Tasks that were assigned the partition earlier still have an offset in it.
                for task, position in {**positions, **changed}.items():
                    if position.offset(partition) is not None:
                        changed[task] = position.without(partition)
                # Even if nothing changes: undo must notice data that has moved since.
                task = task_of(name, positions, partition)
                position = changed.get(task, positions.get(task, Position()))
                changed[task] = (
                    position if offset is None else position.moved(partition, offset)
                )
            return changed

        return self._move(found, altered, by, "alter")

    def reset(self, name: str, by: str) -> list[OffsetChange]:
        found = self._stopped(name)
        return self._move(found, lambda them: dict.fromkeys(them, Position()), by, "reset")

    def rewind(self, name: str, to: datetime, by: str) -> list[OffsetChange]:
        """Make a stopped connector continue with records that arrived at or after a time.

        Topics know when their versions arrived, and some sources when their rows did. Other
        sources continue from their position at that time. Raises ConfigError if that position
        is not known any more, or if the time is in the future.
        """
        found = self._stopped(name)
        if to > self.connectors.clock():
            problem = f"{to.isoformat()} is in the future."
            raise ConfigError(problem, field="to", fix="Use a time in the past.")

        moves = self._events(name)
        changes: dict[TaskId, list[Place]] = {}
        for event in moves:
            for task, position in _places(event, "after").items():
                changes.setdefault(task, []).append((event.at, position))

        def rewound(positions: Mapping[TaskId, Position]) -> Mapping[TaskId, Position]:
            return {
                task: self._at(found, task, each, to, changes.get(task, []))
                for task, each in positions.items()
            }

        # A manual change since then may have moved the position behind the one at that time.
        is_back = not any(event.at > to for event in moves)
        return self._move(found, rewound, by, "rewind", is_back=is_back)

    def undo(self, name: str, by: str, *, force: bool = False) -> list[OffsetChange]:
        """Restore the offsets of a stopped connector from before their last change.

        An undo is itself a change, so undoing it repeats the original change.

        Raises:
            StateError: There is no change, or data has moved since and ``force`` is not set;
                the error describes which records would be duplicated or lost.
        """
        found = self._stopped(name)

        undone = partial(self._undone, found, force=force)
        return self._move(found, undone, by, "undo")

    def _undone(
        self, found: Connector, positions: Mapping[TaskId, Position], *, force: bool
    ) -> Mapping[TaskId, Position]:
        name = found.name
        last = next((each for each in reversed(self._events(name)) if _moves(each)), None)
        if last is None:
            problem = f"The offsets of connector {name} have not been changed."
            raise StateError(problem, fix="There is nothing to undo.")
        made, before = _places(last, "after"), _places(last, "before")
        moved = [task for task, each in made.items() if positions.get(task, Position()) != each]
        if moved and not force:
            changes = changes_between(
                _all_shown(found, positions), _all_shown(found, {**positions, **before})
            )
            meaning = " ".join(each.meaning for each in changes)
            problem = (
                f"Connector {name} has moved data since its offsets were changed. {meaning}"
            )
            raise StateError(problem, fix="Use force to undo it anyway.")
        return before

    def history(self, name: str) -> list[OffsetUpdate]:
        found = self.connectors.get(name)
        return [_update(found, event) for event in reversed(self._events(name))]

    def _stopped(self, name: str) -> Connector:
        found = self.connectors.get(name)
        require_stopped(found)
        return found

    def _positions(self, name: str) -> dict[TaskId, Position]:
        return input_positions(name, self.connectors.task_store.positions(name))

    def _check(self, found: Connector, position: Position) -> None:
        places = self.connectors.places
        if found.kind is ConnectorKind.SINK and places is not None:
            for partition, offset in position.items():
                places.check(partition["topic"], int(offset["version"]))
        plugin, config = self._plugin(found)
        plugin.alter_offsets(config, position)

    def _move(
        self,
        found: Connector,
        moved: Callable[[Mapping[TaskId, Position]], Mapping[TaskId, Position]],
        by: str,
        action: str,
        *,
        is_back: bool = False,
    ) -> list[OffsetChange]:
        """Change the positions of a connector; retry if they were changed concurrently."""
        while True:
            before = self._positions(found.name)
            positions = moved(before)
            stamp = Stamp(self.connectors.clock(), by)
            with suppress(ConnectorChangedError):
                self.connectors.store.set_positions(
                    found.name, positions, stamp, action, before
                )
                after = {**before, **positions}
                return changes_between(
                    _all_shown(found, before), _all_shown(found, after), is_back=is_back
                )

    def _at(
        self,
        found: Connector,
        task: TaskId,
        position: Position,
        to: datetime,
        changes: Sequence[Place],
    ) -> Position:
        """Return the position to rewind a task to; a sink never moves forward."""
        if found.kind is ConnectorKind.SINK:
            places = self.connectors.places
            assert places is not None
            return Position(
                (partition, {"version": version} if version < offset["version"] else offset)
                for partition, offset in position.items()
                for version in [places.before(partition["topic"], to)]
            )
        source, config = self._plugin(found)
        assert issubclass(source, SourceConnector)
        there = source.position_at(config, position, to)
        if there is not None:
            return position.merged(there)
        stood = stood_at(to, task, position, self.connectors.task_store, changes)
        source.alter_offsets(config, stood)
        return stood

    def _plugin(self, found: Connector) -> tuple[type[Plugin], Config]:
        stored = self.connectors.store.connector(found.name)  # with its passwords
        return configured_plugin(stored or found, self.connectors.registry)

    def _events(self, name: str) -> list[Event]:
        found: list[Event] = []
        after = 0
        while page := self.connectors.store.events(after, _PAGE, name, (_MADE, _EVENT)):
            for event in page:
                if event.kind == _MADE:
                    found.clear()  # they belong to an earlier connector of the same name
                elif event.kind == _EVENT:
                    found.append(event)
            after = page[-1].id
        return found


def _moves(event: Event) -> bool:
    """Return whether a change moved a position; giving up a batch may leave it unchanged."""
    return event.detail.get("action") != _GIVE_UP or _places(event, "before") != _places(
        event, "after"
    )


def require_stopped(found: Connector) -> None:
    """Raise StateError, with Kafka Connect's message, unless a connector is stopped."""
    stopped = found.status.state is ConnectorState.STOPPED
    if found.target is TargetState.STOPPED and stopped:
        return
    problem = (
        "Connectors must be in the STOPPED state before their offsets can be modified. "
        "This can be done for the specified connector by issuing a 'PUT' request to the "
        f"'/connectors/{found.name}/stop' endpoint"
    )
    raise StateError(problem, fix="Stop it, and wait until it is stopped.")


def _places(event: Event, when: str) -> dict[TaskId, Position]:
    positions: object = event.detail[when]
    assert isinstance(positions, dict)
    return {
        TaskId(event.connector, int(number)): Position.from_json(text)
        for number, text in positions.items()
    }


def input_positions(name: str, positions: Mapping[TaskId, Position]) -> dict[TaskId, Position]:
    """Return the positions of the tasks that read a connector's input, which can be moved.

    Replays would deliver the same dead letters again. The position of the chain behind a
    capture stays too: records that the capture reads again are appended to its topic again.
    """
    behind = {"topic": f"{name}.capture"}
    return {
        task: each
        for task, each in positions.items()
        if task.number != REPLAYS and each.offset(behind) is None
    }


def _update(found: Connector, event: Event) -> OffsetUpdate:
    action = str(event.detail.get("action", "alter"))
    changes = changes_between(
        _all_shown(found, _places(event, "before")),
        _all_shown(found, _places(event, "after")),
    )
    return OffsetUpdate(event.id, action, event.at, event.by, changes)


def _all_shown(found: Connector, positions: Mapping[TaskId, Position]) -> list[Offset]:
    return [
        shown for _, each in sorted(positions.items()) for shown in shown_offsets(found, each)
    ]


class Holding(StrEnum):
    """Whether a target holds a batch."""

    YES = "yes"
    PART = "part"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TargetView:
    """A target of a task.

    Args:
        name: The class of the sink.
        why: Why ``holds`` is UNKNOWN, or which part the target holds.
    """

    name: str
    holds: Holding
    why: str = ""


class BatchTargets(Protocol):
    """Asks the targets of tasks whether they hold a batch. Thread-safe."""

    def ask(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        """Return whether each target of a batch's task holds the batch; never raises.

        ``connector`` has its passwords. ``topics`` are the topics and streams that the batch's
        records may have.
        """


@dataclass(frozen=True)
class GivenUp:
    """A batch that was given up, or would be.

    Args:
        skipped: Whether the batch's records are skipped instead of read again.
        done: False for a dry run.
        meaning: The effect on the batch's records, in words.
    """

    batch: Batch
    skipped: bool
    targets: Sequence[TargetView]
    done: bool
    meaning: str


@dataclass(frozen=True)
class UnfinishedBatches:
    """The unfinished batches of an installation's connectors. Thread-safe."""

    connectors: Connectors
    targets: BatchTargets

    def give_up(
        self,
        task: TaskId,
        batch_id: int,
        by: str,
        *,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> GivenUp:
        """Give up the unfinished batch of a stopped connector, e.g. if it cannot be read again.

        The task then plans a new batch from the start of this one or, with ``skip``, from its
        end. The batch id is not reused. ``dry_run`` changes nothing.

        Raises:
            StateError: The connector is not stopped, the id is not that of the unfinished
                batch or, unless forced, a target holds the batch or cannot be asked.
        """
        found = self.connectors.get(task.connector)
        require_stopped(found)
        batch = self._unfinished(task, batch_id)
        name = found.name
        stored = self.connectors.store.connector(name)  # with its passwords
        topics = {
            *self.connectors.store.topics(name),
            *self.connectors.task_store.schemas(name),
        }
        targets = self.targets.ask(stored or found, batch, sorted(topics))
        start, end = (_shown_places(found, each) for each in (batch.start, batch.end))
        if not dry_run:
            if not force:
                require_not_held(batch, targets)
            stamp = Stamp(self.connectors.clock(), by)
            self.connectors.store.give_up(task, batch_id, stamp, skip=skip)
        meaning = meaning_of(start, end, skip=skip)
        return GivenUp(batch, skip, targets, not dry_run, meaning)

    def _unfinished(self, task: TaskId, batch_id: int) -> Batch:
        newest = self.connectors.task_store.batches(task, 1)
        if not newest or newest[0].id != batch_id or newest[0].state is BatchState.FINISHED:
            problem = f"Batch {batch_id} is not an unfinished batch of task {task}."
            fix = f"Run: headrace connector batches {task.connector} --task {task.number}."
            raise StateError(problem, field="batch", fix=fix)
        return newest[0]


def require_not_held(batch: Batch, targets: Sequence[TargetView]) -> None:
    """Raise StateError if a target holds a batch or part of it, or cannot be asked."""
    held = [each.name for each in targets if each.holds is Holding.YES]
    parts = [f"{each.name}: {each.why}" for each in targets if each.holds is Holding.PART]
    start = "Start the connector" if batch.task.run is None else "Retry the run"
    fix = (
        f"{start} to finish the batch. If that is not possible, force it: the records are "
        "then duplicated in the target, unless you skip them."
    )
    if held:
        problem = f"{' and '.join(held)} holds batch {batch.id} of task {batch.task}."
        rest = [each.name for each in targets if each.holds is not Holding.YES]
        if rest:
            problem += f" {' and '.join(rest)} may not hold it."
        raise StateError(problem, field="batch", fix=fix)
    if parts:
        problem = f"Batch {batch.id} of task {batch.task} is partly written. {' '.join(parts)}"
        fix += " The records that are not written yet are then lost."
        raise StateError(problem, field="batch", fix=fix)
    unknown = [f"{each.name}: {each.why}" for each in targets if each.holds is Holding.UNKNOWN]
    if unknown:
        problem = f"Cannot determine whether batch {batch.id} was written. {' '.join(unknown)}"
        fix = "Make the target reachable, or force it: the records may then be duplicated."
        raise StateError(problem, field="batch", fix=fix)


def meaning_of(start: str, end: str, *, skip: bool) -> str:
    """Return the effect on the records between two offsets, in words."""
    between = f"The records between {start} and {end}"
    if skip:
        return f"{between} are skipped: a target that does not have them yet never gets them."
    return (
        f"{between} are read again in a new batch, if they still exist: a target that has "
        "some of them gets duplicates."
    )


def _shown_places(found: Connector, position: Position) -> str:
    shown = shown_offsets(found, position)
    return places_text((each.partition, each.offset or {}) for each in shown)


def places_text(places: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return partitions and their offsets as text."""
    texts = (_place({**partition, **offset}) for partition, offset in places)
    return "; ".join(texts) or "the beginning"
