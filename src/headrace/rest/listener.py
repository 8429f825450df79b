"""Where a server listens, and whom it lets in: connections, limits, TLS, tokens, roles."""

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
from headrace.sdk.hosts import is_own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from starlette.datastructures import Headers


log = structlog.get_logger(__name__)


_PREFIX = "hr_"
"""What every token begins with, so that scanners for secrets in repositories find it."""
_RANDOM_BYTES = 32
_MAX_NAME = 100


class Role(StrEnum):
    """What a client may do; each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Return whether it may do all that the other may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request comes from. The name is for the record of what was changed."""

    name: str
    role: Role


class Keys(Protocol):
    """Knows the clients of a server by the tokens that they show. Any thread may ask."""

    def principal(self, token: str) -> Principal | None:
        """Return whose token that is; None if it is nobody's."""


@dataclass(frozen=True)
class SharedToken:
    """One token for everyone, who may then do everything."""

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
    """A token as it is kept. It is random, so that one round of SHA-256 hides it."""

    name: str
    role: Role
    sha256: str


class TokenFile:
    """The tokens in a file, which is read again when it has changed.

    A file that has become unreadable or broken lets nobody in.
    """

    def __init__(self, file: Path) -> None:
        """Read the file; one that is not there holds no tokens. Raises ConfigError."""
        self._file = file
        self._seen = self._stat()
        self._tokens = self._read()

    def tokens(self) -> Sequence[HashedToken]:
        return self._tokens

    def principal(self, token: str) -> Principal | None:
        self._refresh()
        shown = hashed(token)
        found = None
        for each in self._tokens:  # all of them: how long it takes must not tell which
            if hmac.compare_digest(shown, each.sha256):
                found = Principal(each.name, each.role)
        return found

    def add(self, name: str, role: Role) -> str:
        """Make a token, and return it: it is known only now. Raises ConfigError."""
        if not name.isprintable() or not name.strip() or len(name) > _MAX_NAME:
            problem = f"Invalid client name {name!r}."
            fix = f"Use printable characters, at most {_MAX_NAME}."
            raise ConfigError(problem, field="NAME", fix=fix)
        if any(each.name == name for each in self._tokens):
            problem = f"There is a token named {name} already."
            fix = f"Delete it first, or choose another name. It is in {self._file}."
            raise ConfigError(problem, field="NAME", fix=fix)
        token = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        self._write([*self._tokens, HashedToken(name, role, hashed(token))])
        return token

    def remove(self, name: str) -> None:
        """Take a token away, at once. Raises ConfigError if there is none of that name."""
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
        new.replace(self._file)  # whoever reads it sees the one or the other
        self._tokens = ordered
        self._seen = self._stat()


def hashed(token: str) -> str:
    """Return a token as it is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def shown_token(authorization: str | None) -> str:
    """Return the token that an Authorization header shows; empty for none."""
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
"""How many refusals of one client are answered: nobody mistypes a token that often."""
RECORDED_A_MINUTE = 600
"""How many refusals of all strangers together are recorded: who has many addresses fills no
disk."""


class RateLimit:
    """Counts the requests of each client over the last minute. Any thread may ask.

    Args:
        refusals: How many may be refused before it has to wait instead.
        recorded: How many refusals of all who are not known are recorded.
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
        """Count a request; return how long the client has to wait if that is one too many."""
        return self._taken(self._requests, client)

    def refuse(self, client: str) -> timedelta | None:
        """Count a request that is refused for what it shows, as ``take`` does."""
        return self._taken(self._refusals, client)

    def records(self) -> bool:
        """Count a refusal of whoever is not known; return whether it is to be recorded."""
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
        key: Its private key; None: in the file of the certificate.
        client_ca: The certificates of whom the server trusts to sign its clients'. Clients
            have to show one then; None asks them for none.
        settings: What the settings that name these files begin with, for errors.
    """

    certificate: Path
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca: Path | None = None
    settings: str = "registry"

    def context(self) -> ssl.SSLContext:
        """Return what the server needs. Raises ConfigError when a file does not do."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except (OSError, ssl.SSLError) as error:
            files = " with ".join(str(file) for file in (self.certificate, self.key) if file)
            raise ConfigError(
                problem=f"{files} cannot be used as certificate and key: {_reason(error)}.",
                fix="Name PEM files of a certificate and of its key, and the key's password.",
                field=f"{self.settings}_ssl_certificate",
            ) from None
        if self.client_ca is None:
            return context
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                problem=f"{self.client_ca} contains no certificates: {_reason(error)}.",
                fix="Name a PEM file of the certificates that sign those of the clients.",
                field=f"{self.settings}_ssl_client_ca",
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


@dataclass(frozen=True)
class ConnectionLimits:
    """How long a connection may keep a server waiting, and how many there may be."""

    head_seconds: float = 10
    total: int = 1000
    of_address: int = 200
    _open: Counter[str] = field(default_factory=Counter, init=False)

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return what serves a connection within these limits."""
        limits = self

        class Bounded(_Bounded):
            """A connection of this server."""

        Bounded.limits = limits
        return Bounded

    def take(self, address: str) -> bool:
        """Count a connection; return whether it may stay."""
        self._open[address] += 1
        return self._open[address] <= self.of_address and self._open.total() <= self.total

    def give_back(self, address: str) -> None:
        """Count a connection no more."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class _Bounded(H11Protocol):
    """Ends a connection whose requests do not arrive in time ("slowloris")."""

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
            self._wait_no_more()  # its head is there; whoever reads the body bounds that
        elif self._deadline is None:
            self._wait()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Nothing is owed until the next request begins; uvicorn ends what stays idle.
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
"""Who comes in where no token is asked for."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Where a server listens and whom it lets in.

    Args:
        port: The port; 0 for any that is free.
        keys: The clients, who show a token as a bearer token or as the password of any user;
            None to let everyone in, which is allowed on this machine's own addresses, where
            clients have to show a certificate, or where it is said with ``anonymous``.
        anonymous: Whether everyone who can reach it may come in.
        advice: What to do where it may not listen, for the error.
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
        if not self._knows_clients and not self.anonymous and not is_own(self.host):
            problem = f"{self.host} can be reached from other machines, and no token is set."
            raise ConfigError(problem, field="--host", fix=self.advice)

    @property
    def shared(self) -> bool:
        """Whether others than this machine's own user may come in."""
        return self._knows_clients or not is_own(self.host)

    @property
    def _knows_clients(self) -> bool:
        return self.keys is not None or bool(self.tls is not None and self.tls.client_ca)

    def admits(self, authorization: str | None) -> Principal | None:
        """Return whom an Authorization header shows; None if it shows no token of a client."""
        if self.keys is None:
            return ANYONE
        shown = shown_token(authorization)
        return self.keys.principal(shown) if shown else None

    def is_strange(self, headers: Headers) -> bool:
        """Return whether a request is to or from a name that is not this machine's.

        Where no token is asked for, a page in a browser on this machine could have it sent
        under a name that the page makes lead here (DNS rebinding).
        """
        if self.keys is not None or self.anonymous or not is_own(self.host):
            return False
        return names_other_host(headers)
