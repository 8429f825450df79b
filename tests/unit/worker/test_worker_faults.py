"""What a worker does about plugins that hang or raise anywhere, and a store that is away."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.unit.worker.scripts import IDLE, SOON, Script, Told, moved, now, worker
from tests.waiting import until

from headrace.model import (
    Backoff,
    Batch,
    Lease,
    RestartPolicy,
    TaskId,
    TaskState,
    TaskStatus,
)
from headrace.sdk import RetriableError, SinkError, SourceError
from headrace.store import Store, StoreUnavailableError
from headrace.worker import Restarts, Step, Worker

pytestmark = pytest.mark.timeout(60)
LONG = timedelta(hours=1)


class Stubborn(Script):
    """A task that lets go of nothing until it may."""

    def __init__(self, name: str, *steps: Any, **values: Any) -> None:
        super().__init__(name, *steps, **values)
        self.may = threading.Event()

    def stop(self) -> None:
        self.may.wait(30)
        super().stop()


class Deaf(Script):
    """A task that cannot be cancelled."""

    def cancel(self) -> None:
        super().cancel()
        raise ValueError(self.id)


class Away(Store):
    """A store that takes no end of a task while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = threading.Event()

    def end(self, lease: Lease, status: TaskStatus, now: Any) -> None:
        if self.away.is_set():
            raise StoreUnavailableError
        super().end(lease, status, now)


