"""The windows of a job tile the time line, whatever happens to who makes runs of them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from headrace.control import AlertRules, read_job
from headrace.model import Counts, Job, JobState, Run, RunState, Stamp, Trigger
from headrace.scheduler import Scheduler
from headrace.sdk import Boundaries
from headrace.store import AlertStore, JobChange, JobStore, NewRun, memory_database

START = datetime(2024, 3, 30, tzinfo=UTC)
ANN = Stamp(START, "ann")
ZONES = ["UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
SCHEDULES = st.fixed_dictionaries(
    {
        "start": st.sampled_from(["2024-03-30T00:00:00", "2024-03-30T07:30:00"]),
        "zone": st.sampled_from(ZONES),
        "delay": st.sampled_from(["0", "10 minutes", "1 day"]),
    }
).flatmap(
    lambda common: st.sampled_from(
        [
            {"every": "1 hour"},
            {"every": "15 minutes"},
            {"every": "1 day"},
            {"every": "1 month"},
            {"cron": "30 2 * * *"},
            {"cron": "*/20 * * * *"},
        ]
    ).map(lambda rhythm: {**common, **rhythm})
)


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def job(**schedule: object) -> Job:
    name = "flights"
    rhythm = {} if "cron" in schedule else {"every": "1 hour"}
    document = {
        "name": name,
        "source": {"connector": "file", "path": "in"},
        "sinks": [{"connector": "console"}],
        "schedule": {"start": "2024-03-30T00:00:00", **rhythm, **schedule},
    }
    spec = read_job(document)
    assert spec.schedule is not None
    first = next(spec.schedule.windows())
    return Job(
        name=name,
        uid="",
        document=document,
        version=1,
        state=JobState.APPROVED,
        cursor=first.lower,
        due=spec.schedule.due(first),
        changed=START,
        by="ann",
    )


def windows(store: JobStore, *states: RunState) -> list[tuple[datetime, datetime]]:
    runs = store.runs("flights", states=states, limit=1_000_000)
    times = [run.boundaries.times for run in runs]
    return sorted((lower, upper) for lower, upper in times if lower and upper)


def run_all(store: JobStore, clock: Clock) -> list[Run]:
    ran = []
    for seen in store.waiting(clock.now, clock.now, lambda _: False, 10_000):
        run = store.take(seen, "w", clock.now, clock.now, 10_000, in_order=False)
        if run is not None:
            ran.append(store.finish(run, RunState.SUCCEEDED, clock.now, counts=Counts()))
    return ran


@settings(max_examples=60, deadline=None)
@given(SCHEDULES, st.integers(0, 2**32), st.integers(20, 80))
def test_windows_tile_the_time_line_through_jumps_pauses_and_restarts(
    schedule: dict[str, object], seed: int, steps: int
) -> None:
    chance, clock, store = random.Random(seed), Clock(), JobStore(memory_database())  # noqa: S311 - no secret
    store.create(job(**schedule), None, ANN)
    servers = [Scheduler(store=store, clock=clock) for _ in range(2)]
    latest = clock.now
    for _ in range(steps):
        match chance.randrange(6):
            case 0:  # the clock is put back
                clock.now -= timedelta(minutes=chance.randrange(600))
            case 1:  # or was away for long
                clock.now += timedelta(hours=chance.randrange(50))
            case 2:
                seen = store.job("flights")
                paused = seen.state is JobState.SUSPENDED
                state = JobState.APPROVED if paused else JobState.SUSPENDED
                if seen.state is not JobState.APPROVED:
                    store.change(JobChange(seen=seen, wanted=replace(seen, state=state)), ANN)
            case 3:  # a server is another process
                servers[chance.randrange(2)] = Scheduler(store=store, clock=clock)
            case _:
                clock.now += timedelta(minutes=chance.randrange(90))
        latest = max(latest, clock.now)
        chance.choice(servers).tick()
    seen = store.job("flights")
    if seen.state is JobState.SUSPENDED:
        store.change(JobChange(seen=seen, wanted=replace(seen, state=JobState.APPROVED)), ANN)
    clock.now = latest
    while servers[0].tick():
        pass
    found = windows(store)
    spec = read_job(store.job("flights").document)
    assert spec.schedule is not None
    expected = [
        (w.lower, w.upper)
        for w in islice(spec.schedule.windows(), len(found) + 1)
        if spec.schedule.due(w) <= latest
    ]
    assert found == expected
    assert all(one[1] == other[0] for one, other in pairwise(found))


def test_two_schedulers_that_tick_at_once_make_one_run_of_a_window() -> None:
    clock, store = Clock(), JobStore(memory_database())
    store.create(job(), None, ANN)
    first, second = (Scheduler(store=store, clock=clock) for _ in range(2))
    first.tick()
    clock.now += timedelta(hours=3)
    due = store.due(clock.now, 10)
    assert first.tick() == 3

    class Stale(JobStore):
        @override
        def due(self, now: datetime, limit: int) -> Sequence[Job]:
            return due

    second.store = Stale(store.database)
    assert second.tick() == 0
    assert len(windows(store)) == 3


@pytest.mark.parametrize(
    ("catchup", "ran"), [("all", [0, 1, 2, 3]), ("latest", [3]), ("none", [])]
)
def test_windows_that_were_missed_are_run_as_catchup_says(catchup: str, ran: list[int]) -> None:
    clock, store = Clock(), JobStore(memory_database())
    store.create(job(catchup=catchup), None, ANN)
    scheduler = Scheduler(store=store, clock=clock)
    clock.now += timedelta(hours=4, minutes=30)
    scheduler.tick()
    hours = [(lower - START) // timedelta(hours=1) for lower, _ in windows(store)]
    assert hours == ran
    clock.now += timedelta(minutes=30, seconds=1)
    scheduler.tick()
    assert [(lower - START) // timedelta(hours=1) for lower, _ in windows(store)] == [*ran, 4]


def test_a_window_that_overlaps_is_skipped_and_says_why() -> None:
    clock, store = Clock(), JobStore(memory_database())
    store.create(job(overlap="skip"), None, ANN)
    scheduler = Scheduler(store=store, clock=clock)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    clock.now += timedelta(hours=1)
    scheduler.tick()
    assert len(windows(store, RunState.QUEUED)) == 1
    (skipped,) = store.runs("flights", states=[RunState.SKIPPED])
    assert "running" in str(skipped.error)
    run_all(store, clock)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    assert len(windows(store, RunState.QUEUED)) == 1


def test_a_backfill_that_is_paused_lets_no_window_be_skipped() -> None:
    clock, store = Clock(), JobStore(memory_database())
    store.create(job(overlap="skip"), None, ANN)
    scheduler = Scheduler(store=store, clock=clock)
    scheduler.tick()
    earlier = Boundaries.between(START - timedelta(hours=1), START)
    run = NewRun(boundaries=earlier, trigger=Trigger.BACKFILL, due=START, backfill="b")
    store.add_runs("flights", [run], ANN)
    store.backfills.pause("flights", "b", ANN)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    assert len(windows(store, RunState.QUEUED)) == 2
    store.backfills.resume("flights", "b", ANN)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    assert len(windows(store, RunState.SKIPPED)) == 1


def test_a_job_whose_document_cannot_be_read_alerts_with_its_failure() -> None:
    clock, store = Clock(), JobStore(memory_database())
    alerts = AlertStore(store.database)
    rules = AlertRules(jobs=store, alerts=alerts, channels=["log"], clock=clock)
    made = store.create(job(), None, ANN)
    scheduler = Scheduler(store=store, clock=clock, alerts=rules.of_job)
    scheduler.tick()
    seen = store.job("flights")
    broken = replace(seen, document={"name": "flights"}, version=made.version + 1)
    store.change(JobChange(seen=seen, wanted=broken), ANN)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    scheduler.tick()
    [stored] = alerts.alerts("flights")
    assert (stored.alert.kind, stored.alert.subject) == ("failed", "Job flights has failed")


def test_a_schedule_that_has_ended_finishes_its_job_with_its_last_run() -> None:
    clock, store = Clock(), JobStore(memory_database())
    store.create(job(end="2024-03-30T02:00:00"), None, ANN)
    scheduler = Scheduler(store=store, clock=clock)
    clock.now += timedelta(days=1)
    scheduler.tick()
    assert store.job("flights").state is JobState.CONFIGURED
    run_all(store, clock)
    assert len(windows(store)) == 2
    assert store.job("flights").state is JobState.FINISHED
