"""What requests may be and hold: their size, their origin, their forms."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI, Path, Query
from pydantic import AfterValidator, BeforeValidator
from starlette.datastructures import Headers
from starlette.routing import Match

from headrace.sdk.hosts import is_own

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headrace.rest.auth import Refuse


PROBLEM = "application/problem+json"
"""The media type of problem details, which RFC 9457 defines."""


def accepted(headers: Headers) -> set[str]:
    """Return the media types that a client takes."""
    return {each.partition(";")[0].strip() for each in headers.get("accept", "").split(",")}


def storable(text: str) -> str:
    """Return a text without the character that PostgreSQL cannot take: nothing is named so."""
    return text.replace("\x00", "\x1a")


Encoded = Annotated[str, Path(), AfterValidator(unquote), AfterValidator(storable)]
"""A part of a path, which is routed as it was sent, so that it may hold a slash as %2F."""


def _answerable(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what could be stored and not be sent again: NaN, and halves of characters."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        problem = "Contains a value that JSON in UTF-8 cannot represent"
        raise ValueError(problem) from None
    return value


def _whole(text: str) -> str:
    """Refuse halves of characters, which could be stored and not be sent again."""
    if tellable(text) != text:
        problem = "Contains an unpaired surrogate"
        raise ValueError(problem)
    return text


def tellable(text: str) -> str:
    """Return a text with halves of characters, which UTF-8 cannot write, as escapes."""
    return text.encode(errors="backslashreplace").decode()


WholeText = Annotated[str, AfterValidator(_whole)]
"""A text of a body that is kept as it is."""

JsonMap = Annotated[dict[str, Any], AfterValidator(_answerable)]
"""An object of a body that is kept as it is."""


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


Flag = Annotated[bool, BeforeValidator(_is_true), Query()]
"""A boolean of a query as Java reads it: all but ``true``, in whatever case, is false."""


def methods_at(app: FastAPI, scope: Scope) -> set[str]:
    """Return the methods that are served at the path of a request."""
    return {
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        for route in app.routes
        if route.matches({**scope, "method": method})[0] is Match.FULL
    }


def without_last_slash(scope: Scope) -> Scope:
    """Return a request whose path ends in a slash as one for the path without it."""
    changed = {"path": scope["path"].rstrip("/") or "/"}
    if scope.get("raw_path"):
        changed["raw_path"] = scope["raw_path"].rstrip(b"/") or b"/"
    return {**scope, **changed}


class BodyLimit:
    """Answers 413 to requests with larger bodies, without reading more of them.

    A body that takes too long to arrive is answered with 408.

    Bodies are read here as a whole, as the application would have to do anyway.
    """

    def __init__(self, app: ASGIApp, size_bytes: int, seconds: float, refuse: Refuse) -> None:
        self._seconds = seconds
        self._app = app
        self._refuse = refuse
        self._size_bytes = size_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        try:
            async with asyncio.timeout(self._seconds):
                large = int(declared) > self._size_bytes
                body = None if large else await self._body(receive)
        except TimeoutError:
            problem = f"The request did not arrive within {self._seconds:g} seconds."
            await self._refusal(scope, 408, problem)(scope, receive, send)
            return
        if body is None:
            problem = f"The request is larger than {self._size_bytes} bytes."
            await self._refusal(scope, 413, problem)(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replayed, send)

    async def _body(self, receive: Receive) -> bytes | None:
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

    def _refusal(self, scope: Scope, status: int, problem: str) -> Response:
        # What was not read of the body would be taken for the next request.
        return self._refuse(scope["path"], status, problem, {"Connection": "close"})


_SAME = {"same-origin", "none"}
"""``none`` is what the user typed or kept as a bookmark."""


def is_cross_site(headers: Headers) -> bool:
    """Return whether a browser says that a page of another origin sends a request.

    Browsers add what says so, which no page can change; clients other than browsers send
    none of it. ``Referer`` counts only where there is no ``Origin``, as with GET. Pages that
    this machine's own servers give, such as a development server's, may use a server of this
    machine, unless the browser says that they are of another site.
    See https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
    """
    if headers.get("sec-fetch-site", "none").lower() not in _SAME:
        return True
    source = headers.get("origin", headers.get("referer"))
    if source is None:
        return False
    sender, host = _netloc(source), headers.get("host", "").lower()
    return sender != host and not (is_own(_name(sender)) and is_own(_name(host)))


def names_other_host(headers: Headers) -> bool:
    """Return whether a request names another host than this machine as the server's or page's.

    A page can make its own name lead here (DNS rebinding).
    """
    hosts = [headers.get("host", "localhost")]
    origin = headers.get("origin")
    if origin is not None:
        hosts.append(_netloc(origin))
    return not all(is_own(_name(host)) for host in hosts)


def _netloc(address: str) -> str:
    """Return ``host:port`` of an address; nothing for what has none, such as ``null``."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _name(netloc: str) -> str:
    """Return the host of ``host:port``; nothing for other texts."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
