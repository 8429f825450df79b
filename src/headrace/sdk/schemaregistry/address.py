"""Where a schema registry is, and how a client shows who it is."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from headrace.sdk.config import Password
from headrace.sdk.errors import ConfigError
from headrace.sdk.schemaregistry.keys import URL_KEY

if TYPE_CHECKING:
    from headrace.sdk.config import Config

__all__ = ["Address", "Retries", "Tls"]

_SSL = "schema.registry.ssl"


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The PEM files of a connection over https."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    password: Password | None = None

    def context(self) -> ssl.SSLContext:
        """Open the files. Raises ConfigError when one does not fit."""
        try:
            made = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                secret = None if self.password is None else self.password.value
                made.load_cert_chain(self.certificate, self.key, secret)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            problem = f"The certificates cannot be used: {type(error).__name__}."
            raise ConfigError(
                problem,
                field=_SSL,
                fix="Check the files and the key's password.",
            ) from None
        return made


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How a client tries again. Waits are random, between nothing and a growing bound."""

    times: int = 3
    first: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(seconds=20)

    def bound(self, attempt: int) -> timedelta:
        """Return the longest wait after an attempt; the first attempt is 0."""
        return min(self.longest, self.first * (1 << min(attempt, 30)))


@dataclass(frozen=True, kw_only=True)
class Address:
    """One registry: its URLs, which hold no secret, and what to show there."""

    urls: tuple[str, ...]
    user: Password | None = field(default=None, repr=False)
    token: Password | None = field(default=None, repr=False)
    tls: Tls = Tls()
    retries: Retries = Retries()
    timeout: timedelta = timedelta(seconds=30)
    latest_for: timedelta = timedelta(seconds=60)

    @classmethod
    def of(cls, config: Config) -> Address:
        """Read the keys of `registry_config`. Raises ConfigError, with no secret in it."""
        given = [part.strip() for part in config.get_str(URL_KEY).split(",") if part.strip()]
        if not given:
            problem = "No URL is given."
            raise ConfigError(problem, field=URL_KEY, fix="Give one, or embedded.")
        parts = [_split(url) for url in given]
        return cls(
            urls=tuple(_plain(part) for part in parts),
            user=_user(config, parts),
            token=_token(config),
            tls=Tls(
                ca=config.find_str(f"{_SSL}.ca.location"),
                certificate=config.find_str(f"{_SSL}.certificate.location"),
                key=config.find_str(f"{_SSL}.key.location"),
                password=config.find_password(f"{_SSL}.key.password"),
            ),
            retries=Retries(
                times=config.get_int("max.retries"),
                first=timedelta(milliseconds=config.get_int("retries.wait.ms")),
                longest=timedelta(milliseconds=config.get_int("retries.max.wait.ms")),
            ),
            timeout=timedelta(
                milliseconds=config.get_int("schema.registry.request.timeout.ms")
            ),
            latest_for=timedelta(seconds=config.get_int("latest.cache.ttl.sec")),
        )


def _split(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port  # which raises when it is no number
    except ValueError:
        found = SplitResult("", "", "", "", "")
    if found.scheme not in {"http", "https"} or not found.hostname:
        # The text is not shown: it may hold a password.
        problem = "A schema registry's URL begins with http:// or https:// and names a host."
        raise ConfigError(
            problem,
            field=URL_KEY,
            fix="Correct it, as in http://registry.example.com:8081.",
        )
    return found


def _plain(part: SplitResult) -> str:
    host = part.netloc.rpartition("@")[2]
    return f"{part.scheme}://{host}{part.path.rstrip('/')}"


def _user(config: Config, parts: list[SplitResult]) -> Password | None:
    if config.get_str("basic.auth.credentials.source") == "USER_INFO":
        given = config.find_password("basic.auth.user.info")
        if given is None or ":" not in given.value:
            problem = "User and password are missing, or have no colon between them."
            raise ConfigError(
                problem,
                field="basic.auth.user.info",
                fix="Write it as user:password.",
            )
        return given
    for part in parts:
        if part.username is not None:
            return Password(f"{unquote(part.username)}:{unquote(part.password or '')}")
    return None


def _token(config: Config) -> Password | None:
    if config.find_str("bearer.auth.credentials.source") is None:
        return None
    token = config.find_password("bearer.auth.token")
    if token is None or not token.value.isascii() or not token.value.isprintable():
        problem = "The token is missing, or is not one line of plain characters."
        raise ConfigError(
            problem,
            field="bearer.auth.token",
            fix="Give it, or take bearer.auth.credentials.source out.",
        )
    return token
