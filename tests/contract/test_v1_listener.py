"""Who is let in to our own REST API, and how the others are refused."""

from collections.abc import Iterator

import httpx2
import pytest
from tests.contract.v1_client import V1, v1_client

from headrace.rest import Listener, Opening, Role, Serving, SharedToken
from headrace.rest.v1.app import needed_role

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V1]:
    listener = Listener(port=0, keys=SharedToken("secret"))
    with v1_client(tmp_path_factory.mktemp("v1"), listener=listener) as client:
        yield client


@pytest.mark.parametrize("path", ["/connectors", "/openapi.json", "/nowhere"])
def test_without_a_token_nothing_is_told(v1: V1, path: str) -> None:
    refused = v1("GET", path)
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert refused.json()["code"] == "request.unauthorized"
    header = {"Authorization": "Bearer secret"}
    assert v1("GET", path, headers=header).status_code in {200, 404}


def test_what_a_client_changes_is_known_by_its_name(v1: V1) -> None:
    v1.make("a")
    header = {"Authorization": "Bearer secret"}
    asked = {"filter": {"name": ["a"]}}
    assert v1("POST", "/bulk/pause", asked, headers=header).json()["done"] == 1
    events = v1("GET", "/events?connector=a", headers=header).json()["items"]
    [paused] = [each for each in events if each["kind"] == "target"]
    assert paused["by"] == "token@127.0.0.1"


def test_while_the_server_starts_a_problem_says_so() -> None:
    listener = Listener(port=0)
    with Serving(Opening(), listener) as serving:
        serving.start()
        waiting = httpx2.get(f"{serving.url}/v1/connectors")
    assert waiting.status_code == 503
    assert waiting.headers["retry-after"] == "2"
    assert waiting.json()["code"] == "request.service_unavailable"


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/v1/connectors", Role.VIEWER),
        ("GET", "/v1/events/stream", Role.VIEWER),
        ("POST", "/v1/bulk/pause", Role.OPERATOR),
        ("POST", "/v1/bulk/delete", Role.ADMIN),
        ("POST", "/v1/bulk/pause%2Fx", Role.ADMIN),
        ("POST", "/v1/connectors/a%2Fb/dead-letters/replay", Role.OPERATOR),
        ("POST", "/v1/dead-letters/t/discard", Role.OPERATOR),
        ("POST", "/v1/connectors/a/versions/1/restore", Role.ADMIN),
        ("POST", "/v1/preview", Role.ADMIN),
        ("POST", "/v1/transforms/try", Role.ADMIN),
        ("POST", "/v1/store/backups", Role.ADMIN),
    ],
)
def test_a_request_needs_the_role_of_who_may_do_it(method: str, path: str, role: Role) -> None:
    assert needed_role(method, path) is role
