"""Requests to the REST APIs of external schedulers."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx2
from typing_extensions import override

from headrace.scheduler.engines import (
    EngineRefusedError,
    EngineSettings,
    EngineUnavailableError,
    ScheduleEngine,
)
from headrace.sdk.hosts import is_own

_SHOWN = 500
"""The maximum number of characters of a response in an error."""
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


@dataclass
class EngineHttp:
    """An HTTP client for one scheduler.

    Args:
        url: The base URL; paths are appended to it.
        seconds: The timeout of a request.
    """

    url: str
    seconds: float
    _client: httpx2.Client | None = field(default=None, init=False)

    def send(
        self,
        method: str,
        path: str,
        *,
        accepted: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> httpx2.Response:
        """Return the response if it is a success or has an accepted status.

        Raises EngineUnavailableError if there is no response or the server is busy, and
        EngineRefusedError for any other status. The errors do not contain the request's data.
        """
        client = self._client = self._client or self._open()
        try:
            answer = client.request(method, path, headers=dict(headers or {}), **request)
        except httpx2.TransportError as error:
            # Without the error's text: protocol errors contain headers, and so secrets.
            problem = f"{self.url} does not answer ({type(error).__name__})."
            raise EngineUnavailableError(problem, fix="Start it, or correct url.") from None
        if answer.status_code in _BUSY:
            problem = f"{self.url} is busy (HTTP {answer.status_code})."
            raise EngineUnavailableError(problem, fix="Wait: the request is retried.")
        if not answer.is_success and answer.status_code not in accepted:
            problem = f"{method} {path} returned HTTP {answer.status_code}{_detail(answer)}."
            raise EngineRefusedError(problem, fix=f"See the log of {self.url}.")
        return answer

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> httpx2.Client:
        host = httpx2.URL(self.url).host
        return httpx2.Client(
            base_url=self.url.rstrip("/"),
            timeout=self.seconds,
            verify=ssl.create_default_context(),
            # Do not use a proxy from the environment for this machine itself.
            trust_env=not is_own(host),
        )


class HttpEngine(ScheduleEngine):
    """An external scheduler with a REST API."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._http = EngineHttp(settings.url, settings.timeout)

    @override
    def stop(self) -> None:
        self._http.close()


def json_of(answer: httpx2.Response) -> Any:
    """Return the JSON value of a response. Raises EngineRefusedError if it is not JSON."""
    try:
        return answer.json()
    except ValueError:
        problem = f"{answer.request.url.copy_with(query=None)} did not return JSON."
        fix = "Set url to the address of the REST API."
        raise EngineRefusedError(problem, fix=fix) from None


def _detail(answer: httpx2.Response) -> str:
    """Return the server's error text, unless it is a list, which may contain request data.

    FastAPI returns such lists.
    """
    try:
        said = answer.json()
    except ValueError:
        return ""
    detail = said.get("detail") if isinstance(said, dict) else None
    return f": {detail[:_SHOWN].rstrip('.')}" if isinstance(detail, str) else ""
