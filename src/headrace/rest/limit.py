"""Refuses requests whose bodies are larger than anything that makes sense."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headrace.rest.guard import Refuse

__all__ = ["BodyLimit"]


class BodyLimit:
    """Answers 413 to requests with larger bodies, without reading more of them.

    A body that takes too long to arrive is answered with 408.

    Bodies are read here as a whole, as the application would have to do anyway.
    """

    def __init__(self, app: ASGIApp, size_bytes: int, seconds: float, refuse: Refuse) -> None:
        """Stand before an application that takes bodies of at most ``size_bytes``."""
        self._seconds = seconds
        self._app = app
        self._refuse = refuse
        self._size_bytes = size_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        try:
            async with asyncio.timeout(self._seconds):
                large = int(declared) > self._size_bytes
                body = None if large else await self._body(receive)
        except TimeoutError:
            told = f"The request did not arrive within {self._seconds:g} seconds."
            await self._refusal(scope, 408, told)(scope, receive, send)
            return
        if body is None:
            told = f"The request is larger than {self._size_bytes} bytes."
            await self._refusal(scope, 413, told)(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def given() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, given, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body; None when it is too large."""
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._size_bytes:
                return None
            # A client that is gone sends no more.
            more = message["type"] == "http.request" and message.get("more_body", False)
        return b"".join(parts)

    def _refusal(self, scope: Scope, status: int, told: str) -> Response:
        # What was not read of the body would be taken for the next request.
        return self._refuse(scope["path"], status, told, {"Connection": "close"})
