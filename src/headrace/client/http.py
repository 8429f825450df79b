"""HTTP to a server: where it is, who asks, and what its refusals mean."""

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
from headrace.sdk.hosts import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import httpx2


class ServerError(HeadraceError):
    """The server could not do what it was asked to."""

    code = "server.failed"


class ServerUnreachableError(ServerError):
    """No server answers there, or what answers is not a server of this API."""

    code = "server.unreachable"
    category = Category.ENVIRONMENT


class AccessDeniedError(ServerError):
    """The server does not know who asks, or does not let them do that."""

    code = "server.denied"
    category = Category.CONFIG


class NotThereError(ServerError):
    """The server has nothing of that name."""

    code = "server.not_found"
    category = Category.CONFIG


class ConflictError(ServerError):
    """It is there already, or is changing at this moment."""

    code = "server.conflict"


class RefusedError(ServerError):
    """The server does not take what it was given.

    ``faults`` holds what is wrong with a configuration, key by key, where that was it.
    """

    code = "server.refused"
    category = Category.CONFIG
    faults: tuple[ConfigError, ...] = ()


class ConnectorFailedError(ServerError):
    """A connector or one of its tasks failed while something else was waited for."""

    code = "connector.failed"


class RunFailedError(ServerError):
    """A run of a job did not succeed while that was waited for."""

    code = "run.failed"


class TooLateError(ServerError):
    """What was waited for has not come in time; it may still come."""

    code = "connector.not_in_time"


DEFAULT_URL = "http://127.0.0.1:8083"
_FIRST_ERROR = 400
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY = 401, 403, 404, 409, 429
_SERVER_FAULT, _UNAVAILABLE = 500, 503
_ACCEPTED = "application/json, application/problem+json"
_START = "Start one with: headrace server; or name another with --server or HEADRACE_SERVER."


@dataclass(frozen=True)
class Address:
    """Where a server is, and how it is accessed: see ``Client``."""

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid address, and for a password in one."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            # Not the text itself: it may be a password that was put into the wrong place.
            problem = "The server's address must begin with http:// or https://."
            raise ConfigError(problem, field="server", fix=f"Write it as {DEFAULT_URL}.")
        if "@" in parts.netloc:
            problem = "The server's address contains a user name, which others may see there."
            fix = "Leave it out, and set HEADRACE_TOKEN."
            raise ConfigError(problem, field="server", fix=fix)
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def is_own(self) -> bool:
        """Whether it is on this machine."""
        return is_own(urlsplit(self.url).hostname or "")

    @property
    def shows_token(self) -> bool:
        """Whether the token goes over a network that anyone may read."""
        return self.token is not None and self.url.startswith("http:") and not self.is_own


class Http:
    """Sends requests to one server. Any thread may use it."""

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
        """Return what the server answers, as JSON values; None for an empty answer.

        With ``header`` that is what a header of the answer holds, None where it has none.

        With ``text`` the answer is returned as it is. A request that the server put off, as it
        is starting or has too many, is sent again for as long as an answer may take. Raises
        ServerError or one of its kinds.
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
        """Return the open connections."""
        with self._opening:  # two that begin at once would leave one open
            if self._client is None:
                self._client = self._open()
            return self._client

    def checked(self, answer: httpx2.Response) -> Any:
        """Return what an answer holds, or raise what it refuses."""
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
        """Return the error for a request that had no answer."""
        # Not the error's text: one about the protocol shows the headers, and so the token.
        kind, cause = type(error).__name__, str(error.__cause__ or "")
        if "certificate" in cause.lower():
            problem = f"The certificate of {self.address.url} is not trusted."
            fix = "Name the file of the one that signed it with --server-ca."
            return ServerUnreachableError(problem, fix=fix, field="server")
        if "Timeout" in kind and kind != "ConnectTimeout":
            seconds = self.address.timeout.total_seconds()
            problem = f"{self.address.url} did not answer within {seconds:g} s."
            fix = "Check whether it is overloaded; the request may still be processed."
            return ServerUnreachableError(problem, fix=fix, field="server")
        problem = f"No server responds at {self.address.url} ({kind})."
        return ServerUnreachableError(problem, fix=_START, field="server")

    def _answer(self, method: str, path: str, **request: Any) -> httpx2.Response:
        import httpx2  # noqa: PLC0415 - a quarter of a second that --help does not need

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
            # A proxy of the environment is not the way to this machine itself.
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
    """Return after how many seconds to send a request again that was not looked at."""
    wait = answer.headers.get("Retry-After", "")
    put_off = answer.status_code in {_TOO_MANY, _UNAVAILABLE} and wait.isdecimal()
    return int(wait) if put_off else None


def _trust(address: Address) -> ssl.SSLContext:
    if not address.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading certificates takes long
    try:
        return ssl.create_default_context(cafile=address.ca)
    except OSError as error:
        problem = f"{address.ca} cannot be read as certificates: {error}."
        raise ConfigError(problem, field="server_ca", fix="Name a PEM file.") from error
