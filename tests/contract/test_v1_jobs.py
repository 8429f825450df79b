"""Offline jobs over our own REST API, without Spark."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_v1_api import told
from tests.contract.v1_client import V1, v1_client
from tests.unit.control.offline_jobs import (
    COUNTS,
    appends,
    bound_files,
    document,
    execute,
    forget,
)

from headrace.model import RunState, TaskId
from headrace.rest import Listener, Role, TokenFile
from headrace.rest.v1.app import needed_role
from headrace.scheduler import Scheduler
from headrace.sdk import Position

pytestmark = pytest.mark.timeout(120)
RANGE = {"lower": "2024-03-30T00:00:00Z", "upper": "2024-03-30T04:00:00Z"}
WINDOW = {"lower": "2024-03-30T01:00:00Z", "upper": "2024-03-30T02:00:00Z"}


@pytest.fixture
def v1(v1: V1, monkeypatch: pytest.MonkeyPatch) -> Iterator[V1]:
    bound_files(monkeypatch)
    yield v1
    forget(v1.runtime.jobs)


def done(v1: V1, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = v1(method, path, body)
    assert answer.status_code == status, answer.text
    return answer.json()


def running(v1: V1, **more: Any) -> str:
    """Make a job that may run; return its path."""
    done(v1, "POST", "/jobs", document(**more), 201)
    done(v1, "POST", "/jobs/flights/submit")
    return "/jobs/flights"


def test_a_job_goes_from_a_draft_to_its_runs(v1: V1) -> None:
    before = v1.server.wanted.last_event()
    made = done(v1, "POST", "/jobs", document(), 201)
    assert (made["state"], made["version"], made["fires"]) == ("draft", 1, [])
    assert made["document"] == document()
    assert (made["boundaries"], made["zone"]) == ("time", "UTC")
    assert (made["by"], made["runs"], made["newest"]) == ("anonymous@127.0.0.1", {}, None)
    assert told(v1("POST", "/jobs", document()), 409)["code"] == "job.exists"
    assert done(v1, "POST", "/jobs/flights/submit")["state"] == "approved"
    assert told(v1("POST", "/jobs/flights/submit"), 409)["code"] == "job.changed"
    run = done(v1, "POST", "/jobs/flights/trigger", {})
    bounds = {"kind": "time", "lower": "2024-03-30T05:00:00+00:00"}
    assert run["boundaries"] == {**bounds, "upper": "2024-03-30T06:00:00+00:00"}
    assert (run["state"], run["attempt"], run["trigger"]) == ("queued", 0, "manual")
    assert (run["began"], run["seconds"], run["error"]) == (None, None, None)
    execute(v1.runtime.jobs)
    ended = done(v1, "GET", f"/jobs/flights/runs/{run['id']}")
    assert (ended["state"], ended["attempt"], ended["seconds"]) == ("succeeded", 1, 0)
    assert (ended["counts"]["read"], ended["counts"]["balanced"]) == (COUNTS.read, True)
    assert ended["balance"] == "read = written + filtered + rejected"
    [listed] = done(v1, "GET", "/jobs")
    assert (listed["runs"], listed["newest"]) == ({"succeeded": 1}, ended)
    assert "document" not in listed
    assert done(v1, "DELETE", "/jobs/flights") == {"name": "flights", "left": []}
    assert told(v1("GET", "/jobs/flights"), 404)["code"] == "job.not_found"
    events = done(v1, "GET", f"/events?after={before}&connector=flights&changes=true")
    kinds = [each["kind"] for each in events["items"]]
    assert kinds == ["job.created", "job.submitted", "job.deleted"]


def test_all_that_is_wrong_with_a_document_is_told(v1: V1) -> None:
    wrong = document(retries="many", schedule={"every": "soon", "zone": "Mars"})
    problem = told(v1("POST", "/jobs", wrong), 422)
    assert isinstance(problem["errors"], list)
    fields = {each["field"] for each in problem["errors"]}
    assert {"retries", "schedule.every"} <= fields
    others: list[Any] = [[], "x", None]
    for body in others:
        assert told(v1("POST", "/jobs", body), 422)["code"] == "request.invalid"
    other = told(v1("PUT", running(v1), document("others")), 422)
    assert other["field"] == "name"


def test_an_edit_makes_another_version_and_the_same_document_none(v1: V1) -> None:
    path = running(v1)
    assert done(v1, "PUT", path, document())["version"] == 1
    edited = done(v1, "PUT", path, document(retries=5))
    assert (edited["version"], edited["document"]["retries"]) == (2, 5)


def test_suspending_and_resuming_are_refused_where_they_mean_nothing(v1: V1) -> None:
    path = running(v1)
    assert done(v1, "POST", f"{path}/suspend")["state"] == "suspended"
    assert told(v1("POST", f"{path}/trigger", {}), 409)["fix"].startswith("The job must be")  # type: ignore[attr-defined]  # a text
    assert done(v1, "POST", f"{path}/resume")["state"] == "approved"
    assert told(v1("POST", f"{path}/resume"), 409)["code"] == "job.changed"


def test_the_fires_of_a_draft_are_told_too(v1: V1) -> None:
    daily = {"every": "1 day", "start": "2024-03-30T00:00:00", "zone": "Europe/Zurich"}
    done(v1, "POST", "/jobs", document(schedule=daily), 201)
    assert len(done(v1, "GET", "/jobs/flights/fires")["fires"]) == 10
    assert len(done(v1, "GET", "/jobs/flights/fires?count=3")["fires"]) == 3
    assert done(v1, "GET", "/jobs/flights")["fires"] == []
    assert told(v1("GET", "/jobs/flights/fires?count=0"), 422)["field"] == "count"


def test_a_window_has_one_run_whoever_triggers_it(v1: V1) -> None:
    path = running(v1)
    first = done(v1, "POST", f"{path}/trigger", WINDOW)
    assert done(v1, "POST", f"{path}/trigger", WINDOW)["id"] == first["id"]
    coming = {"lower": "2024-03-30T00:00:00Z", "upper": "2999-01-01T00:00:00Z"}
    assert told(v1("POST", f"{path}/trigger", coming), 422)["field"] == "upper"
    assert told(v1("POST", f"{path}/trigger", {"lower": "soon"}), 422)
    assert told(v1("POST", f"{path}/trigger", {"lowr": "x"}), 422)["field"] == "lowr"


def test_runs_are_chosen_by_state_and_backfill_and_paged(v1: V1) -> None:
    path = running(v1)
    done(v1, "POST", f"{path}/trigger", {})
    execute(v1.runtime.jobs, RunState.FAILED)
    filled = done(v1, "POST", f"{path}/backfills", RANGE)
    assert (filled["total"], filled["runs"], filled["done"]) == (4, {"queued": 4}, False)
    first = done(v1, "GET", f"{path}/runs?limit=3")
    rest = done(v1, "GET", f"{path}/runs?limit=3&before={first['next']}")
    ids = [run["id"] for page in (first, rest) for run in page["items"]]
    assert ids == sorted(ids, reverse=True)
    assert (len(ids), rest["next"]) == (5, None)
    [failed] = done(v1, "GET", f"{path}/runs?state=failed&state=stopped")["items"]
    assert (failed["error"], failed["attempt"]) == ("It broke.", 1)
    of_it = done(v1, "GET", f"{path}/runs?backfill={filled['id']}")["items"]
    assert {run["backfill"] for run in of_it} == {filled["id"]}
    assert len(of_it) == 4
    assert told(v1("GET", f"{path}/runs?state=ill"), 422)["field"] == "state.0"
    assert told(v1("GET", "/jobs/none/runs"), 404)["code"] == "job.not_found"


def test_a_backfill_is_followed_and_stopped(v1: V1) -> None:
    path = running(v1)
    filled = done(v1, "POST", f"{path}/backfills", {**RANGE, "chunk": 3})
    place = f"{path}/backfills/{filled['id']}"
    assert done(v1, "GET", place) == filled
    assert filled["total"] == 2
    stopped = done(v1, "POST", f"{place}/stop")
    assert (stopped["runs"], stopped["done"]) == ({"stopped": 2}, True)
    # All its windows have runs now.
    none = done(v1, "POST", f"{path}/backfills", RANGE)
    assert (none["total"], none["done"]) == (0, True)
    for unknown in (none["id"], "x"):
        missing = v1("GET", f"{path}/backfills/{unknown}")
        assert told(missing, 404)["code"] == "backfill.not_found"
        assert v1("POST", f"{path}/backfills/{unknown}/stop").status_code == 404
    empty = {"lower": RANGE["upper"], "upper": RANGE["lower"]}
    assert told(v1("POST", f"{path}/backfills", empty), 422)["field"] == "upper"


def test_a_backfill_is_paused_and_resumed(v1: V1) -> None:
    path = running(v1)
    filled = done(v1, "POST", f"{path}/backfills", RANGE)
    place = f"{path}/backfills/{filled['id']}"
    assert filled["paused"] is False
    paused = done(v1, "POST", f"{place}/pause")
    shown = (paused["paused"], paused["done"], paused["runs"])
    assert shown == (True, False, {"queued": 4})
    assert done(v1, "GET", place) == paused
    assert told(v1("POST", f"{place}/pause"), 409)["code"] == "job.changed"
    assert execute(v1.runtime.jobs) == []
    runs = done(v1, "GET", f"{path}/runs")["items"]
    assert {(run["state"], run["paused"]) for run in runs} == {("queued", True)}
    # Its windows stay its own.
    assert done(v1, "POST", f"{path}/backfills", RANGE)["total"] == 0
    assert done(v1, "POST", f"{path}/trigger", WINDOW)["backfill"] == filled["id"]
    assert done(v1, "POST", f"{place}/resume")["paused"] is False
    assert told(v1("POST", f"{place}/resume"), 409)["code"] == "job.changed"
    assert len(execute(v1.runtime.jobs)) == 4
    assert told(v1("POST", f"{place}/pause"), 409)["code"] == "job.changed"
    for action in ("pause", "resume"):
        missing = v1("POST", f"{path}/backfills/x/{action}")
        assert told(missing, 404)["code"] == "backfill.not_found"
    kinds = [
        e["kind"] for e in done(v1, "GET", "/events?connector=flights&limit=1000")["items"]
    ]
    assert kinds[-2:] == ["backfill.pause", "backfill.resume"]


def test_a_run_is_stopped_retried_and_run_again(
    v1: V1, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = running(v1)
    run = f"{path}/runs/{done(v1, 'POST', f'{path}/trigger', {})['id']}"
    assert done(v1, "POST", f"{run}/stop")["state"] == "stopped"
    assert told(v1("POST", f"{run}/stop"), 409)["code"] == "job.changed"
    assert done(v1, "POST", f"{run}/retry")["state"] == "queued"
    execute(v1.runtime.jobs)
    refused = told(v1("POST", f"{run}/retry"), 409)
    assert "headrace job rerun flights " in str(refused["fix"])
    appends(monkeypatch)
    assert told(v1("POST", f"{run}/rerun"), 422)["field"] == "sinks[0].connector"
    appends(monkeypatch, does=False)
    again = done(v1, "POST", f"{run}/rerun")
    assert (again["state"], again["generation"], again["counts"]["read"]) == ("queued", 2, 0)


def test_a_batch_of_a_run_is_given_up_while_the_run_is_at_rest(v1: V1) -> None:
    path = running(v1)
    number = done(v1, "POST", f"{path}/trigger", {})["id"]
    run = f"{path}/runs/{number}"
    assert told(v1("POST", f"{run}/give-up", {}), 409)["field"] == "run"
    execute(v1.runtime.jobs, RunState.FAILED)
    assert "no unfinished batch" in str(told(v1("POST", f"{run}/give-up", {}), 409)["detail"])
    state, task = v1.runtime.state, TaskId(f"flights@{number}.1", 0)
    lease = state.lease(task, "w1", state.now(), timedelta(minutes=1))
    end = Position.of({"n": "a"}, {"n": 1})
    state.begin_batch(task, lease.epoch, Position(), end, state.now())
    assert "is run by w1" in str(told(v1("POST", f"{run}/give-up", {}), 409)["detail"])
    state.release(lease)
    shown = done(v1, "POST", f"{run}/give-up", {"dry_run": True})
    assert (shown["task"], shown["batch"]["id"], shown["done"]) == (0, 1, False)
    told(v1("POST", f"{run}/give-up", {"task": 3}), 409)
    told(v1("POST", f"{run}/give-up", {"task": -1}), 422)
    given = done(v1, "POST", f"{run}/give-up", {"task": 0, "skip": True, "force": True})
    assert (given["skipped"], given["done"]) == (True, True)
    assert state.position(task) == end
    [event] = [
        each
        for each in done(v1, "GET", "/events?connector=flights&limit=1000")["items"]
        if each["kind"] == "run.give-up"
    ]
    assert event["detail"] == {"run": number, "task": 0, "batch": 1, "skip": True}


def test_a_run_of_another_job_is_not_there(v1: V1) -> None:
    run = done(v1, "POST", f"{running(v1)}/trigger", {})["id"]
    done(v1, "POST", "/jobs", document("others"), 201)
    assert told(v1("GET", f"/jobs/others/runs/{run}"), 404)["code"] == "run.not_found"
    for action in ("stop", "retry", "rerun", "give-up"):
        body: Any = {} if action == "give-up" else None
        missing = v1("POST", f"/jobs/others/runs/{run}/{action}", body)
        assert told(missing, 404)["code"] == "run.not_found"
    assert told(v1("GET", f"/jobs/flights/runs/{run + 1000}"), 404)
    assert told(v1("GET", f"/jobs/none/runs/{run}"), 404)["code"] == "job.not_found"


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        *[
            ("GET", path, Role.VIEWER)
            for path in ("", "/a", "/a/fires", "/a/runs", "/a/runs/1")
        ],
        ("GET", "/a/backfills/b", Role.VIEWER),
        ("POST", "", Role.ADMIN),
        ("PUT", "/a", Role.ADMIN),
        ("DELETE", "/a", Role.ADMIN),
        ("POST", "/a/submit", Role.ADMIN),
        *[
            ("POST", f"/a%2Fb/{action}", Role.OPERATOR)
            for action in (
                *("approve", "reject", "suspend", "resume", "trigger", "backfills"),
                *("backfills/b/stop", "backfills/b/pause", "backfills/b/resume"),
                *("runs/1/stop", "runs/1/retry", "runs/1/rerun", "runs/1/give-up"),
            )
        ],
        ("POST", "/a/suspend%2Fx", Role.ADMIN),
    ],
)
def test_a_request_needs_the_role_of_who_may_do_it(method: str, path: str, role: Role) -> None:
    assert needed_role(method, f"/v1/jobs{path}") is role


def test_only_an_approver_approves_and_only_what_they_have_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_files(monkeypatch)
    file = TokenFile(tmp_path / "tokens.json")
    roles = {"ann": Role.OPERATOR, "bob": Role.OPERATOR, "vic": Role.VIEWER, "root": Role.ADMIN}
    tokens = {name: file.add(name, role) for name, role in roles.items()}
    with v1_client(tmp_path, listener=Listener(port=0, keys=file)) as v1:

        def asked(name: str, action: str, body: Any = None, method: str = "POST") -> Any:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            return v1(method, f"/jobs{action}", body, headers=headers)

        named = document(approvers=["ann", "vic"])
        assert asked("ann", "", named).status_code == 403
        assert asked("root", "", named).json()["approvers"] == ["ann", "vic"]
        assert asked("ann", "/flights/submit").status_code == 403
        assert asked("root", "/flights/submit").json()["state"] == "submitted"
        refused = told(asked("bob", "/flights/approve"), 403)
        assert (refused["code"], refused["fix"]) == (
            "job.not_approver",
            "Ask one of: ann, vic.",
        )
        assert told(asked("root", "/flights/reject", {"why": "x"}), 403)["code"] == (
            "job.not_approver"
        )
        assert told(asked("vic", "/flights/approve"), 403)["code"] == "request.forbidden"
        rejected = asked("ann", "/flights/reject", {"why": "No retries."}).json()
        assert (rejected["state"], rejected["why"]) == ("rejected", "No retries.")
        changed = {**named, "retries": 3}
        assert asked("root", "/flights", changed, "PUT").json()["state"] == "rejected"
        asked("root", "/flights/submit")
        assert told(asked("ann", "/flights/approve?version=1"), 409)["field"] == "version"
        approved = asked("ann", "/flights/approve?version=2").json()
        assert (approved["state"], approved["by"]) == ("approved", "ann@127.0.0.1")

        # What was approved is that document alone, in whichever state the job is.
        run = asked("ann", "/flights/trigger", {}).json()
        for before in ("approved", "suspended"):
            if before == "suspended":
                asked("ann", "/flights/approve")
                assert asked("ann", "/flights/suspend").json()["state"] == before
            changed = {**changed, "retries": changed["retries"] + 1}
            assert asked("root", "/flights", changed, "PUT").json()["state"] == "submitted"
            assert asked("bob", "/flights/resume").status_code == 409
            assert asked("bob", "/flights/trigger", {}).status_code == 409
            assert execute(v1.runtime.jobs) == []
        asked("ann", "/flights/approve")
        assert [each.id for each in execute(v1.runtime.jobs)] == [run["id"]]


def test_one_document_that_cannot_be_read_leaves_the_other_jobs_alone(v1: V1) -> None:
    endless = {"every": "1 hour", "start": "2024-03-30T00:00:00", "catchup": "latest"}
    path, jobs = running(v1, schedule=endless), v1.runtime.jobs
    done(v1, "POST", "/jobs", document("others"), 201)
    later = Scheduler(store=jobs.store, clock=lambda: jobs.clock() + timedelta(hours=2))
    with jobs.store.database.begin() as db:
        db.exec_driver_sql(
            "UPDATE jobs SET document = ? WHERE name = 'flights'",
            ('{"name": "flights", "schedule": {"every": "blue moon"}}',),
        )
    assert [each["boundaries"] for each in done(v1, "GET", "/jobs")] == [None, "time"]
    assert done(v1, "GET", path)["schedule"] == {"every": "blue moon"}
    later.tick()
    failed = done(v1, "GET", path)
    assert failed["state"] == "failed"
    assert "blue moon" in failed["why"]
    assert told(v1("POST", f"{path}/resume"), 422)
    mended = done(v1, "PUT", path, document(schedule=endless))
    assert (mended["state"], mended["why"]) == ("approved", None)
    later.tick()
    [run] = done(v1, "GET", f"{path}/runs")["items"]
    assert run["state"] == "queued"
