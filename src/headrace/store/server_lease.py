"""The clock by which leases expire, and the lease of the single server of a shared store."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from headrace.sdk.errors import StaleEpochError, StateError
from headrace.store.connections import Mode, in_mode, lock_name
from headrace.store.database import open_database
from headrace.store.tables import fact, put_fact, servers, tasks, time_of

_FACT = "lease_clock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MICROS = 1_000_000


class Machine:
    """The clocks of this machine, in microseconds."""

    def boot(self) -> str:
        """Return the id of the machine's current boot; empty if unknown."""
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""

    def wall(self) -> int:
        """Return the time of day, which may be changed, since 1970 UTC."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """Return the time since boot, which cannot be changed."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def lease_clock(engine: Engine, machine: Machine | None = None) -> Callable[[], datetime]:
    """Return the clock of a store's leases.

    For PostgreSQL this is the server's clock, so that the machines' clocks need not agree. For
    SQLite it is this machine's time since boot plus an offset, fixed from the time of day when
    a store is first opened after boot. Changing the time of day neither shortens nor extends
    leases.
    """
    if engine.dialect.name == "postgresql":
        return lambda: _of_server(engine)
    machine = machine or Machine()
    boot = machine.boot()
    if not boot:
        return lambda: time_of(machine.wall())
    offset = _offset(engine, machine, boot)
    return lambda: time_of(machine.steady() + offset)


def server_micros(db: Connection) -> int:
    """Return the time of a PostgreSQL server, in microseconds since 1970 UTC."""
    seconds = func.extract("epoch", func.clock_timestamp())
    return int(db.execute(select(cast(seconds * _MICROS, BigInteger))).scalar_one())


def _of_server(engine: Engine) -> datetime:
    with engine.connect() as db:
        return time_of(server_micros(db))


def _offset(engine: Engine, machine: Machine, boot: str) -> int:
    with engine.connect() as db:
        known = _known(db, boot)
    if known is not None:
        return known
    with in_mode(engine, Mode.WRITE).begin() as db:
        known = _known(db, boot)  # another process may already have stored it
        if known is None:
            known = machine.wall() - machine.steady()
            put_fact(db, _FACT, {"boot": boot, "offset_us": known})
            # All owners of leases from before the boot have ended.
            held = tasks.c.owner.is_not(None)
            db.execute(update(tasks).where(held).values(expires_us=0))
        return known


def _known(db: Connection, boot: str) -> int | None:
    found = fact(db, _FACT)
    if not isinstance(found, dict) or found.get("boot") != boot:
        return None
    offset = found.get("offset_us")
    return offset if isinstance(offset, int) else None


_PLACE = "connectors"


class ServerPlaces:
    """The lease that lets one server at a time run the connectors of a PostgreSQL store.

    Times are those of the database, so that the machines' clocks need not agree. Thread-safe.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_database(url)
        self._writer = in_mode(self._engine, Mode.WRITE)

    def take(
        self, owner: str, duration: timedelta, is_dead: Callable[[str], bool]
    ) -> str | None:
        """Take the lease; return the previous owner, if there was one.

        The lease of an owner for which ``is_dead`` returns True need not expire. Raises
        StateError while another server holds the lease.
        """
        with self._writer.begin() as db:
            lock_name(db, "server", _PLACE)
            now = server_micros(db)
            # Lock the row: a concurrent renewal wins, even if the lease had expired.
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
        """Renew the lease. Raises StaleEpochError if another server holds it."""
        with self._writer.begin() as db:
            expires = server_micros(db) + _micros(duration)
            mine = (servers.c.place == _PLACE, servers.c.owner == owner)
            updated = db.execute(update(servers).where(*mine).values(expires_us=expires))
            if not updated.rowcount:
                problem = "Another server now runs the connectors of this store."
                raise StaleEpochError(problem)

    def leave(self, owner: str) -> None:
        with self._writer.begin() as db:
            mine = (servers.c.place == _PLACE, servers.c.owner == owner)
            db.execute(delete(servers).where(*mine))

    def close(self) -> None:
        self._engine.dispose()


def _micros(duration: timedelta) -> int:
    return round(duration.total_seconds() * _MICROS)


def _taken(owner: str, expires: int, now: int) -> StateError:
    problem = f"Another server, {owner}, runs the connectors of this store."
    seconds = (expires - now) // _MICROS + 1
    at = f"{time_of(expires):%H:%M:%S %Z}"
    fix = f"Stop it. If it has crashed, its lease expires in {seconds} seconds, at {at}."
    return StateError(problem, field="store_url", fix=fix)
