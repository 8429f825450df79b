"""The place of the one server that may keep the connectors of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from headrace.sdk.errors import StaleEpochError, StateError
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import open_database
from headrace.store.lease_clock import server_micros
from headrace.store.tables import servers, time_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta


_PLACE = "connectors"
_MICROS = 1_000_000


class ServerPlaces:
    """Gives the place to one server at a time, in a PostgreSQL database that several share.

    Times are those of the database, so that the machines' clocks need not agree. Any thread
    may call it.
    """

    def __init__(self, url: str) -> None:
        """Open the database."""
        self._engine = open_database(url)
        self._writer = in_mode(self._engine, Mode.WRITE)

    def take(
        self, owner: str, duration: timedelta, is_dead: Callable[[str], bool]
    ) -> str | None:
        """Take the place for a time; return who had it and is gone, if anybody.

        Args:
            owner: LetterScope it is to be.
            duration: For how long, unless it is kept.
            is_dead: Whether an owner is known to be gone, so that its time need not run out.

        Raises:
            StateError: Another has it.
        """
        with self._writer.begin() as db:
            lock_name(db, "server", _PLACE)
            now = server_micros(db)
            # Locked: who keeps it just now has it, though its time had run out.
            query = select(servers).where(servers.c.place == _PLACE).with_for_update()
            row = db.execute(query).one_or_none()
            if row is not None and row.expires_us > now and not is_dead(row.owner):
                raise _taken(row.owner, row.expires_us, now)
            db.execute(delete(servers).where(servers.c.place == _PLACE))
            expires = now + _micros(duration)
            values = {"place": _PLACE, "owner": owner, "since_us": now, "expires_us": expires}
            db.execute(insert(servers).values(**values))
            return None if row is None else str(row.owner)

    def keep(self, owner: str, duration: timedelta) -> None:
        """Keep the place for some time more. Raises StaleEpochError when another has it."""
        with self._writer.begin() as db:
            expires = server_micros(db) + _micros(duration)
            mine = (servers.c.place == _PLACE, servers.c.owner == owner)
            kept = db.execute(update(servers).where(*mine).values(expires_us=expires))
            if not kept.rowcount:
                problem = "Another server keeps the connectors of this store now."
                raise StaleEpochError(problem)

    def leave(self, owner: str) -> None:
        """Give the place up, if it is still held."""
        with self._writer.begin() as db:
            mine = (servers.c.place == _PLACE, servers.c.owner == owner)
            db.execute(delete(servers).where(*mine))

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()


def _micros(duration: timedelta) -> int:
    return round(duration.total_seconds() * _MICROS)


def _taken(owner: str, expires: int, now: int) -> StateError:
    problem = f"Another server, {owner}, keeps the connectors of this store."
    seconds = (expires - now) // _MICROS + 1
    at = f"{time_of(expires):%H:%M:%S %Z}"
    fix = f"Stop it. If it is gone, its place is free in {seconds} seconds, at {at}."
    return StateError(problem, field="store_url", fix=fix)
