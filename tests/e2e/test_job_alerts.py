"""An alert of a server that is killed while it sends it is sent by the next one."""

import json
from collections import Counter
from pathlib import Path
from threading import Event

import httpx2
import psutil
import pytest
from pytest_httpserver import HTTPServer
from tests.e2e.pairs import Pairs
from tests.e2e.test_job_kills import START, document
from tests.waiting import until
from werkzeug import Request, Response

WINDOWS = 3


@pytest.fixture
def service() -> HTTPServer:
    return HTTPServer(threaded=True)


def test_an_alert_survives_the_death_of_its_server_and_comes_once_afterwards(
    tmp_path: Path, service: HTTPServer
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"id,at\n1,{START.isoformat()}\n")
    posted, taken, well = Counter[str](), Counter[str](), Event()

    def receive(request: Request) -> Response:
        alert = json.loads(request.data)
        assert request.headers["X-Key"] == "k3y-of-the-tests"
        posted[alert["id"]] += 1
        if not well.is_set():
            well.wait(60)  # who asks is killed meanwhile
            return Response(status=500)
        taken[alert["id"]] += 1
        return Response(status=204)

    with service:
        service.expect_request("/alerts").respond_with_handler(receive)
        channel = {
            "type": "webhook",
            "url": service.url_for("/alerts"),
            "header.name": "X-Key",
            "header.value": "${env:ALERTS_KEY}",
            "timeout.ms": "60000",
        }
        env = {
            "HEADRACE_ALERTS": json.dumps({"ops": channel}),
            "ALERTS_KEY": "k3y-of-the-tests",
        }
        server = Pairs(tmp_path, 0, env)
        with server.serving() as process:
            made = document(tmp_path, WINDOWS) | {"alerts": {"empty": True}}
            for path, body in (("", made), ("/flights/submit", None)):
                answer = httpx2.post(f"{server.url}/v1/jobs{path}", json=body, timeout=60)
                assert answer.is_success, answer.text
            until(lambda: posted, server.log.read_text)
            until(
                lambda: (
                    server.ask("/v1/jobs/flights")["runs"] == {"succeeded": WINDOWS}
                    and len(server.ask("/v1/alerts")["items"]) == WINDOWS - 1
                ),
                server.log.read_text,
            )
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            psutil.wait_procs(children, timeout=60)
        well.set()
        before = dict(posted)
        assert list(before.values()) == [1]
        with server.serving():
            until(lambda: len(taken) == WINDOWS - 1, server.log.read_text)
            until(
                lambda: all(
                    each["deliveries"][0]["state"] == "sent"
                    for each in server.ask("/v1/alerts")["items"]
                ),
                server.log.read_text,
            )
            shown = server.ask("/v1/alerts?job=flights")["items"]
    assert taken == {each["id"]: 1 for each in shown}
    [(killed, _)] = before.items()
    assert posted[killed] == 2
    assert "k3y-of-the-tests" not in server.log.read_text()
    assert "k3y-of-the-tests" not in (tmp_path / "home" / "logs" / "headrace.log").read_text()
