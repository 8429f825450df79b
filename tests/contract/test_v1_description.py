"""Our own REST API keeps to its description, whatever it is sent."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.schemathesis_run import schemathesis
from tests.contract.v1_client import SINKING, V1, v1_client
from tests.unit.control.offline_jobs import bound_files, document, execute

from headrace.rest import Listener, SharedToken
from headrace.rest.v1.events import LogLineShown
from headrace.runtime.server_log import LogLine

ON_SPARK = "/(preview|transforms/try|dead-letters)"


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V1]:
    with (
        v1_client(tmp_path_factory.mktemp("v1")) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        client.make("lines/in")
        client.make("out", **SINKING)
        bound_files(patch)
        jobs = client.runtime.jobs
        jobs.create(document(), "test")
        jobs.submit("flights", "test")
        jobs.trigger("flights", "test")
        execute(jobs)
        yield client


def test_no_answer_is_outside_the_description(v1: V1, tmp_path: Path) -> None:
    found = schemathesis(
        v1.url,
        tmp_path,
        *("--exclude-path-regex", ON_SPARK, "--max-examples", "10", "--seed", "1"),
    )
    assert found.returncode == 0, found.stdout[-6000:]


def test_it_says_what_clients_have_to_show(v1: V1, tmp_path: Path) -> None:
    described = v1("GET", "/openapi.json").json()
    schemes = described["components"]["securitySchemes"]
    assert {name: each["scheme"] for name, each in schemes.items()} == {
        "bearer": "bearer",
        "basic": "basic",
        "callback": "bearer",
    }
    assert "security" not in described["paths"]["/v1/connectors"]["get"]
    listener = Listener(port=0, keys=SharedToken("secret"))
    with v1_client(tmp_path, listener=listener) as guarded:
        paths = guarded("GET", "/openapi.json", auth=("anyone", "secret")).json()["paths"]
    roles = {
        (method, path): operation["security"]
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert roles["get", "/v1/events"] == [{"bearer": ["viewer"]}, {"basic": ["viewer"]}]
    assert roles["post", "/v1/connectors/{name}/offsets/reset"][0] == {"bearer": ["operator"]}
    assert roles["post", "/v1/preview"][0] == {"bearer": ["admin"]}
    assert roles["post", "/v1/jobs/{name}/callback"] == [{"callback": []}]


def test_patterns_of_names_are_few_and_short(v1: V1) -> None:
    for names in (["a" * 2049], ["a"] * 101, ["[a-" * 101]):
        asked = v1("GET", "/connectors", params={"name": names})
        assert asked.status_code == 422
        body = {"filter": {"name": names}, "dry_run": True}
        assert v1("POST", "/bulk/pause", body).status_code == 422
    most = ["a" * 2048, *["b"] * 99]
    assert v1("GET", "/connectors", params={"name": most}).status_code == 200


def test_a_long_text_of_the_log_is_cut() -> None:
    text = "x" * 100_000
    detail = {"path": text, "many": [text], "number": 1}
    line = LogLine("", "info", "a", text, None, None, detail, text)
    shown = LogLineShown.of(line)
    assert len(shown.model_dump_json()) < 40_000
    assert shown.detail["number"] == 1


def test_a_query_says_once_what_there_is_one_of(v1: V1) -> None:
    refused = v1("GET", "/connectors?limit=1&limit=2")
    assert (refused.status_code, refused.json()["field"]) == (422, "limit")
    assert v1("GET", "/connectors?name=a&name=b").status_code == 200
