"""The listener of a server: address, connection limits, rate limits, TLS, tokens, roles."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import os
import secrets
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from headrace.rest.requests import names_other_host
from headrace.sdk import ConfigError
from headrace.sdk.loopback import is_own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from starlette.datastructures import Headers


log = structlog.get_logger(__name__)


_PREFIX = "hr_"
"""The prefix of every token, by which secret scanners find tokens in repositories."""
_RANDOM_BYTES = 32
_MAX_NAME = 100


class Role(StrEnum):
    """The role of a client; each role includes the preceding ones."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Return whether this role includes the other."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request. The name is used in audit records."""

    name: str
    role: Role


class Keys(Protocol):
    """Identifies the clients of a server by their tokens. Thread-safe."""

    def principal(self, token: str) -> Principal | None:
        """Return the owner of a token; None if the token is unknown."""


@dataclass(frozen=True)
class SharedToken:
    """A single token for all clients, with the role admin."""

    token: str

    def principal(self, token: str) -> Principal | None:
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return Principal("token", Role.ADMIN)
        return None

    @override
    def __repr__(self) -> str:
        return "SharedToken()"


@dataclass(frozen=True, slots=True)
class HashedToken:
    """A stored token. Tokens are random, so one round of SHA-256 is enough."""

    name: str
    role: Role
    sha256: str


class TokenFile:
    """The tokens in a file, which is read again when it changes.

    If a changed file cannot be read or parsed, all requests are rejected.
    """

    def __init__(self, file: Path) -> None:
        """Read the file; a missing file means no tokens. Raises ConfigError."""
        self._file = file
        self._seen = self._stat()
        self._tokens = self._read()

    def tokens(self) -> Sequence[HashedToken]:
        return self._tokens

    def principal(self, token: str) -> Principal | None:
        self._refresh()
        shown = hashed(token)
        found = None
        for each in self._tokens:  # all of them, so that the timing reveals nothing
            if hmac.compare_digest(shown, each.sha256):
                found = Principal(each.name, each.role)
        return found

    def add(self, name: str, role: Role) -> str:
        """Create and return a token; only its hash is stored. Raises ConfigError."""
        if not name.isprintable() or not name.strip() or len(name) > _MAX_NAME:
            problem = f"Invalid client name {name!r}."
            fix = f"Use printable characters, at most {_MAX_NAME}."
            raise ConfigError(problem, field="NAME", fix=fix)
        if any(each.name == name for each in self._tokens):
            problem = f"A token named {name} already exists."
            fix = f"Delete it first, or choose another name. It is in {self._file}."
            raise ConfigError(problem, field="NAME", fix=fix)
        token = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        self._write([*self._tokens, HashedToken(name, role, hashed(token))])
        return token

    def remove(self, name: str) -> None:
        """Delete a token, effective at once. Raises ConfigError for an unknown name."""
        left = [each for each in self._tokens if each.name != name]
        if len(left) == len(self._tokens):
            known = ", ".join(each.name for each in self._tokens) or "none"
            problem = f"There is no token named {name}."
            raise ConfigError(problem, field="NAME", fix=f"The tokens are: {known}.")
        self._write(left)

    def _refresh(self) -> None:
        seen = self._stat()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._tokens = self._read()
        except ConfigError:
            self._tokens = ()
            log.exception("all requests are rejected: the tokens cannot be read")

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Sequence[HashedToken]:
        try:
            found = TypeAdapter(list[HashedToken]).validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            problem = f"{self._file} cannot be read: {error.strerror}."
            raise ConfigError(problem, field="server_tokens", fix="Correct it.") from None
        except ValidationError:
            problem = f"{self._file} is not a list of tokens."
            fix = "Create it with `headrace token create`."
            raise ConfigError(problem, field="server_tokens", fix=fix) from None
        return sorted(found, key=lambda each: each.name)

    def _write(self, tokens: Iterable[HashedToken]) -> None:
        ordered = sorted(tokens, key=lambda each: each.name)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
        new.touch(mode=0o600)
        new.write_text(json.dumps([asdict(each) for each in ordered], indent=2) + "\n")
        new.replace(self._file)  # atomic: readers see the old or the new file
        self._tokens = ordered
        self._seen = self._stat()


def hashed(token: str) -> str:
    """Return the hash of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def shown_token(authorization: str | None) -> str:
    """Return the token in an Authorization header; empty if there is none."""
    kind, _, value = (authorization or "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


REFUSALS_A_MINUTE = 60
"""How many rejections of one client are answered with the reason, before it gets 429."""
RECORDED_A_MINUTE = 600
"""How many rejections of all unknown clients together are logged, so that an attacker with many
addresses cannot fill the disk."""


class RateLimit:
    """Counts the requests of each client over the last minute. Thread-safe.

    Args:
        a_minute: The maximum requests of one client per minute.
        refusals: The maximum rejections of one client per minute; then it must wait.
        recorded: The maximum logged rejections of all unknown clients per minute.
    """

    def __init__(
        self,
        a_minute: int = 30_000,
        refusals: int = REFUSALS_A_MINUTE,
        recorded: int = RECORDED_A_MINUTE,
    ) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(a_minute, namespace="requests")
        self._refusals = RateLimitItemPerMinute(refusals, namespace="refusals")
        self._recorded = RateLimitItemPerMinute(recorded, namespace="recorded")

    def take(self, client: str) -> timedelta | None:
        """Count a request; return how long the client must wait if it exceeds the limit."""
        return self._taken(self._requests, client)

    def refuse(self, client: str) -> timedelta | None:
        """Count a rejected request, as ``take`` does."""
        return self._taken(self._refusals, client)

    def records(self) -> bool:
        """Count a rejection of an unknown client; return whether to log it."""
        return self._taken(self._recorded, "") is None

    def _taken(self, item: RateLimitItemPerMinute, client: str) -> timedelta | None:
        if self._limiter.hit(item, client):
            return None
        free = self._limiter.get_window_stats(item, client).reset_time - time.time()
        return timedelta(seconds=max(1, math.ceil(free)))


@dataclass(frozen=True)
class Tls:
    """The PEM files of a server that speaks TLS, 1.2 or later.

    Args:
        key: The private key; None if it is in the certificate file.
        client_ca: The CA certificates for client certificates, which are then required; None
            if clients need no certificate.
        settings: The prefix of the settings that name these files, for errors.
    """

    certificate: Path
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca: Path | None = None
    settings: str = "registry"

    def context(self) -> ssl.SSLContext:
        """Return the server's SSL context. Raises ConfigError for an invalid file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except (OSError, ssl.SSLError) as error:
            files = " with ".join(str(file) for file in (self.certificate, self.key) if file)
            raise ConfigError(
                problem=f"{files} cannot be used as certificate and key: {_reason(error)}.",
                fix="Set PEM files of a certificate and its key, and the key's password.",
                field=f"{self.settings}_ssl_certificate",
            ) from None
        if self.client_ca is None:
            return context
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                problem=f"{self.client_ca} contains no certificates: {_reason(error)}.",
                fix="Set a PEM file of the CA certificates that sign client certificates.",
                field=f"{self.settings}_ssl_client_ca",
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits on connections.

    Args:
        head_seconds: How long the head of a request may take to arrive.
        total: The maximum number of connections.
        of_address: The maximum number of connections of one address.
    """

    head_seconds: float = 10
    total: int = 1000
    of_address: int = 200
    _open: Counter[str] = field(default_factory=Counter, init=False)

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return the protocol class that serves a connection within these limits."""
        limits = self

        class Bounded(_Bounded):
            """A connection of this server."""

        Bounded.limits = limits
        return Bounded

    def take(self, address: str) -> bool:
        """Count a connection; return whether it is within the limits."""
        self._open[address] += 1
        return self._open[address] <= self.of_address and self._open.total() <= self.total

    def give_back(self, address: str) -> None:
        """Stop counting a connection."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class _Bounded(H11Protocol):
    """Closes a connection whose requests do not arrive in time ("slowloris")."""

    limits: ConnectionLimits
    _address: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = "" if self.client is None else self.client[0]
        if not self.limits.take(self._address):
            transport.abort()
            return
        self._wait()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._serves():
            self._wait_no_more()  # the head has arrived; BodyLimit bounds the body
        elif self._deadline is None:
            self._wait()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        # No deadline until the next request begins; uvicorn closes idle connections.
        if not self._serves():
            self._wait_no_more()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        if self._address is not None:
            self.limits.give_back(self._address)
            self._address = None
        super().connection_lost(exc)

    def _serves(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.limits.head_seconds, self._end)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._deadline = None
        if not self._serves():
            self.transport.abort()


ANYONE = Principal("anonymous", Role.ADMIN)
"""The principal of all requests if the server requires no token."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """The address of a server, its clients and its limits.

    Args:
        port: The port; 0 for any free port.
        keys: The tokens of clients, sent as bearer token or as the password of any user; None
            to accept everyone, which is allowed only on this machine's own addresses, if
            clients must present a certificate, or with ``anonymous``.
        anonymous: Whether to accept all clients that can reach the address.
        advice: The fix for the error if this address is not allowed.
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
        """Raise ConfigError if other machines could send requests without authentication."""
        if not self._knows_clients and not self.anonymous and not is_own(self.host):
            problem = f"{self.host} can be reached from other machines, and no token is set."
            raise ConfigError(problem, field="--host", fix=self.advice)

    @property
    def shared(self) -> bool:
        """Whether clients other than this machine's own user are possible."""
        return self._knows_clients or not is_own(self.host)

    @property
    def _knows_clients(self) -> bool:
        return self.keys is not None or bool(self.tls is not None and self.tls.client_ca)

    def admits(self, authorization: str | None) -> Principal | None:
        """Return the sender by its Authorization header; None without a valid token."""
        if self.keys is None:
            return ANYONE
        shown = shown_token(authorization)
        return self.keys.principal(shown) if shown else None

    def is_strange(self, headers: Headers) -> bool:
        """Return whether to reject a request because it names a host other than this machine.

        Applies only if no token is required: then a page in a browser on this machine could
        send requests through a host name that it makes resolve here (DNS rebinding).
        """
        if self.keys is not None or self.anonymous or not is_own(self.host):
            return False
        return names_other_host(headers)
