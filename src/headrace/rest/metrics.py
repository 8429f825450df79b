"""What is measured, for Prometheus, at /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headrace.rest.auth import behind, needs_admin_to_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.metrics import Exposition
    from headrace.rest.listener import Listener

METRICS_PATH = "/metrics"


def metrics_app(exposition: Exposition, listener: Listener) -> ASGIApp:
    """Return what serves the metrics, and nothing else, behind a listener's checks."""

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept")
        # Two hundred connectors take some milliseconds, in which the loop serves others.
        body, content_type = await run_in_threadpool(exposition.render, accept)
        return Response(body, headers={"Content-Type": content_type})

    app = Starlette(routes=[Route(METRICS_PATH, metrics, methods=["GET"])])
    return behind(app, listener, _refusal, needs_admin_to_change)


class WithMetrics:
    """Serves the metrics at their path, and an application at all others."""

    def __init__(self, app: ASGIApp, metrics: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app = self._metrics if scope.get("path") == METRICS_PATH else self._app
        await app(scope, receive, send)


def _refusal(_path: str, status: int, told: str, headers: Mapping[str, str]) -> Response:
    return PlainTextResponse(f"{told}\n", status, dict(headers))
