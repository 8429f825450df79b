"""An attempt of a run plans its tasks by where those of the attempts before it stood."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.worker.scripts import Told, worker

from headrace.control import Jobs
from headrace.model import JobState, Run, RunState, Stamp, TaskId
from headrace.plugins import Registry
from headrace.runtime.jobs import RunExecution, RunOpener
from headrace.runtime.tasks import Planner
from headrace.scheduler import Scheduler
from headrace.sdk import ConfigError, Position, SourceError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.store import Store
from headrace.store.job_store import JobStore
from headrace.topics import Topics
from headrace.worker import NotWantedError
from headrace_plugins.connectors.file.source import FileSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONCE = {"once": True, "start": "2013-01-01T00:00:00", "end": "2013-01-02T00:00:00"}


@dataclass
class Desk:
    """Jobs of a folder's files, and what opens their runs."""

    folder: Path
    planned: int = 0

    def __post_init__(self) -> None:
        for name in "abcd":
            (self.folder / f"{name}.csv").write_text("id,at\n1,2013-01-01T00:00:00Z\n")
        self.state = Store()
        jobs = JobStore(self.state.database)
        self.jobs = Jobs(store=jobs, registry=Registry(), clock=lambda: NOW)
        self.scheduler = Scheduler(store=jobs, clock=lambda: NOW)
        topics = Topics(Location.of(self.folder / "topics"))
        planner = Planner(store=self.state, registry=Registry(), topics=topics)
        nothing: Any = None  # nothing is run
        self.opener = RunOpener(
            jobs=jobs, state=self.state, planner=planner, maker=nothing, worker=nothing
        )

    def document(self, tasks: int, **more: Any) -> dict[str, Any]:
        source = {
            "connector": "file",
            "path": str(self.folder),
            "format": "csv",
            "schema": "id LONG, at TIMESTAMP",
            "window.column": "at",
        }
        sinks = [{"connector": "noop"}]
        return {"name": "a", "source": source, "sinks": sinks, "tasks.max": str(tasks), **more}

    def begun(self, document: dict[str, Any]) -> Run:
        """Return the run of a job that has moved a batch of it."""
        self.jobs.create(document, "ann")
        self.jobs.submit("a", "ann")
        self.scheduler.tick()
        self.scheduler.tick()
        [run] = self.jobs.runs("a")
        self.opener.open(run)
        task = TaskId(run.task_name, 0)
        lease = self.state.lease(task, "w1", self.state.now(), timedelta(seconds=30))
        stands = Position.of({"path": str(self.folder)}, {"files": 1})
        self.state.set_position(task, lease.epoch, stands)
        return run

    def shares(self, run: Run) -> list[str]:
        """Return how an attempt divides the files."""
        with closing(self.opener.open(run).planning()) as plan:
            plans = self.opener.plans(plan, run, "x")
        assert {each.id.connector for each in plans} == {run.task_name}
        return [each.source.config["task.share"] for each in plans if each.source]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_another_number_of_tasks_does_not_divide_the_files_of_a_run_again(desk: Desk) -> None:
    schedule = {"once": True, "start": "2013-01-01T00:00:00", "end": "2013-01-02T00:00:00"}
    desk.jobs.create(desk.document(2, schedule=schedule), "ann")
    desk.jobs.submit("a", "ann")
    desk.scheduler.tick()
    desk.scheduler.tick()
    [run] = desk.jobs.runs("a")
    first = desk.shares(run)
    task = TaskId(run.task_name, 0)
    lease = desk.state.lease(task, "w1", desk.state.now(), timedelta(seconds=30))
    stood = {"path": str(desk.folder), "share": "0/2"}
    desk.state.set_position(task, lease.epoch, Position.of(stood, {"files": 1}))
    desk.jobs.edit("a", desk.document(4, schedule=schedule), "ann")
    assert desk.shares(run) == first


