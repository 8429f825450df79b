"""HTTP to a schema registry: authentication, several URLs, retries, errors."""

from __future__ import annotations

import random
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk.errors import RetriableError
from headrace.sdk.schemaregistry.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
    SchemaRegistryError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    import httpx2

    from headrace.sdk.schemaregistry.address import Address

__all__ = ["Transport"]

_MEDIA = "application/vnd.schemaregistry.v1+json"
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_INVALID_SCHEMA = 42201
_STATUS_CONFLICT, _STATUS_NOT_FOUND, _STATUS_INVALID = 409, 404, 422
_FIRST_ERROR = 400
_DENIED = {401: "does not know this user", 403: "does not let this user do that"}


class Transport:
    """Sends requests to the first URL that answers, and remembers which one did.

    Any thread may use it. Pickled, it opens its own connections where it arrives.

    Args:
        address: The registry.
        sleep: Waits for as many seconds; given by tests.
    """

    def __init__(self, address: Address, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address = address
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._best = 0

    @override
    def __getstate__(self) -> Address:
        """Leave connections and locks behind."""
        return self._address

    def __setstate__(self, address: Address) -> None:
        """Start with no connection."""
        Transport.__init__(self, address)

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Return what the registry answers, as JSON values.

        Raises RetriableError after all URLs were tried as often as the address says, and the
        errors of `headrace.sdk.schemaregistry.errors` by what the registry answered.
        """
        problem = ""
        retries = self._address.retries
        for attempt in range(retries.times + 1):
            if attempt:
                self._wait(retries.bound(attempt - 1))
            for index in self._order():
                answer = self._try(index, method, path, body, query)
                if isinstance(answer, str):
                    problem = answer
                    continue
                self._best = index
                return _checked(answer, self._address.urls[index])
        problem = f"The schema registry cannot serve: {problem}."
        raise RetriableError(
            problem,
            fix="Check that it runs and can be reached from here.",
            field="schema.registry.url",
        )

    def _order(self) -> list[int]:
        count = len(self._address.urls)
        return [(self._best + offset) % count for offset in range(count)]

    def _wait(self, bound: timedelta) -> None:
        # At random, so that many clients that failed together do not come back together.
        self._sleep(random.uniform(0, bound.total_seconds()))  # noqa: S311 - no secret

    def _try(
        self,
        index: int,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
    ) -> httpx2.Response | str:
        """Return the answer, or why there is none and another attempt makes sense."""
        import httpx2  # noqa: PLC0415 - a quarter of a second that few commands need

        url = self._address.urls[index]
        try:
            answer = self._connected().request(method, f"{url}{path}", json=body, params=query)
        except httpx2.TransportError as error:
            # Not the error's text: a protocol error shows the headers, and so the token.
            return f"{url} gave {type(error).__name__}"
        if answer.status_code in _BUSY:
            return f"{url} answered {answer.status_code}"
        return answer

    def _connected(self) -> httpx2.Client:
        with self._lock:
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415 - see above

        address = self._address
        headers = {"Accept": f"{_MEDIA}, application/json", "Content-Type": _MEDIA}
        auth = None
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token.value}"
        elif address.user is not None:
            user, _, password = address.user.value.partition(":")
            auth = httpx2.BasicAuth(user, password)
        secure = any(url.startswith("https:") for url in address.urls)
        return httpx2.Client(
            headers=headers,
            auth=auth,
            timeout=address.timeout.total_seconds(),
            # Reading the trusted certificates takes longer than most requests.
            verify=address.tls.context() if secure else _trusts_nobody(),
        )


def _trusts_nobody() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _checked(answer: httpx2.Response, url: str) -> Any:
    try:
        value = answer.json()
    except ValueError:
        value = None
    if answer.status_code >= _FIRST_ERROR:
        raise _error(answer.status_code, value, url)
    if value is None or answer.status_code >= 300:  # noqa: PLR2004 - what is no success
        problem = f"{url} answered {answer.status_code}, and not as a schema registry does."
        raise SchemaRegistryError(
            problem,
            error_code=answer.status_code,
            fix="Check schema.registry.url.",
        )
    return value


def _error(status: int, value: object, url: str) -> SchemaRegistryError:
    said = value if isinstance(value, dict) else {}
    code = int(said.get("error_code", status))
    text = str(said.get("message", f"{url} answered {status}."))
    if status in _DENIED:
        return RegistryRefusedError(
            f"{url} {_DENIED[status]}.",
            error_code=code,
            fix="Check the user, password or token.",
        )
    if status == _STATUS_CONFLICT:
        return IncompatibleSchemaError(text, fix="Change the schema, or the level.")
    if status == _STATUS_NOT_FOUND and said:
        return SchemaNotFoundError(text, error_code=code)
    if status == _STATUS_INVALID and code == _INVALID_SCHEMA:
        return InvalidSchemaError(text, error_code=code)
    return RegistryRefusedError(text, error_code=code)
