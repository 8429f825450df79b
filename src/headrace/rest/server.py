"""Serves all APIs of a server on one port until the server stops."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from headrace.rest.auth import behind, needs_admin_to_change
from headrace.rest.connect import connect_app
from headrace.rest.v1 import Workbench, v1_app
from headrace.rest.v1.problems import PREFIX, refusal
from headrace.sdk.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.control import Connectors, Jobs
    from headrace.metrics import Exposition
    from headrace.rest.listener import Listener
    from headrace.runtime.health import Health


def server_app(
    connectors: Connectors,
    jobs: Jobs,
    bench: Workbench,
    listener: Listener,
    *,
    health: Health | None = None,
    metrics: Exposition | None = None,
) -> ASGIApp:
    """Return the APIs for the connectors and jobs, behind a listener's checks.

    Kafka Connect's API is at the root, as its clients expect; Headrace's is below ``/v1``.
    """
    apps = {PREFIX: v1_app(connectors, jobs, bench, listener)}
    if metrics is not None:
        apps[METRICS_PATH] = metrics_app(metrics, listener)
    return ByPrefix(apps, connect_app(connectors, listener, health))


class ByPrefix:
    """Dispatches each request to an application by path prefix, without changing the path."""

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._apps = apps
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = f"{scope.get('path', '')}/"
        found = (app for prefix, app in self._apps.items() if path.startswith(f"{prefix}/"))
        await next(found, self._others)(scope, receive, send)


_GRACE_SECONDS = 5
_LOOK_SECONDS = 1
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Serving:
    """Serves an application. Use it in a ``with``, which stops it at the end.

    It listens from construction on; requests before `start` or `run` wait.

    Args:
        option: The command-line option of the port, for errors.
    """

    app: ASGIApp
    listener: Listener
    option: str = "--port"

    def __post_init__(self) -> None:
        """Bind the address.

        Raises SetupError if the address cannot be bound, and ConfigError if the TLS files are
        not valid.
        """
        tls = None if self.listener.tls is None else self.listener.tls.context()
        # SO_REUSEADDR below makes the port available again right after a crash.
        family = socket.AF_INET6 if ":" in self.listener.host else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named; without it, answers
        # wait 40 ms for the client's delayed acknowledgement.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self.listener.host, self.listener.port))
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            problem = (
                f"{self.listener.host}:{self.listener.port} cannot be used: {error.strerror}."
            )
            fix = f"Choose another port with {self.option}, or stop the process that uses it."
            raise SetupError(problem, field=self.option, fix=fix) from None
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=self.listener.connections.protocol(),  # type: ignore[arg-type]  # a class, as it asks
            # Any client may send X-Forwarded headers, so they do not prove an address.
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host = f"[{self.listener.host}]" if ":" in self.listener.host else self.listener.host
        scheme = "http" if self.listener.tls is None else "https"
        return f"{scheme}://{host}:{self._socket.getsockname()[1]}"

    def run(self, served: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C or SIGTERM, starting first unless `start` was called.

        Must be called in the main thread, the only one that receives signals.
        """
        # Not an event: a handler must not take the lock of what it interrupts.
        asked = SimpleQueue[None]()
        handlers = {each: signal.signal(each, lambda *_: asked.put(None)) for each in _STOPS}
        try:
            if self._thread is None:
                self.start()
            served()
            while self._thread is not None and self._thread.is_alive():
                with suppress(Empty):
                    asked.get(timeout=_LOOK_SECONDS)
                    break
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
        self.stop()

    def start(self) -> None:
        """Start serving in a new thread."""
        self._thread = threading.Thread(target=self._serve, name="headrace-rest")
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, and finish the active ones."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


_RETRY = {"Retry-After": "2"}


class Opening:
    """Responds with 503 while no application is set: before it starts and after it stops.

    ``/health`` reports which of the two, in Kafka Connect's form.
    """

    def __init__(self, code: str = "error_code") -> None:
        self._code = code
        self._app: ASGIApp | None = None
        self._message = "Worker is still starting up."

    @contextmanager
    def opened(self, app: ASGIApp) -> Iterator[None]:
        """Forward requests to an application while the body runs."""
        self._app = app
        try:
            yield
        finally:
            self._message = "Worker is stopping."
            self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or self._closed(scope))(scope, receive, send)

    def _closed(self, scope: Scope) -> JSONResponse:
        path = scope.get("path", "")
        if path.startswith(f"{PREFIX}/"):
            return refusal(path, 503, self._message, _RETRY)
        body: dict[str, object] = {self._code: 503, "message": self._message}
        if path == "/health":
            body = {"status": "starting", "message": self._message}
        return JSONResponse(body, 503, _RETRY)


METRICS_PATH = "/metrics"


def metrics_app(exposition: Exposition, listener: Listener) -> ASGIApp:
    """Return an application that serves only the metrics, behind a listener's checks."""

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept")
        # In a thread: 200 connectors take some milliseconds, which would block the event loop.
        body, content_type = await run_in_threadpool(exposition.render, accept)
        return Response(body, headers={"Content-Type": content_type})

    app = Starlette(routes=[Route(METRICS_PATH, metrics, methods=["GET"])])
    return behind(app, listener, _refusal, needs_admin_to_change)


def _refusal(_path: str, status: int, body: str, headers: Mapping[str, str]) -> Response:
    return PlainTextResponse(f"{body}\n", status, dict(headers))