def test_a_run_in_real_time_is_not_opened_for_a_job_that_is_offline(desk: Desk) -> None:
    desk.jobs.create(desk.document(1, mode="realtime"), "ann")
    desk.jobs.submit("a", "ann")
    desk.scheduler.tick()
    [run] = desk.jobs.runs("a")
    execution = desk.opener.open(run)
    assert execution.is_wanted()
    schedule = {"every": "1 day", "start": "2100-01-01T00:00:00"}
    desk.jobs.edit("a", desk.document(1, schedule=schedule), "ann")
    assert not execution.is_wanted()
    assert desk.jobs.store.job("a").state is JobState.APPROVED
    with pytest.raises(NotWantedError):
        desk.opener.open(run)
    assert run.state is RunState.QUEUED


def delta(*folders: str) -> list[dict[str, str]]:
    return [{"connector": "delta", "path": folder} for folder in folders]


def test_a_run_that_has_begun_goes_on_after_an_edit_that_leaves_its_ends_alone(
    desk: Desk,
) -> None:
    document = desk.document(1, schedule=ONCE, sinks=delta("one", "two"))
    run = desk.begun(document)
    document["source"] = {**document["source"], "max.files": 7}
    document |= {"sinks": [delta("one")[0] | {"optimize.interval.commits": 9}], "retries": 9}
    document["transforms"] = [{"type": "DropHeaders", "headers": "a"}]
    desk.jobs.edit("a", document, "ann")
    desk.opener.open(run)
    # What was left out lacks what has come meanwhile.
    desk.jobs.edit("a", {**document, "sinks": delta("one", "two")}, "ann")
    with pytest.raises(ConfigError, match="with other sinks"):
        desk.opener.open(run)


@pytest.mark.parametrize("timing", [{"schedule": ONCE}, {"mode": "realtime"}])
def test_a_run_that_has_begun_does_not_go_on_between_other_systems(
    desk: Desk, timing: dict[str, Any]
) -> None:
    document = desk.document(1, sinks=delta("one"), **timing)
    run = desk.begun(document)
    desk.jobs.edit("a", {**document, "sinks": delta("other")}, "ann")
    with pytest.raises(ConfigError, match="with other sinks") as refused:
        desk.opener.open(run)
    assert refused.value.field == "sinks"
    assert ("another job" in refused.value.fix) == run.is_live
    moved = {**document["source"], "path": str(desk.folder / "a.csv")}
    desk.jobs.edit("a", {**document, "source": moved}, "ann")
    with pytest.raises(ConfigError, match="with another source"):
        desk.opener.open(run)
    desk.jobs.edit("a", document, "ann")
    desk.opener.open(run)


def test_a_run_whose_first_batch_is_in_doubt_does_not_go_on_elsewhere(desk: Desk) -> None:
    document = desk.document(1, schedule=ONCE, sinks=delta("one"))
    run = desk.begun(document)
    task = TaskId(run.task_name, 0)
    lease = desk.state.lease(task, "w1", desk.state.now(), timedelta(seconds=30))
    desk.state.set_position(task, lease.epoch, Position())
    desk.jobs.edit("a", {**document, "sinks": delta("other")}, "ann")
    desk.opener.open(run)  # nothing has begun there
    end = Position.of({"path": "p"}, {"files": 1})
    desk.state.begin_batch(task, lease.epoch, Position(), end, NOW)
    desk.jobs.edit("a", document, "ann")
    with pytest.raises(ConfigError, match="with other sinks"):
        desk.opener.open(run)


def test_who_slept_while_a_run_was_begun_anew_gets_no_lease_of_its_tasks(desk: Desk) -> None:
    run = desk.begun(desk.document(1, schedule=ONCE, sinks=delta("one")))
    asleep = desk.opener.open(run)
    stopped = desk.jobs.stop_run("a", run.id, "ann")
    anew = desk.jobs.store.run_again(stopped.id, Stamp(NOW, "ann"), from_beginning=True)
    assert desk.opener.open(anew).identity == asleep.identity
    task, now, for_ = TaskId(run.task_name, 0), desk.state.now(), timedelta(seconds=30)
    with pytest.raises(StaleEpochError):
        desk.state.lease(task, "w1", now, for_, identity=asleep.identity)


