"""Where a server listens, and whom it lets in: only this machine, unless clients are known."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.rest.connections import ConnectionLimits
from headrace.rest.origin import names_other_host
from headrace.rest.rate import RateLimit
from headrace.rest.tokens import Principal, Role
from headrace.sdk import ConfigError
from headrace.sdk.hosts import is_own

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.rest.tls import Tls
    from headrace.rest.tokens import Keys

__all__ = ["ANYONE", "Door", "RawPath"]

ANYONE = Principal("anonymous", Role.ADMIN)
"""Who comes in where no token is asked for."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """Where a server listens and whom it lets in.

    Args:
        host: The address.
        port: The port; 0 for any that is free.
        keys: The clients, who show a token as a bearer token or as the password of any user;
            None to let everyone in, which is allowed on this machine's own addresses, where
            clients have to show a certificate, or where it is said with ``anonymous``.
        anonymous: Whether everyone who can reach it may come in.
        advice: What to do where it may not listen, for the error.
        tls: How it speaks TLS; None for plain HTTP.
        body_bytes: How large a request's body may be.
        body_seconds: How long a request's body may take to arrive.
        rate: How many requests a client may send.
        connections: How many connections there may be, and how long they may keep it waiting.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    keys: Keys | None = None
    anonymous: bool = False
    advice: str = "Listen on 127.0.0.1."
    tls: Tls | None = None
    body_bytes: int = 8 * 1024 * 1024
    body_seconds: float = 60
    rate: RateLimit = field(default_factory=RateLimit)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        """Raise ConfigError for an address that strangers can reach and come in by."""
        known = self.keys is not None or (self.tls is not None and self.tls.client_ca)
        if not known and not self.anonymous and not is_own(self.host):
            problem = f"{self.host} can be reached from other machines, and no token is set."
            raise ConfigError(problem, field="--host", fix=self.advice)

    @property
    def shared(self) -> bool:
        """Whether others than this machine's own user may come in."""
        known = self.keys is not None or (self.tls is not None and self.tls.client_ca)
        return bool(known) or not is_own(self.host)

    def admits(self, authorization: str | None) -> Principal | None:
        """Return whom an Authorization header shows; None if it shows no token of a client."""
        if self.keys is None:
            return ANYONE
        shown = _shown(authorization or "")
        return self.keys.principal(shown) if shown else None

    def is_strange(self, headers: Headers) -> bool:
        """Return whether a request is to or from a name that is not this machine's.

        Where no token is asked for, a page in a browser on this machine could have it sent
        under a name that the page makes lead here (DNS rebinding).
        """
        if self.keys is not None or self.anonymous or not is_own(self.host):
            return False
        return names_other_host(headers)


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
