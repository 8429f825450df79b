"""Stands before an application: who may come in, how often, and for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response

from headrace.rest.listener import ANYONE, Listener, Principal, Role, shown_token
from headrace.rest.requests import BodyLimit, is_cross_site

if TYPE_CHECKING:
    from datetime import timedelta

    from fastapi import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


Refuse: TypeAlias = Callable[[str, int, str, Mapping[str, str]], Response]
"""Gives the answer that refuses a request, in the form of the API that it is for, from its
path, the status, what is to be said, and headers."""
Needs: TypeAlias = Callable[[str, str], Role]
"""Gives the role that a request needs, from its method and its path as it was sent."""


class SignedPaths(Protocol):
    """Knows who may send what goes to paths of its own, by tokens that are signed for them.

    No token of a client will do there, and it is asked for on every server. It is called for
    each request, and does not wait for anything.
    """

    def has(self, method: str, path: str) -> bool:
        """Return whether a request is one of its own, by its path as it was sent."""

    def principal(self, path: str, token: str) -> Principal | None:
        """Return who may send a request of its own; None for nobody."""


audit = structlog.get_logger("headrace.audit")
_PRINCIPAL = "headrace.principal"
_READS = {"GET", "HEAD", "OPTIONS"}
_OPEN = {"/health"}
"""What anyone may ask: whether it works, which probes ask without a token."""
_ASKS = {"GET", "HEAD"}
_LONGEST_PATH = 300
"""How much of a refused request's path is recorded: anyone may send a long one."""
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

    What stands in the paths of its requests is as it was sent. Who may not come in has no
    body read.

    Where ``gets_change``, as a GET may change something, browsers are not asked for a password,
    which they would keep and send along: they send a GET to any server for any page, some
    without a word of the page. Clients may show one all the same.

    ``signed`` has paths for which other tokens are than those of clients.
    """
    limited = BodyLimit(app, listener.body_bytes, listener.body_seconds, refuse)
    challenge = "Bearer" if gets_change else 'Bearer, Basic realm="headrace"'
    return RawPath(_Guard(limited, listener, refuse, needs, challenge, signed=signed))


def needs_admin_to_change(method: str, path: str) -> Role:
    """Return the role for a request of an API in which whoever changes must be an admin."""
    return Role.VIEWER if method in _READS else Role.ADMIN


def caller(request: Request) -> str:
    """Say who asks, for the record of what was changed: the name, and the address."""
    return f"{caller_name(request)}@{client_of(request.scope)}"


def caller_name(request: Request) -> str:
    """Return the name alone, as its token has it."""
    principal: Principal | None = request.scope.get(_PRINCIPAL)
    return "anonymous" if principal is None else principal.name


def has_token(request: Request) -> bool:
    """Return whether a client asks that has shown a token, and not just anyone."""
    principal: Principal | None = request.scope.get(_PRINCIPAL)
    return principal is not None and principal != ANYONE


def client_of(scope: Scope) -> str:
    """Return the address that a request comes from; empty where there is none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _recorded(scope: Scope, send: Send) -> Send:
    """Return how to answer, so that a change is in the log before its caller knows of it."""

    async def recorded(message: Message) -> None:
        if message["type"] == "http.response.start":
            _record(scope, "asked", message["status"])
        await send(message)

    return recorded


def _record(scope: Scope, event: str, status: int) -> None:
    """Write to the log who asked for what. A path as it was sent holds no line breaks."""
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
    """Return how to receive a request as one without a body: a stranger's takes no memory."""
    asked = False

    async def received() -> Message:
        nonlocal asked
        if asked:
            return await receive()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return received


class RawPath:
    """Routes by the path as it was sent, so that a subject may hold a slash as %2F.

    Handlers decode the parts of the path themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


class _Guard:
    """Answers 401, 403 and 429 to requests that do not come in."""

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
            # Not by the method: RocketMQ Connect's API changes by GET.
            only_looks = self._needs(scope["method"], path) is Role.VIEWER
            await self._app(scope, receive, send if only_looks else _recorded(scope, send))
        else:
            await refusal(scope, receive, send)

    def _counted(self, scope: Scope, refusal: Response) -> Response:
        """Record a refusal; return what is answered, to who guesses on that it has to wait.

        Whoever shows a token is never kept out by others at the same address, and is always
        answered with the reason. Neither fills the log.
        """
        principal: Principal | None = scope[_PRINCIPAL]
        # No address holds a space.
        who = client_of(scope) if principal is None else f"client {principal.name}"
        wait = self._door.rate.refuse(who)
        if wait is None:
            if principal is not None or self._door.rate.records():
                _record(scope, _REFUSED, refusal.status_code)
            return refusal
        return refusal if principal is not None else self._later(scope["path"], wait)

    def _only_asked(self, scope: Scope) -> Response | None:
        """Return the answer to who sends what is open to anyone more than a question."""
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
        """Return the answer to who may not send this; None if it may come in."""
        path, principal = scope["path"], scope[_PRINCIPAL]
        headers = Headers(scope=scope)
        needed = self._needs(scope["method"], path)
        if principal is None and self._door.is_strange(headers):
            problem = "Without a token, only requests to this machine's own names are accepted."
            return self._refuse(path, 403, problem, {})
        # A browser shows the password or the certificate that it keeps for whoever asks.
        if needed is not Role.VIEWER and is_cross_site(headers):
            problem = "Cross-site requests that change something are rejected."
            return self._refuse(path, 403, problem, {})
        if principal is None:
            return self._refuse(
                path, 401, "Unauthorized", {"WWW-Authenticate": self._challenge}
            )
        if principal.role.covers(needed):
            return None
        problem = f"This needs the role {needed}; {principal.name} is {principal.role}."
        return self._refuse(path, 403, problem, {})
