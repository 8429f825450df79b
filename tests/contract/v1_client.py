"""A client of our own REST API, and the server behind it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from tests.contract.connect_server import CONFIG, SINK, SINKING, SOURCE, Server, serving
from tests.unit.worker.scripts import Told, now
from tests.waiting import until

from headrace.model import TargetState
from headrace.rest import Listener, Workbench, server_app
from headrace.runtime.app import Runtime
from headrace.settings import Settings
from headrace.store import ConnectorStore, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from starlette.types import ASGIApp

__all__ = ["CONFIG", "SINK", "SINKING", "SOURCE", "V1", "v1_client"]


@dataclass
class V1:
    """The API as a client without any library sees it."""

    server: Server
    http: httpx2.Client
    home: Path
    runtime: Runtime
    paused = TargetState.PAUSED

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    def __call__(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> httpx2.Response:
        return self.http.request(method, f"{self.url}{path}", json=body, **more)

    def make(self, *names: str, **config: str) -> None:
        self.server.create(*names, **config)

    def names(self, query: str) -> list[str]:
        return [each["name"] for each in self("GET", f"/connectors?{query}").json()["items"]]

    @contextmanager
    def events(self, query: str, **more: Any) -> Iterator[Iterator[dict[str, str]]]:
        """Follow events: give the fields of each as they come."""
        path = f"{self.url}/events/stream?{query}"
        with self.http.stream("GET", path, **more) as answer:
            assert answer.status_code == 200
            yield _events(answer.iter_lines())

    def await_state(self, state: str, name: str) -> None:
        self.server.await_state(state, name)

    def await_stopped(self, name: str) -> None:
        until(lambda: self.server.state(name) == "STOPPED")


def _events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            event[name] = value
        elif not line:
            if "data" in event:
                yield event
            event = {}


@contextmanager
def v1_client(
    home: Path, spark: "SparkSession | None" = None, listener: Listener | None = None
) -> Iterator[V1]:
    """Serve over a store in a file for as long as this lasts; Spark only if it is given."""
    settings = Settings(home=home)
    place = settings.store_place
    with closing(Store(place)) as state, closing(ConnectorStore(place)) as wanted:
        runtime = Runtime(settings, state)
        if spark is not None:
            runtime.spark = spark

        def app(server: Server, listener: Listener) -> "ASGIApp":
            bench = Workbench(runtime, Told(), now)
            return server_app(server.connectors, runtime.jobs, bench, listener)

        made = Server(state_store=state, wanted_store=wanted)
        try:
            with serving(made, app, listener) as server, httpx2.Client(timeout=60) as http:
                yield V1(server, http, home, runtime)
        finally:
            if "owner" in vars(runtime):  # the session of all tests is not ours to close
                runtime.owner.close()
