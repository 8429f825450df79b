"""All APIs of a server, on one port, until it is told to stop."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import uvicorn
from starlette.responses import JSONResponse

from headrace.rest.connect import connect_app
from headrace.rest.v1 import v1_app
from headrace.rest.v1.problems import PREFIX, refusal
from headrace.sdk import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.control import Connectors, Health
    from headrace.rest.listener import Listener
    from headrace.rest.v1 import Workbench


def server_app(
    connectors: Connectors, bench: Workbench, listener: Listener, health: Health | None = None
) -> ASGIApp:
    """Return the APIs over an installation's connectors, behind a listener's checks.

    Kafka Connect's has the root, as its clients expect; ours begins with ``/v1``.
    """
    return ByPrefix(
        {PREFIX: v1_app(connectors, bench, listener)}, connect_app(connectors, listener, health)
    )


class ByPrefix:
    """Hands each request to the application that its path begins with; paths stay whole."""

    def __init__(self, apps: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        """Stand before applications by prefix, and one for all other paths."""
        self._apps = apps
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = f"{scope.get('path', '')}/"
        found = (app for prefix, app in self._apps.items() if path.startswith(f"{prefix}/"))
        await next(found, self._others)(scope, receive, send)


_GRACE_SECONDS = 5
_LOOK_SECONDS = 1
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Serving:
    """An application that is being served. Use it in a ``with``, which ends it.

    It listens once the block begins; requests that come before `start` or `run` wait.

    Args:
        app: The application.
        listener: Where it listens.
        option: What the port is called on the command line.
    """

    app: ASGIApp
    listener: Listener
    option: str = "--port"

    def __post_init__(self) -> None:
        """Take the address.

        Raises SetupError if another process has it, and ConfigError if the TLS files
        do not do.
        """
        tls = None if self.listener.tls is None else self.listener.tls.context()
        # A port is free again at once after a crash.
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
            fix = f"Choose another port with {self.option}, or stop what listens there."
            raise SetupError(problem, field=self.option, fix=fix) from None
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=self.listener.connections.protocol(),  # type: ignore[arg-type]  # a class, as it asks
            # A header that any client may send says nothing of where a request comes from.
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self.listener.host}]" if ":" in self.listener.host else self.listener.host
        scheme = "http" if self.listener.tls is None else "https"
        return f"{scheme}://{host}:{self._socket.getsockname()[1]}"

    def run(self, served: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C or SIGTERM, also where it has been started already.

        Called in the main thread, as only that one hears signals.

        Args:
            served: Called once it is served and a signal would end it in order.
        """
        asked = threading.Event()
        kept = {each: signal.signal(each, lambda *_: asked.set()) for each in _STOPS}
        try:
            if self._thread is None:
                self.start()
            served()
            while self._thread is not None and self._thread.is_alive():
                if asked.wait(_LOOK_SECONDS):
                    break
        finally:
            for each, handler in kept.items():
                signal.signal(each, handler)
        self.stop()

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self._serve, name="headrace-rest")
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests that are being served, and take no more."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.stop()


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
