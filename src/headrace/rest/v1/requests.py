"""Requests to our own API: their parts, and how many that take long run at a time."""

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
"""What a query may have several of, in whatever route."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _text_of_moment(value: object) -> object:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        problem = "Write it as 2026-01-31T00:00:00Z"
        raise ValueError(problem)
    return value


def _number(value: object) -> object:
    if isinstance(value, str | bool):
        problem = "It must be a number"
        raise ValueError(problem)  # noqa: TRY004 - what pydantic turns into an answer
    return value


def _switch(value: object) -> object:
    if str(value).lower() not in {"true", "false"}:
        problem = "It must be true or false"
        raise ValueError(problem)
    return value


def _in_range(moment: datetime) -> datetime:
    """Refuse what no clock shows: it could not be written as a number of microseconds."""
    moment.timestamp()
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_text_of_moment), AfterValidator(_in_range)]
"""A time with its zone, as RFC 3339 writes it; a number would be taken for one otherwise."""

IS_NUMBER = BeforeValidator(_number)
"""Goes behind the bounds of a number, which the description would not have otherwise."""

Whole = Annotated[int, IS_NUMBER]
"""A number of a body; a text of digits would be taken for one otherwise."""

Switch = StrictBool
"""A boolean of a body; ``"yes"`` would be taken for one otherwise."""


QuerySwitch = Annotated[bool, BeforeValidator(_switch)]
"""A boolean of a query."""


def if_set(**more: Any) -> Any:
    """Return a field that is None unless it is given; its type does not have to say so."""
    return Field(default=None, json_schema_extra=_no_default, **more)


def _no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def said_once(request: Request) -> None:
    """Refuse a query that says something twice of which there is one: which is meant?"""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name, count in counts.items() if count > 1 and name not in _SEVERAL]
    if repeated:
        wrong = {"type": "repeated", "msg": "Specified more than once"}
        raise RequestValidationError([{**wrong, "loc": ("query", name)} for name in repeated])


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


class ClosedStream(StreamingResponse):
    """An answer in parts, after which ``closed`` is called, though its client may have gone."""

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
    """Bounds the streams that are open: each asks the store for what is new, all the time."""

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
