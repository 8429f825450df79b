"""How a server is: what it needs is looked at, each thing by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

_READY = "Worker has completed startup and is ready to handle requests."


class HealthState(StrEnum):
    """How something is, the best first; the worst of all is how the server is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It serves, but not all that it runs goes on."""
    UNHEALTHY = "unhealthy"


_ORDER = list(HealthState)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look at something has found.

    Args:
        words: The same in words, for those who may know addresses and paths.
    """

    state: HealthState = HealthState.HEALTHY
    words: str = ""


@dataclass
class _Watched:
    """One thing that is looked at, and what was found last."""

    look: Callable[[], Finding]
    found: Finding | None = None
    at: float = 0.0
    began: float | None = None
    """Since when a look goes on."""


class Health:
    """Looks at what a server needs, each time that it is asked. Any thread may ask.

    Each look has a thread of its own, so that one that hangs holds up no other, and is not
    looked at again until it has come back.

    Args:
        looks: What to look at, by name. A look that raises has found it unhealthy.
        limit: A look that takes longer has found it unhealthy.
    """

    def __init__(
        self,
        looks: Mapping[str, Callable[[], Finding]],
        limit: timedelta = timedelta(seconds=5),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._watched = {name: _Watched(look) for name, look in looks.items()}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Begin to look at everything that is not looked at just now."""
        for name, each in self._watched.items():
            with self._lock:
                if each.began is not None:
                    continue
                each.began = self._clock()
            # Not waited for at the end: what hangs does not come back.
            threading.Thread(
                target=self._find, args=(each,), name=f"headrace-health-{name}", daemon=True
            ).start()

    @property
    def looking(self) -> bool:
        """Whether something is looked at that may still answer in time."""
        end = self._clock() - self.limit.total_seconds()
        begun = [each.began for each in self._watched.values()]
        return any(began is not None and began > end for began in begun)

    def to_json(self, *, full: bool) -> dict[str, Any]:
        """Return how everything is; without ``full``, nothing of addresses and paths."""
        checks: dict[str, dict[str, Any]] = {}
        worst, words = HealthState.HEALTHY, _READY
        for name, each in self._watched.items():
            found, age = self._now(each)
            checks[name] = {"status": found.state.value}
            if full:
                checks[name] |= {"message": found.words, "age_seconds": round(age, 1)}
            if _ORDER.index(found.state) > _ORDER.index(worst):
                worst = found.state
                words = f"{name}: {found.words}" if full else f"{name} is {worst.value}."
        return {"status": worst.value, "message": words, "checks": checks}

    def _now(self, each: _Watched) -> tuple[Finding, float]:
        """Return what was found last and how old that is, unless a look takes too long."""
        now, began, found = self._clock(), each.began, each.found
        if found is not None and began is None:
            return found, now - each.at
        waited = now - (now if began is None else began)
        words = f"No response for {waited:.1f} s."
        if found is None:
            return Finding(HealthState.UNHEALTHY, words), waited
        age = now - each.at
        words += f" {age:.0f} s ago: {found.words}"
        return Finding(HealthState.UNHEALTHY, words), age

    def _find(self, each: _Watched) -> None:
        try:
            found = each.look()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not healthy
            found = Finding(HealthState.UNHEALTHY, str(error) or type(error).__name__)
        with self._lock:
            each.found, each.at, each.began = found, self._clock(), None


def store_look(ask: Callable[[], object]) -> Callable[[], Finding]:
    """Return what looks at the store, by asking it for anything."""

    def look() -> Finding:
        ask()
        return Finding(words="The store responds.")

    return look
