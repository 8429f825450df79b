"""An outside scheduler has what the store says, whatever fails on the way."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.scheduler.engine_doubles import ANN, Noting, World

from headrace.model import EventKind, Job, JobState
from headrace.scheduler import MissingEngine, Registrar
from headrace.scheduler.external_scheduler import (
    EngineRefusedError,
    EngineUnavailableError,
    RegistrationPendingError,
)
from headrace.sdk import ConfigError, HeadraceError
from headrace.store import JobChange, JobNotFoundError

AWAY = EngineUnavailableError("It does not answer.")


@pytest.fixture
def world() -> World:
    return World()


def is_woken(engine: Noting, name: str = "flights") -> bool:
    return engine.jobs[name].active


def change(world: World, name: str = "flights", **values: object) -> Job:
    seen = world.store.job(name)
    wanted = replace(seen, **values)  # type: ignore[arg-type]
    return world.store.change(
        JobChange(seen=seen, wanted=wanted, event=EventKind.JOB_EDITED), ANN
    )


def look(world: World, registrar: Registrar) -> None:
    """Look as later as is needed for all that failed to be tried again."""
    world.seconds += 120
    registrar.look()


def test_an_approved_job_is_registered_and_then_at_work(world: World) -> None:
    job, engine = world.make(), Noting()
    registrar = world.registrar(engine)
    registrar.look()
    assert engine.asked == ["start", "update"]
    wake = engine.jobs["flights"]
    assert (wake.active, wake.path) == (True, "/v1/jobs/flights/callback")
    assert world.callbacks.caller(wake.token) == ("flights", job.uid, "noting")
    assert wake.token not in repr(wake)
    row = world.registrations.of_job("noting", "flights")
    assert row is not None
    assert (row.registered, row.error) == (True, None)
    assert world.store.job("flights").state is JobState.CONFIGURED
    look(world, registrar)
    assert engine.asked == ["start", "update"]


def test_our_own_tick_leaves_jobs_of_engines_alone(world: World) -> None:
    world.make()
    world.make("others", engine=None)
    world.after(hours=3)
    assert world.scheduler.tick() == 3
    assert not world.store.runs("flights")
    assert world.store.job("flights").state is JobState.APPROVED
    world.registrar(Noting()).look()
    assert world.scheduler.tick() == 0
    assert not world.store.runs("flights")


def test_a_draft_is_not_registered(world: World) -> None:
    world.make()
    change(world, state=JobState.DRAFT)
    engine = Noting()
    world.registrar(engine).look()
    assert engine.jobs == {}


def test_a_job_that_may_not_run_is_paused_and_goes_on(world: World) -> None:
    world.make()
    engine = Noting()
    registrar = world.registrar(engine)
    registrar.look()
    change(world, state=JobState.SUSPENDED)
    registrar.look()
    assert not is_woken(engine)
    change(world, state=JobState.APPROVED)
    registrar.look()
    assert is_woken(engine)
    assert engine.asked.count("update") == 3
    assert world.store.job("flights").state is JobState.CONFIGURED


def test_an_edit_is_told(world: World) -> None:
    world.make()
    engine = Noting()
    registrar = world.registrar(engine)
    registrar.look()
    document = world.store.job("flights").document
    every = {**document, "schedule": {**document["schedule"], "every": "2 hours"}}  # type: ignore[dict-item]
    change(world, document=every, version=2)
    registrar.look()
    assert engine.jobs["flights"].schedule.rhythm.length == timedelta(hours=2)  # type: ignore[attr-defined]


def test_a_deleted_job_is_unregistered(world: World) -> None:
    world.make()
    engine = Noting()
    registrar = world.registrar(engine)
    registrar.look()
    world.jobs.delete("flights", "ann")
    registrar.look()
    assert engine.jobs == {}
    assert not world.registrations.of_engine("noting")
    assert engine.asked == ["start", "update", "unregister"]
    registrar.look()
    assert engine.asked == ["start", "update", "unregister"]


def test_a_job_that_is_made_again_gets_another_token(world: World) -> None:
    world.make()
    engine = Noting()
    registrar = world.registrar(engine)
    registrar.look()
    former = engine.jobs["flights"].token
    world.jobs.delete("flights", "ann")
    world.make()
    registrar.look()
    assert engine.asked == ["start", "update", "update"]
    assert engine.jobs["flights"].token != former


@pytest.mark.parametrize("to", ["other", None])
def test_a_job_goes_over_to_another_engine_and_to_ours(world: World, to: str | None) -> None:
    world.make()
    engine, other = Noting(), Noting()
    registrars = [world.registrar(engine), world.registrar(other, "other")]
    for registrar in registrars:
        registrar.look()
    assert (len(engine.jobs), len(other.jobs)) == (1, 0)
    change(world, engine=to, version=2)
    for registrar in registrars:
        registrar.look()
    assert (len(engine.jobs), len(other.jobs)) == (0, 1 if to else 0)
    world.after(hours=2)
    assert world.scheduler.tick() == (0 if to else 2)


def test_an_engine_that_is_away_is_asked_again_and_says_why(world: World) -> None:
    world.make()
    world.make("others")
    engine = Noting(fails=AWAY)
    registrar = world.registrar(engine)
    with pytest.raises(EngineUnavailableError):
        registrar.look()
    # One is enough to know: the next would wait for it as long.
    assert engine.asked == ["start"]
    row = world.registrations.of_job("noting", "flights")
    assert row is not None
    assert (row.registered, row.error) == (False, str(AWAY))
    view = world.jobs.view("flights")
    assert view.registration == row
    assert view.job.state is JobState.APPROVED
    with pytest.raises(EngineUnavailableError):
        registrar.look()  # the other job; the first is not asked for again at once
    registrar.look()
    assert engine.asked == ["start", "start"]
    engine.fails = None
    look(world, registrar)
    assert engine.jobs.keys() == {"flights", "others"}
    for name in engine.jobs:
        found = world.registrations.of_job("noting", name)
        assert found is not None
        assert (found.registered, found.error) == (True, None)
        assert world.store.job(name).state is JobState.CONFIGURED


def test_one_job_that_is_refused_does_not_keep_the_others_back(world: World) -> None:
    world.make()
    world.make("others")

    class Picky(Noting):
        def update(self, wake):
            if wake.job == "flights":
                raise ValueError(wake.job)
            super().update(wake)

    engine = Picky()
    with pytest.raises(ValueError, match="flights"):
        world.registrar(engine).look()
    assert engine.jobs.keys() == {"others"}


def test_what_is_pending_becomes_registered(world: World) -> None:
    world.make()
    engine = Noting(fails=RegistrationPendingError("Not read yet."), after=True)
    engine.start = lambda: None  # type: ignore[method-assign]
    registrar = world.registrar(engine)
    with pytest.raises(RegistrationPendingError):
        registrar.look()
    assert world.store.job("flights").state is JobState.APPROVED
    engine.fails = None
    look(world, registrar)
    assert world.store.job("flights").state is JobState.CONFIGURED


def test_a_job_that_was_deleted_while_its_engine_was_away_is_removed_later(
    world: World,
) -> None:
    world.make()
    engine = Noting()
    world.registrar(engine).look()
    engine.fails = AWAY
    world.jobs.delete("flights", "ann")
    with pytest.raises(EngineUnavailableError):
        world.registrar(engine).look()
    [row] = world.registrations.of_engine("noting")
    assert (row.registered, row.error) == (True, str(AWAY))
    engine.fails = None
    world.registrar(engine).look()  # of a server that was started since
    assert engine.jobs == {}
    assert not world.registrations.of_engine("noting")


def test_all_is_looked_at_anew_at_a_start_and_stays_as_somebody_has_left_it(
    world: World,
) -> None:
    world.make()
    engine = Noting()
    world.registrar(engine).look()
    engine.jobs.clear()  # somebody has deleted it there
    world.registrar(engine).look()
    assert engine.jobs.keys() == {"flights"}
    # ``update`` would wake what somebody has paused there.
    assert engine.asked == ["start", "update", "start", "register"]


def test_an_engine_that_the_settings_lack_says_so(world: World) -> None:
    world.make(engine="gone")
    registrar = world.registrar(MissingEngine("gone"), "gone")
    with pytest.raises(ConfigError, match="have no schedule engine gone"):
        registrar.look()
    found = world.registrations.of_job("gone", "flights")
    assert found is not None
    assert "Add schedule_engines.gone" in str(found.error)
    assert world.registrations.engines() == {"gone"}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_fails_the_engine_comes_to_have_what_the_store_says(seed: int) -> None:
    chance, world, engine = random.Random(seed), World(), Noting()  # noqa: S311 - no secret
    registrars = [world.registrar(engine) for _ in range(2)]
    names = ["a", "b", "c"]
    for _ in range(60):
        name = chance.choice(names)
        try:
            match chance.randrange(7):
                case 0:
                    world.make(name, engine=chance.choice(["noting", None]))
                case 1:
                    world.jobs.delete(name, "ann")
                case 2:
                    change(world, name, state=JobState.SUSPENDED)
                case 3:
                    change(world, name, state=JobState.APPROVED)
                case 4:
                    seen = world.store.job(name)
                    other = None if seen.engine else "noting"
                    change(world, name, engine=other, version=seen.version + 1)
                case 5:  # a server is started again
                    registrars[chance.randrange(2)] = world.registrar(engine)
                case _:
                    refused = EngineRefusedError("No.")
                    engine.fails = chance.choice([None, AWAY, refused])
                    engine.after = chance.random() < 0.5
        except HeadraceError as error:
            assert isinstance(error, JobNotFoundError) or "exists" in str(error)  # noqa: PT017 - what was drawn need not do
        world.seconds += chance.choice([0, 120])
        try:
            chance.choice(registrars).look()
        except HeadraceError as error:
            assert error is engine.fails  # noqa: PT017 - nothing else may fail
    engine.fails = None
    for registrar in registrars:
        look(world, registrar)
    wanted = {
        job.name: (job.version, job.state is not JobState.SUSPENDED, job.uid)
        for job in world.store.jobs()
        if job.engine
    }
    found = {}
    for name, wake in engine.jobs.items():
        caller = world.callbacks.caller(wake.token)
        assert caller is not None
        found[name] = (int(wake.version.rpartition("-")[2]), wake.active, caller.uid)
    # What never ran may be unknown there, where it may not.
    asleep = {name for name, (_, active, _) in wanted.items() if not active}
    assert {n: v for n, v in wanted.items() if n in found or n not in asleep} == found
