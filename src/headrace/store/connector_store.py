"""Connectors as rows of a database."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from headrace.model import (
    Batch,
    ConfigVersion,
    Connector,
    ConnectorKind,
    ConnectorState,
    ConnectorStatus,
    Event,
    Retention,
    Stamp,
    TargetState,
    TaskConfig,
    TaskId,
)
from headrace.sdk import Position
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import Place, open_database
from headrace.store.rows import (
    add_event,
    check_idle,
    check_new,
    check_none_unfinished,
    check_tasks,
    check_to_stop,
    check_unchanged,
    ensure_task,
    existing,
    expect,
    forget,
    given_up,
    is_task,
    prune_events,
    state_after,
    storable,
    unfinished_of,
    update_task,
)
from headrace.store.tables import (
    batches,
    configs,
    connectors,
    events,
    managed,
    micros,
    task_configs,
    time_of,
    topics_in_use,
)

_M = managed.c


class ConnectorStore:
    """Connectors as rows: the control plane writes their target states, workers their states.

    Any thread may call it; every write is durable on return, together with the event that
    tells of it. A method that names a connector that is not there raises
    ConnectorNotFoundError, unless it says otherwise.
    """

    def __init__(self, place: Place) -> None:
        self._engine = open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)

    def create(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        target: TargetState,
        stamp: Stamp,
    ) -> Connector:
        """Add a connector. Raises ConnectorExistsError where the name is taken."""
        with self._writer.begin() as db:
            lock_name(db, "connector", name)
            check_new(name, _row(db, name))
            # A run of the same name from the command line has given it an identity.
            known = select(connectors.c.uid).where(connectors.c.name == name)
            uid = db.execute(known).scalar()
            if uid is None:
                uid = uuid.uuid4().hex[:12]
                db.execute(insert(connectors).values(name=name, uid=uid))
            db.execute(
                insert(managed).values(
                    name=name,
                    uid=uid,
                    kind=kind.value,
                    version=1,
                    target=target.value,
                    restarts=0,
                    state=ConnectorState.UNASSIGNED.value,
                    worker="",
                    updated_us=micros(stamp.at),
                )
            )
            _add_config(db, name, 1, config, stamp)
            add_event(db, name, "created", stamp, {"version": 1, "target": target.value})
            return _found(db, name)

    def connector(self, name: str) -> Connector | None:
        """Return a connector; None when it is not there."""
        with self._engine.connect() as db:
            row = _row(db, name)
            return None if row is None else _connector(row)

    def connectors(self) -> Sequence[Connector]:
        """Return all connectors, by name."""
        with self._engine.connect() as db:
            return [_connector(row) for row in db.execute(_ROWS.order_by(_M.name))]

    def configure(
        self,
        name: str,
        kind: ConnectorKind,
        config: Mapping[str, str],
        stamp: Stamp,
        seen: Connector | None = None,
    ) -> Connector:
        """Give a connector another configuration, with the next version.

        The configuration that it has already changes nothing. Raises ConnectorChangedError if
        ``seen`` is given, and another connector or another version of it is there by now.
        """
        with self._writer.begin() as db:
            found = _locked(db, name)
            if seen is not None:
                there, known = (found.uid, found.version), (seen.uid, seen.version)
                check_unchanged(name, there, known)
            if dict(found.config) == dict(config):
                return found
            version = found.version + 1
            _update(db, name, version=version, kind=kind.value)
            _add_config(db, name, version, config, stamp)
            add_event(db, name, "configured", stamp, {"version": version})
            return _found(db, name)

    def versions(self, name: str) -> Sequence[ConfigVersion]:
        """Return the configurations of a connector, newest first; none if it is not there."""
        query = select(configs).where(configs.c.connector == name)
        with self._engine.connect() as db:
            return [
                ConfigVersion(row.version, json.loads(row.config), time_of(row.at_us), row.by)
                for row in db.execute(query.order_by(configs.c.version.desc()))
            ]

    def set_target(self, name: str, target: TargetState, stamp: Stamp) -> Connector:
        """Say what is wanted of a connector; what is wanted already changes nothing."""
        with self._writer.begin() as db:
            found = _locked(db, name)
            if found.target is target:
                return found
            state = state_after(found, target)
            _update(db, name, target=target.value, state=state.value)
            add_event(db, name, "target", stamp, {"target": target.value})
            return _found(db, name)

    def request_restart(
        self, name: str, tasks: Collection[int], stamp: Stamp, *, connector: bool
    ) -> Connector:
        """Ask for a new start of some tasks and, if wanted, of the connector itself.

        Raises TaskNotFoundError for a task that it does not have; nothing is asked then.
        """
        with self._writer.begin() as db:
            found = _locked(db, name)
            check_tasks(name, tasks, {task.number for task in _tasks(db, name)})
            _update(db, name, restarts=found.restarts + connector)
            for number in tasks:
                this = (task_configs.c.connector == name, task_configs.c.number == number)
                more = {"restarts": task_configs.c.restarts + 1}
                db.execute(update(task_configs).where(*this).values(more))
            detail = {"connector": connector, "tasks": sorted(tasks)}
            add_event(db, name, "restart", stamp, detail)
            return _found(db, name)

    def delete(self, name: str, stamp: Stamp) -> None:
        """Forget a connector with all that was kept for it, but for its events."""
        with self._writer.begin() as db:
            _locked(db, name)
            for table in (configs, task_configs, topics_in_use):
                db.execute(delete(table).where(table.c.connector == name))
            db.execute(delete(managed).where(_M.name == name))
            forget(db, name)
            add_event(db, name, "deleted", stamp, {})

    def plan(
        self, connector: Connector, configs: Mapping[int, Mapping[str, str]], now: datetime
    ) -> bool:
        """Store the tasks that a connector planned, by number, unless it has changed since.

        Tasks that it had before keep their restarts, and those beyond are forgotten.
        Returns whether the connector is still the one of that identity and version.
        """
        name = connector.name
        with self._writer.begin() as db:
            if not _is_current(db, connector):
                return False
            restarts = {task.number: task.restarts for task in _tasks(db, name)}
            db.execute(delete(task_configs).where(task_configs.c.connector == name))
            rows = [
                {
                    "connector": name,
                    "number": number,
                    "config": json.dumps(dict(config)),
                    "restarts": restarts.get(number, 0),
                }
                for number, config in sorted(configs.items())
            ]
            if rows:
                db.execute(insert(task_configs), rows)
            return True

    def tasks(self, name: str) -> Sequence[TaskConfig]:
        """Return the planned tasks of a connector, by number; none if it is not there."""
        with self._engine.connect() as db:
            return _tasks(db, name)

    def all_tasks(self) -> Mapping[str, Sequence[TaskConfig]]:
        """Return the planned tasks of all connectors, by name and number."""
        query = select(task_configs).order_by(task_configs.c.connector, task_configs.c.number)
        found: dict[str, list[TaskConfig]] = {}
        with self._engine.connect() as db:
            for row in db.execute(query):
                found.setdefault(row.connector, []).append(_task(row))
        return found

    def set_status(self, connector: Connector, status: ConnectorStatus, now: datetime) -> bool:
        """Store how a connector is. Returns False, and does nothing, if it is another now."""
        with self._writer.begin() as db:
            if not _is_current(db, connector):
                return False
            values = {"state": status.state.value, "worker": status.worker}
            trace = storable(status.trace)
            later = None if status.next_try is None else micros(status.next_try)
            times = {"updated_us": micros(now), "next_us": later}
            _update(db, connector.name, **values, **times, trace=trace)
            detail = {"state": status.state.value, "trace": trace}
            add_event(db, connector.name, "state", Stamp(now, status.worker), detail)
            return True

    def set_positions(
        self,
        name: str,
        positions: Mapping[TaskId, Position],
        stamp: Stamp,
        action: str = "alter",
        seen: Mapping[TaskId, Position] | None = None,
    ) -> None:
        """Set where tasks of a connector stand, all of them or none.

        The event ``offsets`` tells where they stood and stand, and by what ``action``. Raises
        StateError while one of them has a lease or an unfinished batch; whoever had a lease
        before is refused. Raises ConnectorChangedError if ``seen`` is given, and one of them
        stands elsewhere by now.
        """
        with self._writer.begin() as db:
            _locked(db, name)
            before = {}
            for task, position in sorted(positions.items(), key=lambda each: each[0]):
                row = ensure_task(db, task)
                check_idle(task, row.owner)
                check_none_unfinished(unfinished_of(db, task))
                before[task.number] = row.position
                if seen is not None:
                    stood = Position.from_json(row.position)
                    check_unchanged(name, stood, seen.get(task, Position()))
                update_task(db, task, position=position.to_json(), epoch=row.epoch + 1)
            after = {task.number: each.to_json() for task, each in positions.items()}
            add_event(
                db, name, "offsets", stamp, {"action": action, "before": before, "after": after}
            )

    def give_up(self, task: TaskId, batch_id: int, stamp: Stamp, *, skip: bool) -> Batch:
        """Forget the unfinished batch of a task of a stopped connector, and return it.

        The task then stands at the batch's start or, to ``skip`` its records, at its end. The
        batch's id stays used. The event ``offsets`` tells of it as of a move, by the action
        ``give-up``. Raises StateError while the connector is not to be stopped or somebody has
        the task's lease, and for any other id than the unfinished batch's.
        """
        name = task.connector
        with self._writer.begin() as db:
            check_to_stop(_locked(db, name))
            row = ensure_task(db, task)
            check_idle(task, row.owner)
            batch = expect(unfinished_of(db, task), batch_id)
            db.execute(delete(batches).where(is_task(batches, task), batches.c.id == batch_id))
            position = (batch.end if skip else batch.start).to_json()
            # Guarantee 3: whoever ran the batch before may not finish it any more.
            update_task(db, task, position=position, epoch=row.epoch + 1)
            add_event(db, name, "offsets", stamp, given_up(batch, row.position, position))
            return batch

    def add_topics(self, connector: Connector, topics: Collection[str]) -> None:
        """Remember that a connector uses topics. Nothing happens if it was removed."""
        name = connector.name
        with self._writer.begin() as db:
            row = _row(db, name, lock=True)
            if row is None or row.uid != connector.uid:
                return
            known = set(_topics(db, name))
            rows = [{"connector": name, "topic": topic} for topic in {*topics} - known]
            if rows:
                db.execute(insert(topics_in_use), rows)

    def topics(self, name: str) -> Sequence[str]:
        """Return the topics that a connector has used, sorted; none if it is not there."""
        with self._engine.connect() as db:
            return _topics(db, name)

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used."""
        with self._writer.begin() as db:
            db.execute(delete(topics_in_use).where(topics_in_use.c.connector == name))

    def add_event(
        self, kind: str, stamp: Stamp, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        """Add an event of what was done that changes no row of a connector.

        Args:
            kind: What, see EventKind.
            stamp: When, and by whom.
            detail: Further details.
            connector: The connector, which need not be there; empty for the whole server.
        """
        with self._writer.begin() as db:
            add_event(db, connector, kind, stamp, detail)

    def events(
        self,
        after: int = 0,
        limit: int = 100,
        connector: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> Sequence[Event]:
        """Return the events after one, oldest first: of a connector, of some kinds, or all."""
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        if connector is not None:
            query = query.where(events.c.connector == connector)
        if kinds is not None:
            query = query.where(events.c.kind.in_(kinds))
        with self._engine.connect() as db:
            return [_event(row) for row in db.execute(query)]

    def last_event(self) -> int:
        """Return the id of the newest event; 0 when there is none."""
        with self._engine.connect() as db:
            return int(db.execute(select(func.max(events.c.id))).scalar() or 0)

    def prune(self, keep: Retention, now: datetime) -> int:
        """Forget old events, but for the newest of all; return how many.

        Changes that people made are kept for as long as they are to be, however many states
        came after them.
        """
        with self._writer.begin() as db:
            return prune_events(db, keep, now)

    def close(self) -> None:
        """Let go of files and connections."""
        self._engine.dispose()


_ROWS = select(managed, configs.c.config).join(
    configs, (configs.c.connector == _M.name) & (configs.c.version == _M.version)
)


def _row(db: Connection, name: str, *, lock: bool = False) -> Row[Any] | None:
    query = _ROWS.where(_M.name == name)
    return db.execute(query.with_for_update(of=managed) if lock else query).one_or_none()


def _locked(db: Connection, name: str) -> Connector:
    """Return a connector that nobody else changes until this transaction ends."""
    row = _row(db, name, lock=True)
    return _connector(existing(name, row))


def _found(db: Connection, name: str) -> Connector:
    return _connector(existing(name, _row(db, name)))


def _is_current(db: Connection, connector: Connector) -> bool:
    row = _row(db, connector.name, lock=True)
    now = None if row is None else (row.uid, row.version)
    return now == (connector.uid, connector.version)


def _update(db: Connection, name: str, **values: object) -> None:
    db.execute(update(managed).where(_M.name == name).values(**values))


def _add_config(
    db: Connection, name: str, version: int, config: Mapping[str, str], stamp: Stamp
) -> None:
    row = {"connector": name, "version": version, "config": json.dumps(dict(config))}
    db.execute(insert(configs).values(**row, at_us=micros(stamp.at), by=stamp.by))


def _tasks(db: Connection, name: str) -> list[TaskConfig]:
    query = select(task_configs).where(task_configs.c.connector == name)
    return [_task(row) for row in db.execute(query.order_by(task_configs.c.number))]


def _task(row: Row[Any]) -> TaskConfig:
    return TaskConfig(row.number, json.loads(row.config), row.restarts)


def _topics(db: Connection, name: str) -> list[str]:
    column = topics_in_use.c
    query = select(column.topic).where(column.connector == name).order_by(column.topic)
    return list(db.execute(query).scalars())


def _connector(row: Row[Any]) -> Connector:
    return Connector(
        row.name,
        row.uid,
        ConnectorKind(row.kind),
        json.loads(row.config),
        row.version,
        TargetState(row.target),
        row.restarts,
        ConnectorStatus(
            ConnectorState(row.state),
            row.worker,
            row.trace,
            None if row.next_us is None else time_of(row.next_us),
        ),
    )


def _event(row: Row[Any]) -> Event:
    at, detail = time_of(row.at_us), json.loads(row.detail)
    return Event(row.id, at, row.connector, row.task, row.kind, row.by, detail)
