"""The metrics are at the server's port, and come in the format that is asked for."""

import threading
from collections.abc import Iterator

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from tests.unit.metrics.told import told

from headrace.metrics import Exposition
from headrace.rest import Listener, Serving, SharedToken, metrics_app
from headrace.rest.server import ByPrefix

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
TOKEN = "t" * 32


async def elsewhere(scope, receive, send) -> None:
    """Answer 418 to everything."""
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(Listener(port=0)) as serving:
        yield serving.url


def served(listener: Listener) -> Serving:
    app = ByPrefix({"/metrics": metrics_app(Exposition(told()), listener)}, elsewhere)
    serving = Serving(app, listener)
    serving.start()
    return serving


def test_prometheus_gets_openmetrics(url):
    answer = httpx2.get(f"{url}/metrics", headers={"Accept": OPEN}, timeout=60)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in parse_open(answer.text)}
    assert "headrace_task_records_read" in families


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "application/json"])
def test_others_get_plain_text(url, accept):
    answer = httpx2.get(f"{url}/metrics", headers={"Accept": accept}, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert {family.name for family in parse_plain(answer.text)}


def test_other_paths_and_methods_are_not_the_metrics(url):
    assert httpx2.get(f"{url}/connectors", timeout=60).status_code == 418
    assert httpx2.post(f"{url}/metrics", timeout=60).status_code == 405


def test_many_may_scrape_at_once(url):
    texts: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: texts.append(httpx2.get(f"{url}/metrics", timeout=60).text)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 8
    assert len(set(texts)) == 1


def test_the_door_keeps_the_metrics_too():
    with served(Listener(port=0, keys=SharedToken(TOKEN))) as serving:
        path = f"{serving.url}/metrics"
        assert httpx2.get(path, timeout=60).status_code == 401
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx2.get(path, headers=shown, timeout=60).status_code == 200
