"""A server of Kafka Connect's API: its connectors are real, its tasks are written down."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.unit.worker.reconciled import Reconciled
from tests.unit.worker.scripts import now
from tests.waiting import until

from headrace.control import Connectors
from headrace.plugins import Registry
from headrace.rest import Listener, Serving, connect_app, rocketmq_app
from headrace.store import ConnectorStore, Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
CONFIG = {"connector.class": SOURCE, "file": "/in", "topic": "lines"}
SINKING = {"connector.class": SINK, "topics": "lines", "file": "/out"}


class Server(Reconciled):
    """What is behind the doors."""

    url = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connectors = Connectors(
            store=self.wanted,
            task_store=self.state_store,
            registry=Registry(),
            clock=now,
            changed=self.reconciler.wake,
            workers=lambda: ["w1:8083"],
        )

    def create(self, *names: str, **config: str) -> None:
        """Create connectors, and wait until they run."""
        for name in names:
            self.connectors.create(name, config or CONFIG, "test")
        for name in names:
            self.await_state("RUNNING", name)

    def state(self, name: str) -> str:
        return self.connectors.get(name).status.state.value

    def await_state(self, state: str, name: str) -> None:
        """Wait until a connector and its one task are in a state."""

        def there() -> bool:
            view = self.connectors.view(name)
            tasks = [task.status.state.value for task in view.tasks]
            return view.status.state.value == state and tasks == [state]

        until(there)

    def empty(self) -> None:
        """Delete every connector, and wait until nothing of them runs."""
        for name in self.connectors.names():
            self.connectors.delete(name, "test")
        self.broken.clear()
        until(lambda: not self.state_store.leases())


def _connect(server: Server, listener: Listener) -> "ASGIApp":
    return connect_app(server.connectors, listener)


@contextmanager
def serving(
    server: Server | None = None,
    app: "Callable[[Server, Listener], ASGIApp]" = _connect,
    listener: Listener | None = None,
) -> Iterator[Server]:
    """Serve for as long as this lasts."""
    server = server or Server()
    listener = listener or Listener(port=0)
    threads = [
        threading.Thread(target=run) for run in (server.worker.run, server.reconciler.run)
    ]
    with Serving(app(server, listener), listener) as served:
        served.start()
        server.url = served.url
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            server.reconciler.stop()
            server.worker.stop()
            for thread in threads:
                thread.join()


def _rocketmq(server: Server, listener: Listener) -> "ASGIApp":
    return rocketmq_app(server.connectors, listener)


@contextmanager
def rocketmq_serving() -> Iterator[Server]:
    """Serve RocketMQ Connect's API over a store in a file for as long as this lasts."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "store.db"
        with (
            closing(Store(place)) as state,
            closing(ConnectorStore(place)) as wanted,
            serving(Server(state, wanted_store=wanted), _rocketmq) as server,
        ):
            yield server
