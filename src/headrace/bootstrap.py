"""Wires objects from settings: the only place that builds things."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import structlog

from headrace.assembly import (
    Assembler,
    connector_context,
    guard_of,
    reader_of,
    started_steps,
)
from headrace.control import (
    Findings,
    check_definition,
    check_names,
    plan_tasks,
    read_definitions,
    try_transforms,
)
from headrace.dataplane import (
    Letterbox,
    SparkJobs,
    Topics,
    close_session,
    open_session,
    preview,
    try_chain,
)
from headrace.dataplane.host import Targets
from headrace.dataplane.topics import Upkeep
from headrace.model import TaskId
from headrace.plugins import PluginKind, Registry
from headrace.replay import Replay
from headrace.schemaregistry import EmbeddedRegistry, service_in
from headrace.sdk import CaptureSource, ConfigError
from headrace.store import MemoryStore, SqliteStore
from headrace.worker import (
    Backoff,
    BatchTask,
    CaptureKeeping,
    CaptureTask,
    HostSupervisor,
    Owner,
    Progress,
    StoredTaskContext,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from pyspark.sql import SparkSession

    from headrace.control import StepPlan, TaskPlan
    from headrace.dataplane import Claimed, LetterFilter, SourceReader, Stage
    from headrace.model import Definition
    from headrace.settings import Settings
    from headrace.store import Store
    from headrace.worker import BatchLoop, Events, Outcome, Task


log = structlog.get_logger(__name__)

_UPKEEP_SECONDS = 10.0
"""How often the topics are looked at; a look that finds nothing to do costs microseconds."""


def now() -> datetime:
    """Return the present, aware."""
    return datetime.now(UTC)


@dataclass
class Runtime:
    """Everything that a command needs, opened as it is asked for. Use it in a ``with``.

    Args:
        settings: The process's settings.
        store: Where state is kept; one file in the home folder by default.
        short_lived: Whether the process ends soon, so that a quick start counts most.
    """

    settings: Settings
    store: Store | None = None
    short_lived: bool = False
    _worker: Worker | None = field(default=None, init=False)
    _hosts: HostSupervisor | None = field(default=None, init=False)
    _stop_asked: bool = field(default=False, init=False)
    _tasks: dict[TaskId, Task] = field(default_factory=dict, init=False)

    @cached_property
    def registry(self) -> Registry:
        """Return the installed plugins."""
        return Registry()

    @cached_property
    def topics(self) -> Topics:
        """Return the topics."""
        return Topics(self.settings.topics_dir)

    @cached_property
    def state(self) -> Store:
        """Return the store."""
        return self.store or SqliteStore(self.settings.store_file)

    @cached_property
    def schema_registry(self) -> EmbeddedRegistry:
        """Return the embedded schema registry as converters use it."""
        return EmbeddedRegistry(service_in(self.settings.store_file))

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session; the first use starts it."""
        # Spark takes over Ctrl-C when it starts in the main thread; whoever had it keeps it.
        handler = signal.getsignal(signal.SIGINT)
        try:
            return open_session(self.settings, short_lived=self.short_lived)
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)

    @cached_property
    def owner(self) -> Owner:
        """Return this process as an owner of leases."""
        return Owner(self.settings.home / "workers")

    def definitions(self, files: Sequence[Path]) -> list[Definition]:
        """Read definitions from files."""
        found = [d for file in files for d in read_definitions(file, self._is_source)]
        check_names(found)
        return found

    def check(self, definition: Definition) -> Findings:
        """Check a definition against the installed plugins."""
        return check_definition(definition, self.registry)

    def run(self, definitions: Sequence[Definition], events: Events, *, once: bool) -> Outcome:
        """Run connectors until they end, or ``stop`` is called from another thread."""
        self._bury_dead_owners()
        plans = [plan for d in definitions for plan in self._all_plans(d)]
        if once:
            self._check_topics(plans)
        worker = Worker(
            store=self.state,
            owner=self.owner.name,
            events=events,
            clock=now,
            threads=self.settings.worker_threads,
            lease=self.settings.lease,
            once=once,
        )
        self._worker = worker
        if self._stop_asked:
            worker.stop()
        jobs = SparkJobs(self.spark)
        hosts = self._hosts = HostSupervisor()
        ended = threading.Event()
        upkeep = threading.Thread(
            target=self._keep_topics, args=[ended], name="headrace-upkeep"
        )
        upkeep.start()
        try:
            tasks = [self._task(plan, jobs, hosts) for plan in plans]
            self._tasks = {task.id: task for task in tasks}
            worker.add(tasks)
            return worker.run()
        finally:
            self._stop_asked = False
            ended.set()
            hosts.close()
            upkeep.join()

    def progress(self, task: TaskId) -> Progress | None:
        """Return what a task of the run is doing; None when it waits. Any thread may ask."""
        batch = self.state.unfinished_batch(task)
        if batch is None:
            return None
        done, parts = SparkJobs(self.spark).progress(task)
        running = self._tasks.get(task)
        lag = running.lag if isinstance(running, BatchTask) else None
        return Progress(batch.id, done, parts, lag)

    def stop(self) -> None:
        """Stop the run: what is moving is finished, or cancelled after a grace period."""
        self._stop_asked = True
        if self._hosts is not None:
            self._hosts.drain()
        if self._worker is not None:
            self._worker.stop()

    def loop(self, definition: Definition) -> BatchLoop:
        """Return the batch loop of a definition's first task, to be stepped by hand."""
        plan = self._plans(definition)[0]
        lease = self.state.lease(plan.id, self.owner.name, now(), self.settings.lease)
        return self._assembler.parts(self.spark, plan, lease).loop

    def letterbox(self, topic: str) -> Letterbox:
        """Look into a dead-letter topic."""
        return Letterbox(self.spark, self.topics.get(topic), self.settings.topics_dir)

    def replay(
        self, definition: Definition, chosen: LetterFilter, file: Path | None, events: Events
    ) -> tuple[Claimed, Outcome]:
        """Send rejected records through their connector's chain again, see Replay."""
        self._bury_dead_owners()
        replay = Replay(
            spark=self.spark,
            assembler=self._assembler,
            topics_dir=self.settings.topics_dir,
            owner=self.owner.name,
            lease=self.settings.lease,
            clock=now,
        )
        return replay.run(self._plans(definition)[0], chosen, file, events)

    def preview(self, definition: Definition, rows: int) -> list[Stage]:
        """Return the first records at the source and after each step; nothing is kept."""
        scratch = Runtime(self.settings, MemoryStore())
        scratch.spark = self.spark
        scratch.schema_registry = self.schema_registry
        plan = scratch._plans(definition)[0]
        assembler = scratch._assembler
        lease = scratch.state.lease(plan.id, "preview", now(), self.settings.lease)
        folder = self.settings.home / "scratch" / f"{plan.id}-preview"
        with ExitStack() as started:
            steps = assembler.steps(plan, folder / "state", started)
            if plan.source is None:
                source: SourceReader | CaptureSource = assembler.topic_source(plan, [], started)
            else:
                task = assembler.source_task(plan.source, plan.id.connector)
                started.callback(task.stop)
                context = StoredTaskContext(scratch.state, lease, folder, threading.Event())
                task.start(context)
                source = task if isinstance(task, CaptureSource) else reader_of(task)
            return preview(self.spark, source, plan.stream, steps, rows)
        raise AssertionError  # an ExitStack lets nothing pass in silence

    def try_transforms(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run a chain over sample records, see `headrace.control.try_transforms`."""

        def engine(
            steps: Sequence[StepPlan], records: Sequence[object]
        ) -> list[dict[str, Any]]:
            with TemporaryDirectory(prefix="headrace-trial-") as state, ExitStack() as started:
                chain = started_steps(steps, TaskId("trial", 0), Path(state), started)
                return try_chain(self.spark, chain, records)
            raise AssertionError  # an ExitStack lets nothing pass in silence

        return try_transforms(request, self.registry, engine)

    def close(self) -> None:
        """Let go of everything that was opened."""
        opened = self.__dict__
        if "spark" in opened:
            close_session()
        if "state" in opened:
            self.state.close()
        if "schema_registry" in opened:
            self.schema_registry.close()
        if "owner" in opened:
            self.owner.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

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
        )

    def _appended(self, topic: str) -> None:
        if self._worker is not None:
            self._worker.wake(topic)

    def _keep_topics(self, ended: threading.Event) -> None:
        """Compact and prune the topics now and then, beside whatever moves."""
        upkeep = Upkeep(self.topics, now)
        while not ended.wait(_UPKEEP_SECONDS):
            try:
                upkeep.run_once()
            except Exception:
                log.warning("topics could not be kept", exc_info=True)

    def _is_source(self, plugin: str) -> bool:
        kind = self.registry.connector_kind(plugin, field="connector.class")
        return kind is PluginKind.SOURCE

    def _plans(self, definition: Definition) -> list[TaskPlan]:
        context = connector_context(self.state, definition.name)
        return plan_tasks(definition, self.registry, context, self._matching)

    def _matching(self, pattern: str) -> list[str]:
        return [topic.name for topic in self.topics.matching(pattern)]

    def _all_plans(self, definition: Definition) -> list[TaskPlan]:
        """Return the tasks, with those whose source is a capture divided where needed."""
        plans = self._plans(definition)
        if not any(self._is_capture(plan) for plan in plans):
            return plans
        if not (plans[0].steps or plans[0].sinks or plans[0].converters):
            return plans
        divided = [plan.behind_capture(len(plans)) for plan in plans]
        return [*(capture for capture, _ in divided), divided[0][1]]

    def _is_capture(self, plan: TaskPlan) -> bool:
        if plan.source is None:
            return False
        task = self._assembler.source_task(plan.source, plan.id.connector)
        return isinstance(task, CaptureSource)

    def _task(self, plan: TaskPlan, jobs: SparkJobs, hosts: HostSupervisor) -> Task:
        errors = plan.common.errors
        backoff = Backoff(errors.retry_delay_max, errors.retry_timeout)
        if self._is_capture(plan):
            return self._capture(plan, hosts, backoff)
        return BatchTask(
            plan.id,
            lambda lease: self._assembler.parts(self.spark, plan, lease),
            jobs,
            reads=plan.from_topic,
            writes=plan.to_topic,
            routes=plan.routes,
            poll_interval=plan.common.poll_interval,
            backoff=backoff,
        )

    def _capture(self, plan: TaskPlan, hosts: HostSupervisor, backoff: Backoff) -> Task:
        keeping = CaptureKeeping(
            store=self.state,
            hosts=hosts,
            targets=lambda spec: Targets(
                self.settings.topics_dir, spec.topic, spec.application
            ),
            appended=self._appended,
            clock=now,
        )
        spec = self._assembler.capture_spec(plan, self.settings.topics_dir)
        return CaptureTask(plan.id, spec, keeping, backoff=backoff, guard=guard_of(plan))

    def _check_topics(self, plans: Sequence[TaskPlan]) -> None:
        if any(plan.routes for plan in plans):
            return  # the data says which topics are written
        written = {plan.to_topic for plan in plans}
        for plan in plans:
            topic = plan.from_topic
            if topic and topic not in written and not self.topics.get(topic).exists():
                problem = f"Topic {topic} does not exist, and nothing here writes it."
                fix = "Run its source connector first, or in the same command."
                raise ConfigError(problem, field="topics", fix=fix)

    def _bury_dead_owners(self) -> None:
        """Release the leases of processes on this machine that are gone."""
        leases = self.state.leases()
        dead = {lease.owner for lease in leases if self.owner.is_dead(lease.owner)}
        for lease in leases:
            if lease.owner in dead:
                self.state.release(lease)
        for owner in dead:
            self.owner.bury(owner)
