"""A connector's name is a name, whatever it holds: no path, no statement, no template."""

from collections.abc import Iterator
from urllib.parse import quote

import httpx2
import pytest
from tests.unit.worker.scripts import now

from headrace.control import Connectors
from headrace.model import TargetState
from headrace.plugins import Registry
from headrace.rest import Door, Serving, connect_app
from headrace.store import MemoryStore, SqlConnectorStore

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
]


@pytest.fixture(scope="module")
def connectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connectors]:
    wanted = SqlConnectorStore(tmp_path_factory.mktemp("names") / "store.db")
    yield Connectors(wanted=wanted, state=MemoryStore(), registry=Registry(), clock=now)
    wanted.close()


@pytest.fixture(scope="module")
def http(connectors: Connectors) -> Iterator[httpx2.Client]:
    door = Door(port=0)
    with Serving(connect_app(connectors, door), door) as serving:
        serving.start()
        with httpx2.Client(base_url=serving.url, timeout=60) as client:
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
