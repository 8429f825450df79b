"""Outside schedulers wake jobs over the REST API, on servers with tokens and without."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from tests.contract.commands import Commands
from tests.contract.test_v1_api import told
from tests.contract.v1_client import V1, v1_client
from tests.unit.control.offline_jobs import bound_files, document, execute, forget

from headrace.model import JobState, RunState
from headrace.rest import Listener, Role, TokenFile
from headrace.rest.v1.app import needed_role

pytestmark = pytest.mark.timeout(120)
WINDOW = {"lower": "2024-03-30T01:00:00Z", "upper": "2024-03-30T02:00:00Z"}
ENGINES = {
    "dolphin": {
        "type": "dolphinscheduler",
        "url": "http://127.0.0.1:9",
        "callback_url": "http://127.0.0.1:8083",
        "token": "${env:DOLPHIN_TOKEN}",
    }
}


@pytest.fixture(params=["open", "tokens"])
def v1(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[V1]:
    bound_files(monkeypatch)
    keys = TokenFile(tmp_path / "tokens.json") if request.param == "tokens" else None
    listener = Listener(port=0, keys=keys)
    with v1_client(tmp_path, listener=listener) as client:
        client.runtime.engines.given = ENGINES
        if keys is not None:
            token = keys.add("root", Role.ADMIN)
            client.http.headers["Authorization"] = f"Bearer {token}"
        yield client
        forget(client.runtime.jobs)


def made(v1: V1, name: str = "flights", **schedule: Any) -> str:
    """Make a job of an engine that may run; return the token of its engine."""
    one = document(name)
    one["schedule"] = {**one["schedule"], "engine": "dolphin", **schedule}
    answer = v1("POST", "/jobs", one)
    assert answer.status_code == 201, answer.text
    assert v1("POST", f"/jobs/{name}/submit").status_code == 200
    return v1.runtime.callbacks.token(v1.runtime.job_store.job(name))


def call(
    v1: V1, token: str, body: Any = None, path: str = "/jobs/flights/callback", **headers: str
) -> httpx2.Response:
    sent = {"Authorization": f"Bearer {token}", **headers}
    return v1("POST", path, body, headers=sent)


def test_an_engine_wakes_its_job_by_its_token_alone(v1: V1) -> None:
    token = made(v1)
    run = call(v1, token)
    assert run.status_code == 200, run.text
    body = run.json()
    assert (body["state"], body["trigger"], body["job"]) == ("queued", "callback", "flights")
    assert body["by"] == "dolphin@127.0.0.1"
    assert body == v1("GET", f"/jobs/flights/runs/{body['id']}").json()
    assert call(v1, token).json()["id"] == body["id"]
    assert call(v1, token, WINDOW).json()["boundaries"]["upper"] == "2024-03-30T02:00:00+00:00"
    shown = v1("GET", "/jobs/flights").json()
    assert shown["engine"] == "dolphin"
    assert token not in json.dumps(shown)


def test_a_callbacks_token_opens_no_other_door(v1: V1) -> None:
    token = made(v1)
    made(v1, "others")
    if v1("GET", "/jobs", headers={"Authorization": ""}).status_code == 200:
        pytest.skip("everyone may do everything here")
    for method, path in [
        ("GET", "/jobs"),
        ("GET", "/jobs/flights"),
        ("POST", "/jobs/flights/trigger"),
        ("DELETE", "/jobs/flights"),
        ("POST", "/jobs/flights/callback/x"),
    ]:
        refused = v1(method, path, {}, headers={"Authorization": f"Bearer {token}"})
        assert refused.status_code == 401, path


@pytest.mark.parametrize("kind", ["none", "a client's", "another job's", "made up", "deleted"])
def test_no_other_token_wakes_a_job(v1: V1, kind: str) -> None:
    token = made(v1)
    other = made(v1, "others")
    headers: dict[str, str] = {}
    match kind:
        case "none":
            headers = {"Authorization": ""}
        case "another job's":
            headers = {"Authorization": f"Bearer {other}"}
        case "made up":
            headers = {"Authorization": f"Bearer {token[:-2]}"}
        case "deleted":
            headers = {"Authorization": f"Bearer {token}"}
            v1("DELETE", "/jobs/flights")
            made(v1)
    answer = v1("POST", "/jobs/flights/callback", {}, headers=headers)
    assert answer.status_code == 401
    assert token not in answer.text
    assert v1("GET", "/jobs/flights/runs").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**WINDOW, "upper": "2024-03-30T02:30:00Z"}, 400, "callback.not_a_window"),
        ({"upper": "2024-03-30T00:30:00Z"}, 409, "callback.not_due"),
        ({"upper": "soon"}, 422, "config.invalid"),
        ({"job": "others"}, 400, "callback.not_a_window"),
        ({"kind": "offset"}, 400, "callback.not_a_window"),
        ({"uper": "x"}, 422, "request.invalid"),
        ([], 422, "request.invalid"),
    ],
)
def test_what_cannot_be_run_is_refused(v1: V1, body: Any, status: int, code: str) -> None:
    assert told(call(v1, made(v1), body), status)["code"] == code


def test_a_window_that_comes_yet_says_when(v1: V1) -> None:
    coming = {"start": "2099-01-01T00:00:00", "end": "2099-01-02T00:00:00"}
    answer = call(v1, made(v1, **coming))
    assert told(answer, 409)["code"] == "callback.not_due"
    assert int(answer.headers["Retry-After"]) > 86400


def test_a_suspended_job_is_not_woken(v1: V1) -> None:
    token = made(v1)
    v1("POST", "/jobs/flights/suspend")
    assert told(call(v1, token), 409)["code"] == "job.changed"


def test_two_that_wake_a_job_at_once_get_one_run(v1: V1) -> None:
    token, answers = made(v1, end="2024-04-30T00:00:00", catchup="all"), []

    def ask() -> None:
        answers.append(call(v1, token))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4, answers[0].text
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(v1.runtime.job_store.counts("flights").values()) == 31 * 24


def test_an_engine_may_wait_for_the_end_of_a_run(v1: V1) -> None:
    token = made(v1)
    slow = call(v1, token, Prefer="wait=1")
    assert slow.json()["state"] == "queued"
    timer = threading.Timer(1.5, lambda: execute(v1.runtime.jobs, RunState.FAILED))
    timer.start()
    ended = call(v1, token, Prefer="respond-async, wait=60")
    timer.join()
    assert (ended.json()["state"], ended.json()["error"]) == ("failed", "It broke.")
    # It is what an engine looks for in the text of an answer.
    assert '"state":"failed"' in ended.text
    assert call(v1, token, Prefer="wait=60").json()["state"] == "failed"


def test_who_waits_is_told_that_we_are_there(v1: V1, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.rest.v1.callbacks._ALIVE_SECONDS", 0)
    answer = call(v1, made(v1), Prefer="wait=2")
    assert answer.text.startswith(" ")
    assert answer.json()["state"] == "queued"


def test_an_engine_must_be_one_of_the_settings_and_able_to(v1: V1) -> None:
    for schedule, field in [
        ({"engine": "airflow"}, "schedule.engine"),
        ({"engine": "dolphin", "every": "7 minutes"}, "schedule.every"),
        ({"engine": ""}, "schedule.engine"),
    ]:
        one = document()
        one["schedule"] = {**one["schedule"], **schedule}
        assert told(v1("POST", "/jobs", one), 422)["field"] in {field, None}
    after = document(schedule={"after": "others", "engine": "dolphin"})
    refused = told(v1("POST", "/jobs", after), 422)
    assert "schedule.engine" in json.dumps(refused)
    made(v1)
    unknown = document()
    unknown["schedule"] = {**unknown["schedule"], "engine": "airflow"}
    assert told(v1("PUT", "/jobs/flights", unknown), 422)["field"] == "schedule.engine"


def test_a_job_says_what_its_engine_has_of_it(
    v1: V1, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", v1.server.url)
    monkeypatch.setenv("DOLPHIN_TOKEN", "of ann")
    shown = v1.http.headers.get("Authorization", "")
    if shown:
        monkeypatch.setenv("HEADRACE_TOKEN", shown.removeprefix("Bearer "))
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    job = Commands(v1.server, capsys, ("job",))
    made(v1)
    assert "scheduler    dolphin, not registered yet\n" in job("show", "flights")
    runtime = v1.runtime
    [registrar] = runtime.engines.registrars(
        runtime.registrations, runtime.callbacks, runtime.jobs.clock
    )
    with pytest.raises(Exception, match="does not answer"):
        registrar.look()
    found = v1("GET", "/jobs/flights").json()["registration"]
    assert (found["registered"], found["active"]) == (False, True)
    assert "does not answer" in found["error"]
    assert "not registered yet: [engine.unavailable]" in job("show", "flights")
    assert v1("GET", "/jobs/flights").json()["state"] == JobState.APPROVED


def test_settings_of_an_engine_are_checked(v1: V1, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOLPHIN_TOKEN", "of ann")
    wrong = {
        "type": {**ENGINES["dolphin"], "type": "cron"},
        "token": {**ENGINES["dolphin"], "token": "of ann"},
        "url": {**ENGINES["dolphin"], "url": "localhost"},
        "prefix": {**ENGINES["dolphin"], "prefix": "../x"},
        "tokn": {**ENGINES["dolphin"], "tokn": "x"},
    }
    runtime = v1.runtime
    for field, keys in wrong.items():
        runtime.engines.__dict__.pop("_types", None)
        runtime.engines.given = {"dolphin": keys}
        with pytest.raises(Exception, match=f"schedule_engines.dolphin.{field}") as raised:
            runtime.engines.registrars(
                runtime.registrations, runtime.callbacks, runtime.jobs.clock
            )
        assert "of ann" not in str(raised.value)


def test_the_path_takes_no_other_method(v1: V1) -> None:
    token = made(v1)
    refused = v1("GET", "/jobs/flights/callback")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    shown = {"Authorization": f"Bearer {token}"}
    assert v1("GET", "/jobs/flights/callback", headers=shown).status_code in {401, 405}


def test_whoever_shows_the_token_has_the_role_that_it_takes() -> None:
    assert needed_role("POST", "/v1/jobs/a%2Fb/callback") is Role.OPERATOR
