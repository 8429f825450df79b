"""Wires the objects of one process from its settings."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

from typing_extensions import override

from headrace.capture import HostSupervisor
from headrace.control import Connectors, Copy, Jobs, input_positions
from headrace.dataplane import (
    Claimed,
    DeadLetterFilter,
    DeadLetterQueue,
    Stage,
    VerifyOptions,
)
from headrace.metrics import JobMetrics
from headrace.model import (
    Definition,
    Reading,
    Retention,
    SparkUnavailableError,
    TaskId,
    task_of_job,
)
from headrace.plugins import Registry, Secrets
from headrace.runtime.alerts import Alerting
from headrace.runtime.external_schedulers import Engines
from headrace.runtime.giving_up import GivingUp, GivingUpOfRuns, Receipts, giving_up_of
from headrace.runtime.jobs import JobService, LocalRuns, RunOpener, RunPlanner
from headrace.runtime.mapping import SinkMapping, mappings_of
from headrace.runtime.measures import Measuring
from headrace.runtime.plugins import Checks, open_registry, open_schema_registry
from headrace.runtime.preview import preview_of, replay, trial_of
from headrace.runtime.server import (
    Standalone,
    only_in_store,
    only_server,
    open_served,
    restart_policy,
)
from headrace.runtime.tasks import Assembler, Parts, Planner, TaskMaker, check_topics
from headrace.runtime.verification import RepairOptions, Verifier, VerifyReport
from headrace.scheduler import Callbacks, Scheduler
from headrace.sdk import Position
from headrace.sdk.durability import set_durability
from headrace.sdk.jdbc import DriverLoader, set_driver_loader
from headrace.spark import DeathLimit, Drivers, SparkSupervisor, open_session
from headrace.store import (
    ConnectorStore,
    JobStore,
    RegistrationStore,
    Store,
    StoreMissingError,
    check_not_lost,
    now,
)
from headrace.topics import TopicPlaces, Topics, maintained
from headrace.worker import (
    BatchTask,
    CrashIsolation,
    Events,
    Everyone,
    Outcome,
    Owner,
    Progress,
    Reconciler,
    RunWorker,
    Stalls,
    Task,
    TopicReadings,
    Worker,
    fence_dead_workers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.sdk import Lag
    from headrace.sdk.converter import RuntimeRegistry
    from headrace.settings import Settings

T = TypeVar("T")


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class Runtime(Checks):
    """Everything that a command needs, opened lazily. A context manager.

    Args:
        store: The store; by default a file in the home folder.
        short_lived: Whether the process ends by itself, so that a quick start matters most.
        copies: Whether it copies data, which may be so much that speed matters more.
        serving: Whether configurations come from clients.
        shared: Whether the clients are other people than the user who runs this process.
    """

    settings: Settings
    store: Store | None = None
    short_lived: bool = False
    copies: bool = False
    serving: bool = False
    shared: bool = False
    secrets: Secrets = field(default_factory=Secrets)
    _worker: Worker | None = field(default=None, init=False)
    hosts: HostSupervisor | None = field(default=None, init=False)
    _stop_asked: bool = field(default=False, init=False)
    _former_loader: DriverLoader | None = field(default=None, init=False)
    _tasks: dict[TaskId, Task] = field(default_factory=dict, init=False)
    _job_service: JobService | None = field(default=None, init=False)
    _runs: RunWorker | None = field(default=None, init=False)
    _run_workers: WeakSet[Worker] = field(default_factory=WeakSet, init=False)

    def __post_init__(self) -> None:
        set_durability(self.settings.durability)

    @cached_property
    @override
    def registry(self) -> Registry:
        return open_registry(
            self.settings, self.secrets, serving=self.serving, shared=self.shared
        )

    @cached_property
    def topics(self) -> Topics:
        return Topics(self.settings.topics_dir)

    @cached_property
    def state(self) -> Store:
        if self.store is not None:
            return self.store
        if self.settings.store_url is None:
            check_not_lost(self.settings.store_file, self.settings.home / "topics")
        return Store(self.settings.store_place)

    @cached_property
    def schema_registry(self) -> RuntimeRegistry | None:
        """Return the store's schema registry for converters; None if not installed."""
        return open_schema_registry(self.settings.store_place)

    @cached_property
    def job_store(self) -> JobStore:
        return JobStore(self.state.database)

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs of the store; a change wakes the server's scheduler and runs."""
        return Jobs(
            store=self.job_store,
            registry=self.registry,
            clock=self.state.now,  # one clock for windows, independent of the servers' clocks
            changed=self._jobs_changed,
            approvers=self.settings.job_approvers,
            channels=list(self.alerting.configured),
            check_engine=self.engines.check,
            registrations=self.registrations,
        )

    @cached_property
    def alerting(self) -> Alerting:
        return Alerting(
            settings=self.settings,
            secrets=self.secrets,
            jobs=self.job_store,
            owner=lambda: self.owner,
            clock=now,
            lease_clock=self.state.now,
            book=lambda: self.measuring.book,
        )

    @cached_property
    def engines(self) -> Engines:
        """Return the external schedulers of the settings."""
        return Engines(self.settings.schedule_engines, self.registry.references)

    @cached_property
    def registrations(self) -> RegistrationStore:
        return RegistrationStore(self.state.database)

    @cached_property
    def callbacks(self) -> Callbacks:
        """Return the callbacks for external schedulers."""
        scheduler = Scheduler(store=self.job_store, clock=self.state.now)
        secret = self.registrations.secret()
        return Callbacks(jobs=self.jobs, scheduler=scheduler, secret=secret)

    def _jobs_changed(self) -> None:
        if self._job_service is not None:
            self._job_service.wake()

    @cached_property
    def engine(self) -> SparkSupervisor:
        """Return the supervisor, which starts Spark, and restarts it when its JVM ends."""
        start = partial(
            open_session,
            self.settings,
            short_lived=self.short_lived,
            copies=self.copies,
            idle=self.settings.java_idle,
        )
        most, within = self.settings.spark_failures_max, self.settings.spark_failures_window
        return SparkSupervisor(start, DeathLimit(count=most, within=within))

    @property
    def spark(self) -> SparkSession:
        """The session; the first use starts it. After its JVM has ended it is a new one."""
        return self.engine.session()

    @spark.setter
    def spark(self, session: SparkSession) -> None:
        self.engine.adopt(session)

    @spark.deleter
    def spark(self) -> None:
        self.engine.forget()

    @cached_property
    def owner(self) -> Owner:
        return Owner(self.settings.home / "workers")

    @cached_property
    def measuring(self) -> Measuring:
        return Measuring(self.owner.name, self.settings, self.registry, now)

    def run(self, definitions: Sequence[Definition], events: Events, *, once: bool) -> Outcome:
        """Run connectors until they end, or ``stop`` is called from another thread."""
        fence_dead_workers(self.owner, self.state, now())
        plans = [plan for d in definitions for plan in self._planner.all_plans(d)]
        if once:
            check_topics(plans, self.topics)
        worker = self._new_worker(events, once=once)
        if self._stop_asked:
            worker.stop()
        hosts = self.hosts = HostSupervisor()
        with (
            self.engine.watching(restarted=worker.wake_all, lost=self.stop),
            maintained(self.topics, now, TopicReadings(self.state)),
            closing(hosts),
            self.measuring.running(self.engine, hosts),
        ):
            try:
                maker = self._maker(hosts, worker, once=once)
                tasks = [maker.task(plan) for plan in plans]
                self._tasks = {task.id: task for task in tasks}
                worker.add(tasks)
                return worker.run()
            finally:
                self._stop_asked = False
        raise AssertionError  # no context here lets anything pass in silence

    @contextmanager
    def server(self, events: Events) -> Iterator[Connectors]:
        """Run the store's connectors according to their target states inside this context."""
        with (
            only_server(self.settings.home),
            only_in_store(self.settings, self.owner, _end) as former,
            self._served(events, former) as connectors,
        ):
            yield connectors

    @contextmanager
    def _served(self, events: Events, former: str | None) -> Iterator[Connectors]:
        fence_dead_workers(self.owner, self.state, now(), former)
        hosts = self.hosts = HostSupervisor()
        worker = self._new_worker(events, serving=True)
        maker = self._maker(hosts, worker)
        connector_store = ConnectorStore(self.settings.store_place)
        reconciler = Reconciler(
            store=connector_store,
            worker=worker,
            open_plan=lambda each: open_served(
                each, self._planner, maker, reconciler.reconfigure
            ),
            clock=now,
            policy=lambda each: restart_policy(each, self.registry, self.settings),
            keep=Retention(
                states_age=self.settings.history_age,
                states_count=self.settings.history_count,
                changes_age=self.settings.audit_age,
            ),
            grace=self.settings.task_shutdown_graceful_timeout,
            limit=self.settings.connector_timeout,
            measures=self.measuring.book,
            redact=self.secrets.redacted_error,
        )
        connectors = Connectors(
            store=connector_store,
            task_store=self.state,
            registry=self.registry,
            clock=now,
            changed=reconciler.wake,
            workers=lambda: [self.owner.name],
            places=TopicPlaces(self.topics),
        )
        served = Standalone(worker=worker, reconciler=reconciler, hosts=hosts)
        service = self._job_service = self._new_job_service(events, maker)

        def restarted() -> None:
            worker.wake_all()
            service.runs.wake_all()

        with (
            closing(connector_store),
            self.engine.watching(restarted=restarted, lost=_end),
            maintained(self.topics, now, TopicReadings(self.state)),
            self.measuring.running(self.engine, hosts, connectors),
            served,
            self.alerting.serving(),
            service.serving(),
        ):
            # Otherwise the first request that names a class waits until all plugins are
            # imported. Not during Spark's start, which uses the whole machine.
            Thread(target=self.registry.warm, name="headrace-plugins", daemon=True).start()
            try:
                yield connectors
            finally:
                self.engine.end()

    @contextmanager
    def local_runs(self, job: str, events: Events) -> Iterator[LocalRuns]:
        """Yield the runner of a job in this process; ``stop`` stops it from another thread."""
        self.alerting.check()
        fence_dead_workers(self.owner, self.state, now())
        with closing(HostSupervisor()) as hosts:
            maker = self._maker(hosts, self._new_worker(events, once=True), once=True)
            runs = self._runs = self._new_run_worker(events, maker)
            runs.only = job
            scheduler = self._new_scheduler()
            yield LocalRuns(
                jobs=self.jobs,
                scheduler=scheduler,
                runs=runs,
                engine=self.engine,
                alert=self.alerting.drain,
            )

    def _new_job_service(self, events: Events, maker: TaskMaker) -> JobService:
        runs = self._new_run_worker(events, maker)
        registrars = self.engines.registrars(self.registrations, self.callbacks, now)
        return JobService(
            scheduler=self._new_scheduler(runs.wake), runs=runs, registrars=registrars
        )

    def _new_scheduler(self, made: Callable[[], None] = lambda: None) -> Scheduler:
        alerts = self.alerting.rules.of_job
        clock = self.state.now
        return Scheduler(store=self.job_store, clock=clock, made=made, alerts=alerts)

    def _new_run_worker(self, events: Events, maker: TaskMaker) -> RunWorker:
        expect = maker.expect_letters
        opener = RunOpener(
            jobs=self.job_store,
            state=self.state,
            planner=self._planner,
            # The runs of a job share one series of metrics.
            maker=replace(maker, expect_letters=lambda run, to: expect(task_of_job(run), to)),
            worker=lambda more, once: self._new_worker(
                Everyone([events, *more]), once=once, of_run=True
            ),
        )
        return RunWorker(
            store=self.job_store,
            owner=self.owner.name,
            is_dead=self.owner.is_dead,
            clock=self.state.now,
            lease_clock=self.state.now,
            policy=opener.policy,
            open=opener.open,
            application=lambda: self.engine.application,
            slots=self.settings.job_runs,
            lease=self.settings.lease,
            redact=self.secrets.redacted_error,
            alerts=self.alerting.rules.of_end,
        )

    def progress(self, task: TaskId) -> Progress | None:
        """Return the progress of a task's batch; None if it has no batch. Thread-safe."""
        batch = self.state.unfinished_batch(task)
        if batch is None:
            return None
        try:
            done, parts = self.engine.run(lambda _: self.engine.jobs().progress(task))
        except SparkUnavailableError:
            return None
        running = self._tasks.get(task)
        lag = running.lag if isinstance(running, BatchTask) else None
        return Progress(batch.id, done, parts, lag)

    def stop(self) -> None:
        """Stop the run: running batches finish, or are cancelled after a grace period."""
        self._stop_asked = True
        self.engine.end()
        if self.hosts is not None:
            self.hosts.drain()
        if self._runs is not None:
            self._runs.stop()
        if self._worker is not None:
            self._worker.stop(self.settings.task_shutdown_graceful_timeout)

    def parts(self, definition: Definition) -> Parts:
        """Return the parts of a definition's first task; the caller steps its loop."""
        plan = self._planner.plans(definition)[0]
        lease = self.state.lease(
            plan.id, self.owner.name, self.state.now(), self.settings.lease
        )
        return self._assembler.parts(self.spark, plan, lease)

    def readings(self, topic: str) -> Sequence[Reading]:
        """Return the tasks of this installation that read a topic.

        Empty if the store is missing, so that topics can be inspected without it.
        """
        try:
            return TopicReadings(self.state)(topic)
        except StoreMissingError:
            return ()

    def dead_letter_queue(self, topic: str) -> DeadLetterQueue:
        topics_dir = self.settings.topics_dir
        return DeadLetterQueue(lambda: self.spark, self.topics.get(topic), topics_dir)

    def replay(
        self,
        definition: Definition,
        chosen: DeadLetterFilter,
        file: Path | None,
        events: Events,
    ) -> tuple[Claimed, Outcome]:
        fence_dead_workers(self.owner, self.state, now())
        with self._isolation.beside():
            return replay(
                self._planner.plans(definition)[0],
                chosen,
                file,
                events,
                spark=lambda: self.spark,
                assembler=self._assembler,
                topics_dir=self.settings.topics_dir,
                owner=self.owner.name,
                lease=self.settings.lease,
            )

    def giving_up(self, definition: Definition) -> GivingUp:
        """Return GivingUp for an unfinished batch of a connector without a server."""
        fence_dead_workers(self.owner, self.state, now())
        plans, lease = self._planner.plans(definition), self.settings.lease
        return giving_up_of(plans, self.state, self.receipts, self.owner.name, lease)

    def giving_up_of_runs(self) -> GivingUpOfRuns:
        """Return GivingUpOfRuns for unfinished batches of jobs."""
        fence_dead_workers(self.owner, self.state, now())
        return GivingUpOfRuns(
            jobs=self.jobs,
            planner=RunPlanner(jobs=self.job_store, state=self.state, planner=self._planner),
            receipts=self.receipts,
            owner=self.owner.name,
            lease=self.settings.lease,
        )

    def reset_offsets(self, definition: Definition) -> dict[TaskId, Position]:
        """Reset the offsets of a connector without a server; return its tasks' old positions.

        Raises StateError if a task is running, or has an unfinished batch.
        """
        fence_dead_workers(self.owner, self.state, now())
        places = input_positions(definition.name, self.state.positions(definition.name))
        stood = {t: p for t, p in places.items() if len(p) or self.state.unfinished_batch(t)}
        for task in stood:
            owner, until = self.owner.name, self.settings.lease
            held = self.state.lease(task, owner, self.state.now(), until)
            try:
                self.state.set_position(task, held.epoch, Position())
            finally:
                self.state.release(held)
        return stood

    def preview(self, definition: Definition, rows: int) -> list[Stage]:
        """Return the first records at the source and after each step; nothing is stored."""
        scratch = Runtime(self.settings, Store())
        scratch.registry = self.registry
        scratch.spark = self.spark
        scratch.schema_registry = self.schema_registry
        plan = scratch._planner.plans(definition)[0]
        lease = scratch.state.lease(
            plan.id, "preview", scratch.state.now(), self.settings.lease
        )
        made = scratch._assembler
        return self._on_spark(lambda spark: preview_of(plan, lease, made, spark, rows))

    def verify(
        self,
        copies: Sequence[Copy],
        options: VerifyOptions,
        streams: Sequence[str] = (),
        repair: RepairOptions | None = None,
    ) -> list[VerifyReport]:
        """Compare the data of sources and targets of connectors; see ``Verifier``."""
        if repair is not None:
            fence_dead_workers(self.owner, self.state, now())

        def compared(spark: SparkSession) -> list[VerifyReport]:
            verifier = Verifier(
                registry=self.registry,
                spark=spark,
                assembler=self._assembler,
                topics_dir=self.settings.topics_dir,
                plans=lambda copy: self._planner.plans(copy.sink),
                owner=self.owner.name,
                lease=self.settings.lease,
            )
            return [verifier.run(copy, options, streams, repair) for copy in copies]

        return self._on_spark(compared)

    def mappings(self, definition: Definition) -> list[SinkMapping]:
        """Return the tables that each sink of a checked definition writes each stream to."""
        return mappings_of(definition, self.registry, self.topics)

    def try_transforms(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return trial_of(request, self.registry, self._on_spark)

    def _on_spark(self, work: Callable[[SparkSession], T]) -> T:
        with self._isolation.beside():
            return self.engine.run(work)

    def close(self) -> None:
        opened = self.__dict__
        with ExitStack() as closing_all:  # last one first, each even if another fails
            for name in ("owner", "schema_registry", "state"):
                if name in opened:
                    closing_all.callback(opened[name].close)
            if "engine" in opened:
                closing_all.callback(self.engine.close)

    def __enter__(self) -> Self:
        loader = Drivers(self.settings, lambda: self.spark).load
        self._former_loader = set_driver_loader(loader)
        return self

    def __exit__(self, *_: object) -> None:
        set_driver_loader(self._former_loader)
        self.close()

    @cached_property
    def receipts(self) -> Receipts:
        """Return Receipts, which asks the targets of tasks that are not running."""
        return Receipts(planner=self._planner, assembler=self._assembler)

    @cached_property
    def _assembler(self) -> Assembler:
        return Assembler(
            store=self.state,
            topics=self.topics,
            scratch=self.settings.home / "scratch",
            state=self.settings.home / "state",
            clock=now,
            appended=self._appended,
            registry=self.schema_registry,
            access=self.registry.access,
        )

    @cached_property
    def _planner(self) -> Planner:
        return Planner(store=self.state, registry=self.registry, topics=self.topics)

    @cached_property
    def _isolation(self) -> CrashIsolation:
        return CrashIsolation(attributed=self.engine.attribute)

    def _maker(self, hosts: HostSupervisor, worker: Worker, *, once: bool = False) -> TaskMaker:
        return TaskMaker(
            assembler=self._assembler,
            spark=self.engine,
            hosts=hosts,
            topics_dir=self.settings.topics_dir,
            grace=self.settings.task_shutdown_graceful_timeout,
            once=once,
            expect_letters=self.measuring.book.expect_letters,
            notify=worker.wake_task,
            isolation=self._isolation,
        )

    def _new_worker(
        self,
        events: Events,
        *,
        once: bool = False,
        serving: bool = False,
        of_run: bool = False,
    ) -> Worker:
        """Return a worker; the worker of a job's run exists beside the process's own."""
        place = self.settings.topics_dir
        topics = [place.local] if place.is_local else []
        book = self.measuring.book
        measured = JobMetrics(book) if of_run else book
        worker = Worker(
            store=self.state,
            owner=self.owner.name,
            events=Everyone([measured, events]),
            measures=measured,
            clock=now,
            threads=self.settings.worker_threads,
            lease=self.settings.lease,
            once=once,
            serving=serving,
            patient=of_run,
            redact=self.secrets.redacted_error,
            stalls=Stalls(
                after=self.settings.spark_stalled_after,
                cancel=self.settings.spark_stalled_cancel,
            ),
            places=[self.settings.home, *topics, Path(gettempdir())],
            stop_timeout=2 * self.settings.task_shutdown_graceful_timeout,
        )
        if of_run:
            self._run_workers.add(worker)
        else:
            self._worker = worker
        book.measure_lags(self._lags)
        return worker

    def _lags(self) -> Mapping[TaskId, Lag | None]:
        """Return the lag of the running tasks, with tasks of runs under their jobs' names."""
        found = {} if self._worker is None else self._worker.lags()
        for worker in list(self._run_workers):
            found |= {task_of_job(task): lag for task, lag in worker.lags().items()}
        return found

    def _appended(self, topic: str) -> None:
        if self._worker is not None:
            self._worker.wake(topic)
