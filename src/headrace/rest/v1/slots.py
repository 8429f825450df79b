"""Keeps requests that take long from taking all threads that answer requests."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import ClassVar

from headrace.sdk import Category, RetriableError

__all__ = ["Slots"]

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
