"""Offsets as objects that can be looked at and, while nothing runs, changed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from headrace.control.config_infos import definition_of
from headrace.control.offset_changes import (
    Offset,
    OffsetChange,
    OffsetUpdate,
    changes_between,
    own_offset,
    shown_offsets,
    task_of,
)
from headrace.control.planning import REPLAYS
from headrace.evolution import plugin_keys
from headrace.model import ConnectorKind, ConnectorState, Stamp, TargetState, TaskId
from headrace.sdk import ConfigError, Position, SourceConnector, StateError
from headrace.store import ConnectorChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from headrace.control.connectors import Connectors
    from headrace.model import Connector, Event
    from headrace.sdk import Connector as Plugin
    from headrace.sdk.config import Config
    from headrace.store import Store

    Place = tuple[datetime, Position]


def stood_at(
    to: datetime, task: TaskId, stands: Position, state: Store, changes: Sequence[Place]
) -> Position:
    """Return where a task stood at a time, or earlier where that is not known as exactly.

    Where the clock was put back the first of the times that are alike counts.

    Args:
        to: The time.
        task: The task.
        stands: Where it stands now.
        state: Where its batches are.
        changes: When people let it go on from where since it was made, oldest first.

    Raises:
        ConfigError: Nothing is known that is as old.
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
        fix="Use that time or a later one, or alter or reset the offsets."
        if since
        else "Alter or reset the offsets.",
    )


_EVENT, _MADE, _GIVE_UP = "offsets", "created", "give-up"
_PAGE = 1000


