"""Pages of other sites cannot change anything through a browser that keeps a password."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.contract.connect_server import CONFIG
from tests.contract.v1_client import V1, v1_client

from headrace.control import Connectors
from headrace.rest import (
    Listener,
    RateLimit,
    Role,
    Serving,
    SharedToken,
    TokenFile,
    connect_app,
    rocketmq_app,
)
from headrace_registry.embedded import service_in
from headrace_registry.rest import registry_app

pytestmark = pytest.mark.timeout(120)
FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:3000"},
    {"Referer": "https://evil.example/page"},
]
OWN: list[dict[str, str]] = [
    {},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://localhost:3000"},
]
KEPT = ("any", "secret")
"""What a browser shows by itself once its user has come in."""


@pytest.fixture(scope="module", params=[True, False], ids=["tokens", "no tokens"])
def v1(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[V1]:
    listener = Listener(port=0, keys=SharedToken("secret") if request.param else None)
    with v1_client(tmp_path_factory.mktemp("v1"), listener=listener) as client:
        yield client


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors/x/restart", None),
        ("PUT", "/connectors/x/config", CONFIG),
        ("DELETE", "/connectors/x", None),
        ("POST", "/v1/connectors/x/versions/1/restore", None),
        ("POST", "/v1/bulk/pause", {"filter": {"name": ["x"]}}),
    ],
)
def test_a_change_for_a_page_of_another_site_is_refused(
    v1: V1, method: str, path: str, body: object, headers: dict[str, str]
) -> None:
    url = f"{v1.server.url}{path}"
    answer = v1.http.request(method, url, json=body, headers=headers, auth=KEPT)
    assert answer.status_code == 403, answer.text
    assert v1.server.connectors.names() == []


def test_clients_that_are_no_browsers_and_own_pages_may_change(v1: V1) -> None:
    url = f"{v1.server.url}/connectors/mine"
    own = {"Origin": v1.server.url, "Referer": f"{v1.server.url}/page"}
    for headers in [*OWN, own]:
        put = v1.http.put(f"{url}/config", json=CONFIG, headers=headers, auth=KEPT)
        assert put.status_code in {200, 201}, (headers, put.text)
    v1.server.empty()


def test_others_may_still_link_to_what_only_shows(v1: V1) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Referer": "https://chat.example/"}
    shown = v1.http.get(f"{v1.server.url}/connectors", headers=headers, auth=KEPT)
    assert shown.status_code == 200


def test_the_port_where_get_changes_asks_browsers_for_no_password(
    connectors: Connectors,
) -> None:
    listener = Listener(port=0, keys=SharedToken("secret"))
    with Serving(rocketmq_app(connectors, listener), listener) as serving:
        serving.start()
        url = f"{serving.url}/connectors/stop/all"
        unknown = httpx2.get(url)
        assert unknown.status_code == 401
        assert unknown.headers["www-authenticate"] == "Bearer"
        for headers in FOREIGN:
            assert httpx2.get(url, auth=KEPT, headers=headers).status_code == 403
        assert httpx2.get(url, auth=KEPT).status_code == 200


def test_the_schema_registry_refuses_them_too(tmp_path: Path) -> None:
    listener = Listener(port=0, keys=SharedToken("secret"))
    app = registry_app(service_in(tmp_path / "registry.db"), listener)
    with Serving(app, listener) as serving:
        serving.start()
        for headers in FOREIGN:
            url = f"{serving.url}/subjects/s"
            assert httpx2.delete(url, auth=KEPT, headers=headers).status_code == 403


def test_a_client_of_too_low_a_role_is_told_so_however_often(
    connectors: Connectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokens = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    token = tokens.add("looker", Role.VIEWER)
    listener = Listener(port=0, keys=tokens, rate=RateLimit(refusals=2))
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        url = f"{serving.url}/connectors/c"
        # Where a minute begins amid them, the sliding window lets another one pass.
        guesses = [httpx2.delete(url).status_code for _ in range(5)]
        assert guesses[:2] == [401, 401]
        assert guesses[2:].count(429) in {2, 3}
        header = {"Authorization": f"Bearer {token}"}
        refused = [httpx2.delete(url, headers=header).status_code for _ in range(5)]
    assert refused == [403] * 5
