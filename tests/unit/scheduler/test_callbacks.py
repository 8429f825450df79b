"""A callback makes the runs that are due, once each, for whom it was signed."""

import random
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from tests.unit.scheduler.engine_doubles import SECRET, START, World

from headrace.model import Run, RunState, Trigger
from headrace.scheduler import (
    Callbacks,
    CallbackTokenError,
    NotAWindowError,
    WindowNotDueError,
)
from headrace.sdk import ConfigError
from headrace.store import JobChangedError

HOUR = timedelta(hours=1)


@pytest.fixture
def world() -> World:
    return World()


def wake(world: World, token: str | None = None, **asked: str) -> Run:
    shown = token or world.callbacks.token(world.store.job("flights"))
    return world.callbacks.wake("flights", shown, "noting@here", **asked)  # type: ignore[arg-type]


def windows(world: World) -> list[tuple[datetime | None, datetime | None]]:
    return sorted(run.boundaries.times for run in world.store.runs("flights"))


def hour(number: int) -> tuple[datetime, datetime]:
    return START + number * HOUR, START + (number + 1) * HOUR


def test_all_windows_that_are_due_get_runs_and_the_newest_is_answered(world: World) -> None:
    world.make()
    world.after(hours=3, minutes=20)
    run = wake(world)
    assert run.boundaries.times == hour(2)
    assert (run.state, run.trigger) == (RunState.QUEUED, Trigger.CALLBACK)
    assert windows(world) == [hour(0), hour(1), hour(2)]
    made = {(run.trigger, run.by) for run in world.store.runs("flights")}
    assert made == {(Trigger.CALLBACK, "noting@here")}
    assert wake(world) == run
    # Callbacks that were lost leave no gap.
    world.after(hours=4)
    assert wake(world).boundaries.times == hour(6)
    assert windows(world) == [hour(number) for number in range(7)]


def test_the_window_that_ends_by_a_time_is_answered(world: World) -> None:
    world.make()
    world.after(hours=5)
    for upper in ("2024-03-30T02:00:00Z", "2024-03-30T02:59:59Z"):
        assert wake(world, upper=upper).boundaries.times == hour(1)
    both = {"lower": "2024-03-30T03:00:00+00:00", "upper": "2024-03-30T05:00:00+01:00"}
    assert wake(world, **both).boundaries.times == hour(3)
    assert wake(world, job="flights", stream="flights", kind="time").boundaries.times == hour(4)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"lower": "2024-03-30T00:30:00Z", "upper": "2024-03-30T01:30:00Z"}, "lower"),
        ({"lower": "2024-03-30T00:00:00Z", "upper": "2024-03-30T02:00:00Z"}, "lower"),
        ({"lower": "2024-03-29T23:00:00Z", "upper": "2024-03-30T00:00:00Z"}, "lower"),
        ({"lower": "2024-03-30T00:00:00Z"}, "lower"),
        ({"job": "others"}, "job"),
        ({"stream": "others"}, "stream"),
        ({"kind": "offset"}, "kind"),
    ],
)
def test_what_is_no_window_is_refused(world: World, asked: dict[str, str], field: str) -> None:
    world.make()
    world.after(hours=5)
    with pytest.raises(NotAWindowError) as raised:
        wake(world, **asked)
    assert raised.value.field == field
    assert not world.store.runs("flights")


@pytest.mark.parametrize("bound", ["soon", "2024-03-30T00:00:00", ""])
def test_what_is_no_time_is_refused(world: World, bound: str) -> None:
    world.make()
    world.after(hours=5)
    with pytest.raises(ConfigError):
        wake(world, upper=bound)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"upper": "2024-03-30T00:30:00Z"},
        {"upper": "2024-03-30T01:00:00Z"},
        {"lower": "2024-03-30T00:00:00Z", "upper": "2024-03-30T01:00:00Z"},
        {"upper": "9999-12-31T23:59:59Z"},
        {"lower": "2024-03-30T05:00:00Z", "upper": "2024-03-30T06:00:00Z"},
    ],
)
def test_a_window_that_is_not_past_is_refused(world: World, asked: dict[str, str]) -> None:
    world.make()
    world.after(minutes=50)
    with pytest.raises(WindowNotDueError):
        wake(world, **asked)
    assert not world.store.runs("flights")


