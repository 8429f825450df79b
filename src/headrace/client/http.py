"""HTTP requests to a server: its address, authentication, and the errors it returns."""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.sdk.errors import Category, ConfigError, HeadraceError
from headrace.sdk.loopback import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import httpx2


class ServerError(HeadraceError):
    """The server could not process the request."""

    code = "server.failed"


class ServerUnreachableError(ServerError):
    """No server responds at the address, or it is not a Headrace or Kafka Connect server."""

    code = "server.unreachable"
    category = Category.ENVIRONMENT


class AccessDeniedError(ServerError):
    """The server does not accept the token, or its role does not allow the request."""

    code = "server.denied"
    category = Category.CONFIG


class NotThereError(ServerError):
    """The object does not exist on the server."""

    code = "server.not_found"
    category = Category.CONFIG


class ConflictError(ServerError):
    """The object already exists, or its current state does not allow the request."""

    code = "server.conflict"


class RefusedError(ServerError):
    """The server rejected the request as invalid.

    ``faults`` contains the errors of a configuration, by key, if that was the reason.
    """

    code = "server.refused"
    category = Category.CONFIG
    faults: tuple[ConfigError, ...] = ()


class ConnectorFailedError(ServerError):
    """A connector or one of its tasks failed while waiting for another state."""

    code = "connector.failed"


class RunFailedError(ServerError):
    """A run of a job did not succeed while waiting for its success."""

    code = "run.failed"


class TooLateError(ServerError):
    """The timeout of a wait has passed; the expected state may still be reached."""

    code = "connector.not_in_time"


DEFAULT_URL = "http://127.0.0.1:8083"
_FIRST_ERROR = 400
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY = 401, 403, 404, 409, 429
_SERVER_FAULT, _UNAVAILABLE = 500, 503
_ACCEPTED = "application/json, application/problem+json"
_START = "Start one with: headrace server; or set another with --server or HEADRACE_SERVER."


@dataclass(frozen=True)
class Address:
    """The address of a server and the access to it: see ``Client``."""

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid address or one with a password."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            # Without the text itself: it may be a password entered in the wrong place.
            problem = "The server's address must begin with http:// or https://."
            raise ConfigError(problem, field="server", fix=f"Write it as {DEFAULT_URL}.")
        if "@" in parts.netloc:
            problem = "The server's address must not contain a user name: others may see it."
            fix = "Remove it, and set HEADRACE_TOKEN."
            raise ConfigError(problem, field="server", fix=fix)
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def is_own(self) -> bool:
        """Whether the server is on this machine."""
        return is_own(urlsplit(self.url).hostname or "")

    @property
    def shows_token(self) -> bool:
        """Whether the token is sent unencrypted over a network."""
        return self.token is not None and self.url.startswith("http:") and not self.is_own