@contextmanager
def serving(run: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield thread
    finally:
        run.stop(SOON)
        thread.join()


def state(run: Worker, task: TaskId) -> TaskState | None:
    found = run.store.statuses(task.connector).get(task)
    return None if found is None else found.state


def test_a_server_ends_though_plugins_of_idle_tasks_do_not_stop() -> None:
    hung = [Stubborn("a", IDLE), Stubborn("b", IDLE)]
    other = Script("c", IDLE)
    run = worker(Told(), *hung, other, serving=True, stop_timeout=SOON)
    with serving(run) as thread:
        until(lambda: all(task.calls for task in (*hung, other)))
        held = {lease.task: lease for lease in run.store.leases()}
        run.stop(LONG)
        thread.join(30)
        assert not thread.is_alive()
    assert other.stopped == 1
    assert run.store.leases() == []
    for task in hung:
        assert state(run, task.id) is TaskState.UNASSIGNED
        # What still runs of it has no say any more.
        assert run.store.lease(task.id, "next", now(), LONG).epoch == held[task.id].epoch + 2
        task.may.set()


def test_a_failed_task_is_shown_and_its_thread_free_though_its_plugin_does_not_stop() -> None:
    bad, good = Stubborn("bad", SourceError("broken")), Script("good", IDLE)
    run = worker(Told(), bad, good, serving=True, threads=1, stop_timeout=SOON)
    with serving(run):
        until(lambda: state(run, bad.id) is TaskState.FAILED)
        until(lambda: good.calls)
        bad.may.set()


def test_what_comes_to_its_own_end_may_take_its_time() -> None:
    task = Stubborn("a", Step(ended=True))
    run = worker(Told(), task, stop_timeout=timedelta())
    thread = threading.Thread(target=run.run)
    thread.start()
    until(lambda: any(t.name == "headrace-stop-a-0" for t in threading.enumerate()))
    assert state(run, task.id) is TaskState.RUNNING
    task.may.set()
    thread.join()
    assert state(run, task.id) is TaskState.COMPLETED


def test_a_task_that_was_given_up_while_it_let_go_tells_nothing_more() -> None:
    told = Told()
    old, new = Stubborn("a", IDLE), Script("a", IDLE)
    run = worker(told, old, serving=True)
    with serving(run):
        until(lambda: old.calls)
        run.end({old.id: TaskState.PAUSED}, SOON)
        run.add([new])
        until(lambda: new.calls)
        before = list(told.states)
        old.may.set()
        until(lambda: old.stopped)
        until(lambda: len([t for t in threading.enumerate() if "headrace-stop" in t.name]) == 0)
        calls = len(new.calls)
        until(lambda: len(new.calls) > calls + 2)
        assert told.states == before
        assert state(run, new.id) is TaskState.RUNNING


def test_tasks_that_are_ended_as_the_server_stops_leave_no_lease_behind() -> None:
    go = threading.Event()
    busy, idle = Script("busy", lambda: Step(ended=go.wait(30))), Script("idle", IDLE)
    run = worker(Told(), idle, serving=True, threads=1)
    with serving(run) as thread:
        until(lambda: idle.calls)
        run.add([busy])
        until(lambda: busy.calls)
        ends = threading.Thread(target=run.end, args=({idle.id: TaskState.PAUSED}, LONG))
        ends.start()  # no thread is free to end it
        run.stop(LONG)
        go.set()
        ends.join(30)
        thread.join(30)
        assert not thread.is_alive()
    assert idle.stopped == 1
    assert state(run, idle.id) in {TaskState.PAUSED, TaskState.UNASSIGNED}
    assert run.store.leases() == []


def test_a_task_that_a_stopped_server_let_go_of_is_not_stopped_once_more() -> None:
    idle = Script("idle", IDLE)
    run = worker(Told(), idle, serving=True, threads=1)
    with serving(run):
        until(lambda: idle.calls)
    run.end({idle.id: TaskState.PAUSED}, LONG)
    assert idle.stopped == 1
    assert run.store.leases() == []


def test_no_lock_is_held_while_a_task_is_cancelled() -> None:
    """A capture's hosts have a lock too, and whoever holds that one may wake a task."""
    hosts = threading.Lock()
    stuck, asked, woken = threading.Event(), threading.Event(), threading.Event()

    class Captured(Script):
        def cancel(self) -> None:
            asked.set()
            with hosts:
                super().cancel()

    def step() -> Step:
        if not stuck.is_set():
            with hosts:
                stuck.set()
                asked.wait(30)
                run.wake_task(task.id)
                woken.set()
        return IDLE

    task = Captured("a", step)
    run = worker(Told(), task, serving=True)
    with serving(run):
        until(stuck.is_set)
        run_end = partial(run.end, {task.id: TaskState.PAUSED}, SOON)
        ending = threading.Thread(target=run_end, daemon=True)
        ending.start()
        assert woken.wait(10)
        ending.join(30)
        assert state(run, task.id) is TaskState.PAUSED


def test_a_task_that_cannot_be_cancelled_keeps_no_other_from_it() -> None:
    def stuck(task: Callable[[], Script]) -> Callable[[], Step]:
        return lambda: Step() if task().cancelled.wait(30) else IDLE

    deaf = Deaf("a", stuck(lambda: deaf))
    other = Script("b", stuck(lambda: other))
    run = worker(Told(), deaf, other, serving=True)
    with serving(run):
        until(lambda: deaf.calls and other.calls)
        run.end(dict.fromkeys([deaf.id, other.id], TaskState.PAUSED), SOON)
        assert deaf.cancelled.is_set()
        assert other.cancelled.is_set()


def test_leases_are_renewed_though_a_task_that_lost_its_own_cannot_be_cancelled() -> None:
    deaf, other = Deaf("a", IDLE), Script("b", IDLE)
    run = worker(Told(), deaf, other, serving=True, lease=timedelta(milliseconds=150))
    with serving(run):
        until(lambda: deaf.calls and other.calls)
        run.store.remove("a")
        until(deaf.cancelled.is_set)
        [lease] = run.store.leases("b")
        until(lambda: run.store.leases("b")[0].expires > lease.expires)


def test_leases_are_renewed_though_a_renewal_has_failed_in_whatever_way() -> None:
    store, broken = Store(), threading.Event()

    class Broken(Store):
        def renew(self, *args: Any) -> Any:
            if not broken.is_set():
                broken.set()
                raise ValueError(args)
            return super().renew(*args)

    store = Broken()
    task = Script("a", IDLE)
    short = timedelta(milliseconds=60)
    run = Worker(store=store, owner="me", events=Told(), clock=now, lease=short, serving=True)
    run.add([task])
    with serving(run):
        until(broken.is_set)
        [lease] = store.leases()
        until(lambda: store.leases()[0].expires > lease.expires)


def test_an_end_that_could_not_be_stored_is_stored_when_the_store_is_back() -> None:
    store, told = Away(), Told()
    bad, good = Script("bad", SourceError("broken")), Script("good", IDLE)
    short = timedelta(milliseconds=30)
    run = Worker(store=store, owner="me", events=told, clock=now, lease=short, serving=True)
    store.away.set()
    run.add([bad, good])
    with serving(run):
        until(lambda: (bad.id, TaskState.FAILED) in told.states and good.calls)
        assert state(run, bad.id) is TaskState.RUNNING
        store.away.clear()
        until(lambda: state(run, bad.id) is TaskState.FAILED)
        assert store.statuses("bad")[bad.id].trace == "[source.failed] broken"
        assert state(run, good.id) is TaskState.RUNNING


def test_an_end_that_came_too_late_leaves_the_task_that_was_started_anew_alone() -> None:
    store, told = Away(), Told()
    bad, again = Script("a", SourceError("broken")), Script("a", IDLE)
    run = Worker(
        store=store,
        owner="me",
        events=told,
        clock=now,
        serving=True,
        lease=timedelta(seconds=3),
    )
    store.away.set()
    run.add([bad])
    with serving(run):
        until(lambda: (bad.id, TaskState.FAILED) in told.states)
        run.add([again])
        until(lambda: again.calls)
        store.away.clear()
        run._endings.catch_up()
        assert state(run, again.id) is TaskState.RUNNING
        assert len(store.leases()) == 1


def test_a_task_whose_batch_cannot_be_told_is_stopped_and_shown_as_failed() -> None:
    class Broken(Told):
        def batch_finished(self, batch: Batch, took: timedelta) -> None:
            raise ValueError(batch)

    told = Broken()
    task, other = Script("a", moved("a")), Script("b", IDLE)
    run = worker(told, task, other, serving=True, threads=1)
    with serving(run):
        until(lambda: state(run, task.id) is TaskState.FAILED)
        assert task.stopped == 1
        assert run.store.leases("a") == []
        until(lambda: other.calls)


def test_the_time_in_which_a_task_was_only_tried_again_is_no_quiet_time() -> None:
    quiet = timedelta(seconds=2)
    policy = RestartPolicy(enabled=True, attempts=1, quiet=quiet)
    restarts = Restarts()
    task = TaskId("a", 0)
    restarts.follow([task], policy)
    restarts.failed(task, SourceError("before"))
    slow = Backoff(longest=SOON, timeout=2 * quiet)
    run = worker(
        Told(),
        Script("a", RetriableError("busy"), backoff=slow),
        serving=True,
        restarts=restarts,
    )
    with serving(run):
        until(lambda: state(run, task) is TaskState.FAILED)
        assert "stays failed" in str(run.store.statuses("a")[task].trace)


def test_a_task_that_may_not_write_any_more_fails_with_what_helps() -> None:
    denied = PermissionError(1, "Operation not permitted", "/no/such/file.tmp")
    source, sink = Script("source", denied), Script("sink", denied, reads="topic")
    outcome = worker(Told(), source, sink, serving=False).run()
    assert [type(outcome.errors[task.id]) for task in (source, sink)] == [
        SourceError,
        SinkError,
    ]
    problem = "/no/such/file.tmp cannot be written to: Operation not permitted."
    assert all(problem in str(error) for error in outcome.errors.values())


def test_batches_that_a_task_finishes_while_it_stops_are_reported_before_its_end() -> None:
    class Busy(Script):
        def unreported(self) -> list[Batch]:
            return [batch] if self.stopped else []

    class Ordered(Told):
        def batch_finished(self, batch: Batch, took: timedelta) -> None:
            assert (task.id, TaskState.PAUSED) not in self.states
            super().batch_finished(batch, took)

    batch = moved("a").batch or pytest.fail("no batch")
    told, task = Ordered(), Busy("a", IDLE)
    run = worker(told, task, serving=True)
    with serving(run):
        until(lambda: task.calls)
        run.end({task.id: TaskState.PAUSED}, LONG)
    assert told.batches == [batch]
    assert told.states[-1] == (task.id, TaskState.PAUSED)


def test_the_end_of_a_task_is_reported_once_though_it_is_given_up_at_the_same_moment() -> None:
    told, task = Told(), Script("a", IDLE)
    run = worker(told, task, serving=True)
    with serving(run):
        until(lambda: task.calls)
        [slot] = run._queue
        run.end({task.id: TaskState.PAUSED}, LONG)
        run._endings.give_up(slot, TaskState.PAUSED)
    assert [state for _, state in told.states].count(TaskState.PAUSED) == 1


def test_the_only_thread_of_a_worker_is_replaced_before_it_is_given_up() -> None:
    class Watched(Worker):
        def _spawn(self) -> None:
            alive.append(any(each.is_alive() for each in self._threads))
            super()._spawn()

    def hang() -> Step:
        let_go.wait()
        return IDLE

    alive: list[bool] = []
    let_go, task = threading.Event(), Script("a", hang)
    run = Watched(store=Store(), owner="me", events=Told(), clock=now, serving=True, threads=1)
    run.add([task])
    with serving(run):
        until(lambda: task.calls)
        run.end({task.id: TaskState.PAUSED}, timedelta(milliseconds=20))
        assert alive == [False, True]
        let_go.set()


def test_leases_are_renewed_until_the_last_step_has_ended() -> None:
    class Renewed(Store):
        def renew(self, *arguments: Any) -> Any:
            if run._stopping.is_set():
                renewed.set()
            return super().renew(*arguments)

    def finish() -> Step:
        assert renewed.wait(20)
        return IDLE

    renewed, task = threading.Event(), Script("a", finish)
    run = Worker(
        store=Renewed(),
        owner="me",
        events=Told(),
        clock=now,
        serving=True,
        lease=timedelta(milliseconds=300),
    )
    run.add([task])
    thread = threading.Thread(target=run.run)
    thread.start()
    until(lambda: task.calls)
    run.stop(LONG)
    thread.join()
    assert renewed.is_set()


def test_last_batches_that_cannot_be_told_do_not_keep_a_task_from_its_end() -> None:
    class Broken(Told):
        def batch_finished(self, batch: Batch, took: timedelta) -> None:
            raise BrokenPipeError

    class Busy(Script):
        def unreported(self) -> list[Batch]:
            return [moved("a").batch or pytest.fail("no batch")]

    task = Busy("a", IDLE)
    run = worker(Broken(), task, serving=True)
    with serving(run):
        until(lambda: task.calls)
        run.end({task.id: TaskState.PAUSED}, LONG)
    assert state(run, task.id) is TaskState.PAUSED
    assert run.store.leases("a") == []


def test_a_task_that_is_to_be_unassigned_ends_once() -> None:
    task = Script("a", IDLE)
    run = worker(Told(), task, serving=True)
    with serving(run):
        until(lambda: task.calls)
        run.end({task.id: TaskState.UNASSIGNED}, LONG)
    assert task.stopped == 1
