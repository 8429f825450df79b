"""Requests that take long leave the others their threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.contract.connect_server import Server, serving
from tests.contract.v1_client import CONFIG
from tests.unit.worker.scripts import Told, now
from typing_extensions import override

from headrace.rest import Listener, Workbench, server_app
from headrace.rest.v1 import Slots
from headrace.runtime.app import Runtime
from headrace.sdk import SourceError
from headrace.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.dataplane import Stage
    from headrace.model import Definition

pytestmark = pytest.mark.timeout(120)
TRIAL: Mapping[str, object] = {"config": {"transforms": "none"}, "records": []}


@dataclass
class Slow(Workbench):
    """A process whose Spark is busy until it is told to go on."""

    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Event = field(default_factory=threading.Event)

    @override
    def try_transforms(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.begun.release()
        assert self.go_on.wait(60)
        return {"results": []}


@contextmanager
def slow(home: Path, slots: Slots) -> Iterator[tuple[str, Slow]]:
    made: list[Slow] = []

    def app(server: Server, listener: Listener) -> ASGIApp:
        runtime = Runtime(Settings(home=home), server.state_store)
        made.append(Slow(runtime, Told(), now, slots))
        served = server_app(server.connectors, runtime.jobs, made[0], listener)

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            made[0].arrived.release()
            await served(scope, receive, send)

        return counted

    with serving(app=app) as server:
        try:
            yield server.url, made[0]
        finally:
            made[0].go_on.set()


def trial(url: str) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/transforms/try", json=TRIAL, timeout=60)


def test_many_slow_requests_keep_no_other_from_its_answer(tmp_path: Path) -> None:
    threads = 40  # that answer requests, of all of the server's APIs
    with slow(tmp_path, Slots()) as (url, bench), ThreadPoolExecutor(2 * threads) as clients:
        asked = [clients.submit(trial, url) for _ in range(threads + 10)]
        for _ in asked:
            assert bench.arrived.acquire(timeout=60)
        assert bench.begun.acquire(timeout=60)
        for path in ("/health", "/connectors", "/v1/connectors"):
            assert httpx2.get(f"{url}{path}", timeout=60).status_code == 200
        bench.go_on.set()
        assert {each.result().status_code for each in asked} <= {200, 503}


def test_an_error_of_a_plugin_shows_no_password(tmp_path: Path) -> None:
    password = "not-to-be-told"  # noqa: S105 - a test's

    class Talking(Workbench):
        @override
        def preview(self, definition: Definition, rows: int) -> Sequence[Stage]:
            problem = f"Nobody is let in with {password}."
            raise SourceError(problem, fix=f"Do not use {password}.")

    def app(server: Server, listener: Listener) -> ASGIApp:
        runtime = Runtime(Settings(home=tmp_path), server.state_store)
        bench = Talking(runtime, Told(), now)
        return server_app(server.connectors, runtime.jobs, bench, listener)

    with serving(app=app) as server:
        config = {**CONFIG, "sasl.password": password}
        told = httpx2.post(f"{server.url}/v1/preview", json={"config": config}, timeout=60)
    assert told.status_code == 422
    assert told.json()["problem"] == "Nobody is let in with [hidden]."
    assert password not in told.text


def test_who_waits_for_too_long_is_told_to_come_again(tmp_path: Path) -> None:
    slots = Slots(1, timedelta(milliseconds=50))
    with slow(tmp_path, slots) as (url, bench), ThreadPoolExecutor(1) as clients:
        first = clients.submit(trial, url)
        assert bench.begun.acquire(timeout=60)
        late = trial(url)
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        assert late.json()["code"] == "server.busy"
        bench.go_on.set()
        assert first.result().status_code == 200
        assert trial(url).status_code == 200