@dataclass(frozen=True)
class Offsets:
    """The offsets of an installation's connectors. Any thread may use it.

    What changes them raises StateError unless the connector is stopped and has no unfinished
    batch, and what its connector refuses. Each change is an event with who made it and when;
    the last one can be undone.
    """

    connectors: Connectors

    def view(self, name: str) -> list[Offset]:
        """Return where a connector stands. Raises ConnectorNotFoundError."""
        return _all_shown(self.connectors.get(name), self._positions(name))

    def alter(self, name: str, offsets: Sequence[Offset], by: str) -> list[OffsetChange]:
        """Make a stopped connector go on from elsewhere; the other partitions stay.

        Raises ConfigError if nothing is given, or it is not what the connector takes.
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
                # Tasks that had the partition once still have what they came to.
                for task, position in {**positions, **changed}.items():
                    if position.offset(partition) is not None:
                        changed[task] = position.without(partition)
                # Also where nothing changes: an undo of this is to see what has moved since.
                task = task_of(name, positions, partition)
                position = changed.get(task, positions.get(task, Position()))
                changed[task] = (
                    position if offset is None else position.moved(partition, offset)
                )
            return changed

        return self._move(found, altered, by, "alter")

    def reset(self, name: str, by: str) -> list[OffsetChange]:
        """Make a stopped connector begin anew."""
        found = self._stopped(name)
        return self._move(found, lambda them: dict.fromkeys(them, Position()), by, "reset")

    def rewind(self, name: str, to: datetime, by: str) -> list[OffsetChange]:
        """Make a stopped connector go on with what came at a time, or later.

        Topics know when their versions came, and some sources when their rows did. Others go
        on from where they stood then. Raises ConfigError if that is not known any more, and
        for a time that is to come.
        """
        found = self._stopped(name)
        if to > self.connectors.clock():
            problem = f"{to.isoformat()} is in the future."
            raise ConfigError(problem, field="to", fix="Use a time in the past.")

        moves = [event for event in self._events(name) if event.kind == _EVENT]

        def rewound(positions: Mapping[TaskId, Position]) -> Mapping[TaskId, Position]:
            return {
                task: self._at(found, task, each, to, _changes(moves, task))
                for task, each in positions.items()
            }

        # What people have altered since may lie behind where it stood then.
        is_back = not any(event.at > to for event in moves)
        return self._move(found, rewound, by, "rewind", is_back=is_back)

    def undo(self, name: str, by: str, *, force: bool = False) -> list[OffsetChange]:
        """Make a stopped connector stand where it did before the last change of its offsets.

        An undo is such a change itself, so that undoing it does the change once more.

        Raises:
            StateError: There is no such change, or data has moved since it was made, unless
                that does not matter; the error says what would be doubled or lost.
        """
        found = self._stopped(name)

        def undone(positions: Mapping[TaskId, Position]) -> Mapping[TaskId, Position]:
            return self._undone(found, positions, force=force)

        return self._move(found, undone, by, "undo")

    def _undone(
        self, found: Connector, positions: Mapping[TaskId, Position], *, force: bool
    ) -> Mapping[TaskId, Position]:
        name = found.name
        last = self._last(name)
        if last is None:
            problem = f"The offsets of connector {name} have not been changed."
            raise StateError(problem, fix="There is nothing to undo.")
        made, before = _places(last, "after"), _places(last, "before")
        moved = [task for task, each in made.items() if positions.get(task, Position()) != each]
        if moved and not force:
            changes = changes_between(
                _all_shown(found, positions), _all_shown(found, {**positions, **before})
            )
            told = " ".join(each.meaning for each in changes)
            problem = f"Connector {name} has moved data since its offsets were changed. {told}"
            raise StateError(problem, fix="Force it if that is what you want.")
        return before

    def history(self, name: str) -> list[OffsetUpdate]:
        """Return the changes that were made, newest first. Raises ConnectorNotFoundError."""
        found = self.connectors.get(name)
        return [_update(found, event) for event in reversed(self._events(name))]

    def _stopped(self, name: str) -> Connector:
        found = self.connectors.get(name)
        require_stopped(found)
        return found

    def _positions(self, name: str) -> dict[TaskId, Position]:
        """Return where the tasks stand that read what the connector reads."""
        positions = self.connectors.state.positions(name)
        # How far the chain behind a capture has read stays: what the capture reads again is
        # appended again.
        behind = {"topic": f"{name}.capture"}
        return {
            task: each
            for task, each in positions.items()
            if task.number != REPLAYS and each.offset(behind) is None
        }

    def _check(self, found: Connector, position: Position) -> None:
        """Ask the connector, and the topics of a sink, whether they could go on from there."""
        if found.kind is ConnectorKind.SINK:
            for partition, offset in position.items():
                self.connectors.places.check(partition["topic"], int(offset["version"]))
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
        """Change where a connector stands; anew, if somebody else has changed it meanwhile."""
        while True:
            before = self._positions(found.name)
            positions = moved(before)
            stamp = Stamp(self.connectors.clock(), by)
            with suppress(ConnectorChangedError):
                self.connectors.wanted.set_positions(
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
        changes: Sequence[tuple[datetime, Position]],
    ) -> Position:
        """Return where a task goes that stands at a position; a sink never goes forward."""
        if found.kind is ConnectorKind.SINK:
            before = self.connectors.places.before
            return Position(
                (partition, {"version": version} if version < offset["version"] else offset)
                for partition, offset in position.items()
                for version in [before(partition["topic"], to)]
            )
        source, config = self._plugin(found)
        assert issubclass(source, SourceConnector)
        there = source.position_at(config, position, to)
        if there is not None:
            return position.merged(there)
        stood = stood_at(to, task, position, self.connectors.state, changes)
        source.alter_offsets(config, stood)
        return stood

    def _plugin(self, found: Connector) -> tuple[type[Plugin], Config]:
        """Return a connector's class with its parsed configuration.

        Raises what is wrong with the configuration.
        """
        registry = self.connectors.registry
        kept = self.connectors.wanted.connector(found.name)  # with its passwords
        definition = definition_of(kept or found, registry)
        spec = definition.source or definition.sinks[0]
        find = registry.sink if definition.source is None else registry.source
        plugin: type[Plugin] = find(spec.plugin)
        return plugin, plugin.config_def().parse(plugin_keys(spec.config))

    def _last(self, name: str) -> Event | None:
        changes = (each for each in reversed(self._events(name)) if _moves(each))
        return next(changes, None)

    def _events(self, name: str) -> list[Event]:
        """Return the changes of its offsets since the connector was made, oldest first."""
        found: list[Event] = []
        after = 0
        while page := self.connectors.wanted.events(after, _PAGE, name, (_MADE, _EVENT)):
            for event in page:
                if event.kind == _MADE:
                    found.clear()  # they were those of another of that name
                elif event.kind == _EVENT:
                    found.append(event)
            after = page[-1].id
        return found


def _changes(events: Iterable[Event], task: TaskId) -> list[tuple[datetime, Position]]:
    """Return when a task was let go on from where."""
    made = [(event.at, _places(event, "after")) for event in events]
    return [(at, after[task]) for at, after in made if task in after]


def _moves(event: Event) -> bool:
    """Return whether a change moved a task: one may give up a batch and stay where it is."""
    return event.detail.get("action") != _GIVE_UP or _places(event, "before") != _places(
        event, "after"
    )


def require_stopped(found: Connector) -> None:
    """Raise StateError unless a connector is stopped, in the words of Kafka Connect."""
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
    """Return where tasks stood before or after a change."""
    told: object = event.detail[when]
    assert isinstance(told, dict)
    return {
        TaskId(event.connector, int(number)): Position.from_json(text)
        for number, text in told.items()
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


class Places(Protocol):
    """Knows which versions topics have. Any thread may use it."""

    def check(self, name: str, version: int) -> None:
        """Raise ConfigError where a reader could not stand behind a version of a topic."""

    def before(self, name: str, time: datetime) -> int:
        """Return the newest version of a topic from before a time. Raises ConfigError."""


class AnyPlace:
    """Takes any place, where no topics can be looked into."""

    def check(self, name: str, version: int) -> None:
        """See Places."""

    def before(self, name: str, time: datetime) -> int:
        problem = f"The contents of topic {name} at {time.isoformat()} are unknown."
        raise ConfigError(problem, field="to", fix="Alter the offsets instead.")
