"""Requests to the REST APIs of outside schedulers."""

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
"""How much of an answer is told."""
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


@dataclass
class EngineHttp:
    """Open connections to one scheduler.

    Args:
        url: Its address; paths are added to it.
        seconds: How long it may take to answer.
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
        """Return an answer: a success, or one of a status that is accepted.

        Raises EngineUnavailableError where there is none, and EngineRefusedError for any other.
        Neither says what was sent.
        """
        client = self._client = self._client or self._open()
        try:
            answer = client.request(method, path, headers=dict(headers or {}), **request)
        except httpx2.TransportError as error:
            # Not the error's text: one about the protocol shows headers, and so secrets.
            problem = f"{self.url} does not answer ({type(error).__name__})."
            raise EngineUnavailableError(problem, fix="Start it, or correct url.") from None
        if answer.status_code in _BUSY:
            problem = f"{self.url} is busy (HTTP {answer.status_code})."
            raise EngineUnavailableError(problem, fix="It is tried again.")
        if not answer.is_success and answer.status_code not in accepted:
            problem = f"{method} {path} was answered by {answer.status_code}{_detail(answer)}."
            raise EngineRefusedError(problem, fix=f"See the log of {self.url}.")
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> httpx2.Client:
        host = httpx2.URL(self.url).host
        return httpx2.Client(
            base_url=self.url.rstrip("/"),
            timeout=self.seconds,
            verify=ssl.create_default_context(),
            # A proxy of the environment is not the way to this machine itself.
            trust_env=not is_own(host),
        )


class HttpEngine(ScheduleEngine):
    """An outside scheduler with a REST API."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._http = EngineHttp(settings.url, settings.timeout)

    @override
    def stop(self) -> None:
        self._http.close()


def json_of(answer: httpx2.Response) -> Any:
    """Return the JSON value of an answer. Raises EngineRefusedError where it is none."""
    try:
        return answer.json()
    except ValueError:
        problem = f"{answer.request.url.copy_with(query=None)} did not answer with JSON."
        fix = "Correct url: it is that of a REST API."
        raise EngineRefusedError(problem, fix=fix) from None


def _detail(answer: httpx2.Response) -> str:
    """Return what is wrong in the server's words: a list shows what was sent, as FastAPI's."""
    try:
        said = answer.json()
    except ValueError:
        return ""
    detail = said.get("detail") if isinstance(said, dict) else None
    return f": {detail[:_SHOWN].rstrip('.')}" if isinstance(detail, str) else ""
