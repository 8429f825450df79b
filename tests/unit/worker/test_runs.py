"""Runs are taken, executed, and their ends stored."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.waiting import until

from headrace.model import (
    Counts,
    Job,
    JobState,
    Overlap,
    Run,
    RunPolicy,
    RunState,
    SparkUnavailableError,
    Stamp,
    Trigger,
)
from headrace.sdk import Alert, Boundaries, ConfigError, RetriableError
from headrace.store import AlertStore, JobChange, JobStore, NewAlert, NewRun, memory_database
from headrace.worker import NotWantedError, RunWorker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ANN = Stamp(NOW, "ann")
MOVED = Counts(read=3, written=3)
QUICK = RunPolicy(retries=1, retry_delay=timedelta(milliseconds=50))


@dataclass
class Execution:
    """Ends when it is told to, as it is told to."""

    going: Run
    ended: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    stopped: bool = False
    wanted: bool = True
    woken: bool = False

    def wake(self) -> None:
        self.woken = True

    def run(self) -> None:
        self.ended.wait()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()

    @property
    def version(self) -> int:
        return 1

    def counts(self) -> Counts:
        return MOVED

    def trouble(self) -> str | None:
        return "[storage.unavailable] Jane Doe is away."

    def is_wanted(self) -> bool:
        return self.wanted


@dataclass
class Bench:
    """A worker of runs over a store in memory."""

    policy: RunPolicy = QUICK
    store: JobStore = field(default_factory=lambda: JobStore(memory_database()))
    opened: list[Execution] = field(default_factory=list)
    fails: Callable[[Run], Exception | None] = lambda _: None
    dead: set[str] = field(default_factory=set)
    broken: Exception | None = None
    causes: list[tuple[RunState, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        wanted = Job(
            name="orders",
            uid="",
            document={},
            version=1,
            state=JobState.RUNNING,
            changed=NOW,
            by="",
        )
        self.store.create(wanted, None, ANN)

    def add(self, *hours: int) -> None:
        made = [
            NewRun(
                boundaries=Boundaries.between(NOW + n * HOUR, NOW + (n + 1) * HOUR),
                trigger=Trigger.MANUAL,
                due=NOW,
            )
            for n in hours
        ]
        self.store.add_runs("orders", made, ANN)

    def follow(self) -> None:
        """Add the run of a job in real time."""
        bounds = Boundaries.between(NOW + HOUR, None)
        made = NewRun(boundaries=bounds, trigger=Trigger.REALTIME, due=NOW)
        self.store.add_runs("orders", [made], ANN)

    def die(self, times: int) -> None:
        """Have the one run taken so often by a worker that dies."""
        for _ in range(times):
            (seen,) = self.store.waiting(NOW, NOW, {"w0"}.__contains__, 1)
            self.store.take(seen, "w0", NOW, NOW + HOUR, 1, in_order=False)
        self.dead.add("w0")

    def open(self, run: Run) -> Execution:
        if self.broken is not None:
            raise self.broken
        made = Execution(run, error=self.fails(run))
        if made.error is not None:
            made.ended.set()
        self.opened.append(made)
        return made

    def alerts(self, run: Run, cause: str) -> list[NewAlert]:
        self.causes.append((run.state, cause))
        assert (run.ended is None) == (run.state is RunState.RUNNING)
        made = Alert(
            id=f"{run.id}-{run.epoch}", kind="failed", at=NOW, job="orders", subject="", text=""
        )
        return [NewAlert(made, ["log"])] if run.state is RunState.FAILED else []

    @contextmanager
    def working(self, owner: str = "w1") -> Iterator[RunWorker]:
        worker = RunWorker(
            store=self.store,
            owner=owner,
            is_dead=self.dead.__contains__,
            clock=lambda: datetime.now(UTC),
            lease_clock=lambda: datetime.now(UTC),
            policy=lambda _: self.policy,
            open=self.open,
            application=lambda: "local-7",
            lease=timedelta(milliseconds=300),
            interval=timedelta(milliseconds=10),
            alerts=self.alerts,
        )
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join()

    def runs(self) -> list[Run]:
        return sorted(self.store.runs("orders"), key=lambda run: run.id)

    def until(self, *states: RunState) -> list[Run]:
        until(lambda: [run.state for run in self.runs()] == list(states))
        return self.runs()


def test_a_run_is_executed_and_its_counts_are_stored() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.RUNNING)
        until(lambda: bool(bench.opened))
        bench.opened[0].ended.set()
        (run,) = bench.until(RunState.SUCCEEDED)
    assert run.counts == MOVED
    assert run.application == "local-7"
    assert run.attempt == 1


def test_a_run_that_fails_is_tried_again_and_then_given_up() -> None:
    bench = Bench(fails=lambda run: RetriableError(f"attempt {run.attempt}"))
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert run.attempt == len(bench.opened) == 2
    assert "attempt 2" in str(run.error)
    assert {each.going.task_name for each in bench.opened} == {run.task_name}


def test_the_end_of_a_run_is_stored_with_its_alerts_which_quote_no_record() -> None:
    bench = Bench(fails=lambda run: ValueError(f"Jane Doe {run.attempt}"))
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert "Jane Doe 2" in str(run.error)
    assert bench.causes == [(RunState.QUEUED, "ValueError"), (RunState.FAILED, "ValueError")]
    stored = AlertStore(bench.store.database).alerts()
    assert [each.alert.id for each in stored] == [f"{run.id}-2"]
    late = Bench(policy=RunPolicy(retries=0, timeout=timedelta(milliseconds=50)))
    late.add(0)
    with late.working():
        late.until(RunState.FAILED)
    [(_, cause)] = late.causes
    assert cause.startswith("The run took longer than its timeout")


def test_a_worker_of_one_job_ends_though_a_backfill_is_paused() -> None:
    bench = Bench()
    made = NewRun(
        boundaries=Boundaries.between(NOW, NOW + HOUR),
        trigger=Trigger.BACKFILL,
        due=NOW,
        backfill="b",
    )
    bench.store.add_runs("orders", [made], ANN)
    bench.store.backfills.pause("orders", "b", ANN)
    with bench.working() as worker:
        worker.only = "orders"
        until(lambda: worker._stopping)
    assert not bench.opened


def test_what_a_retry_does_not_help_is_not_tried_again() -> None:
    bench = Bench(fails=lambda _: ConfigError("no such table", fix="", field="table"))
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert run.attempt == 1


def test_a_run_that_is_asked_to_stop_is_stopped() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.RUNNING)
        until(lambda: bench.runs()[0].application)  # it is open
        bench.store.ask_to_stop(run.id, ANN)
        bench.until(RunState.STOPPED)
    assert bench.opened[0].stopped


def test_an_attempt_that_takes_too_long_has_failed() -> None:
    bench = Bench(policy=RunPolicy(retries=0, timeout=timedelta(milliseconds=100)))
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert "timeout" in str(run.error)


def test_runs_of_a_job_go_on_one_by_one_or_side_by_side() -> None:
    policy = RunPolicy(overlap=Overlap.PARALLEL, parallel=2)
    for bench, most in ((Bench(), 1), (Bench(policy=policy), 2)):
        bench.add(0, 1, 2)
        with bench.working():
            until(lambda: len(bench.opened) == most)  # noqa: B023 - used within the loop
            time.sleep(0.1)
            assert len(bench.opened) == most
            bench.opened[0].ended.set()
            until(lambda: len(bench.opened) == most + 1)  # noqa: B023 - used within the loop


def test_a_worker_that_stops_leaves_its_run_to_the_next_one() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working():
        bench.until(RunState.RUNNING)
    bench.until(RunState.QUEUED)
    with bench.working("w2"):
        (run,) = bench.until(RunState.RUNNING)
        assert run.owner == "w2"


def test_a_run_whose_worker_has_died_is_taken_at_once() -> None:
    bench = Bench()
    bench.add(0)
    (seen,) = bench.store.waiting(NOW, NOW, lambda _: False, 1)
    far = datetime.now(UTC) + HOUR
    bench.store.take(seen, "w0", datetime.now(UTC), far, 1, in_order=False)
    with bench.working():
        time.sleep(0.1)
        assert not bench.opened
        bench.dead.add("w0")
        until(lambda: bool(bench.opened))
        assert bench.opened[0].going.attempt == 2


def test_a_run_whose_workers_die_again_and_again_is_given_up() -> None:
    bench = Bench()
    bench.add(0)
    bench.die(5)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert "died" in str(run.error)
    assert not bench.opened


def test_a_death_is_no_failure_and_takes_no_retry() -> None:
    bench = Bench(fails=lambda _: RetriableError("away"))
    bench.add(0)
    bench.die(3)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert (len(bench.opened), run.attempt, run.deaths) == (2, 5, 3)
    again = bench.store.run_again(run.id, ANN, from_beginning=False)
    assert (again.attempt, again.deaths) == (0, 0)


def test_a_run_whose_spark_dies_is_tried_again_at_once_but_not_for_ever() -> None:
    bench = Bench(
        policy=RunPolicy(retries=0, retry_delay=HOUR), fails=lambda _: SparkUnavailableError()
    )
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert len(bench.opened) == run.deaths == 4
    assert "died 4 times" in str(run.error)


def test_what_goes_on_is_woken_when_spark_is_back() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working() as worker:
        until(lambda: bool(bench.opened))
        worker.wake_all()
        assert bench.opened[0].woken


def test_a_run_that_another_has_taken_is_left_to_it() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working():
        until(lambda: bench.runs()[0].application)

        def taken() -> object:
            (run,) = bench.runs()  # its worker may renew the lease between the two
            now = datetime.now(UTC)
            return bench.store.take(run, "w2", now, now + HOUR, 1, in_order=False)

        until(taken)
        until(lambda: bench.opened[0].stopped)
        time.sleep(0.1)
        (found,) = bench.runs()
        assert (found.owner, found.state) == ("w2", RunState.RUNNING)


@pytest.mark.parametrize("kind", [ConfigError, ValueError])
def test_an_execution_that_cannot_be_made_fails_its_run(kind: type[Exception]) -> None:
    bench = Bench(policy=RunPolicy(retries=0), broken=kind("Unknown plugin."))
    bench.add(0)
    with bench.working():
        (run,) = bench.until(RunState.FAILED)
    assert "Unknown plugin." in str(run.error)


def test_a_run_in_real_time_begins_behind_all_windows_and_takes_no_slot_of_theirs() -> None:
    bench = Bench()
    bench.follow()
    bench.add(0)
    with bench.working() as worker:
        worker.slots = 1
        until(lambda: len(bench.opened) == 1)
        time.sleep(0.1)
        assert [each.going.is_live for each in bench.opened] == [False]
        bench.opened[0].ended.set()
        until(lambda: len(bench.opened) == 2)
        bench.add(-1)
        time.sleep(0.1)
        assert len(bench.opened) == 2
        bench.opened[1].wanted = False  # it makes room
        until(lambda: len(bench.opened) == 3)
        bench.opened[2].ended.set()
        until(lambda: len(bench.opened) == 4)
        assert [each.going.is_live for each in bench.opened] == [False, True, False, True]


def test_a_run_in_real_time_that_is_not_wanted_as_it_is_ends_and_goes_on_when_it_may() -> None:
    bench = Bench()
    bench.follow()
    with bench.working():
        until(lambda: bool(bench.opened))
        (job,) = bench.store.jobs()
        suspended = replace(job, state=JobState.SUSPENDED)
        bench.store.change(JobChange(seen=job, wanted=suspended), ANN)
        bench.opened[0].wanted = False
        (run,) = bench.until(RunState.QUEUED)
        assert (run.counts, len(bench.opened)) == (MOVED, 1)
        time.sleep(0.1)
        assert len(bench.opened) == 1
        bench.store.change(JobChange(seen=suspended, wanted=job), ANN)
        until(lambda: len(bench.opened) == 2)
        assert len({each.going.task_name for each in bench.opened}) == 1


def test_a_run_in_real_time_is_tried_for_ever_and_shows_what_it_waits_for() -> None:
    bench = Bench(fails=lambda run: RetriableError("gone") if run.attempt < 9 else None)
    bench.follow()
    with bench.working() as worker:
        worker.policy = lambda _: RunPolicy(retries=0, retry_delay=timedelta(milliseconds=10))
        until(lambda: len(bench.opened) == 9)
        bench.until(RunState.RUNNING)
        until(lambda: bench.runs()[0].error == "[storage.unavailable] Jane Doe is away.")
        assert bench.runs()[0].counts == MOVED


def test_people_are_told_of_a_run_that_does_not_get_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.worker.runs._COUNTS_SECONDS", 0.05)
    bench = Bench()
    bench.add(0)
    with bench.working() as worker:
        until(lambda: bool(bench.opened))
        time.sleep(0.5)
        assert not bench.causes
        worker.patience = timedelta()
        until(lambda: bool(bench.causes))
    assert bench.causes[0] == (RunState.RUNNING, "[storage.unavailable]")


def test_a_run_in_real_time_whose_job_is_offline_is_stopped() -> None:
    bench = Bench(broken=NotWantedError("Job orders is offline.", RunState.STOPPED))
    bench.follow()
    with bench.working():
        (run,) = bench.until(RunState.STOPPED)
    assert run.error == "Job orders is offline."


def test_a_worker_that_was_suspended_does_not_take_its_own_run_again() -> None:
    bench = Bench()
    bench.add(0)
    with bench.working() as worker:
        until(lambda: bool(bench.opened))
        worker.lease_clock = lambda: datetime.now(UTC) + HOUR  # its lease is long over
        time.sleep(0.2)
        assert len(bench.opened) == 1
        bench.opened[0].ended.set()
        (run,) = bench.until(RunState.SUCCEEDED)
    assert run.attempt == 1


def test_an_attempt_that_a_restart_has_ended_is_not_counted() -> None:
    bench = Bench()
    bench.add(0)
    for _ in range(6):
        with bench.working():
            bench.until(RunState.RUNNING)
        bench.until(RunState.QUEUED)
    with bench.working():
        bench.until(RunState.RUNNING)
        until(lambda: len(bench.opened) == 7)
        bench.opened[6].ended.set()
        (run,) = bench.until(RunState.SUCCEEDED)
    assert run.attempt == 1


def test_a_worker_of_one_job_ends_where_what_is_left_cannot_begin() -> None:
    bench = Bench(fails=lambda _: ConfigError("no such table", fix="", field="table"))
    bench.policy = RunPolicy(retries=0, depends_on_past=True)
    bench.add(0, 1)
    with bench.working() as worker:
        worker.only = "orders"
        until(lambda: worker.stuck)
    assert [run.state for run in bench.runs()] == [RunState.FAILED, RunState.QUEUED]


def test_a_run_whose_job_may_not_run_any_more_waits_until_it_may() -> None:
    bench = Bench(broken=NotWantedError("Job orders is submitted.", RunState.QUEUED))
    bench.add(0)
    with bench.working():
        until(lambda: bench.runs()[0].error == "Job orders is submitted.")
        bench.broken = None
        until(lambda: bool(bench.opened))
        assert bench.opened[0].going.attempt == 1
