"""Checks and types of requests: body size, origin, and types of path, query and body."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI, Path, Query
from pydantic import AfterValidator, BeforeValidator
from starlette.datastructures import Headers
from starlette.routing import Match

from headrace.sdk.loopback import is_own

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from headrace.rest.auth import Refuse


PROBLEM = "application/problem+json"
"""The media type of problem details (RFC 9457)."""


def accepted(headers: Headers) -> set[str]:
    """Return the media types that a client accepts."""
    return {each.partition(";")[0].strip() for each in headers.get("accept", "").split(",")}


def storable(text: str) -> str:
    """Return the text with NUL replaced, which PostgreSQL cannot store; no name contains it."""
    return text.replace("\x00", "\x1a")


Encoded = Annotated[str, Path(), AfterValidator(unquote), AfterValidator(storable)]
"""A path segment, decoded after routing, so that it may contain a slash as %2F."""


def _answerable(value: dict[str, Any]) -> dict[str, Any]:
    """Reject values that could be stored but not returned: NaN and unpaired surrogates."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        problem = "Contains a value that JSON in UTF-8 cannot represent"
        raise ValueError(problem) from None
    return value


def _whole(text: str) -> str:
    """Reject unpaired surrogates, which could be stored but not returned."""
    if tellable(text) != text:
        problem = "Contains an unpaired surrogate"
        raise ValueError(problem)
    return text


def tellable(text: str) -> str:
    """Return the text with unpaired surrogates, which UTF-8 cannot encode, as escapes."""
    return text.encode(errors="backslashreplace").decode()


WholeText = Annotated[str, AfterValidator(_whole)]
"""A string in a body that is stored unchanged."""

JsonMap = Annotated[dict[str, Any], AfterValidator(_answerable)]
"""An object in a body that is stored unchanged."""


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


Flag = Annotated[bool, BeforeValidator(_is_true), Query()]
"""A boolean query parameter as Java parses it: ``true`` in any case, else false."""


def methods_at(app: FastAPI, scope: Scope) -> set[str]:
    """Return the methods that routes support at the path of a request."""
    return {
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        for route in app.routes
        if route.matches({**scope, "method": method})[0] is Match.FULL
    }


def without_last_slash(scope: Scope) -> Scope:
    """Return the scope with trailing slashes removed from the path."""
    changed = {"path": scope["path"].rstrip("/") or "/"}
    if scope.get("raw_path"):
        changed["raw_path"] = scope["raw_path"].rstrip(b"/") or b"/"
    return {**scope, **changed}


class BodyLimit:
    """Rejects bodies above the limit with 413, without reading the rest.

    A body that takes too long to arrive is rejected with 408.

    Reads the whole body, as the application would have to do anyway.
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
            # A disconnect message also ends the body.
            more = message["type"] == "http.request" and message.get("more_body", False)
        return b"".join(parts)

    def _refusal(self, scope: Scope, status: int, problem: str) -> Response:
        # The unread rest of the body would be parsed as the next request.
        return self._refuse(scope["path"], status, problem, {"Connection": "close"})


_SAME = {"same-origin", "none"}
"""``none`` means that the user typed the address or opened a bookmark."""


def is_cross_site(headers: Headers) -> bool:
    """Return whether a browser sent the request for a page of another origin.

    Browsers add the headers that tell, which pages cannot change; other clients do not send
    them. ``Referer`` counts only without ``Origin``, as with GET. Pages from other servers on
    this machine, such as a development server, may use a server on this machine, unless the
    browser reports them as cross-site.
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
    """Return whether the Host or Origin header names a host other than this machine.

    A web page can make its own host name resolve to this machine (DNS rebinding).
    """
    hosts = [headers.get("host", "localhost")]
    origin = headers.get("origin")
    if origin is not None:
        hosts.append(_netloc(origin))
    return not all(is_own(_name(host)) for host in hosts)


def _netloc(address: str) -> str:
    """Return ``host:port`` of a URL; empty if there is none, as for ``null``."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _name(netloc: str) -> str:
    """Return the host of ``host:port``; empty for other texts."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
