"""What DolphinScheduler is asked for, against a server that answers as it does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from tests.unit.scheduler.dolphin_server import TOKEN, DolphinServer
from tests.unit.scheduler.test_cron_fields import schedule

from headrace.scheduler import DolphinScheduler
from headrace.scheduler.dolphinscheduler import DolphinSettings
from headrace.scheduler.external_scheduler import (
    EngineRefusedError,
    EngineUnavailableError,
    WakeUp,
)

SIGNED = "hrc_secret"


@pytest.fixture(params=["workflow", "process"])
def server(request: pytest.FixtureRequest, httpserver: HTTPServer) -> DolphinServer:
    return DolphinServer(httpserver, request.param)


def engine_of(url: str, token: str = TOKEN, definitions: str = "workflow") -> DolphinScheduler:
    return DolphinScheduler(
        DolphinSettings.parsed(
            {
                "url": url,
                "callback_url": "http://headrace:8083/",
                "token": token,
                "definitions": definitions,
                "tenant": "data",
            }
        )
    )


@pytest.fixture
def engine(server: DolphinServer) -> Iterator[DolphinScheduler]:
    made = engine_of(server.url, definitions=server.word)
    made.start()
    yield made
    made.stop()


def wake(job: str = "flights", *, active: bool = True, **section: Any) -> WakeUp:
    return WakeUp(
        job=job,
        schedule=schedule(**({"every": "1 hour"} | section)),
        active=active,
        version="uid-1",
        path=f"/v1/jobs/{job}/callback",
        token=SIGNED,
    )


def workflow(server: DolphinServer, job: str = "flights") -> dict[str, Any]:
    named = {each["name"]: each for each in server.workflows.values()}
    return named[f"headrace.{job}"]


def test_a_job_becomes_a_workflow_that_is_scheduled(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    engine.update(wake(delay="90 seconds"))
    assert set(server.projects.values()) == {"of others", "headrace"}
    made = workflow(server)
    assert made["releaseState"] == "ONLINE"
    [one] = server.schedules.values()
    assert one["releaseState"] == "ONLINE"
    assert (one["crontab"], one["timezoneId"]) == ("0 0 * * * ? *", "UTC")
    assert one["startTime"] == "2024-03-30 00:00:00"
    [task] = made["tasks"]
    assert (task["taskType"], task["delayTime"]) == ("HTTP", 2)
    request = task["taskParams"]
    assert request["url"] == "http://headrace:8083/v1/jobs/flights/callback"
    sent = {each["prop"]: each for each in request["httpParams"]}
    assert {each["httpParametersType"] for each in sent.values()} == {"HEADERS"}
    assert sent["Authorization"]["value"] == f"Bearer {SIGNED}"
    assert sent["Prefer"]["value"] == "wait=86400"
    assert request["condition"] == '"state":"succeeded"'


def test_what_is_there_is_left_as_it_is(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    engine.update(wake())
    [one] = server.schedules.values()
    one["releaseState"] = "OFFLINE"  # by somebody, there
    server.asked.clear()
    engine.register(wake())
    assert one["releaseState"] == "OFFLINE"
    assert all(call.startswith("GET ") for call in server.asked)


def test_what_somebody_has_deleted_comes_back(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    engine.update(wake())
    server.schedules.clear()
    engine.register(wake())
    assert len(server.schedules) == 1
    server.schedules.clear()
    server.workflows.clear()
    engine.register(wake())
    assert workflow(server)["releaseState"] == "ONLINE"
    assert len(server.schedules) == 1


def test_an_edit_changes_the_same_workflow(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    engine.update(wake())
    [code], [task] = server.workflows, workflow(server)["tasks"]
    engine.update(replace(wake(every="2 hours"), version="uid-2"))
    assert list(server.workflows) == [code]
    [one] = server.schedules.values()
    assert one["crontab"].startswith("0 0 0,2,4,")
    assert one["releaseState"] == "ONLINE"
    [same] = workflow(server)["tasks"]
    assert same["code"] == task["code"]


def test_a_job_that_may_not_run_is_paused(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    engine.update(wake())
    engine.update(wake(active=False))
    [one] = server.schedules.values()
    assert one["releaseState"] == "OFFLINE"
    engine.update(wake())
    assert one["releaseState"] == "ONLINE"


def test_nothing_is_left_of_a_job_that_is_gone_and_all_of_others(
    engine: DolphinScheduler, server: DolphinServer
) -> None:
    for number in range(25):  # more than a page of names that are alike
        engine.update(wake(f"flights-{number}"))
    engine.update(wake("flights"))
    engine.unregister("flights")
    engine.unregister("flights")
    assert len(server.workflows) == len(server.schedules) == 25
    assert len(server.projects) == 2
    engine.unregister("flights-7")
    assert f"DELETE /projects/{server.project()}" not in server.asked
    assert len(server.workflows) == len(server.schedules) == 24


def test_the_last_window_is_woken_too(engine: DolphinScheduler, server: DolphinServer) -> None:
    engine.update(wake(every="1 day", end="2024-04-02T12:00:00", zone="Europe/Zurich"))
    [one] = server.schedules.values()
    assert (one["startTime"], one["endTime"]) == ("2024-03-30 00:00:00", "2024-04-03 00:00:00")
    engine.unregister("flights")
    once = schedule(once=True, end="2024-03-31T06:05:00", zone="Europe/Zurich")
    engine.update(replace(wake(), schedule=once))
    [one] = server.schedules.values()
    assert (one["crontab"], one["timezoneId"]) == ("0 5 6 31 3 ? 2024", "Europe/Zurich")
    assert one["endTime"] == "2024-03-31 06:05:01"


@pytest.mark.parametrize("wrong", ["token", "url", "api"])
def test_what_is_wrong_says_so_without_secrets(server: DolphinServer, wrong: str) -> None:
    server.server.expect_request("/other/projects/created-and-authed").respond_with_json([])
    made = {
        "token": lambda: engine_of(server.url, "guessed"),
        "url": lambda: engine_of("http://127.0.0.1:9/dolphinscheduler"),
        "api": lambda: engine_of(server.server.url_for("/other")),
    }[wrong]()
    kind = EngineUnavailableError if wrong == "url" else EngineRefusedError
    with pytest.raises(kind) as raised:
        made.start()
    assert "guessed" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    made.stop()


def test_a_refusal_says_which(engine: DolphinScheduler, server: DolphinServer) -> None:
    engine.update(wake())
    [code] = server.workflows
    del server.workflows[code]
    with pytest.raises(EngineRefusedError, match=r"does not exist \(50003\)"):
        engine._send("GET", f"/projects/{server.project()}/{server.word}-definition/{code}")
