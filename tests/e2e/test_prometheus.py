"""A real Prometheus scrapes the metrics and evaluates what the dashboard asks it."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.free_port import free_port
from tests.unit.metrics.test_dashboard import EXPRESSIONS
from tests.unit.metrics.test_sampling import Jvm, sampler
from tests.unit.metrics.told import batch, connector, told
from tests.waiting import until

from headrace.metrics import Exposition, WorkerMetrics
from headrace.model import ConnectorState, TaskId
from headrace.rest import Listener, Serving, metrics_app

pytestmark = [pytest.mark.long, pytest.mark.service]
TOOLS = Path(__file__).parents[2] / ".tools" / "prometheus" / "usr" / "bin"
SECONDS = 120


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(TOOLS))
    assert found, "`make test-long` fetches it"
    return found


def move(book: WorkerMetrics, over: threading.Event) -> None:
    """Let every counter of a task grow, so that rates are there."""
    number = 1
    while not over.wait(0.1):
        number += 1
        causes = {"TRANSFORMATION E": 1}
        counts = {"read": 3, "written": 1, "filtered": 1, "rejected": 1, "size_bytes": 9}
        moved = batch(TaskId("orders", 0), number, **counts, filters={"f": 1}, causes=causes)
        book.batch_finished(moved, timedelta(seconds=0.2))
        book.committed(TaskId("orders", 0), timedelta(seconds=0.01))


@pytest.fixture(scope="module")
def scraped(tmp_path_factory) -> Iterator[str]:
    """Serve metrics and let a Prometheus scrape them; yield its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    book, over = told(), threading.Event()
    book.connector_changed(connector("failed"), ConnectorState.FAILED, [])
    sampler(book, Jvm).look()
    listener = Listener(port=0)
    with Serving(metrics_app(Exposition(book), listener), listener) as serving:
        serving.start()
        moving = threading.Thread(target=move, args=(book, over))
        moving.start()
        target = serving.url.removeprefix("http://")
        config = {
            "global": {"scrape_interval": "200ms"},
            "scrape_configs": [
                {"job_name": "headrace", "static_configs": [{"targets": [target]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        address = f"127.0.0.1:{free_port()}"
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(SECONDS)
            over.set()
            moving.join()


def asked(url: str, query: str) -> list[Any]:
    try:
        answer = httpx2.get(f"{url}/api/v1/query", params={"query": query}).json()
    except httpx2.TransportError:
        return []  # it is not up yet
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_prometheus_answers_what_the_dashboard_asks(scraped, expression):
    query = expression.replace("$__rate_interval", "5s").replace("$connector", ".*")
    assert until(lambda: asked(scraped, query))


def test_prometheus_finds_no_fault_with_the_text():
    text, _ = Exposition(told()).render(None)
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
