"""A connector's name is a name, whatever it holds: no path, no statement, no template."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from glob import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx2
import pytest
from tests.postgresql_server import STORE, PostgresqlServer
from tests.unit.worker.scripts import Told, now

from headrace.control import Connectors
from headrace.model import TargetState
from headrace.plugins import Registry
from headrace.rest import Listener, Serving, Workbench, rocketmq_app, server_app
from headrace.runtime.app import Runtime
from headrace.settings import Settings
from headrace.store import ConnectorStore, Place, Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CONFIG = {
    "connector.class": "FileStreamSinkConnector",
    "topics": "lines",
    "file": "/tmp/never-written",  # noqa: S108 - nothing runs here
}
NAMES = [
    "../../x",
    "/etc/passwd",
    "a%2Fb/%2e%2e",
    "'; DROP TABLE managed_connectors; --",
    '" OR 1=1 --',
    "a' UNION SELECT * FROM connector_configs WHERE '1'='1",
    "${env:PATH}",
    "{{7*7}}",
    "%s %(name)s {0} {name}",
    "<script>alert(1)</script>",
    "stop",
    "?expand=info#x",
    "l\u00e4nger \u202e \U0001f600",
    "x" * 2000,
    "...",
    "a/..",
]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def connectors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connectors]:
    with ExitStack() as made:
        place: Place = tmp_path_factory.mktemp("names") / "store.db"
        if request.param == "postgresql":
            server: PostgresqlServer = request.getfixturevalue("postgresql")
            place = made.enter_context(server.database(STORE))
        state = made.enter_context(closing(Store(place)))
        wanted = made.enter_context(closing(ConnectorStore(place)))
        yield Connectors(store=wanted, task_store=state, registry=Registry(), clock=now)


@contextmanager
def served(app: "ASGIApp", listener: Listener) -> Iterator[httpx2.Client]:
    with Serving(app, listener) as serving:
        serving.start()
        with httpx2.Client(base_url=serving.url, timeout=60) as client:
            yield client


@pytest.fixture(scope="module")
def http(
    connectors: Connectors, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    """Return a client of Kafka Connect's API, and of ours."""
    listener = Listener(port=0)
    runtime = Runtime(Settings(home=tmp_path_factory.mktemp("home")), connectors.task_store)
    bench = Workbench(runtime, Told(), now)
    with served(server_app(connectors, runtime.jobs, bench, listener), listener) as client:
        yield client


@pytest.fixture(scope="module")
def rocketmq(connectors: Connectors) -> Iterator[httpx2.Client]:
    listener = Listener(port=0)
    with served(rocketmq_app(connectors, listener), listener) as client:
        yield client


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_a_name_is_kept_as_it_is_and_does_nothing_else(
    http: httpx2.Client, connectors: Connectors, name: str
) -> None:
    others = connectors.names()
    path = f"/connectors/{quote(name, safe='')}"
    made = http.post("/connectors", json={"name": name, "config": CONFIG})
    assert (made.status_code, made.json()["name"]) == (201, name.strip())
    assert made.headers["location"].endswith(path)
    assert http.get("/connectors").json() == sorted([*others, name])
    assert http.get(f"{path}/config").json() == {**CONFIG, "name": name}
    assert http.get(f"{path}/status").json()["name"] == name
    assert http.put(f"{path}/stop").status_code == 204
    assert connectors.get(name).target is TargetState.STOPPED
    assert http.delete(path).status_code == 204
    assert connectors.names() == others
    assert http.get(path).json() == {
        "error_code": 404,
        "message": f"Connector {name} not found",
    }


