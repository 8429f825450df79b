"""Authentication, authorization and rate limits in front of an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response

from headrace.rest.listener import Listener, Principal, Role, shown_token
from headrace.rest.requests import BodyLimit, is_cross_site

if TYPE_CHECKING:
    from datetime import timedelta

    from fastapi import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


Refuse: TypeAlias = Callable[[str, int, str, Mapping[str, str]], Response]
"""Returns the response that rejects a request, in the form of the API, for a path, a status, a
message and headers."""
Needs: TypeAlias = Callable[[str, str], Role]
"""Returns the role that a request requires, for its method and its undecoded path."""


class SignedPaths(Protocol):
    """Authenticates requests to certain paths by tokens that are signed for these paths.

    Client tokens are not valid for these paths, and a signed token is required on every server,
    even without client tokens. Called for each request, so it must not block.
    """

    def has(self, method: str, path: str) -> bool:
        """Return whether a request, by its undecoded path, requires a signed token."""

    def principal(self, path: str, token: str) -> Principal | None:
        """Return the principal of a token for a path; None if the token is not valid."""


audit = structlog.get_logger("headrace.audit")
_PRINCIPAL = "headrace.principal"
_READS = {"GET", "HEAD", "OPTIONS"}
_OPEN = {"/health"}
"""Paths that need no token: the health check, for probes."""
_ASKS = {"GET", "HEAD"}
_LONGEST_PATH = 300
"""How many characters of a rejected request's path are logged: anyone may send a long one."""
_REFUSED = "refused"


def behind(
    app: ASGIApp,
    listener: Listener,
    refuse: Refuse,
    needs: Needs,
    *,
    gets_change: bool = False,
    signed: SignedPaths | None = None,
) -> ASGIApp:
    """Return an application behind a listener's checks.

    The application gets undecoded paths. The body of a rejected request is not read.

    ``gets_change`` means that a GET may change something. Then responses do not ask for Basic
    authentication, because browsers would store the password and send it with every GET that
    any web page triggers, some without Origin or Referer. Clients may still send a password.

    ``signed`` authenticates paths that require their own tokens.
    """
    limited = BodyLimit(app, listener.body_bytes, listener.body_seconds, refuse)
    challenge = "Bearer" if gets_change else 'Bearer, Basic realm="headrace"'
    return RawPath(_Guard(limited, listener, refuse, needs, challenge, signed=signed))


def needs_admin_to_change(method: str, path: str) -> Role:
    """Return the role for a request of an API in which changes require an admin."""
    return Role.VIEWER if method in _READS else Role.ADMIN


def caller(request: Request) -> str:
    """Return the caller for audit records: ``name@address``."""
    return f"{caller_name(request)}@{client_of(request.scope)}"


def caller_name(request: Request) -> str:
    """Return the caller's name only, which is the name of its token."""
    principal: Principal | None = request.scope.get(_PRINCIPAL)
    return "anonymous" if principal is None else principal.name


def is_known(request: Request) -> bool:
    """Return whether the client may read more than open paths show to everyone."""
    return request.scope.get(_PRINCIPAL) is not None


def client_of(scope: Scope) -> str:
    """Return the client's address; empty if unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _recorded(scope: Scope, send: Send) -> Send:
    """Return a ``send`` that logs a change before its caller gets the response."""

    async def recorded(message: Message) -> None:
        if message["type"] == "http.response.start":
            _record(scope, "asked", message["status"])
        await send(message)

    return recorded


def _record(scope: Scope, event: str, status: int) -> None:
    """Write an audit record. An undecoded path contains no line breaks."""
    principal: Principal | None = scope.get(_PRINCIPAL)
    path = scope["path"]
    if event == _REFUSED and len(path) > _LONGEST_PATH:
        path = f"{path[:_LONGEST_PATH]}…"
    audit.info(
        event,
        by="" if principal is None else principal.name,
        role="" if principal is None else principal.role.value,
        address=client_of(scope),
        method=scope["method"],
        path=path,
        status=status,
    )


def _without_body(receive: Receive) -> Receive:
    """Return a ``receive`` without a body, so that an unauthenticated body uses no memory."""
    asked = False

    async def received() -> Message:
        nonlocal asked
        if asked:
            return await receive()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return received


class RawPath:
    """Routes by the undecoded path, so that a path segment may contain a slash as %2F.

    Handlers decode the segments themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


