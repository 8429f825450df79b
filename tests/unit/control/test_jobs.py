"""What is done with jobs keeps their windows whole, and runs no document unapproved."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.control.offline_jobs import appends, bound_files, document, execute

from headrace.control import Jobs, NotApproverError, bounded, followed, read_job
from headrace.model import Job, JobState, Run, RunState, Trigger
from headrace.plugins import Registry
from headrace.scheduler import Scheduler
from headrace.sdk import Boundaries, BoundaryKind, ConfigError, ConfigErrors, StateError
from headrace.store import JobChangedError, JobStore, memory_database
from headrace_plugins.connectors.console.connector import ConsoleSink
from headrace_plugins.connectors.file.source import FileSource

START = datetime(2024, 3, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Desk:
    """Jobs whose clock is set, and their scheduler."""

    def __init__(self) -> None:
        self.now = START + timedelta(hours=3, minutes=30)
        store = JobStore(memory_database())
        self.jobs = Jobs(store=store, registry=Registry(), clock=lambda: self.now)
        self.scheduler = Scheduler(store=store, clock=lambda: self.now)

    def make(self, submit: bool = True, **schedule: Any) -> None:
        self.jobs.create(described(**schedule), "ann")
        if submit:
            self.jobs.submit("flights", "ann")

    def edit(self, **schedule: Any) -> JobState:
        return self.jobs.edit("flights", described(**schedule), "ann").state

    def tick(self) -> None:
        while self.scheduler.tick():
            pass

    @property
    def state(self) -> JobState:
        return self.jobs.store.job("flights").state

    def hours(self) -> list[tuple[int, int]]:
        """Return the windows of all runs, in hours since the start."""
        found = [run.boundaries.times for run in self.jobs.runs("flights", limit=10_000)]
        return sorted(
            ((lower - START) // HOUR, (upper - START) // HOUR)
            for lower, upper in found
            if lower and upper
        )


def described(approvers: tuple[str, ...] = (), **schedule: Any) -> dict[str, Any]:
    hourly = {"every": "1 hour", "start": "2024-03-30T00:00:00", "catchup": "latest"}
    return document(schedule={**hourly, **schedule}, approvers=list(approvers))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    bound_files(monkeypatch)
    return Desk()


def test_a_backfill_leaves_windows_that_are_not_past_to_the_schedule(desk: Desk) -> None:
    """A run of the window of this moment would be held for its run, and its rest be lost."""
    desk.make()
    day = START + timedelta(days=1)
    made = desk.jobs.backfill("flights", START, day, "ann", chunk=2)
    assert (made.total, desk.hours()) == (2, [(0, 2), (2, 3)])
    desk.now += HOUR
    desk.tick()
    assert desk.hours() == [(0, 2), (2, 3), (3, 4)]


def test_a_backfill_takes_no_window_that_the_schedule_makes_a_run_of_yet(desk: Desk) -> None:
    desk.make(catchup="all")
    assert desk.jobs.backfill("flights", START, desk.now, "ann", chunk=3).total == 0
    desk.tick()
    assert desk.hours() == [(0, 1), (1, 2), (2, 3)]


def test_late_data_is_waited_for_by_a_backfill_too(desk: Desk) -> None:
    desk.make(delay="1 hour", end="2024-03-30T04:00:00")
    assert desk.jobs.backfill("flights", START, desk.now, "ann").total == 2


def test_windows_share_no_part_where_a_sink_replaces_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.make(catchup="all")
    desk.tick()
    two_hours = ("2024-03-30T00:00:00Z", "2024-03-30T02:00:00Z")
    monkeypatch.setattr(ConsoleSink, "takes_overlaps", classmethod(lambda _cls, _config: False))
    with pytest.raises(ConfigError, match="could then have the rows of the overlap twice"):
        desk.jobs.trigger("flights", "ann", *two_hours)
    execute(desk.jobs)
    again = desk.jobs.rerun("flights", desk.jobs.runs("flights")[0].id, "ann")
    assert again.generation == 2  # the same window may be written again
    monkeypatch.undo()
    bound_files(monkeypatch)
    assert desk.jobs.trigger("flights", "ann", *two_hours).state is RunState.QUEUED


def test_only_a_window_that_is_past_is_triggered(desk: Desk) -> None:
    desk.make()
    with pytest.raises(ConfigError, match="is in the future"):
        desk.jobs.trigger("flights", "ann", "2024-03-30T03:00:00Z", "2024-03-30T04:00:00Z")
    desk.jobs.trigger("flights", "ann")
    assert desk.hours() == [(2, 3)]


def test_a_backfill_of_many_windows_around_many_runs_takes_no_minutes(desk: Desk) -> None:
    desk.now = START + timedelta(days=3)
    desk.make(every="10 seconds")
    jobs = desk.jobs
    jobs.backfill("flights", START + HOUR, START + timedelta(days=2), "ann")
    begun = time.process_time()
    rest = jobs.backfill("flights", START, desk.now, "ann", chunk=10_000)
    assert time.process_time() - begun < 20
    assert rest.total == 2


def test_a_draft_may_be_set_to_start_earlier(desk: Desk) -> None:
    desk.make(submit=False, start="2024-03-30T02:00:00", catchup="all")
    assert desk.edit(start="2024-03-30T00:00:00", catchup="all") is JobState.DRAFT
    desk.jobs.submit("flights", "ann")
    desk.tick()
    assert desk.hours() == [(0, 1), (1, 2), (2, 3)]


def test_a_finished_job_goes_on_where_its_end_is_set_later(desk: Desk) -> None:
    desk.make(catchup="all", end="2024-03-30T02:00:00")
    desk.tick()
    execute(desk.jobs)
    assert desk.state is JobState.FINISHED
    assert desk.edit(catchup="none", end="2024-03-30T02:00:00") is JobState.FINISHED
    assert desk.edit(catchup="all", end="2024-03-30T03:00:00") is JobState.APPROVED
    desk.tick()
    assert desk.hours() == [(0, 1), (1, 2), (2, 3)]
    execute(desk.jobs)
    assert desk.state is JobState.FINISHED


def test_a_job_that_has_run_goes_on_from_its_cursor_with_another_rhythm(desk: Desk) -> None:
    desk.make(catchup="all")
    desk.tick()
    assert desk.edit(catchup="all", every="30 minutes") is JobState.APPROVED
    desk.now += HOUR
    desk.tick()
    times = [run.boundaries.lower for run in desk.jobs.runs("flights")]
    assert times[:3] == [f"2024-03-30T0{time}:00+00:00" for time in ("4:00", "3:30", "3:00")]


@pytest.mark.parametrize("before", [JobState.SUSPENDED, JobState.FINISHED, JobState.RUNNING])
def test_no_state_lets_an_edited_document_past_its_approvers(
    desk: Desk, before: JobState
) -> None:
    ask = ("bob",)
    desk.make(approvers=ask, catchup="all", end="2024-03-30T02:00:00")
    desk.jobs.approve("flights", "bob@1", "bob")
    desk.tick()
    if before is not JobState.RUNNING:
        execute(desk.jobs)
    if before is JobState.SUSPENDED:
        desk.edit(approvers=ask, catchup="all")
        desk.jobs.approve("flights", "bob@1", "bob")
        desk.jobs.suspend("flights", "ann")
    assert desk.edit(approvers=ask, every="2 hours") is JobState.SUBMITTED
    with pytest.raises(NotApproverError, match="ann may not"):
        desk.jobs.approve("flights", "ann@1", "ann")
    for act in (desk.jobs.resume, desk.jobs.trigger):
        with pytest.raises(JobChangedError, match="is submitted"):
            act("flights", "ann")
    assert execute(desk.jobs) == []


def left(desk: Desk) -> Run:
    """Return a run that its worker has left by dying."""
    jobs, now = desk.jobs, desk.now
    run = jobs.trigger("flights", "ann")
    taken = jobs.store.take(run, "dead", now, now, 1, in_order=False)
    assert taken is not None
    return taken


def test_a_run_that_was_left_is_stopped_in_a_suspended_job_too(desk: Desk) -> None:
    desk.make()
    run = left(desk)
    desk.jobs.suspend("flights", "ann")
    assert desk.jobs.store.waiting(desk.now, desk.now, lambda _: False, 9) == []
    with pytest.raises(JobChangedError, match="is running"):
        desk.jobs.delete("flights", "ann")
    desk.jobs.stop_run("flights", run.id, "ann")
    [stopping] = execute(desk.jobs, RunState.STOPPED)
    assert stopping.id == run.id
    desk.jobs.delete("flights", "ann")


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        ({"after": ""}, "schedule.after"),
        ({"every": f"{'9' * 400} hours"}, "schedule.every"),
        ({"start": "0001-01-01T00:00:00", "zone": "Asia/Kolkata"}, "schedule.start"),
        ({"end": "9999-12-31T23:59:59"}, "schedule.end"),
    ],
)
def test_what_is_beyond_all_dates_is_an_error_of_its_key(
    desk: Desk, schedule: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigErrors) as raised:
        desk.make(**schedule)
    assert field in {error.field for error in raised.value.errors}


def live(**more: Any) -> dict[str, Any]:
    found = document(mode="realtime", **more)
    del found["schedule"]
    return found


def test_a_job_in_real_time_goes_on_behind_the_windows_that_were_made(desk: Desk) -> None:
    desk.make(catchup="all")
    desk.tick()
    desk.jobs.edit("flights", live(), "ann")
    desk.tick()
    [run] = [run for run in desk.jobs.runs("flights") if run.is_live]
    assert run.boundaries.times == (START + 3 * HOUR, None)
    assert desk.state is JobState.RUNNING
    desk.now += 5 * HOUR
    desk.tick()
    assert len(desk.jobs.runs("flights")) == 4, "its schedule makes no windows any more"
    view = desk.jobs.view("flights")
    assert (view.fires, view.spec and view.spec.schedule) == ([], None)


def test_a_job_whose_schedule_has_ended_goes_on_behind_its_end(desk: Desk) -> None:
    desk.make(catchup="all", end="2024-03-30T02:30:00")
    desk.tick()
    execute(desk.jobs)
    assert desk.state is JobState.FINISHED
    assert desk.jobs.edit("flights", live(), "ann").state is JobState.APPROVED
    desk.tick()
    assert desk.jobs.runs("flights")[0].boundaries.times[0] == START + 2.5 * HOUR


def test_a_new_job_in_real_time_reads_all(desk: Desk) -> None:
    desk.jobs.create(live(), "ann")
    desk.jobs.submit("flights", "ann")
    desk.tick()
    [run] = desk.jobs.runs("flights")
    assert (run.trigger, run.boundaries.lower) == (Trigger.REALTIME, None)


def test_a_new_job_in_real_time_replaces_no_window(desk: Desk) -> None:
    lake = {"connector": "delta", "path": "lake", "replace.window.column": "at"}
    sinks = [{"connector": "console"}, lake]
    with pytest.raises(ConfigErrors) as raised:
        desk.jobs.create(live(sinks=sinks), "ann")
    [error] = raised.value.errors
    assert error.field == "sinks[1].replace.window.column"
    assert "set mode to offline" in error.fix
    hourly = document(sinks=sinks)
    hourly["schedule"]["catchup"] = "all"
    desk.jobs.create(hourly, "ann")
    with pytest.raises(ConfigErrors, match="no window to replace"):
        desk.jobs.edit("flights", live(sinks=sinks), "ann")
    desk.jobs.submit("flights", "ann")
    desk.tick()
    desk.jobs.edit("flights", live(sinks=sinks), "ann")
    edited = desk.jobs.edit("flights", live(sinks=sinks, **{"retry.delay": "1 hour"}), "ann")
    assert edited.cursor == START + 3 * HOUR, "the windows that were made say where it begins"


def test_a_draft_that_has_run_no_window_reads_all_in_real_time(desk: Desk) -> None:
    desk.make(submit=False)
    assert desk.jobs.edit("flights", live(), "ann").cursor is None


@pytest.mark.parametrize("twice", [True, False])
def test_real_time_is_left_only_where_no_row_is_written_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    appends(monkeypatch, does=twice)
    desk.jobs.create(live(), "ann")
    desk.jobs.submit("flights", "ann")
    desk.tick()
    if twice:
        with pytest.raises(ConfigError) as found:
            desk.edit(start="2024-03-30T00:00:00")
        assert found.value.field == "schedule.start"
        desk.edit(start="2024-03-31T00:00:00")
    else:
        desk.edit(start="2024-03-30T00:00:00", catchup="all")
    desk.tick()
    assert (desk.hours() == [(0, 1), (1, 2), (2, 3)]) is not twice


def test_a_job_without_a_schedule_begins_anew_only_where_no_row_is_written_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    by_hand = document()
    del by_hand["schedule"]
    desk.jobs.create(by_hand, "ann")
    desk.jobs.submit("flights", "ann")
    bounds = ("2024-03-30T00:00:00Z", "2024-03-30T01:00:00Z")
    desk.jobs.trigger("flights", "ann", *bounds)
    with pytest.raises(ConfigError) as found:
        desk.jobs.edit("flights", live(), "ann")
    assert found.value.field == "mode"
    appends(monkeypatch, does=False)
    assert desk.jobs.edit("flights", live(), "ann").cursor is None


def test_a_job_in_real_time_has_no_schedule_no_timeout_and_no_windows(desk: Desk) -> None:
    with pytest.raises(ConfigErrors) as wrong:
        desk.jobs.create(document(mode="realtime", timeout="1 hour"), "ann")
    assert {each.field for each in wrong.value.errors} == {"schedule", "timeout"}
    desk.jobs.create(live(), "ann")
    desk.jobs.submit("flights", "ann")
    desk.tick()
    with pytest.raises(StateError):
        desk.jobs.trigger("flights", "ann")
    with pytest.raises(StateError):
        desk.jobs.backfill("flights", START, desk.now, "ann")


def made_live(desk: Desk) -> Run:
    """Edit the job to real time; return its run."""
    desk.jobs.edit("flights", live(), "ann")
    desk.tick()
    return next(run for run in desk.jobs.runs("flights") if run.is_live)


def test_a_window_without_an_end_is_not_triggered(desk: Desk) -> None:
    desk.make()
    with pytest.raises(ConfigError) as found:
        desk.jobs.trigger("flights", "ann", START.isoformat())
    assert found.value.field == "upper"


def test_real_time_that_was_rejected_and_mended_begins_behind_the_windows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.make(catchup="all")
    desk.tick()
    asks = {"approvers": ["bob"]}
    desk.jobs.edit("flights", live(**asks), "ann")
    desk.jobs.reject("flights", "bob", "bob", "Not like this")
    desk.jobs.edit("flights", live(**asks, retries=3), "ann")
    desk.jobs.submit("flights", "ann")
    desk.jobs.approve("flights", "bob", "bob")
    desk.tick()
    [run] = [run for run in desk.jobs.runs("flights") if run.is_live]
    assert run.boundaries.times == (START + 3 * HOUR, None)


def test_an_offline_job_that_has_run_and_was_rejected_goes_on_in_real_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.make(catchup="all")
    desk.tick()
    desk.jobs.edit("flights", described(approvers=("bob",), catchup="all", delay="1 hour"), "a")
    desk.jobs.reject("flights", "bob", "bob", "Not like this")
    assert desk.jobs.edit("flights", live(), "bob", "bob").cursor == START + 3 * HOUR


def test_real_time_that_was_left_goes_on_where_it_stood_if_no_window_was_read_since(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.make(catchup="all")
    desk.tick()
    execute(desk.jobs)
    before = made_live(desk)
    desk.edit(start="2024-03-31T00:00:00")
    desk.tick()
    assert made_live(desk).id == before.id


def test_a_job_after_another_does_not_repeat_what_real_time_has_delivered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.jobs.create(live(), "ann")
    desk.jobs.submit("flights", "ann")
    desk.tick()
    with pytest.raises(ConfigError):
        desk.jobs.edit("flights", document(schedule={"after": "others"}), "ann")


def test_a_window_by_hand_cuts_none_that_the_schedule_comes_to(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.make(delay="2 hours", catchup="all")
    bounds = [START + 2 * HOUR, START + 3 * HOUR]
    with pytest.raises(ConfigError, match="will overlap"):
        desk.jobs.trigger(
            "flights", "ann", bounds[0].isoformat(), (bounds[0] + HOUR / 3).isoformat()
        )
    # A whole window of it is that window's run.
    lower, upper = (each.isoformat() for each in bounds)
    desk.jobs.trigger("flights", "ann", lower, upper)
    desk.now += 3 * HOUR
    desk.tick()
    assert desk.hours() == [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize(
    "other", [{"every": "3 hours"}, {"zone": "Asia/Kolkata"}, {"cron": "*/40 * * * *"}]
)
def test_windows_tile_the_time_line_through_another_schedule(
    desk: Desk, other: dict[str, str]
) -> None:
    desk.make(catchup="all")
    desk.tick()
    desk.now += HOUR / 2
    changed = document(
        schedule={
            "start": "2024-03-30T00:00:00",
            "catchup": "all",
            **({} if "cron" in other else {"every": "1 hour"}),
            **other,
        }
    )
    desk.jobs.edit("flights", changed, "ann")
    desk.now += 9 * HOUR
    desk.tick()
    desk.tick()
    spans = sorted(run.boundaries.times for run in desk.jobs.runs("flights", limit=1000))
    assert spans[0][0] == START
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert len(spans) > 4


def test_a_schedule_that_is_left_out_and_put_back_repeats_no_window(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends(monkeypatch)
    desk.make(catchup="all")
    desk.tick()
    by_hand = described()
    del by_hand["schedule"]
    desk.jobs.edit("flights", by_hand, "ann")
    desk.edit(every="2 hours", catchup="all")
    desk.now += 3 * HOUR
    desk.tick()
    desk.tick()
    assert desk.hours() == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6)]


def test_a_schedule_goes_on_where_another_job_cannot_be_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.make(catchup="all")
    every = {"every": "1 hour", "start": "2024-03-30T00:00:00"}
    desk.jobs.create(document("others", schedule=every), "ann")
    desk.jobs.submit("others", "ann")
    fired = Scheduler._fired

    def odd(self: Scheduler, job: Job, *more: Any) -> Any:
        if job.name == "flights":
            raise ValueError(job.name)
        return fired(self, job, *more)

    desk.tick()
    monkeypatch.setattr(Scheduler, "_fired", odd)
    desk.now += HOUR
    before = len(desk.jobs.runs("others"))
    desk.scheduler.tick()
    assert len(desk.jobs.runs("others")) == before + 1


def test_keys_that_a_run_has_no_place_for_are_not_left_in_its_copy() -> None:
    source = {
        "connector": "jdbc",
        "connection.url": "sqlite:///${env:SHOP}.db",
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "timestamp.initial": "0",
    }
    copy, registry = read_job(document(source=source)).definition, Registry()
    day = Boundaries.between(START, START + 24 * HOUR)
    read = {
        "bulk": bounded(copy, day, registry).source,
        "timestamp": followed(copy, Boundaries.between(START, None), registry).source,
    }
    for mode, found in read.items():
        assert found is not None
        config = registry.source("jdbc").config_def().parse(found.config)
        assert (config["mode"], config["window.from"]) == (mode, day.lower)
        assert found.config["connection.url"] == source["connection.url"]


def test_changes_of_databases_have_bounds_of_their_logs_kinds() -> None:
    jobs = Jobs(store=JobStore(memory_database()), registry=Registry(), clock=lambda: START)
    upsert = {"connector": "delta", "path": "t", "mode": "upsert", "delete.enabled": True}

    def errors(source: dict[str, Any], **more: Any) -> list[str | None]:
        made = {**document(f"j{len(jobs.views())}"), "source": source, "sinks": [upsert]}
        try:
            jobs.create({**made, "transforms": [{"type": "Unwrap"}], **more}, "ann")
        except ConfigErrors as several:
            return [error.field for error in several.errors]
        except ConfigError as error:
            return [error.field]
        return []

    mysql = {"connector": "mysql", "connection.url": "mysql://db.invalid/shop"}
    postgres = {"connector": "postgres", "connection.url": "postgresql://db.invalid/shop"}
    by_hand = {"boundaries": "offset", "schedule": None}
    assert errors(mysql) == []
    assert errors(mysql, **by_hand) == []
    assert errors(postgres) == ["boundaries"]
    assert errors(postgres, **by_hand) == ["source.slot.name"]
    assert errors({**postgres, "slot.name": "s"}, **by_hand) == []


@pytest.mark.parametrize("others", [(), ("cid",)])
def test_only_an_approver_says_who_else_approves(desk: Desk, others: tuple[str, ...]) -> None:
    desk.jobs.create(described(approvers=("bob",)), "ann")
    desk.jobs.edit("flights", described(approvers=("bob", "dan")), "ann", "ann")  # a draft
    desk.jobs.submit("flights", "ann")
    with pytest.raises(NotApproverError):
        desk.jobs.edit("flights", described(approvers=others), "ann", "ann")
    desk.jobs.reject("flights", "dan", "dan", "not so")
    for other in ((), ("ann",), ("ann", "bob", "dan")):
        with pytest.raises(NotApproverError, match="Only approvers of"):
            desk.jobs.edit("flights", described(approvers=other), "ann", "ann")
    same = described(approvers=("dan", "bob"), delay="1 hour")
    assert desk.jobs.edit("flights", same, "ann", "ann").version == 3
    assert desk.jobs.edit("flights", described(approvers=others), "dan", "dan").version == 4


def test_a_bound_is_no_reference(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives bounds may not write configurations, and would read secrets by them."""
    monkeypatch.setenv("CONNECT_SECRET", "rosebud")
    desk.jobs.create(document(boundaries="value", schedule=None), "ann")
    desk.jobs.submit("flights", "ann")
    for lower, upper in (("${env:CONNECT_SECRET}", "b"), ("a", "x${env:CONNECT_SECRET}")):
        with pytest.raises(ConfigError, match="must not contain a reference"):
            desk.jobs.trigger("flights", "ann", lower, upper)
        definition = read_job(document(schedule=None)).definition
        with pytest.raises(ConfigError, match="must not contain a reference"):
            bounded(definition, Boundaries(BoundaryKind.VALUE, lower, upper), Registry())
    assert not desk.jobs.runs("flights")


