"""Types of request fields of Headrace's own API, and limits on slow requests and streams."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StrictBool
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from headrace.sdk import RetriableError
from headrace.sdk.errors import Category

_SEVERAL = {"id", "kind", "name", "plugin", "state", "task_state"}
"""The query parameters that may be repeated, in all routes."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _text_of_moment(value: object) -> object:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        problem = "Use the form 2026-01-31T00:00:00Z"
        raise ValueError(problem)
    return value


def _number(value: object) -> object:
    if isinstance(value, str | bool):
        problem = "It must be a number"
        raise ValueError(problem)  # noqa: TRY004 - pydantic reports only ValueError
    return value


def _switch(value: object) -> object:
    if str(value).lower() not in {"true", "false"}:
        problem = "It must be true or false"
        raise ValueError(problem)
    return value


def _in_range(moment: datetime) -> datetime:
    """Reject times out of range for a timestamp, which cannot be stored as microseconds."""
    moment.timestamp()
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_text_of_moment), AfterValidator(_in_range)]
"""A time with its zone as in RFC 3339; pydantic would also accept a number."""

IS_NUMBER = BeforeValidator(_number)
"""Must come after the bounds of a number, which OpenAPI would not show otherwise."""

Whole = Annotated[int, IS_NUMBER]
"""A number in a body; pydantic would also accept a string of digits."""

Switch = StrictBool
"""A boolean in a body; pydantic would also accept ``"yes"``."""


QuerySwitch = Annotated[bool, BeforeValidator(_switch)]
"""A boolean query parameter."""


def if_set(**more: Any) -> Any:
    """Return an optional field that is None if omitted, without None in its declared type."""
    return Field(default=None, json_schema_extra=_no_default, **more)


def _no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def said_once(request: Request) -> None:
    """Reject a query that repeats a parameter that may occur only once."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name, count in counts.items() if count > 1 and name not in _SEVERAL]
    if repeated:
        wrong = {"type": "repeated", "msg": "Specified more than once"}
        raise RequestValidationError([{**wrong, "loc": ("query", name)} for name in repeated])


_MANY = 8
_WAIT = timedelta(seconds=10)
_AFTER = timedelta(seconds=5)


class ServerBusyError(RetriableError):
    """The server is busy with too many slow requests or streams."""

    code: ClassVar[str] = "server.busy"
    category: ClassVar[Category] = Category.ENVIRONMENT


class Slots:
    """Limits the number of concurrent slow requests; further ones wait without a thread.

    A dependency of routes that use Spark or copy files. These would otherwise block Kafka
    Connect's API and the health check, which share the same 40 threads.
    """

    def __init__(self, many: int = _MANY, wait: timedelta = _WAIT) -> None:
        self._free = asyncio.Semaphore(many)
        self._wait = wait

    async def __call__(self) -> AsyncIterator[None]:
        """Hold a slot while a request is answered. Raises ServerBusyError."""
        try:
            await asyncio.wait_for(self._free.acquire(), self._wait.total_seconds())
        except TimeoutError:
            problem = "Too many slow requests are being processed."
            raise ServerBusyError(problem, after=_AFTER, fix="Try again later.") from None
        try:
            yield
        finally:
            self._free.release()


class ClosedStream(StreamingResponse):
    """A streaming response that calls ``closed`` at its end, even after a disconnect."""

    def __init__(
        self, parts: AsyncIterator[bytes], media_type: str, closed: Callable[[], None]
    ) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(parts, media_type=media_type, headers=headers)
        self._closed = closed

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


class Streams:
    """Limits the number of open streams, because each polls the store."""

    def __init__(self, of_client: int = 20, total: int = 100) -> None:
        self._of_client, self._total = of_client, total
        self._open: Counter[str] = Counter()

    def take(self, client: str) -> Callable[[], None]:
        """Count a stream; return the function that releases it. Raises ServerBusyError."""
        if self._open[client] >= self._of_client:
            problem = f"The client already has {self._of_client} open streams."
            raise ServerBusyError(problem, after=_AFTER, fix="Close an unused stream.")
        if self._open.total() >= self._total:
            problem = f"{self._total} streams are already open."
            raise ServerBusyError(problem, after=_AFTER, fix="Request pages of events instead.")
        self._open[client] += 1

        def give_back() -> None:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

        return give_back