class _Guard:
    """Rejects requests with 401, 403, 405 or 429."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        refuse: Refuse,
        needs: Needs,
        challenge: str,
        *,
        signed: SignedPaths | None = None,
    ) -> None:
        self._app = app
        self._door = listener
        self._refuse = refuse
        self._needs = needs
        self._challenge = challenge
        self._signed = signed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        wait = self._door.rate.take(client_of(scope))
        refusal = None if wait is None else self._later(path, wait)
        if refusal is None:
            scope = {**scope, _PRINCIPAL: self._known(scope)}
            if path in _OPEN:
                receive = _without_body(receive)
                refusal = self._only_asked(scope)
            elif (refusal := self._refusal(scope)) is not None:
                refusal = self._counted(scope, refusal)
        if refusal is None:
            # Not by the method: in RocketMQ Connect's API, GET requests make changes.
            only_looks = self._needs(scope["method"], path) is Role.VIEWER
            await self._app(scope, receive, send if only_looks else _recorded(scope, send))
        else:
            await refusal(scope, receive, send)

    def _counted(self, scope: Scope, refusal: Response) -> Response:
        """Log a rejection; return its response, or 429 after too many from one address.

        Clients with a valid token are counted by name, so others at the same address do not
        affect them, and they always get the reason. Both kinds of log records are rate-limited.
        """
        principal: Principal | None = scope[_PRINCIPAL]
        # Addresses contain no spaces, so the keys do not collide.
        who = client_of(scope) if principal is None else f"client {principal.name}"
        wait = self._door.rate.refuse(who)
        if wait is None:
            if principal is not None or self._door.rate.records():
                _record(scope, _REFUSED, refusal.status_code)
            return refusal
        return refusal if principal is not None else self._later(scope["path"], wait)

    def _only_asked(self, scope: Scope) -> Response | None:
        """Return 405 for a method other than GET or HEAD on an open path, else None."""
        if scope["method"] in _ASKS:
            return None
        allowed = {"Allow": ", ".join(sorted(_ASKS))}
        return self._refuse(scope["path"], 405, "Method Not Allowed", allowed)

    def _later(self, path: str, wait: timedelta) -> Response:
        headers = {"Retry-After": str(round(wait.total_seconds()))}
        return self._refuse(path, 429, "Too many requests: wait a while.", headers)

    def _known(self, scope: Scope) -> Principal | None:
        headers, path = Headers(scope=scope), scope["path"]
        if self._signed is not None and self._signed.has(scope["method"], path):
            return self._signed.principal(path, shown_token(headers.get("authorization")))
        if self._door.is_strange(headers):
            return None
        return self._door.admits(headers.get("authorization"))

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response that rejects the request; None if it is allowed."""
        path, principal = scope["path"], scope[_PRINCIPAL]
        headers = Headers(scope=scope)
        needed = self._needs(scope["method"], path)
        if principal is None and self._door.is_strange(headers):
            problem = "Without a token, only requests to this machine's own names are accepted."
            return self._refuse(path, 403, problem, {})
        # A browser sends its stored password or certificate with requests of any web page.
        if needed is not Role.VIEWER and is_cross_site(headers):
            problem = "Cross-site requests that change something are rejected."
            return self._refuse(path, 403, problem, {})
        if principal is None:
            return self._refuse(
                path, 401, "Unauthorized", {"WWW-Authenticate": self._challenge}
            )
        if principal.role.covers(needed):
            return None
        problem = f"This requires the role {needed}; {principal.name} is {principal.role}."
        return self._refuse(path, 403, problem, {})
