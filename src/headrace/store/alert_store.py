"""Alerts about jobs as rows, one per channel, stored together with the change they report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, and_, delete, false, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from headrace.model import DeliveryState, RunState, Trigger
from headrace.sdk import Alert, Boundaries, BoundaryKind
from headrace.store.connections import Mode, in_mode
from headrace.store.database import Place, open_database
from headrace.store.tables import alerts, micros, runs, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

_A, _R = alerts.c, runs.c
_SCHEDULED = (Trigger.SCHEDULE.value, Trigger.AFTER.value)
"""The triggers of runs that can be late; other triggers are for windows long past."""
_NOT_DONE = tuple(each.value for each in (RunState.QUEUED, RunState.RUNNING, RunState.FAILED))
"""The states of runs that can be late; a stopped or skipped run will not succeed."""
_LOOK = 100
"""How many waiting alerts are read: other servers may hold some of them."""


@dataclass(frozen=True, slots=True)
class NewAlert:
    """An alert to send, and the names of its channels."""

    alert: Alert
    channels: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The delivery of an alert to one channel.

    Args:
        attempts: The number of attempts; identifies the attempt in later writes.
        due: When the next attempt is due.
        ended: When the alert was sent or given up.
        error: Why the newest attempt failed.
    """

    id: int
    alert: Alert
    channel: str
    state: DeliveryState
    attempts: int
    due: datetime
    ended: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlert:
    """An alert with its deliveries to all channels; ``number`` increases with time."""

    number: int
    alert: Alert
    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRun:
    """A run of a schedule that is late."""

    id: int
    boundaries: Boundaries
    state: RunState


