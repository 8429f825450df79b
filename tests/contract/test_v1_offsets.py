"""Offsets over our own REST API."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.v1_client import V1, v1_client

from headrace.model import TargetState
from headrace.rest import Role
from headrace.rest.v1.app import needed_role

pytestmark = pytest.mark.timeout(60)
PATH = "/connectors/a%2Fb/offsets"


@pytest.fixture
def v1(tmp_path: Path) -> Iterator[V1]:
    with v1_client(tmp_path) as client:
        client.make("a/b")
        yield client


def test_offsets_are_altered_recorded_and_undone(v1: V1) -> None:
    entry = {"partition": {"filename": "/in"}, "offset": {"position": 9}}
    refused = v1("PATCH", PATH, {"offsets": [entry]})
    assert (refused.status_code, refused.headers["content-type"]) == (
        409,
        "application/problem+json",
    )
    v1.server.connectors.set_target("a/b", TargetState.STOPPED, "test")
    v1.await_stopped("a/b")
    [change] = v1("PATCH", PATH, {"offsets": [entry]}).json()["changes"]
    assert change == {
        "partition": {"filename": "/in"},
        "before": None,
        "after": {"position": 9},
        "effect": "skipped",
        "meaning": change["meaning"],
    }
    assert v1("GET", PATH).json() == {"offsets": [entry]}
    wrong = {**entry, "offset": {"position": "x"}}
    assert v1("PATCH", PATH, {"offsets": [wrong]}).status_code == 409
    assert v1("POST", f"{PATH}/rewind", {"to": "2026-01-01T00:00:00Z"}).status_code == 409
    assert v1("POST", f"{PATH}/undo", {}).json()["changes"][0]["after"] is None
    assert v1("POST", f"{PATH}/reset", {}).json() == {"changes": []}
    told = v1("GET", f"{PATH}/history").json()
    assert [(each["action"], each["by"]) for each in told] == [
        ("reset", "anonymous@127.0.0.1"),
        ("undo", "anonymous@127.0.0.1"),
        ("alter", "anonymous@127.0.0.1"),
    ]
    assert v1("GET", "/connectors/none/offsets").status_code == 404


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("rewind", {"to": 0}),
        ("rewind", {"to": "1767225600"}),
        ("undo", {"force": "yes"}),
    ],
)
def test_what_is_no_time_or_no_boolean_is_not_taken_for_one(
    v1: V1, action: str, body: dict[str, object]
) -> None:
    assert v1("POST", f"{PATH}/{action}", body).status_code == 422


def test_offsets_are_for_operators() -> None:
    for method, path in (
        ("PATCH", ""),
        ("POST", "/reset"),
        ("POST", "/rewind"),
        ("POST", "/undo"),
    ):
        assert needed_role(method, f"/v1{PATH}{path}") is Role.OPERATOR
    assert needed_role("GET", f"/v1{PATH}/history") is Role.VIEWER