@pytest.mark.parametrize("name", [*NAMES, " .."], ids=lambda name: repr(name[:20]))
def test_our_own_api_takes_a_name_as_it_is(
    http: httpx2.Client, connectors: Connectors, name: str
) -> None:
    others = connectors.names()
    connectors.create(name, CONFIG, "test")
    encoded = quote(name, safe="")
    path = f"/v1/connectors/{encoded}"
    assert http.get(path).json()["config"] == {**CONFIG, "name": name}
    for part in ("counts", "offsets", "offsets/history", "schemas", "versions", "versions/1"):
        assert http.get(f"{path}/{part}").status_code == 200, part
    pattern = quote(escape(name), safe="")
    for query in (f"name={pattern}", "limit=1000"):
        items = http.get(f"/v1/connectors?{query}").json()["items"]
        assert name in [each["name"] for each in items]
    assert http.get(f"/v1/connectors?after={encoded}&name={pattern}").json()["items"] == []
    events = http.get(f"/v1/events?connector={encoded}").json()["items"]
    assert {each["connector"] for each in events} == {name}
    chosen = {"filter": {"name": [escape(name)]}}
    for action in ("pause", "restart", "delete"):
        told = http.post(f"/v1/bulk/{action}", json=chosen).json()
        assert [each["name"] for each in told["results"]] == [name]
        assert told["done"] == 1
    assert connectors.names() == others
    assert http.get(path).json()["problem"] == f"There is no connector {name}."


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_the_api_of_rocketmq_takes_a_name_as_it_is(
    rocketmq: httpx2.Client, connectors: Connectors, name: str
) -> None:
    others = connectors.names()
    path = f"/connectors/{quote(name, safe='')}"
    given = {
        "connector.class": CONFIG["connector.class"],
        "connect.topicnames": "lines",
        "file": CONFIG["file"],
    }
    assert rocketmq.post(path, json=given).json() == {"status": 200, "body": given}
    assert rocketmq.get("/connectors/list").json()["body"].keys() == {*others, name}
    for part in ("config", "status"):
        assert rocketmq.get(f"{path}/{part}").json()["body"]["name"] == name
    assert rocketmq.get(f"{path}/tasks").json()["body"] == []
    paused = rocketmq.get(f"{path}/pause").json()["body"]
    assert paused == f"Connector [{name}] paused successfully"
    assert connectors.get(name).target is TargetState.PAUSED
    gone = rocketmq.get(f"{path}/stop").json()["body"]
    assert gone == f"Connector [{name}] deleted successfully"
    assert connectors.names() == others


UNTELLABLE = json.dumps({**CONFIG, "x": "\ud800"}).encode()
"""Half of a character, which JSON can write and UTF-8 cannot."""


def test_what_could_not_be_told_again_is_not_kept(
    http: httpx2.Client, rocketmq: httpx2.Client, connectors: Connectors
) -> None:
    others = connectors.names()
    headers = {"Content-Type": "application/json"}
    path = "/connectors/half/config"
    for content in (UNTELLABLE, b'{"\\ud800": "x"}'):
        for method in ("PUT", "PATCH"):
            told = http.request(method, path, content=content, headers=headers)
            assert told.status_code == 400
    told = http.post("/v1/preview", content=b'{"\\ud800": 1}', headers=headers)
    assert told.status_code == 422
    for body in (UNTELLABLE, json.dumps({**CONFIG, "x": float("nan")}).encode()):
        posted = rocketmq.post("/connectors/half", content=body, headers=headers).json()
        assert posted["errorCode"] == 400
    body = b'{"name": "a\\ud800", "config": {"connector.class": "FileStreamSource"}}'
    assert http.post("/connectors", content=body, headers=headers).status_code == 400
    offsets = (
        b'{"offsets": [{"partition": {"filename": "\\ud800"}, "offset": {"position": NaN}}]}'
    )
    for path, status in (("", 400), ("/v1", 422)):
        told = http.patch(f"{path}/connectors/half/offsets", content=offsets, headers=headers)
        assert told.status_code == status
    assert connectors.names() == others


@pytest.mark.parametrize(
    "name", ["a\nb", "a\r\n2026 [error] forged", "a\0b", "\x1b[31mred", ""]
)
def test_a_name_of_several_lines_is_refused(
    http: httpx2.Client, connectors: Connectors, name: str
) -> None:
    others = connectors.names()
    made = http.post("/connectors", json={"name": name, "config": CONFIG})
    assert made.status_code == 400
    assert made.json()["error_code"] == 400
    put = http.put(f"/connectors/{quote(name, safe='') or '%20'}/config", json=CONFIG)
    assert put.status_code == 400
    assert connectors.names() == others


@pytest.mark.parametrize("name", [".", "..", " .. "])
def test_a_name_that_no_path_can_hold_is_refused(
    http: httpx2.Client, connectors: Connectors, name: str
) -> None:
    others = connectors.names()
    made = http.post("/connectors", json={"name": name, "config": CONFIG})
    assert made.status_code == 400
    assert "cannot be part of a URL" in made.json()["message"]
    assert connectors.names() == others