class Http:
    """Sends requests to one server. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: httpx2.Client | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
        text: bool = False,
        header: str = "",
    ) -> Any:
        """Send a request and return the parsed JSON of the response; None for an empty body.

        With ``header``, return the parsed JSON of that response header instead, or None. With
        ``text``, return the body as text. A request that the server postpones with
        ``Retry-After``, while it starts or is overloaded, is retried within the timeout. Raises
        ServerError or a subclass.
        """
        accepted = {"Accept": "text/plain"} if text else {}
        end = time.monotonic() + self.address.timeout.total_seconds()
        while True:
            answer = self._answer(method, path, params=query, headers=accepted, json=body)
            wait = _put_off(answer)
            if wait is None or time.monotonic() + wait > end:
                break
            time.sleep(wait)
        found = answer.text if text and answer.is_success else self.checked(answer)
        return json.loads(answer.headers.get(header, "null")) if header else found

    def connected(self) -> httpx2.Client:
        """Return the HTTP client, opening it if necessary."""
        with self._opening:  # otherwise two threads could open two clients and leak one
            if self._client is None:
                self._client = self._open()
            return self._client

    def checked(self, answer: httpx2.Response) -> Any:
        """Return the body of a response, or raise its error."""
        try:
            value = answer.json() if answer.content else None
        except ValueError:
            value = answer.text
        if answer.status_code >= _FIRST_ERROR:
            raise self._error(answer, value)
        if isinstance(value, str) or answer.is_redirect:
            raise self._no_server(answer)
        return value

    def unreachable(self, error: Exception) -> ServerUnreachableError:
        """Return the error for a request without a response."""
        # Without the error's text: a protocol error contains the headers, and so the token.
        kind, cause = type(error).__name__, str(error.__cause__ or "")
        if "certificate" in cause.lower():
            problem = f"The certificate of {self.address.url} is not trusted."
            fix = "Pass the file of its CA certificate with --server-ca."
            return ServerUnreachableError(problem, fix=fix, field="server")
        if "Timeout" in kind and kind != "ConnectTimeout":
            seconds = self.address.timeout.total_seconds()
            problem = f"{self.address.url} did not answer within {seconds:g} s."
            fix = "Check whether it is overloaded; the request may still be processed."
            return ServerUnreachableError(problem, fix=fix, field="server")
        problem = f"No server responds at {self.address.url} ({kind})."
        return ServerUnreachableError(problem, fix=_START, field="server")

    def _answer(self, method: str, path: str, **request: Any) -> httpx2.Response:
        import httpx2  # noqa: PLC0415 - takes a quarter of a second, not needed for --help

        try:
            return self.connected().request(method, path, **request)
        except httpx2.TransportError as error:
            raise self.unreachable(error) from None

    def _open(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415 - see _answer

        address = self.address
        shown = {} if address.token is None else {"Authorization": f"Bearer {address.token}"}
        return httpx2.Client(
            base_url=address.url,
            headers={"Accept": _ACCEPTED, **shown},
            timeout=address.timeout.total_seconds(),
            verify=_trust(address),
            # Requests to this machine must not go through a proxy from the environment.
            trust_env=not address.is_own,
        )

    def _error(self, answer: httpx2.Response, value: object) -> ServerError:
        status = answer.status_code
        said = value if isinstance(value, dict) else {}
        text = said.get("problem") or said.get("message") or said.get("title")
        problem = str(text or f"{self.address.url} answered {status}.")
        if not problem.endswith((".", "!", "?", "`")):
            problem += "."
        fix = str(said.get("fix") or "")
        field = str(said["field"]) if said.get("field") else None
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return self._denied(status, problem, fix)
        if status == _NOT_FOUND and not said:
            return self._no_server(answer)
        kinds: dict[int, type[ServerError]] = {
            _NOT_FOUND: NotThereError,
            _CONFLICT: ConflictError,
            _TOO_MANY: ServerError,
        }
        kind = kinds.get(status, ServerError if status >= _SERVER_FAULT else RefusedError)
        made = kind(problem, fix=fix, field=field)
        if isinstance(made, RefusedError):
            made.faults = tuple(
                ConfigError(each["problem"], field=each["field"], fix=each["fix"])
                for each in said.get("errors", ())
                if str(each["code"]).startswith("config.")
            )
        return made

    def _denied(self, status: int, problem: str, fix: str) -> AccessDeniedError:
        if status == _FORBIDDEN:
            fix = fix or "Use a token whose role allows it."
            return AccessDeniedError(problem, fix=fix, field="token")
        known = "does not accept this token" if self.address.token else "requires a token"
        return AccessDeniedError(
            f"{self.address.url} {known}.",
            fix="Set HEADRACE_TOKEN, or pass a file that contains it with --token-file.",
            field="token",
        )

    def _no_server(self, answer: httpx2.Response) -> ServerUnreachableError:
        url, status = self.address.url, answer.status_code
        problem = f"{url} is not a Headrace or Kafka Connect server (HTTP {status})."
        return ServerUnreachableError(problem, fix=_START, field="server")


def _put_off(answer: httpx2.Response) -> int | None:
    """Return the seconds until the retry of a postponed request; None if not postponed."""
    wait = answer.headers.get("Retry-After", "")
    put_off = answer.status_code in {_TOO_MANY, _UNAVAILABLE} and wait.isdecimal()
    return int(wait) if put_off else None


def _trust(address: Address) -> ssl.SSLContext:
    if not address.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # skips the slow loading of certificates
    try:
        return ssl.create_default_context(cafile=address.ca)
    except OSError as error:
        problem = f"{address.ca} cannot be read as certificates: {error}."
        raise ConfigError(problem, field="server_ca", fix="Set it to a PEM file.") from error
