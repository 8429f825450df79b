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
    """Connectors as rows: the control plane writes target states, workers write states.

    Thread-safe. Every write is durable on return, together with its event. Methods raise
    ConnectorNotFoundError if the connector does not exist, unless documented otherwise.
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
        """Add a connector. Raises ConnectorExistsError."""
        with self._writer.begin() as db:
            lock_name(db, "connector", name)
            check_new(name, _row(db, name))
            # An earlier `headrace run` with this name may have registered a uid.
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
        """Return a connector; None if it does not exist."""
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
        """Store a new configuration of a connector, with the next version.

        An identical configuration changes nothing. Raises ConnectorChangedError if ``seen`` is
        set and is no longer the current connector and version.
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
        """Return a connector's configurations, newest first; empty if it does not exist."""
        query = select(configs).where(configs.c.connector == name)
        with self._engine.connect() as db:
            return [
                ConfigVersion(row.version, json.loads(row.config), time_of(row.at_us), row.by)
                for row in db.execute(query.order_by(configs.c.version.desc()))
            ]

    def set_target(self, name: str, target: TargetState, stamp: Stamp) -> Connector:
        """Set the target state of a connector; the current one changes nothing."""
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
        """Request a restart of some tasks and, with ``connector``, of the connector itself.

        Raises TaskNotFoundError, without any request, if one of the tasks does not exist.
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
        """Delete a connector and everything stored for it, except its events."""
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
        """Store the planned tasks of a connector, by number, unless it has changed since.

        Existing tasks keep their restart counts; tasks that are no longer planned are deleted.
        Returns False if the connector's uid or version has changed.
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
        """Return the planned tasks of a connector, by number; empty if it does not exist."""
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
        """Store a connector's status. Returns False, without a change, if it is outdated."""
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
        """Set the positions of tasks of a connector, all or none.

        The event ``offsets`` records the old and new positions and the ``action``. Raises
        StateError while one of the tasks has a lease or an unfinished batch; earlier lease
        holders are fenced. Raises ConnectorChangedError if ``seen`` is set and a position has
        changed since.
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
        """Give up the unfinished batch of a task of a stopped connector, and return it.

        The task's position becomes the start of the batch or, with ``skip``, its end. The
        batch id is not reused. The event ``offsets`` records this with the action ``give-up``.
        Raises StateError if the connector's target is not STOPPED, the task's lease is held, or
        ``batch_id`` is not that of the unfinished batch.
        """
        name = task.connector
        with self._writer.begin() as db:
            check_to_stop(_locked(db, name))
            row = ensure_task(db, task)
            check_idle(task, row.owner)
            batch = expect(unfinished_of(db, task), batch_id)
            db.execute(delete(batches).where(is_task(batches, task), batches.c.id == batch_id))
            position = (batch.end if skip else batch.start).to_json()
            # Guarantee 3: an earlier lease holder may not finish the batch any more.
            update_task(db, task, position=position, epoch=row.epoch + 1)
            add_event(db, name, "offsets", stamp, given_up(batch, row.position, position))
            return batch

    def add_topics(self, connector: Connector, topics: Collection[str]) -> None:
        """Store that a connector uses topics; no effect if the connector was deleted."""
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
        """Return the topics that a connector has used, sorted; empty if it does not exist."""
        with self._engine.connect() as db:
            return _topics(db, name)

    def reset_topics(self, name: str) -> None:
        """Delete the list of topics that a connector has used."""
        with self._writer.begin() as db:
            db.execute(delete(topics_in_use).where(topics_in_use.c.connector == name))

    def add_event(
        self, kind: str, stamp: Stamp, detail: Mapping[str, object], connector: str = ""
    ) -> None:
        """Add an event for an operation that changes no row of a connector.

        Args:
            kind: The kind, see EventKind.
            stamp: The time and the user.
            detail: Further details.
            connector: The connector, which need not exist; empty for the whole server.
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
        """Return events after an id, oldest first, optionally of a connector and kinds."""
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
        """Delete old events, except the newest of all; return how many.

        Changes by users are kept for their full retention, regardless of how many state events
        follow.
        """
        with self._writer.begin() as db:
            return prune_events(db, keep, now)

    def close(self) -> None:
        """Close files and connections."""
        self._engine.dispose()


_ROWS = select(managed, configs.c.config).join(
    configs, (configs.c.connector == _M.name) & (configs.c.version == _M.version)
)


def _row(db: Connection, name: str, *, lock: bool = False) -> Row[Any] | None:
    query = _ROWS.where(_M.name == name)
    return db.execute(query.with_for_update(of=managed) if lock else query).one_or_none()


def _locked(db: Connection, name: str) -> Connector:
    """Return a connector with its row locked until this transaction ends."""
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
