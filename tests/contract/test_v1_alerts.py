"""Alerts over our own REST API, without Spark."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.test_v1_api import told
from tests.contract.v1_client import V1
from tests.unit.worker.scripts import now

from headrace.rest import Role
from headrace.rest.v1.app import needed_role
from headrace.sdk import Alert
from headrace.store import NewAlert

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def v1(v1: V1) -> Iterator[V1]:
    yield v1
    with v1.runtime.jobs.store.database.begin() as db:
        db.exec_driver_sql("DELETE FROM alerts")


def add(v1: V1, *jobs: str) -> None:
    for number, job in enumerate(jobs):
        alert = Alert(
            id=f"{job}-{number}",
            kind="failed",
            at=now() - timedelta(seconds=1),
            job=job,
            run=number or None,
            subject="s",
            text="t",
            details={"read": number},
        )
        v1.runtime.alerting.store.add([NewAlert(alert, ["log", "ops"])])


def alerts(v1: V1, query: str = "") -> Any:
    answer = v1("GET", f"/alerts{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_alerts_are_shown_with_their_ways_to_the_channels(v1: V1) -> None:
    assert alerts(v1) == {"items": [], "next": None}
    add(v1, "orders")
    store = v1.runtime.alerting.store
    at = now()
    claimed = store.claim(
        "ops", "w1", at, lease_now=at, expires=at + timedelta(1), dead=lambda _: False
    )
    assert claimed is not None
    store.failed(claimed, at + timedelta(seconds=5), "It is away.")
    [shown] = alerts(v1)["items"]
    assert (shown["kind"], shown["job"], shown["run"]) == ("failed", "orders", None)
    assert shown["details"] == {"read": 0}
    log, ops = shown["deliveries"]
    assert (log["channel"], log["state"], log["attempts"]) == ("log", "waiting", 0)
    assert (ops["channel"], ops["attempts"], ops["error"]) == ("ops", 1, "It is away.")


def test_alerts_come_newest_first_by_job_and_in_pages(v1: V1) -> None:
    add(v1, "a", "b", "a", "a")
    first = alerts(v1, "?job=a&limit=2")
    assert [each["run"] for each in first["items"]] == [3, 2]
    rest = alerts(v1, f"?job=a&limit=2&before={first['next']}")
    assert ([each["run"] for each in rest["items"]], rest["next"]) == ([None], None)
    assert len(alerts(v1)["items"]) == 4
    assert alerts(v1, "?job=deleted")["items"] == []
    for wrong, field in (("?before=0", "before"), ("?limit=1001", "limit"), ("?jop=a", "jop")):
        assert told(v1("GET", f"/alerts{wrong}"), 422)["field"] == field


def test_each_channel_is_tried(v1: V1) -> None:
    answer = v1("POST", "/alerts/test")
    assert answer.json() == [{"channel": "log", "type": "log", "error": None}]
    assert alerts(v1)["items"] == []


def test_a_viewer_sees_alerts_and_an_operator_tries_channels() -> None:
    assert needed_role("GET", "/v1/alerts") is Role.VIEWER
    assert needed_role("POST", "/v1/alerts/test") is Role.OPERATOR
