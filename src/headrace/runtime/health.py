"""A server's health: independent checks of the parts that it needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import structlog

log = structlog.get_logger(__name__)

_READY = "Worker has completed startup and is ready to handle requests."


class HealthState(StrEnum):
    """The state of a part, best first; the worst of all parts is the server's state."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It serves requests, but something that it runs has stopped."""
    UNHEALTHY = "unhealthy"


_ORDER = list(HealthState)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Args:
        words: A description, for users who may see addresses and paths.
    """

    state: HealthState = HealthState.HEALTHY
    words: str = ""


@dataclass
class _Watched:
    """A check and its last result."""

    look: Callable[[], Finding]
    found: Finding | None = None
    at: float = 0.0
    began: float | None = None
    """Start time of the running check, if any."""
    logged: HealthState = HealthState.HEALTHY


class Health:
    """Runs a server's checks on request. Thread-safe.

    Each check has its own thread, so that a check that hangs does not block others. It is not
    started again until it has returned.

    Args:
        looks: The checks, by name. A check that raises an error is unhealthy.
        limit: The timeout: a check that takes longer is unhealthy.
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
        """Start all checks that are not running."""
        for name, each in self._watched.items():
            with self._lock:
                if each.began is not None:
                    continue
                each.began = self._clock()
            # A daemon, so that a check that hangs does not block the exit.
            threading.Thread(
                target=self._find, args=(each,), name=f"headrace-health-{name}", daemon=True
            ).start()

    @property
    def looking(self) -> bool:
        """Whether a check is running that has not reached its timeout."""
        end = self._clock() - self.limit.total_seconds()
        begun = [each.began for each in self._watched.values()]
        return any(began is not None and began > end for began in begun)

    def to_json(self, *, full: bool) -> dict[str, Any]:
        """Return the state of all parts; without ``full``, no addresses or paths."""
        checks: dict[str, dict[str, Any]] = {}
        worst, words = HealthState.HEALTHY, _READY
        for name, each in self._watched.items():
            found, age = self._now(each)
            self._log_change(name, each, found)
            checks[name] = {"status": found.state.value}
            if full:
                checks[name] |= {"message": found.words, "age_seconds": round(age, 1)}
            if _ORDER.index(found.state) > _ORDER.index(worst):
                worst = found.state
                words = f"{name}: {found.words}" if full else f"{name} is {worst.value}."
        return {"status": worst.value, "message": words, "checks": checks}

    def _now(self, each: _Watched) -> tuple[Finding, float]:
        """Return the last result and its age, unless a running check takes too long."""
        now, began, found = self._clock(), each.began, each.found
        # Another request may have started the check just now.
        late = began is not None and now - began >= self.limit.total_seconds()
        if found is not None and not late:
            return found, now - each.at
        waited = now - (now if began is None else began)
        words = f"No response for {waited:.1f} s."
        if found is None:
            return Finding(HealthState.UNHEALTHY, words), waited
        age = now - each.at
        words += f" {age:.0f} s ago: {found.words}"
        return Finding(HealthState.UNHEALTHY, words), age

    def _log_change(self, name: str, each: _Watched, found: Finding) -> None:
        with self._lock:
            before, each.logged = each.logged, found.state
        if found.state is not before:
            say = log.info if found.state is HealthState.HEALTHY else log.warning
            say("health.changed", check=name, status=found.state.value, message=found.words)

    def _find(self, each: _Watched) -> None:
        try:
            found = each.look()
        except Exception as error:  # noqa: BLE001 - any error means unhealthy
            found = Finding(HealthState.UNHEALTHY, str(error) or type(error).__name__)
        with self._lock:
            each.found, each.at, each.began = found, self._clock(), None


def store_look(ask: Callable[[], object]) -> Callable[[], Finding]:
    """Return a check of the store, which runs the query ``ask``."""

    def look() -> Finding:
        ask()
        return Finding(words="The store responds.")

    return look
