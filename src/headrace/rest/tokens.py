"""Who clients are: tokens, of which only hashes are kept, and what their roles may do."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from headrace.sdk import ConfigError

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
