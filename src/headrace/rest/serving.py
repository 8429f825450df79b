"""Runs an application until it is told to stop."""

from __future__ import annotations

import signal
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import uvicorn

from headrace.sdk import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from headrace.rest.door import Door

_GRACE_SECONDS = 5
_LOOK_SECONDS = 1
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Serving:
    """An application that is being served. Use it in a ``with``, which ends it.

    It listens once the block begins; requests that come before `start` or `run` wait.

    Args:
        app: The application.
        door: Where it listens.
        option: What the port is called on the command line.
    """

    app: ASGIApp
    door: Door
    option: str = "--port"

    def __post_init__(self) -> None:
        """Take the address.

        Raises SetupError if another process has it, and ConfigError if the door's TLS files
        do not do.
        """
        tls = None if self.door.tls is None else self.door.tls.context()
        # A port is free again at once after a crash.
        family = socket.AF_INET6 if ":" in self.door.host else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named; without it, answers
        # wait 40 ms for the client's delayed acknowledgement.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self.door.host, self.door.port))
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            problem = f"{self.door.host}:{self.door.port} cannot be used: {error.strerror}."
            fix = f"Choose another port with {self.option}, or stop what listens there."
            raise SetupError(problem, field=self.option, fix=fix) from None
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=self.door.connections.protocol(),  # type: ignore[arg-type]  # a class, as it asks
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
        host = f"[{self.door.host}]" if ":" in self.door.host else self.door.host
        scheme = "http" if self.door.tls is None else "https"
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
