"""Who may come in: only this machine, unless a token is configured."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from headrace.rest.registry_answers import RegistryJson
from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.rest.tls import Tls

_UNAUTHORIZED = {"error_code": 40101, "message": "Unauthorized"}


@dataclass(frozen=True)
class Door:
    """Where a server listens and whom it lets in.

    Args:
        host: The address.
        port: The port; 0 for any that is free.
        token: What clients must show, as a bearer token or as the password of any user; None
            to let everyone in, which is allowed on this machine's own addresses only, or
            where clients have to show a certificate.
        tls: How it speaks TLS; None for plain HTTP.
        body_bytes: How large a request's body may be.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    body_bytes: int = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise ConfigError for an address that others can reach, without a token."""
        known = self.token is not None or (self.tls is not None and self.tls.client_ca)
        if not known and not _is_own(self.host):
            problem = f"{self.host} can be reached from other machines, and no token is set."
            fix = (
                "Set HEADRACE_REGISTRY_TOKEN, or HEADRACE_REGISTRY_SSL_CLIENT_CA with a "
                "certificate, or listen on 127.0.0.1."
            )
            raise ConfigError(problem, field="--host", fix=fix)

    def lets_in(self, authorization: str | None) -> bool:
        """Say whether an Authorization header shows the token."""
        if self.token is None:
            return True
        shown = _shown(authorization or "")
        return hmac.compare_digest(shown.encode(), self.token.encode())


class TokenRequired:
    """Answers 401 to requests that do not show the door's token."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        """Stand before an application."""
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            shown = Headers(scope=scope).get("authorization")
            if not self._door.lets_in(shown):
                asked = {"WWW-Authenticate": 'Bearer, Basic realm="headrace"'}
                answer = RegistryJson(_UNAUTHORIZED, status_code=401, headers=asked)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class RawPath:
    """Routes by the path as it was sent, so that a subject may hold a slash as %2F.

    Handlers decode the parts of the path themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def _is_own(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(authorization: str) -> str:
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