class AlertStore:
    """Alerts as rows. Thread-safe; every write is durable on return."""

    def __init__(self, place: Place) -> None:
        self._engine = open_database(place)
        self._writer = in_mode(self._engine, Mode.WRITE)

    def add(self, made: Sequence[NewAlert]) -> None:
        """Add alerts; existing ones stay unchanged."""
        with self._writer.begin() as db:
            add_alerts(db, made)

    def add_late(
        self,
        job: str,
        until: datetime,
        alerts_of: Callable[[Sequence[LateRun]], Sequence[NewAlert]],
    ) -> int:
        """Add alerts about late runs, once for each run; return the number of late runs.

        Args:
            job: The job of the runs.
            until: Runs of windows that end by then are late if they have not succeeded.
            alerts_of: Builds the alerts for the late runs, oldest window first.
        """
        late = and_(
            _R.job == job,
            _R.kind == BoundaryKind.TIME.value,
            _R.upper != "",
            _R.upper <= (Boundaries.between(None, until.replace(microsecond=0)).upper or ""),
            _R.trigger.in_(_SCHEDULED),
            _R.state.in_(_NOT_DONE),
            _R.late == false(),
        )
        with self._engine.connect() as db:
            if db.execute(select(_R.id).where(late).limit(1)).scalar() is None:
                return 0
        marked = update(runs).where(late).values(late=True)
        with self._writer.begin() as db:
            # If two servers do this at once, only one gets each row.
            rows = db.execute(marked.returning(_R.id, _R.lower, _R.upper, _R.state)).all()
            found = [
                LateRun(
                    id=row.id,
                    boundaries=Boundaries(BoundaryKind.TIME, row.lower or None, row.upper),
                    state=RunState(row.state),
                )
                for row in rows
            ]
            if found:
                found.sort(key=lambda run: (run.boundaries.lower or "", run.id))
                add_alerts(db, alerts_of(found))
            return len(found)

    def has(self, alert: str) -> bool:
        """Return whether an alert with an id exists."""
        with self._engine.connect() as db:
            query = select(_A.id).where(_A.alert == alert).limit(1)
            return db.execute(query).scalar() is not None

    def alerts(
        self, job: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> Sequence[StoredAlert]:
        """Return alerts, newest first, optionally of one job and before a number."""
        number = func.min(_A.id).label("number")
        query = select(_A.alert, number).group_by(_A.alert).order_by(number.desc())
        if job is not None:
            query = query.where(_A.job == job)
        if before is not None:
            query = query.where(_A.id < before)
        with self._engine.connect() as db:
            numbers = {key: int(first) for key, first in db.execute(query.limit(limit))}
            of_them = select(alerts).where(_A.alert.in_(numbers)).order_by(_A.id)
            found: dict[str, list[Delivery]] = {key: [] for key in numbers}
            for row in db.execute(of_them):
                found[row.alert].append(_delivery(row))
        return [
            StoredAlert(number=numbers[key], alert=each[0].alert, deliveries=each)
            for key, each in found.items()
            if each
        ]

    def claim(
        self,
        channel: str,
        owner: str,
        now: datetime,
        *,
        lease_now: datetime,
        expires: datetime,
        dead: Callable[[str], bool],
    ) -> Delivery | None:
        """Claim the oldest due alert of a channel; return None if there is none.

        Args:
            channel: The channel.
            owner: The sender.
            now: The time of day.
            lease_now: The time by which leases expire, see ``Store.now``.
            expires: When another sender may claim the alert, if this attempt has not ended.
            dead: Returns whether an owner is known to have ended.
        """
        query = select(alerts).where(_waiting(channel, now)).order_by(_A.id).limit(_LOOK)
        with self._engine.connect() as db:
            seen = [row for row in db.execute(query) if _is_free(row, lease_now, dead)]
        for row in seen:
            same = and_(
                _A.id == row.id,
                _A.attempts == row.attempts,
                _A.state == DeliveryState.WAITING.value,
            )
            attempt = {"attempts": row.attempts + 1}
            held = {"owner": owner, "expires_us": micros(expires)}
            with self._writer.begin() as db:
                taken = db.execute(update(alerts).where(same).values(**attempt, **held))
                if taken.rowcount == 1:
                    return _delivery(row, row.attempts + 1)
        return None

    def sent(self, delivery: Delivery, now: datetime) -> bool:
        """Store that an attempt was sent; return False if the alert was claimed again."""
        values = {"state": DeliveryState.SENT.value, "ended_us": micros(now), "error": None}
        return self._end(delivery, values)

    def failed(self, delivery: Delivery, due: datetime, error: str) -> bool:
        """Store that an attempt failed and when the next one is due; returns as ``sent``."""
        return self._end(delivery, {"due_us": micros(due), "error": error})

    def _end(self, delivery: Delivery, values: dict[str, object]) -> bool:
        mine = and_(
            _A.id == delivery.id,
            _A.attempts == delivery.attempts,
            _A.state == DeliveryState.WAITING.value,
        )
        free = {"owner": None, "expires_us": None}
        with self._writer.begin() as db:
            ended = db.execute(update(alerts).where(mine).values(**values, **free))
            return bool(ended.rowcount == 1)

    def has_waiting(self, channels: Collection[str], now: datetime) -> bool:
        """Return whether an alert of one of the channels is due."""
        query = select(_A.id).where(or_(*(_waiting(each, now) for each in channels)))
        with self._engine.connect() as db:
            return bool(channels) and db.execute(query.limit(1)).scalar() is not None

    def give_up(self, older: datetime, now: datetime, lease_now: datetime) -> list[Delivery]:
        """Give up unsent alerts that were created by a time; return them.

        An alert that is being sent is kept until its lease expires.
        """
        unheld = or_(_A.owner.is_(None), _A.expires_us <= micros(lease_now))
        waits = _A.state == DeliveryState.WAITING.value
        old = and_(waits, _A.at_us <= micros(older), unheld)
        with self._engine.connect() as db:
            if db.execute(select(_A.id).where(old).limit(1)).scalar() is None:
                return []
        given = {"state": DeliveryState.GIVEN_UP.value, "ended_us": micros(now), "owner": None}
        with self._writer.begin() as db:
            rows = db.execute(update(alerts).where(old).values(given).returning(alerts)).all()
            return [_delivery(row) for row in rows]

    def prune(self, older: datetime) -> int:
        """Delete alerts that were created by a time and no longer wait; return how many."""
        past = and_(_A.state != DeliveryState.WAITING.value, _A.at_us <= micros(older))
        with self._engine.connect() as db:
            if db.execute(select(_A.id).where(past).limit(1)).scalar() is None:
                return 0
        with self._writer.begin() as db:
            return int(db.execute(delete(alerts).where(past)).rowcount)


def add_alerts(db: Connection, made: Sequence[NewAlert]) -> None:
    """Add alerts in the given transaction; existing ones stay unchanged."""
    rows = [
        {
            "alert": each.alert.id,
            "channel": channel,
            "job": each.alert.job,
            "at_us": micros(each.alert.at),
            "content": json.dumps(_content(each.alert)),
            "state": DeliveryState.WAITING.value,
            "attempts": 0,
            "due_us": micros(each.alert.at),
        }
        for each in made
        for channel in each.channels
    ]
    if rows:
        dialect = postgresql if db.dialect.name == "postgresql" else sqlite
        db.execute(dialect.insert(alerts).on_conflict_do_nothing(), rows)


def _content(alert: Alert) -> dict[str, Any]:
    """Return the fields without a column of their own."""
    return {
        "kind": alert.kind,
        "run": alert.run,
        "subject": alert.subject,
        "text": alert.text,
        "details": dict(alert.details),
    }


def _waiting(channel: str, now: datetime) -> Any:
    return and_(
        _A.state == DeliveryState.WAITING.value,
        _A.channel == channel,
        _A.due_us <= micros(now),
    )


def _is_free(row: Row[Any], lease_now: datetime, dead: Callable[[str], bool]) -> bool:
    expired = row.owner is None or row.expires_us <= micros(lease_now)
    return expired or dead(row.owner)


def _delivery(row: Row[Any], attempts: int | None = None) -> Delivery:
    alert = Alert(id=row.alert, at=time_of(row.at_us), job=row.job, **json.loads(row.content))
    return Delivery(
        id=row.id,
        alert=alert,
        channel=row.channel,
        state=DeliveryState(row.state),
        attempts=row.attempts if attempts is None else attempts,
        due=time_of(row.due_us),
        ended=None if row.ended_us is None else time_of(row.ended_us),
        error=row.error,
    )
