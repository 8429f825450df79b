"""`headrace job`, in this process, against the real API over a store, without Spark."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.contract.commands import Commands
from tests.contract.v1_client import V1, v1_client
from tests.unit.control.offline_jobs import appends, bound_files, document, execute, forget
from tests.waiting import until

from headrace.client import Client, RunFailedError
from headrace.control import Jobs
from headrace.model import RunState, TaskId
from headrace.rest import Listener, Role, TokenFile
from headrace.sdk import Alert, Position
from headrace.settings import Settings
from headrace.store import NewAlert

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def jobs(v1: V1, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    bound_files(monkeypatch)
    yield v1.runtime.jobs
    forget(v1.runtime.jobs)


@pytest.fixture
def job(
    v1: V1,
    jobs: Jobs,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Commands:
    """Return where commands are given; a job waits in a file."""
    monkeypatch.setenv("HEADRACE_SERVER", v1.server.url)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    write(document())
    return Commands(v1.server, capsys, ("job",))


def write(described: dict[str, object], name: str = "flights.yaml") -> None:
    Path(name).write_text(json.dumps(described))


def started(job: Commands) -> Commands:
    job("create", "flights.yaml", "--submit")
    return job


def test_a_job_is_made_from_a_file_and_deleted(job: Commands) -> None:
    assert job("list") == ""
    assert "no jobs" in job.err
    assert job("create", "flights.yaml") == "flights: draft\n"
    assert "headrace job submit flights" in job.err
    job("create", "flights.yaml", code=1)
    assert job.err.startswith("error[server.conflict] ")
    assert job("submit", "flights") == "flights: approved\n"
    assert job("suspend", "flights") == "flights: suspended\n"
    assert job.json("resume", "fli*") == [{"name": "flights", "state": "approved"}]
    assert "every 1 hour" in job("list")
    assert "approved" in job.out
    assert job.json("list", "--state", "draft") == []
    assert job("delete", "flights") == "flights: deleted\n"
    job("delete", "flights", code=2)
    assert "error[server.not_found] name: Job flights does not exist." in job.err
    assert "fix: List them: headrace job list." in job.err


def test_what_is_wrong_with_a_document_is_told_by_its_keys(job: Commands) -> None:
    write(document(retries="many", schedule={"every": "soon"}))
    job("create", "flights.yaml", code=2)
    assert "error[config.invalid] retries: Invalid value many" in job.err
    assert "error[config.invalid] schedule.every: Invalid value soon" in job.err
    Path("none.yaml").write_text("source: {}\n")
    job("create", "none.yaml", code=2)
    assert "A document in none.yaml has no name." in job.err


def test_a_file_may_hold_several_jobs_and_what_only_yaml_has(job: Commands) -> None:
    copy = "source: {connector: file, path: ., format: text}\nsinks: [{connector: console}]\n"
    times = "{every: 1 day, start: 2024-03-30, end: 2024-04-02T00:00:00}"
    Path("two.yaml").write_text(
        f"name: a\n{copy}schedule: {times}\n---\nname: b\n{copy}boundaries: time\n"
    )
    assert job("create", "two.yaml", "--submit") == "a: approved\nb: approved\n"
    assert job.json("show", "a", "--document")["schedule"]["start"] == "2024-03-30"
    assert [each["name"] for each in job.json("list")] == ["a", "b"]
    assert "by hand" in job("list")
    job("delete", "*", code=2)
    assert "Add --yes to delete all of them." in job.err
    assert job("delete", "*", "--yes") == "a: deleted\nb: deleted\n"


def test_an_edit_keeps_the_state_where_nobody_is_asked(job: Commands) -> None:
    started(job)
    assert job("edit", "flights.yaml") == "flights: approved\n"
    write(document(retries=7))
    assert job("edit", "flights.yaml") == "flights: approved\n"
    assert job.json("show", "flights")["version"] == 2
    Path("flights.yaml").write_text(job("show", "flights", "--document"))
    job("edit", "flights.yaml")
    assert job.json("show", "flights")["version"] == 2


def test_a_job_is_shown_with_what_comes(job: Commands) -> None:
    endless = {"every": "1 day", "start": "2024-03-30T00:00:00", "zone": "Europe/Zurich"}
    write(document(schedule={**endless, "catchup": "none"}))
    started(job)
    shown = job("show", "flights").splitlines()
    assert shown[:2] == ["name         flights", "state        approved"]
    assert "schedule     every 1 day, Europe/Zurich" in shown
    assert "runs         none" in shown
    assert len(job("next", "flights", "--count", "4").splitlines()) == 4
    assert (
        job.json("next", "flights", "--count", "2") == job.json("show", "flights")["fires"][:2]
    )
    job("show", "none", code=2)


def test_a_window_is_triggered_by_times_of_the_jobs_zone(job: Commands, jobs: Jobs) -> None:
    started(job)
    bounds = ("--lower", "2024-03-30T01:00", "--upper", "2024-03-30T03:00+01:00")
    run = job.json("trigger", "flights", *bounds)
    assert run["boundaries"]["lower"] == "2024-03-30T01:00:00+00:00"
    assert run["boundaries"]["upper"] == "2024-03-30T02:00:00+00:00"
    job("trigger", "flights", "--lower", "soon", code=2)
    assert "error[config.invalid] --lower: Invalid time 'soon'." in job.err
    execute(jobs)
    assert f"run {run['id']} is succeeded" in job("trigger", "flights", *bounds)
    assert f"to rerun: headrace job rerun flights {run['id']}" in job.err


def soon(jobs: Jobs, state: RunState = RunState.SUCCEEDED) -> threading.Thread:
    """End runs once there are some."""

    def work() -> None:
        end = time.monotonic() + 60
        while not execute(jobs, state) and time.monotonic() < end:
            time.sleep(0.1)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_runs_are_waited_for_and_their_failure_is_an_exit_code(
    job: Commands, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(job)
    failing = soon(jobs, RunState.FAILED)
    job("trigger", "flights", "--wait", code=1)
    failing.join()
    assert "is failed: It broke." in job.err
    assert job.err.splitlines()[-2].startswith("error[run.failed] flights: Run ")
    run = str(job.json("show-run", "flights")["id"])
    assert "error        It broke." in job("show-run", "flights", run)
    job("retry", "flights", run, "--wait", "--timeout", "0", code=1)
    assert "has not ended within 0 s" in job.err
    going = soon(jobs)
    assert job.json("trigger", "flights", "--wait")["state"] == "succeeded"
    going.join()
    assert "records      3 read, 2 written, 1 filtered, 0 rejected" in job(
        "show-run", "flights"
    )
    job("retry", "flights", run, code=1)
    assert f"headrace job rerun flights {run}" in job.err
    appends(monkeypatch)
    job("rerun", "flights", run, code=2)
    assert "would duplicate the window's rows" in job.err
    job("stop-run", "flights", run, code=1)
    job("stop-run", "flights", "9999", code=2)
    assert "fix: List them: headrace job runs NAME." in job.err


def test_a_batch_of_a_run_is_given_up(job: Commands, jobs: Jobs, v1: V1) -> None:
    started(job)
    number = job.json("trigger", "flights")["id"]
    job("give-up", "flights", str(number), code=1)
    assert "Stop it first: headrace job stop-run flights" in job.err
    execute(jobs, RunState.FAILED)
    state, task = v1.runtime.state, TaskId(f"flights@{number}.1", 0)
    lease = state.lease(task, "w1", state.now(), timedelta(minutes=1))
    end = Position.of({"n": "a"}, {"n": 1})
    state.begin_batch(task, lease.epoch, Position(), end, state.now())
    state.release(lease)
    shown = job("give-up", "flights", str(number), "--dry-run")
    assert f"flights: run {number}: batch 1 of task 0" in shown
    assert state.unfinished_batch(task) is not None
    given = job("give-up", "flights", str(number), "--force", "--yes")
    assert f"flights: run {number}: batch 1 of task 0 is given up" in given
    assert (state.unfinished_batch(task), state.position(task)) == (None, Position())


def test_runs_are_listed_by_state(job: Commands, jobs: Jobs) -> None:
    started(job)
    assert job("runs", "flights") == ""
    job("backfill", "flights", "--lower", "2024-03-30", "--upper", "2024-03-31")
    execute(jobs)
    assert len(job.json("runs", "flights", "--state", "succeeded")) == 6
    assert job.json("runs", "flights", "--state", "failed", "--state", "stopped") == []
    table = job("runs", "flights", "--lines", "2")
    assert "2024-03-30 05:00:00 to 2024-03-30 06:00:00" in table
    assert table.count("backfill") == 2
    assert "--before" in job.err
    job("runs", "flights", "--state", "asleep", code=2)


def test_a_backfill_is_followed_and_stopped(job: Commands, jobs: Jobs) -> None:
    started(job)
    hours = ("--lower", "2024-03-30T00:00", "--upper", "2024-03-30T02:00")
    going = soon(jobs)
    done = job("backfill", "flights", *hours, "--wait")
    going.join()
    assert done.endswith(": 2 succeeded\n")
    assert job.err.endswith("flights: 2 succeeded\n")
    assert "no runs" in job("backfill", "flights", *hours)
    assert "All past windows of that range have a run" in job.err
    rest = ("--lower", "2024-03-30", "--upper", "2024-03-31", "--chunk", "3")
    begun = job.json("backfill", "flights", *rest)
    assert (begun["total"], begun["runs"]) == (2, {"queued": 2})
    assert "2 queued" in job("show-backfill", "flights", begun["id"])
    assert "2 stopped" in job("stop-backfill", "flights", begun["id"])
    job("show-backfill", "flights", "nine", code=2)
    assert "Job flights has no backfill nine." in job.err


def test_a_backfill_is_paused_and_whoever_waits_is_told(job: Commands, jobs: Jobs) -> None:
    started(job)
    hours = ("--lower", "2024-03-30T00:00", "--upper", "2024-03-30T02:00")
    begun = job.json("backfill", "flights", *hours)
    place = ("flights", begun["id"])
    line = f"flights: backfill {begun['id']}: paused, 2 queued\n"
    assert job("pause-backfill", *place) == line
    assert job("show-backfill", *place) == line
    execute(jobs)
    run = job.json("runs", "flights")[0]["id"]
    assert "state        queued, its backfill is paused" in job("show-run", "flights", str(run))
    job("pause-backfill", *place, code=1)
    assert f"headrace job resume-backfill flights {begun['id']}" in job.err
    job("stop-run", "flights", str(run))
    job("retry", "flights", str(run), "--wait", "--timeout", "0", code=1)
    resuming = f"headrace job resume-backfill flights {begun['id']}"
    assert f"run {run} is queued and paused; to resume: {resuming}" in job.err
    assert job("resume-backfill", *place).endswith(": 2 queued\n")
    execute(jobs)
    assert "2 succeeded" in job("show-backfill", *place)


def test_waiting_for_a_paused_backfill_says_so(
    job: Commands, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(job)
    hours = ("--lower", "2024-03-30T00:00", "--upper", "2024-03-30T02:00")

    def pause_for_a_while() -> None:
        until(lambda: jobs.store.runs("flights"))
        [run, *_] = jobs.store.runs("flights")
        assert run.backfill is not None
        jobs.pause_backfill("flights", run.backfill, "bob")
        time.sleep(5)
        jobs.resume_backfill("flights", run.backfill, "bob")
        execute(jobs)

    pausing = threading.Thread(target=pause_for_a_while)
    pausing.start()
    done = job("backfill", "flights", *hours, "--wait")
    pausing.join()
    assert done.endswith(": 2 succeeded\n")
    assert "flights: paused, 2 queued\n" in job.err
    assert "To resume: headrace job resume-backfill flights" in job.err


def test_alerts_are_listed_and_their_channels_tested(
    job: Commands, jobs: Jobs, v1: V1, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(job)
    job("alerts")
    assert "no alerts" in job.err
    about: dict[str, Any] = {"job": "flights", "run": 7, "subject": "It is so.", "text": "T"}
    made = Alert(id="a", kind="failed", at=jobs.clock(), **about)
    v1.runtime.alerting.store.add([NewAlert(made, ["log"])])
    listed = job.json("alerts", "flights")
    assert [(each["subject"], each["run"]) for each in listed] == [("It is so.", 7)]
    assert job.json("alerts", "others") == []
    assert "log waiting" in job("alerts")
    assert job("alerts", "--text").rstrip().endswith("T")
    assert job("test-alerts") == "log (log): sent\n"
    channels = {
        "good": {"type": "log"},
        "bad": {"type": "webhook", "url": "http://127.0.0.1:1/secret-path"},
    }
    settings = Settings(home=v1.home, alerts=channels)
    monkeypatch.setattr(v1.runtime.alerting, "settings", settings)
    found = job.json("test-alerts", code=1)
    assert [(each["channel"], each["error"] is None) for each in found] == [
        ("good", True),
        ("bad", False),
    ]
    assert "secret-path" not in job.out
    with Client(v1.server.url) as client:
        page, following = client.jobs.alerts("flights", limit=1)
    assert (len(page), following) == (1, None)


def test_a_client_waits_for_a_backfill_that_fails(v1: V1, jobs: Jobs) -> None:
    with Client(v1.server.url) as client:
        client.jobs.create(document())
        client.jobs.submit("flights")
        day = (datetime(2024, 3, 30, tzinfo=UTC), datetime(2024, 3, 31, tzinfo=UTC))
        begun = client.jobs.backfill("flights", *day, chunk=6)
        execute(jobs, RunState.FAILED)
        with pytest.raises(RunFailedError, match="1 failed"):
            client.jobs.await_backfill("flights", begun["id"])
        assert client.jobs.fires("flights") == []


def test_an_approver_is_told_what_to_do(
    job: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    tokens = {name: file.add(name, Role.ADMIN) for name in ("ann", "bob")}
    write(document(approvers=["ann"]))
    with v1_client(tmp_path / "other", listener=Listener(port=0, keys=file)) as guarded:
        monkeypatch.setenv("HEADRACE_SERVER", guarded.server.url)
        monkeypatch.setenv("HEADRACE_TOKEN", tokens["bob"])
        assert job("create", "flights.yaml", "--submit") == "flights: submitted\n"
        job("approve", "flights", code=2)
        assert "bob may not approve or reject job flights." in job.err
        assert "fix: Ask one of: ann." in job.err
        monkeypatch.setenv("HEADRACE_TOKEN", tokens["ann"])
        assert job("reject", "flights", "--why", "No owner.") == "flights: rejected\n"
        assert "state        rejected: No owner." in job("show", "flights")
        job("submit", "flights")
        job("approve", "flights", "--version", "2", code=1)
        assert job("approve", "flights", "--version", "1") == "flights: approved\n"


def test_a_command_imports_nothing_of_a_server(v1: V1, tmp_path: Path, job: Commands) -> None:
    program = (
        "import sys; from headrace.cli import main; "
        "main(['job', 'create', 'flights.yaml']); main(['job', 'list']); print(*sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "flights: draft" in told.stdout
    loaded = {name.partition(".")[0] for name in told.stdout.splitlines()[-1].split()}
    assert not loaded & {"pyarrow", "pyspark", "sqlalchemy", "fastapi", "uvicorn", "numpy"}
