"""How many requests a client may send."""

from __future__ import annotations

import math
import time
from datetime import timedelta

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

__all__ = ["RateLimit"]

REFUSALS_A_MINUTE = 60
"""How many refusals of one client are told and recorded: nobody mistypes a token oftener."""
RECORDED_A_MINUTE = 600
"""How many refusals of all strangers together are recorded: who has many addresses fills no
disk."""


class RateLimit:
    """Counts the requests of each client over the last minute. Any thread may ask.

    Args:
        a_minute: How many requests a client may send.
        refusals: How many may be refused before it is told to wait instead.
        recorded: How many refusals of all who are not known are recorded.
    """

    def __init__(
        self,
        a_minute: int = 30_000,
        refusals: int = REFUSALS_A_MINUTE,
        recorded: int = RECORDED_A_MINUTE,
    ) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(a_minute, namespace="requests")
        self._refusals = RateLimitItemPerMinute(refusals, namespace="refusals")
        self._recorded = RateLimitItemPerMinute(recorded, namespace="recorded")

    def take(self, client: str) -> timedelta | None:
        """Count a request; return how long the client has to wait if that is one too many."""
        return self._taken(self._requests, client)

    def refuse(self, client: str) -> timedelta | None:
        """Count a request that is refused for what it shows, as ``take`` does."""
        return self._taken(self._refusals, client)

    def records(self) -> bool:
        """Count a refusal of whoever is not known; return whether it is to be recorded."""
        return self._taken(self._recorded, "") is None

    def _taken(self, item: RateLimitItemPerMinute, client: str) -> timedelta | None:
        if self._limiter.hit(item, client):
            return None
        free = self._limiter.get_window_stats(item, client).reset_time - time.time()
        return timedelta(seconds=max(1, math.ceil(free)))