def test_what_sources_read_is_where_it_is_and_not_how_they_get_there() -> None:
    registry = Registry()

    def origin(plugin: str, **props: str) -> str:
        source = registry.source(plugin)
        given = {name.replace("_", "."): value for name, value in props.items()}
        return source.origin(source.config_def().parse(given))

    url = "postgresql://{}/shop"
    a, b = url.format("a"), url.format("b")
    for plugin in ("postgres", "jdbc"):
        found = origin(plugin, connection_url=a, connection_user="ann", table_whitelist="x")
        assert found == origin(plugin, connection_url=b)
        assert found != origin(plugin, connection_url="postgresql://a/other")
    for plugin in ("delta", "file"):
        assert origin(plugin, path="/a/b", format="csv") == origin(plugin, path="file:///a/b")
        assert origin(plugin, path="/a/b") != origin(plugin, path="/a/c")
    assert origin("datagen", interval_ms="5") == origin("datagen", interval_ms="9")


def test_a_run_in_real_time_replaces_what_lies_behind_the_windows_that_were_made(
    desk: Desk,
) -> None:
    lake = {"connector": "delta", "path": str(desk.folder / "lake")}
    sinks = [{**lake, "replace.window.column": "at"}]
    schedule = {"once": True, "start": "2013-01-01T00:00:00", "end": "2013-01-02T00:00:00"}
    desk.jobs.create(desk.document(1, schedule=schedule, sinks=sinks), "ann")
    desk.jobs.submit("a", "ann")
    desk.jobs.edit("a", desk.document(1, mode="realtime", sinks=sinks), "ann")
    desk.scheduler.tick()
    [run] = desk.jobs.runs("a")
    assert run.is_live
    [sink] = desk.opener.open(run).definition.sinks
    assert sink.config["replace.window.from"] == "2013-01-01T00:00:00+00:00"


def test_a_window_that_is_left_of_a_job_in_real_time_replaces_its_rows(desk: Desk) -> None:
    sinks = [{"connector": "delta", "path": "t", "replace.window.column": "at"}]
    desk.jobs.create(desk.document(1, schedule=ONCE, sinks=sinks), "ann")
    desk.jobs.submit("a", "ann")
    desk.scheduler.tick()
    desk.scheduler.tick()
    [run] = desk.jobs.runs("a")
    desk.jobs.edit("a", desk.document(1, sinks=sinks, mode="realtime"), "ann")
    config = desk.opener.open(run).definition.sinks[0].config
    assert config["replace.window.from"] == "2013-01-01T00:00:00+00:00"
    assert config["replace.window.to"] == "2013-01-02T00:00:00+00:00"


def test_changes_are_read_window_by_window_whatever_the_job_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel = {**ONCE, "overlap": "parallel", "parallel": 4}
    desk.jobs.create(desk.document(1, schedule=parallel), "ann")
    assert desk.opener.policy("a").side_by_side == 4
    monkeypatch.setattr(FileSource, "is_ordered", classmethod(lambda _cls, _config: True))
    desk.opener._ordered.clear()  # as for another version
    policy = desk.opener.policy("a")
    assert (policy.side_by_side, policy.depends_on_past) == (1, True)


def execution_that_asks(desk: Desk, ask: Callable[[RunExecution], None]) -> RunExecution:
    """Return an execution whose connector asks for something while it is planned first."""

    def plans(*_: object) -> list[object]:
        desk.planned += 1
        if desk.planned == 1:
            ask(execution)
        else:
            execution.stop()
        return []

    desk.jobs.create(desk.document(1, mode="realtime"), "ann")
    desk.jobs.submit("a", "ann")
    desk.scheduler.tick()
    [run] = desk.jobs.runs("a")
    opener: Any = SimpleNamespace(
        plans=plans,
        worker=lambda *_: worker(Told(), serving=True),
        planner=desk.opener.planner,
        state=desk.state,
        maker=SimpleNamespace(grace=timedelta()),
    )
    opened = desk.opener.open(run)
    execution = RunExecution(run, opened.version, opened.definition, opener, "x")
    return execution


def test_a_run_whose_connector_asks_for_a_plan_while_it_is_planned_is_planned_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.jobs._PLAN_SECONDS", 0.01)
    execution_that_asks(desk, RunExecution._plan_again).run()
    assert desk.planned == 2


def test_a_run_whose_connector_fails_while_it_is_planned_fails(desk: Desk) -> None:
    execution = execution_that_asks(desk, lambda it: it._fail(SourceError("it has no tables")))
    with pytest.raises(SourceError, match="it has no tables"):
        execution.run()