def test_many_runs_that_never_began_are_deleted_with_their_job_at_once(desk: Desk) -> None:
    desk.make(every="1 second", catchup="none")
    desk.now = START + timedelta(hours=24)
    desk.tick()
    made = desk.jobs.backfill("flights", START, START + timedelta(hours=3), "ann")
    assert made.total == 3 * 3600
    began = time.process_time()
    desk.jobs.delete("flights", "ann")
    assert time.process_time() - began < 2


def test_changes_are_read_once_and_in_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older change would undo a newer one."""
    monkeypatch.setattr(FileSource, "is_ordered", classmethod(lambda _cls, _config: True))
    appends(monkeypatch, does=False)
    desk.make(catchup="none")
    desk.tick()
    desk.now = START + 4 * HOUR
    desk.tick()
    [run] = execute(desk.jobs)
    with pytest.raises(ConfigError, match="returns changes"):
        desk.jobs.trigger("flights", "ann", "2024-03-30T00:00:00Z", "2024-03-30T01:00:00Z")
    with pytest.raises(ConfigError, match="returns changes"):
        desk.jobs.backfill("flights", START, START + 2 * HOUR, "ann")
    desk.jobs.rerun("flights", run.id, "ann")  # the newest
    execute(desk.jobs)
    desk.now += HOUR
    desk.tick()
    execute(desk.jobs)
    with pytest.raises(ConfigError, match="returns changes"):
        desk.jobs.rerun("flights", run.id, "ann")


@pytest.mark.parametrize(
    ("lower", "upper", "shares"),
    [
        ("0", "100", True),
        ("99", "1000", True),
        ("100", "1000", False),
        ("-5", "5", False),
        ("7", "9", True),
        ("a", "b", False),
    ],
)
def test_windows_of_values_that_share_a_part_are_refused_where_that_counts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, lower: str, upper: str, *, shares: bool
) -> None:
    appends(monkeypatch)
    desk.jobs.create(document(boundaries="value", schedule=None), "ann")
    desk.jobs.submit("flights", "ann")
    desk.jobs.trigger("flights", "ann", "5", "100")
    with pytest.raises(ConfigError) if shares else nullcontext():
        desk.jobs.trigger("flights", "ann", lower, upper)
    with pytest.raises(ConfigError, match="has no end"):
        desk.jobs.trigger("flights", "ann", "1000", None)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("retrys", "retries"), ("retry_delay", "retry.delay"), ("alert", "alerts")],
)
def test_a_misspelt_key_of_a_job_names_the_one_that_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        read_job({**document(), key: 3})
    [error] = raised.value.errors
    assert (error.field, error.fix) == (key, f"Did you mean {meant}?")


def test_an_attempt_has_to_have_time() -> None:
    with pytest.raises(ConfigError, match="Must be more than 0"):
        read_job(document(timeout="0"))


def test_a_name_that_is_shown_as_another_one_is_refused() -> None:
    with pytest.raises((ConfigError, ConfigErrors), match="bidirectional control characters"):
        read_job(document(name="x\u202egnp"))  # shown as xpng


def test_a_name_that_no_path_can_hold_is_refused() -> None:
    for name in (".", ".."):
        with pytest.raises((ConfigError, ConfigErrors), match="cannot be part of a URL"):
            read_job(document(name=name))
