"""The clock by which the leases of a store run out, one for all who share the store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, cast, func, select, update

from headrace.store.connections import Mode, in_mode
from headrace.store.tables import fact, put_fact, tasks, time_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection, Engine

_FACT = "lease_clock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MICROS = 1_000_000


class Machine:
    """The clocks of this machine, in microseconds."""

    def boot(self) -> str:
        """Return what tells this start of the machine from all others; empty if unknown."""
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""

    def wall(self) -> int:
        """Return the time of day, which may be set, since 1970 UTC."""
        return time.time_ns() // 1000

    def steady(self) -> int:
        """Return the time since the machine's start, which nobody sets."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def lease_clock(engine: Engine, machine: Machine | None = None) -> Callable[[], datetime]:
    """Return the clock of a store's leases.

    In PostgreSQL it is the server's, so that machines need not agree. In SQLite it is this
    machine's time since its start, from the time of day at which a store was first opened
    after that: setting the time of day neither ends leases nor makes them longer.
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
        known = _known(db, boot)  # another process may have been first
        if known is None:
            known = machine.wall() - machine.steady()
            put_fact(db, _FACT, {"boot": boot, "offset_us": known})
            # Whoever had a lease before the machine was started is gone.
            held = tasks.c.owner.is_not(None)
            db.execute(update(tasks).where(held).values(expires_us=0))
        return known


def _known(db: Connection, boot: str) -> int | None:
    found = fact(db, _FACT)
    if not isinstance(found, dict) or found.get("boot") != boot:
        return None
    offset = found.get("offset_us")
    return offset if isinstance(offset, int) else None
