"""Stands where an application will be while it starts, so that its port is taken early."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from headrace.rest.v1.problems import PREFIX, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Opening"]

_RETRY = {"Retry-After": "2"}


class Opening:
    """Answers 503 until an application is there, and again when it is gone.

    ``/health`` says which, in the form of Kafka Connect.
    """

    def __init__(self, code: str = "error_code") -> None:
        """Begin without an application, whose errors hold their number under this key."""
        self._code = code
        self._app: ASGIApp | None = None
        self._told = "Worker is still starting up."

    @contextmanager
    def opened(self, app: ASGIApp) -> Iterator[None]:
        """Let requests through to an application for as long as this lasts."""
        self._app = app
        try:
            yield
        finally:
            self._told = "Worker is stopping."
            self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await (self._app or self._closed(scope))(scope, receive, send)

    def _closed(self, scope: Scope) -> JSONResponse:
        path = scope.get("path", "")
        if path.startswith(f"{PREFIX}/"):
            return refusal(path, 503, self._told, _RETRY)
        told: dict[str, object] = {self._code: 503, "message": self._told}
        if path == "/health":
            told = {"status": "starting", "message": self._told}
        return JSONResponse(told, 503, _RETRY)
