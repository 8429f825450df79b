"""What every store of jobs does, whatever it is made of."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import (
    Counts,
    Endpoints,
    EventKind,
    Job,
    JobState,
    Run,
    RunState,
    Stamp,
    TaskId,
    Trigger,
)
from headrace.sdk import Boundaries, Position
from headrace.sdk.errors import StaleEpochError
from headrace.store import (
    JobChange,
    JobChangedError,
    JobExistsError,
    JobNotFoundError,
    JobStore,
    NewRun,
    Place,
    RunNotFoundError,
    Store,
)

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
ANN = Stamp(NOW, "ann")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place]
) -> Iterator[JobStore]:
    made = JobStore(place_of(request.param))
    yield made
    made.close()


def create(store: JobStore, name: str = "orders", after: str | None = None) -> Job:
    wanted = Job(
        name=name,
        uid="",
        document={"name": name, "schedule": {"every": "1 hour"}},
        version=1,
        state=JobState.RUNNING,
        cursor=NOW,
        due=NOW + HOUR,
        changed=NOW,
        by="",
    )
    return store.create(wanted, after, ANN)


def hour(number: int, state: RunState = RunState.QUEUED, backfill: str | None = None) -> NewRun:
    window = Boundaries.between(NOW + number * HOUR, NOW + (number + 1) * HOUR)
    return NewRun(
        boundaries=window, trigger=Trigger.SCHEDULE, due=NOW, state=state, backfill=backfill
    )


def take(
    store: JobStore, run: Run, owner: str = "w1", *, most: int = 9, in_order: bool = False
) -> Run | None:
    return store.take(run, owner, NOW, NOW + HOUR, most, in_order=in_order)


def waiting(store: JobStore, *dead: str, at: datetime = NOW) -> list[Run]:
    return list(store.waiting(NOW, at, lambda owner: owner in dead, 100))


def taken(store: JobStore, owner: str = "w1") -> Run:
    found = take(store, waiting(store)[0], owner)
    assert found is not None
    return found


def finish(store: JobStore, run: Run, state: RunState = RunState.SUCCEEDED) -> Run:
    return store.finish(run, state, NOW, counts=Counts(read=2, written=2))


def test_a_job_that_was_created_is_as_it_was_given(store: JobStore) -> None:
    made = create(store)
    assert store.job("orders") == made
    assert made.uid
    with pytest.raises(JobExistsError):
        create(store)
    with pytest.raises(JobNotFoundError):
        store.job("others")


def test_a_change_of_what_is_not_there_any_more_is_refused(store: JobStore) -> None:
    seen = create(store)
    store.change(
        JobChange(
            seen=seen,
            wanted=replace(seen, state=JobState.SUSPENDED),
            event=EventKind.JOB_SUSPENDED,
        ),
        ANN,
    )
    with pytest.raises(JobChangedError):
        store.change(
            JobChange(seen=seen, wanted=replace(seen, cursor=NOW + HOUR), made=[hour(0)]), ANN
        )
    assert store.job("orders").cursor == NOW
    assert not store.runs("orders")


def test_a_window_has_one_run_whoever_makes_it(store: JobStore) -> None:
    seen = create(store)
    store.change(
        JobChange(seen=seen, wanted=replace(seen, cursor=NOW + HOUR), made=[hour(0)]), ANN
    )
    assert store.add_runs("orders", [hour(0, backfill="b"), hour(1, backfill="b")], ANN) == 1
    assert [run.backfill for run in store.runs("orders")] == ["b", None]
    assert store.counts("orders", "b") == {RunState.QUEUED: 1}


def test_jobs_are_due_when_their_window_is(store: JobStore) -> None:
    seen = create(store)
    assert not store.due(NOW, 10)
    assert [job.name for job in store.due(NOW + HOUR, 10)] == ["orders"]
    store.change(JobChange(seen=seen, wanted=replace(seen, state=JobState.SUSPENDED)), ANN)
    assert not store.due(NOW + HOUR, 10)


def test_of_many_that_take_a_run_one_gets_it(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    (seen,) = waiting(store)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: take(store, seen, f"w{n}"), range(8)))
    assert len([run for run in found if run is not None]) == 1
    assert store.run(seen.id).state is RunState.RUNNING


def test_only_so_many_runs_of_a_job_go_on_side_by_side(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(n) for n in range(4)], ANN)
    store.add_runs("orders", [hour(9, backfill="b")], ANN)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda run: take(store, run, most=2), waiting(store)))
    assert sum(run is not None and run.backfill is None for run in found) == 2
    assert sum(run is not None and run.backfill == "b" for run in found) == 1


def test_a_run_in_order_waits_for_all_before_it(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(0), hour(1)], ANN)
    first, second = waiting(store)
    assert take(store, second, in_order=True) is None
    done = take(store, first, in_order=True)
    assert done is not None
    finish(store, done, RunState.FAILED)
    assert take(store, second, in_order=True) is None
    store.run_again(first.id, ANN, from_beginning=False)
    finish(store, taken(store))
    assert take(store, second, in_order=True) is not None


def test_runs_that_go_on_one_by_one_begin_in_their_order(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(0), hour(1), hour(2), hour(-1, backfill="b")], ANN)
    back, first, second, third = sorted(waiting(store), key=lambda r: r.boundaries.lower or "")
    assert take(store, second, most=1) is None
    assert take(store, third, most=9) is not None  # side by side
    assert take(store, back, most=1) is not None
    failed = take(store, first, most=2)
    assert failed is not None
    store.finish(failed, RunState.QUEUED, NOW, counts=Counts(), due=NOW + HOUR)
    store.finish(store.run(third.id), RunState.SUCCEEDED, NOW, counts=Counts())
    assert take(store, second, most=1) is None  # an earlier one is to be tried again
    assert take(store, second, most=2) is not None


def test_a_run_of_a_worker_that_is_gone_is_taken_and_the_other_is_refused(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    first = taken(store)
    assert not waiting(store)
    assert waiting(store, at=NOW + HOUR) == waiting(store, "w1") == [first]
    second = take(store, first, "w2")
    assert second is not None
    assert (second.attempt, second.epoch) == (2, 2)
    assert not store.renew("w1", [first], NOW + HOUR)
    with pytest.raises(StaleEpochError):
        finish(store, first)
    assert finish(store, second).counts == Counts(read=2, written=2)


def test_a_run_that_is_renewed_is_nobody_elses_and_hears_that_it_is_to_stop(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    run = taken(store)
    assert [each.stop_asked for each in store.renew("w1", [run], NOW + 2 * HOUR)] == [False]
    assert not waiting(store, at=NOW + HOUR)
    store.ask_to_stop(run.id, ANN)
    assert [each.stop_asked for each in store.renew("w1", [run], NOW + 2 * HOUR)] == [True]


def test_a_run_that_waits_is_stopped_at_once_and_one_that_has_ended_is_not(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(0), hour(1)], ANN)
    assert store.ask_to_stop(waiting(store)[0].id, ANN).state is RunState.STOPPED
    ended = finish(store, taken(store))
    with pytest.raises(JobChangedError):
        store.ask_to_stop(ended.id, ANN)
    with pytest.raises(RunNotFoundError):
        store.ask_to_stop(999, ANN)


def test_a_retry_keeps_what_the_tasks_of_a_run_know_and_a_new_beginning_does_not(
    store: JobStore,
) -> None:
    tasks = Store(store.database)
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    run = taken(store)
    task = TaskId(run.task_name, 0)
    tasks.register(task.connector)
    lease = tasks.lease(task, "w1", NOW, HOUR)
    tasks.set_position(task, lease.epoch, Position.of({}, {"n": 7}))
    finish(store, run, RunState.FAILED)

    again = store.run_again(run.id, ANN, from_beginning=False)
    assert (again.task_name, again.state) == (run.task_name, RunState.QUEUED)
    assert tasks.position(task) == Position.of({}, {"n": 7})

    finish(store, taken(store))
    anew = store.run_again(run.id, ANN, from_beginning=True)
    assert anew.task_name != run.task_name
    assert anew.counts == Counts()
    assert tasks.position(task) == Position()


def test_a_batch_that_a_worker_may_still_write_keeps_its_run_from_a_new_beginning(
    store: JobStore,
) -> None:
    """One worker is suspended in a batch, and another has taken its run only to stop it."""
    tasks = Store(store.database)
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    run = taken(store)
    task = TaskId(run.task_name, 0)
    tasks.register(task.connector)
    lease = tasks.lease(task, "w1", NOW, HOUR)
    end = Position.of({}, {"n": 7})
    tasks.begin_batch(task, lease.epoch, Position(), end, NOW)
    finish(store, run, RunState.STOPPED)
    with pytest.raises(JobChangedError, match=r"batch 1 of run 1 unfin.*job retry orders 1"):
        store.run_again(run.id, ANN, from_beginning=True)
    assert store.run(run.id).state is RunState.STOPPED
    # A retry takes the batch over, and gives the task up.
    over = tasks.lease(task, "w2", NOW + 2 * HOUR, HOUR)
    tasks.release(over)
    assert store.run_again(run.id, ANN, from_beginning=True).generation == 2
    with pytest.raises(StaleEpochError):
        tasks.finish_batch(task, lease.epoch, 1, Counts(), NOW)


def test_what_a_run_is_known_by_goes_with_its_job(store: JobStore) -> None:
    tasks = Store(store.database)
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    run = taken(store)
    uid = tasks.register(run.task_name, tasks.register(run.name))
    assert tasks.register(run.task_name) == tasks.register(run.name) == uid
    tasks.put_endpoints(run.task_name, Endpoints("a", ("b",)))
    finish(store, run)
    store.delete("orders", ANN)
    assert tasks.endpoints(run.task_name) is None
    assert uid not in {tasks.register(run.task_name), tasks.register(run.name)}


def test_the_success_of_a_run_makes_one_of_each_job_after_it(store: JobStore) -> None:
    create(store)
    create(store, "after", after="orders")
    store.add_runs("orders", [hour(0), hour(1)], ANN)
    finish(store, taken(store), RunState.FAILED)
    assert not store.runs("after")
    done = finish(store, taken(store))
    (followed,) = store.runs("after")
    assert (followed.boundaries, followed.trigger) == (done.boundaries, Trigger.AFTER)


def test_a_job_is_finished_with_the_last_run_of_a_schedule_that_has_ended(
    store: JobStore,
) -> None:
    seen = create(store)
    store.add_runs("orders", [hour(0), hour(1)], ANN)
    store.change(JobChange(seen=seen, wanted=replace(seen, cursor=None, due=None)), ANN)
    finish(store, taken(store))
    assert store.job("orders").state is JobState.RUNNING
    finish(store, taken(store), RunState.FAILED)
    assert store.job("orders").state is JobState.FINISHED


def test_a_suspended_job_starts_no_run(store: JobStore) -> None:
    seen = create(store)
    store.add_runs("orders", [hour(0)], ANN)
    (run,) = waiting(store)
    store.change(JobChange(seen=seen, wanted=replace(seen, state=JobState.SUSPENDED)), ANN)
    assert not waiting(store)
    assert take(store, run) is None


def test_a_job_is_deleted_with_its_runs_but_not_while_one_runs(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(0), hour(1)], ANN)
    run = taken(store)
    with pytest.raises(JobChangedError):
        store.delete("orders", ANN)
    finish(store, run)
    store.delete("orders", ANN)
    assert not store.jobs()
    assert not store.runs("orders")


def test_a_backfill_is_stopped_as_a_whole(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(n, backfill="b") for n in range(3)] + [hour(5)], ANN)
    running = taken(store)
    assert store.backfills.stop("orders", "b", ANN) == 3
    assert store.counts("orders", "b") == {RunState.RUNNING: 1, RunState.STOPPED: 2}
    assert store.run(running.id).stop_asked
    assert [run.backfill for run in waiting(store)] == [None]


def follow(store: JobStore, seen: Job) -> Run:
    """Let a job run in real time; return its run."""
    made = NewRun(boundaries=Boundaries.between(NOW, None), trigger=Trigger.REALTIME, due=NOW)
    wanted = replace(seen, document={"name": "orders", "mode": "realtime"})
    store.change(JobChange(seen=seen, wanted=wanted, made=[made]), ANN)
    return next(run for run in store.runs("orders") if run.is_live)


def test_a_run_in_real_time_and_windows_that_wait_do_not_run_side_by_side(
    store: JobStore,
) -> None:
    seen = create(store)
    store.add_runs("orders", [hour(-1)], ANN)
    live = follow(store, seen)
    assert take(store, live) is None
    finish(store, taken(store), RunState.FAILED)
    running = take(store, live)
    assert running is not None
    assert not store.has_waiting(running)
    store.run_again(store.runs("orders")[-1].id, ANN, from_beginning=False)
    # An older row is not to come after a newer one: real time makes room for the window.
    assert take(store, store.runs("orders")[-1], most=1) is None
    assert store.has_waiting(running)
    store.finish(running, RunState.QUEUED, NOW, counts=Counts(), counted=False)
    window = take(store, store.runs("orders")[-1], most=1)
    assert window is not None
    assert take(store, store.run(live.id)) is None
    finish(store, window)
    again = take(store, store.run(live.id))
    assert again is not None
    assert again.attempt == 1


def test_a_run_in_real_time_is_one_however_often_its_job_begins_again(store: JobStore) -> None:
    seen = create(store)
    first = follow(store, seen)
    finish(store, taken(store), RunState.STOPPED)
    again = follow(store, seen)
    assert (again.id, again.task_name, again.state) == (
        first.id,
        first.task_name,
        RunState.QUEUED,
    )
    assert follow(store, seen) == again


def test_a_job_in_real_time_is_finished_where_its_source_has_ended(store: JobStore) -> None:
    follow(store, create(store))
    running = taken(store)
    store.progress(running, Counts(read=1, written=1), "It is away.")
    assert store.run(running.id).error == "It is away."
    finish(store, running)
    assert store.job("orders").state is JobState.FINISHED
    with pytest.raises(StaleEpochError):
        store.progress(running, Counts(), None)


def paused(store: JobStore, windows: int = 3) -> None:
    create(store)
    made = [hour(n, backfill="b") for n in range(windows)]
    store.add_runs("orders", [*made, hour(windows + 5)], ANN)
    store.backfills.pause("orders", "b", ANN)


def test_runs_of_a_paused_backfill_do_not_begin_and_one_that_runs_is_finished(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(n, backfill="b") for n in range(3)] + [hour(5)], ANN)
    running = taken(store)
    seen = waiting(store)
    store.backfills.pause("orders", "b", ANN)
    assert store.backfills.is_paused("orders", "b")
    assert [run.backfill for run in waiting(store)] == [None]
    assert take(store, next(run for run in seen if run.backfill)) is None
    # Its worker dies: another finishes what has begun.
    assert [run.id for run in waiting(store, "w1") if run.backfill] == [running.id]
    again = take(store, running, "w2")
    assert again is not None
    assert finish(store, again).state is RunState.SUCCEEDED
    assert store.counts("orders", "b") == {RunState.SUCCEEDED: 1, RunState.QUEUED: 2}
    store.backfills.resume("orders", "b", ANN)
    assert len([run for run in waiting(store) if run.backfill]) == 2


def test_an_attempt_that_fails_while_its_backfill_is_paused_waits(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(0, backfill="b")], ANN)
    running = taken(store)
    store.backfills.pause("orders", "b", ANN)
    finish(store, running, RunState.QUEUED)
    assert not waiting(store)
    assert not store.is_busy("orders")
    store.backfills.resume("orders", "b", ANN)
    assert store.is_busy("orders")
    failed = finish(store, taken(store), RunState.FAILED)
    # A retry of a run of a backfill that is paused waits with the others.
    store.add_runs("orders", [hour(1, backfill="b")], ANN)
    store.backfills.pause("orders", "b", ANN)
    store.run_again(failed.id, ANN, from_beginning=False)
    assert not waiting(store)


def test_a_paused_backfill_keeps_its_windows_and_its_job_unfinished(store: JobStore) -> None:
    seen = create(store)
    store.change(JobChange(seen=seen, wanted=replace(seen, cursor=None, due=None)), ANN)
    store.add_runs("orders", [hour(0, backfill="b"), hour(1)], ANN)
    store.backfills.pause("orders", "b", ANN)
    assert store.add_runs("orders", [hour(0)], ANN) == 0
    assert len(store.windows("orders", NOW, NOW + HOUR)) == 1
    (after,) = waiting(store)
    assert take(store, after, in_order=True) is None  # it depends on the past
    ended = take(store, after)
    assert ended is not None
    finish(store, ended)
    assert store.job("orders").state is JobState.RUNNING
    store.backfills.resume("orders", "b", ANN)
    finish(store, taken(store))
    assert store.job("orders").state is JobState.FINISHED


def test_a_paused_backfill_is_stopped_and_deleted(store: JobStore) -> None:
    paused(store)
    with pytest.raises(JobChangedError, match="is already paused"):
        store.backfills.pause("orders", "b", ANN)
    assert store.ask_to_stop(1, ANN).state is RunState.STOPPED
    assert store.backfills.stop("orders", "b", ANN) == 2
    assert not store.backfills.is_paused("orders", "b")
    with pytest.raises(JobChangedError, match="not paused"):
        store.backfills.resume("orders", "b", ANN)
    with pytest.raises(JobChangedError, match="have ended"):
        store.backfills.pause("orders", "b", ANN)
    store.run_again(1, ANN, from_beginning=False)
    assert 1 in [run.id for run in waiting(store)]
    store.backfills.pause("orders", "b", ANN)
    store.delete("orders", ANN)
    assert not store.runs("orders")


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED, RunState.SUCCEEDED])
def test_a_run_in_real_time_that_an_older_document_has_ended_goes_on(
    store: JobStore, state: RunState
) -> None:
    seen = create(store)
    live = replace(seen, document={"mode": "realtime"}, version=2)
    store.change(JobChange(seen=seen, wanted=live), ANN)
    follow(store, live)
    ended = store.finish(taken(store), state, NOW, counts=Counts(), version=1)
    assert ended.state is RunState.QUEUED
    assert store.job("orders").state is JobState.RUNNING
    ended = store.finish(taken(store), state, NOW, counts=Counts(), version=2)
    assert ended.state is state


def test_an_end_of_real_time_does_not_finish_a_job_that_is_offline_by_now(
    store: JobStore,
) -> None:
    seen = create(store)
    follow(store, seen)
    running = taken(store)
    store.change(JobChange(seen=seen, wanted=seen), ANN)
    finish(store, running)
    assert store.job("orders").state is not JobState.FINISHED


def test_a_run_in_real_time_that_has_ended_is_in_the_way_of_no_later_window(
    store: JobStore,
) -> None:
    follow(store, create(store))
    running = taken(store)
    assert store.windows("orders", NOW + HOUR, NOW + 2 * HOUR)
    store.finish(running, RunState.STOPPED, NOW + HOUR, counts=Counts())
    assert not store.windows("orders", NOW + HOUR, NOW + 2 * HOUR)
    assert store.windows("orders", NOW, NOW + 2 * HOUR)
    store.add_runs("orders", [hour(2)], ANN)
    assert take(store, waiting(store)[0], in_order=True) is not None


def test_many_runs_that_have_to_wait_hide_nobody_elses(store: JobStore) -> None:
    create(store)
    store.add_runs("orders", [hour(n) for n in range(150)], ANN)
    other = create(store, "others")
    made = hour(0, backfill="b")
    store.change(JobChange(seen=other, wanted=other, made=[made]), ANN)
    found = store.waiting(NOW, NOW, lambda _: False, 10)
    assert [run.job for run in found].count("orders") == 10
    assert [run.job for run in found].count("others") == 1
    assert len(store.waiting(NOW, NOW, lambda _: False, 10, job="others")) == 1


def test_a_run_whose_owner_was_heard_of_since_it_was_looked_at_is_left_to_it(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(0)], ANN)
    running = taken(store)
    (seen,) = waiting(store, at=NOW + 2 * HOUR)
    store.renew("w1", [running], NOW + 3 * HOUR)
    assert take(store, seen, "w2") is None


def test_new_windows_that_share_a_part_with_another_are_refused_where_that_counts(
    store: JobStore,
) -> None:
    create(store)
    store.add_runs("orders", [hour(0), hour(2)], ANN)
    wide = NewRun(
        boundaries=Boundaries.between(NOW + HOUR / 2, NOW + 3 * HOUR / 2),
        trigger=Trigger.MANUAL,
        due=NOW,
    )
    with pytest.raises(JobChangedError, match="overlap"):
        store.add_runs("orders", [hour(1), wide], ANN, apart=True)
    assert store.add_runs("orders", [hour(0), hour(1)], ANN, apart=True) == 1
    assert store.add_runs("orders", [wide], ANN) == 1


def test_a_job_is_finished_when_its_last_runs_are_stopped(store: JobStore) -> None:
    seen = create(store)
    over = replace(seen, cursor=None, due=None, state=JobState.CONFIGURED)
    store.change(JobChange(seen=seen, wanted=over, made=[hour(0), hour(1, backfill="b")]), ANN)
    store.ask_to_stop(1, ANN)
    assert store.job("orders").state is JobState.CONFIGURED
    store.backfills.stop("orders", "b", ANN)
    assert store.job("orders").state is JobState.FINISHED


@pytest.mark.parametrize("state", [JobState.SUSPENDED, JobState.SUBMITTED, JobState.APPROVED])
def test_a_job_after_another_misses_no_window_while_it_may_not_run(
    store: JobStore, state: JobState
) -> None:
    create(store)
    follower = create(store, "copies", after="orders")
    held = replace(follower, state=state)
    store.change(JobChange(seen=follower, wanted=held), ANN)
    store.add_runs("orders", [hour(0)], ANN)
    finish(store, taken(store))
    assert store.counts("copies") == {RunState.QUEUED: 1}
