"""Tells the present only while the clock can be believed.

Deleting by age trusts the clock, and a clock may be wrong: set ahead by hand, by a server of
time, or by a machine that starts with a flat battery. So the clock is compared with one that
nobody can set (how long the process has run), and after a start with when it was believed
last. A clock that has jumped is believed again when it has gone on evenly for an hour, as
time enough for whoever has set it wrong to set it right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sdk.location import Location

__all__ = ["TrustedClock"]

_JUMP = timedelta(minutes=5)
"""What a correction or a pause of the machine may be without a doubt."""
_AWAY = timedelta(days=1)
"""How long an installation may have been idle without a doubt."""
_PROOF = timedelta(hours=1)
_NOTED_EVERY = timedelta(minutes=10)


@dataclass
class TrustedClock:
    """The present, or None while it is in doubt. Used by one thread at a time.

    Args:
        clock: Gives the present, aware.
        file: Where what was believed is kept for the next process.
        monotonic: Gives seconds, and only goes on.
    """

    clock: Callable[[], datetime]
    file: Location
    monotonic: Callable[[], float] = time.monotonic
    _last: tuple[datetime, float] | None = field(default=None, init=False)
    _doubted: tuple[datetime, float] | None = field(default=None, init=False)
    _noted: datetime | None = field(default=None, init=False)

    def now(self, newest: Callable[[], datetime | None]) -> datetime | None:
        """Return the present; None while it is in doubt.

        Args:
            newest: Returns when anything was last known to have happened. It is asked at the
                first call, where no process has noted what it believed.
        """
        wall, ran = self.clock(), self.monotonic()
        if self._last is None:
            self._begin(wall, ran, newest)
        else:
            passed = timedelta(seconds=ran - self._last[1])
            if abs(wall - self._last[0] - passed) > _JUMP:
                self._doubted = wall, ran
        self._last = wall, ran
        if self._doubted is not None:
            if ran - self._doubted[1] < _PROOF.total_seconds():
                self._note(wall, doubted=self._doubted[0])
                return None
            self._doubted = None
        self._note(wall)
        return wall

    def _begin(self, wall: datetime, ran: float, newest: Callable[[], datetime | None]) -> None:
        """Compare with what an earlier process has seen."""
        noted = self._read()
        believed = noted.get("believed") or newest()
        if believed is None or wall - believed <= _AWAY:
            return
        doubted = noted.get("doubted")
        if doubted is not None and wall - doubted >= _PROOF:
            return  # two processes have seen it there, an hour or more apart
        self._doubted = wall, ran

    def _note(self, wall: datetime, *, doubted: datetime | None = None) -> None:
        if self._noted is not None and timedelta() <= wall - self._noted < _NOTED_EVERY:
            return
        self._noted = wall
        noted = self._read()
        if doubted is None:
            noted = {"believed": wall}
        elif "doubted" not in noted:
            noted["doubted"] = doubted
        told = {name: at.isoformat() for name, at in noted.items()}
        with suppress(OSError):  # a disk that is full, say: then the next process doubts more
            self.file.put(json.dumps(told))

    def _read(self) -> dict[str, datetime]:
        with suppress(FileNotFoundError, ValueError, AttributeError):
            told = json.loads(self.file.read_text())
            return {name: datetime.fromisoformat(text) for name, text in told.items()}
        return {}
