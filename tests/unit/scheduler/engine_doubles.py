"""A schedule engine that keeps what it is told, and jobs that name it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.control import Jobs, read_job
from headrace.model import Job, JobState, Schedule, Stamp
from headrace.plugins import Registry
from headrace.scheduler import Callbacks, Registrar, ScheduleEngine, Scheduler
from headrace.scheduler.external_scheduler import WakeUp
from headrace.store import JobStore, RegistrationStore, memory_database

START = datetime(2024, 3, 30, tzinfo=UTC)
SECRET = b"not so secret" * 3
ANN = Stamp(START, "ann")


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Noting(ScheduleEngine):
    """An engine with a list of jobs; it raises what it is told to.

    Args:
        asked: The calls, in their order.
        jobs: What it wakes, or has paused.
        fails: What each call raises.
        after: Whether it raises once the call is done, as if the answer were lost.
    """

    asked: list[str] = field(default_factory=list)
    jobs: dict[str, WakeUp] = field(default_factory=dict)
    fails: Exception | None = None
    after: bool = False

    @classmethod
    def check(cls, schedule: Schedule) -> None: ...

    def start(self) -> None:
        self._done("start")

    def register(self, wake: WakeUp) -> None:
        if not self._fails("register"):
            self.jobs[wake.job] = wake
        self._done("register")

    def update(self, wake: WakeUp) -> None:
        if not self._fails("update"):
            self.jobs[wake.job] = wake
        self._done("update")

    def unregister(self, job: str) -> None:
        if not self._fails("unregister"):
            self.jobs.pop(job, None)
        self._done("unregister")

    def _fails(self, call: str) -> bool:
        return self.fails is not None and not self.after

    def _done(self, call: str) -> None:
        self.asked.append(call)
        if self.fails is not None:
            raise self.fails


class World:
    """A store with jobs, and the servers and engines that share it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = JobStore(memory_database())
        self.registrations = RegistrationStore(self.store.database)
        self.jobs = Jobs(
            store=self.store,
            registry=Registry(),
            clock=self.clock,
            registrations=self.registrations,
        )
        self.scheduler = Scheduler(store=self.store, clock=self.clock)
        self.callbacks = Callbacks(jobs=self.jobs, scheduler=self.scheduler, secret=SECRET)
        self.seconds = 0.0

    def registrar(self, engine: ScheduleEngine, name: str = "noting") -> Registrar:
        """Return one of a server that has just been started."""
        return Registrar(
            name=name,
            engine=engine,
            store=self.registrations,
            clock=self.clock,
            token=self.callbacks.token,
            take_on=self.scheduler.take_on,
            monotonic=lambda: self.seconds,
        )

    def make(
        self, name: str = "flights", engine: str | None = "noting", **schedule: Any
    ) -> Job:
        """Make an approved job with hourly windows."""
        document = {
            "name": name,
            "source": {"connector": "file", "path": "in"},
            "sinks": [{"connector": "console"}],
            "schedule": {
                "start": "2024-03-30T00:00:00",
                **({} if {"cron", "once"} & schedule.keys() else {"every": "1 hour"}),
                **({} if engine is None else {"engine": engine}),
                **schedule,
            },
        }
        spec = read_job(document)
        assert spec.schedule is not None
        first = next(spec.schedule.windows())
        job = Job(
            name=name,
            uid="",
            document=document,
            version=1,
            state=JobState.APPROVED,
            cursor=first.lower,
            due=spec.schedule.due(first),
            engine=engine,
            changed=START,
            by="ann",
        )
        return self.store.create(job, None, ANN)

    def after(self, **time: float) -> None:
        self.clock.now += timedelta(**time)
