"""An attempt of a run plans its tasks by where those of the attempts before it stood."""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.control import Jobs
from headrace.model import JobState, Run, RunState, TaskId
from headrace.plugins import Registry
from headrace.runtime.jobs import RunOpener
from headrace.runtime.tasks import Planner
from headrace.scheduler import Scheduler
from headrace.sdk import Position
from headrace.sdk.location import Location
from headrace.store import Store
from headrace.store.job_store import JobStore
from headrace.topics import Topics
from headrace.worker import NotWantedError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Desk:
    """Jobs of a folder's files, and what opens their runs."""

    folder: Path

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

    def shares(self, run: Run) -> list[str]:
        """Return how an attempt divides the files."""
        with closing(self.opener.open(run).planning()) as plan:
            plans = self.opener.plans(plan, run)
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
