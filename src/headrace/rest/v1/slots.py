"""Keeps requests that take long from taking all threads that answer requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import ClassVar

from headrace.sdk import RetriableError
from headrace.sdk.errors import Category

__all__ = ["Slots", "Streams"]

_MANY = 8
_WAIT = timedelta(seconds=10)
_AFTER = timedelta(seconds=5)


class ServerBusyError(RetriableError):
    """The server does as much at a time as it can of what takes long."""

    code: ClassVar[str] = "server.busy"
    category: ClassVar[Category] = Category.ENVIRONMENT


class Slots:
    """Lets a few requests at a time do what takes long; others wait, and hold no thread.

    Routes depend on it that ask Spark, or copy files: they would keep Kafka Connect's API and
    the check of health waiting, which are answered by the same 40 threads.

    Args:
        many: How many at a time.
        wait: How long one waits until it is told to come again.
    """

    def __init__(self, many: int = _MANY, wait: timedelta = _WAIT) -> None:
        self._free = asyncio.Semaphore(many)
        self._wait = wait

    async def __call__(self) -> AsyncIterator[None]:
        """Hold a slot while a request is answered. Raises ServerBusyError."""
        try:
            await asyncio.wait_for(self._free.acquire(), self._wait.total_seconds())
        except TimeoutError:
            problem = "Too many requests that take long are being answered."
            raise ServerBusyError(problem, after=_AFTER, fix="Try again later.") from None
        try:
            yield
        finally:
            self._free.release()


class Streams:
    """Bounds the streams that are open: each asks the store for what is new, all the time.

    Args:
        of_client: How many one client may have.
        total: How many there may be.
    """

    def __init__(self, of_client: int = 20, total: int = 100) -> None:
        self._of_client, self._total = of_client, total
        self._open: Counter[str] = Counter()

    def take(self, client: str) -> Callable[[], None]:
        """Count a stream; return what counts it no more. Raises ServerBusyError."""
        if self._open[client] >= self._of_client:
            problem = f"The client has {self._of_client} streams open already."
            raise ServerBusyError(problem, after=_AFTER, fix="Close one that is not read.")
        if self._open.total() >= self._total:
            problem = f"{self._total} streams are open already."
            raise ServerBusyError(problem, after=_AFTER, fix="Ask for pages of events instead.")
        self._open[client] += 1

        def give_back() -> None:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

        return give_back