def test_a_window_waits_for_late_data(world: World) -> None:
    world.make(delay="10 minutes")
    world.after(hours=2, minutes=4)
    with pytest.raises(WindowNotDueError) as raised:
        wake(world, upper="2024-03-30T02:00:00Z")
    assert raised.value.after == timedelta(minutes=6)
    assert wake(world).boundaries.times == hour(0)
    world.after(minutes=6)
    assert wake(world, upper="2024-03-30T02:00:00Z").boundaries.times == hour(1)


@pytest.mark.parametrize(
    ("catchup", "made"), [("all", [0, 1, 2, 3]), ("latest", [3]), ("none", [3])]
)
def test_an_engine_that_is_late_has_not_missed_the_newest_window(
    world: World, catchup: str, made: list[int]
) -> None:
    world.make(catchup=catchup)
    world.after(hours=4, minutes=20)
    wake(world)
    assert windows(world) == [hour(number) for number in made]
    # One that is asked for is run, though the schedule has passed it over.
    both = {"lower": hour(1)[0].isoformat(), "upper": hour(1)[1].isoformat()}
    assert wake(world, **both).boundaries.times == hour(1)
    assert hour(1) in windows(world)


def test_one_window_that_comes_once(world: World) -> None:
    world.make(once=True, end="2024-03-30T06:00:00")
    world.after(hours=6)
    assert wake(world).boundaries.times == (START, START + 6 * HOUR)


def test_a_token_is_of_one_job_one_engine_and_one_server(world: World) -> None:
    job = world.make()
    world.make("others")
    world.after(hours=1)
    good = world.callbacks.token(job)
    assert wake(world, good).state is RunState.QUEUED
    other = Callbacks(jobs=world.jobs, scheduler=world.scheduler, secret=SECRET[::-1])
    payload, _, signature = good.partition(".")
    wrong = [
        world.callbacks.token(world.store.job("others")),
        other.token(job),
        f"{payload}.{signature[:-3]}AAA",
        f"{payload}.",
        payload,
        f"{world.callbacks.token(world.store.job('others')).partition('.')[0]}.{signature}",
        "hrc_é.ü",
        "x",
    ]
    for token in wrong:
        with pytest.raises(CallbackTokenError):
            wake(world, token)
    for token in wrong[1:]:
        assert world.callbacks.caller(token) is None


def test_the_token_of_a_job_that_is_gone_or_made_again_is_revoked(world: World) -> None:
    token = world.callbacks.token(world.make())
    world.after(hours=1)
    world.jobs.delete("flights", "ann")
    with pytest.raises(CallbackTokenError):
        wake(world, token)
    world.make()
    with pytest.raises(CallbackTokenError):
        wake(world, token)


def test_the_token_of_another_engine_is_revoked(world: World) -> None:
    token = world.callbacks.token(world.make())
    world.after(hours=1)
    with world.store.database.begin() as db:
        db.exec_driver_sql("UPDATE jobs SET engine = 'other'")
    with pytest.raises(CallbackTokenError):
        wake(world, token)


def test_a_suspended_job_is_not_woken(world: World) -> None:
    world.make()
    world.jobs.suspend("flights", "ann")
    world.after(hours=1)
    with pytest.raises(JobChangedError):
        wake(world)
    assert not world.store.runs("flights")


@pytest.mark.parametrize("seed", range(20))
def test_lost_late_and_repeated_callbacks_leave_no_gap_and_make_nothing_twice(
    seed: int,
) -> None:
    chance, world = random.Random(seed), World()  # noqa: S311 - no secret
    world.make(every=chance.choice(["1 hour", "7 minutes", "1 day"]))
    for _ in range(40):
        world.after(minutes=chance.randrange(600))
        upper = world.clock.now - timedelta(minutes=chance.choice([0, 0, 90, 3000]))
        for _ in range(chance.randrange(3)):
            try:
                wake(world, upper=upper.isoformat())
            except WindowNotDueError:
                assert upper < START + timedelta(days=1)
    world.after(days=1)
    wake(world)
    runs = world.store.runs("flights", limit=100_000)
    found = sorted(run.boundaries.times for run in runs)
    assert found[0][0] == START
    assert all(one[1] == other[0] for one, other in pairwise(found))
    job = world.store.job("flights")
    assert found[-1][1] == job.cursor
    assert job.due is not None
    assert job.due > world.clock.now
