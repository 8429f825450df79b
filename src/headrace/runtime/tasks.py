"""Creates tasks for a worker, and their running parts, from plans."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from headrace.capture import CaptureSpec, HostSupervisor, Pace, Targets
from headrace.control import (
    REPLAYS,
    OpenPlan,
    SinkPlan,
    StepPlan,
    TaskPlan,
    plan_sinks,
    plan_tasks,
    resolved,
)
from headrace.dataplane import (
    ConvertingReader,
    DeadLetterWriter,
    Flow,
    FrameReader,
    PartConverter,
    SourceReader,
    SplitReader,
    Step,
    StreamFrameReader,
    StreamReader,
    TopicSource,
    TopicsWriter,
    as_frame_sink,
    constant_topic,
    translated,
)
from headrace.evolution import Evolution, plugin_keys
from headrace.model import (
    Backoff,
    Batch,
    Counts,
    Definition,
    Endpoints,
    ErrorLog,
    Lease,
    TaskId,
    file_name,
)
from headrace.plugins import Access
from headrace.sdk import (
    CaptureSource,
    CodeTransform,
    ConfigError,
    ConnectorContext,
    ConverterContext,
    FrameSink,
    FrameSource,
    HeadraceError,
    Position,
    SourceTask,
    SplitSource,
    StreamFrameSource,
    StreamSplitSource,
    TransformContext,
)
from headrace.sdk.durability import durability
from headrace.sdk.sink import class_name
from headrace.topics import Topic, TopicReader, Topics, parse_start
from headrace.worker import (
    BatchLoop,
    BatchTask,
    CaptureKeeping,
    CaptureTask,
    CrashIsolation,
    StoredConnectorContext,
    StoredSchemas,
    StoredTaskContext,
    Task,
    ToleranceGuard,
    application_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.plugins import Registry
    from headrace.sdk.converter import RuntimeRegistry
    from headrace.sdk.location import Location
    from headrace.spark import SparkSupervisor
    from headrace.store import Store

log = structlog.get_logger(__name__)

_EXPLAINING = (ConvertingReader, TopicSource)
"""The readers that can explain why the job of a range has failed."""
_MEASURING = (FrameReader, SplitReader, StreamFrameReader, StreamReader)
"""The readers of sources, which may measure their lag themselves."""


@dataclass
class Parts:
    """The running parts of one task; ``close`` stops its plugins."""

    loop: BatchLoop
    resources: ExitStack

    def close(self) -> None:
        self.resources.close()


@dataclass(frozen=True, kw_only=True)
class Assembler:
    """Creates the parts of tasks, for one store, one set of topics and one session.

    ``registry`` is the default schema registry of converters; ``access`` limits the files that
    tasks may read because data refer to them.
    """

    store: Store
    topics: Topics
    scratch: Path
    state: Path
    clock: Callable[[], datetime]
    appended: Callable[[str], None]
    registry: RuntimeRegistry | None = None
    access: Access = field(default_factory=Access)

    def parts(
        self,
        spark: SparkSession,
        plan: TaskPlan,
        lease: Lease,
        reader: SourceReader | None = None,
    ) -> Parts:
        """Return the parts of a batch task, with its plugins started.

        The task reads the source of its plan, or ``reader`` if it is set.
        """
        application = self.application(plan)
        with ExitStack() as started:
            context = self.context(plan, lease, started)
            sinks = list(self.sinks(plan, context, started))
            source = reader or self._source(plan, context, started, sinks)
            flow = Flow(
                spark=spark,
                application=application,
                topic=plan.stream,
                source=source,
                steps=self.steps(plan, self.state / file_name(application), started),
                sinks=sinks,
                names=names_of(plan),
                chain=plan.chain,
                source_keys=plan.source_keys,
                staging=self.topics.staging,
                dead_letters=self._dead_letters(plan),
                evolution=Evolution(policies=plan.policies, memory=context.schemas),
                check_limits=self._limits(plan),
                converters=self._converters(plan, started) if plan.to_topic else (),
                explain=source.explain if isinstance(source, _EXPLAINING) else None,
            )
            loop = BatchLoop(
                store=self.store,
                lease=lease,
                reader=source,
                flow=flow,
                limit=plan.common.limit,
                clock=self.clock,
                keep_since=guard_of(plan).keep_since,
                at_end=lambda: finish_sinks(flow),
            )
            if isinstance(source, _MEASURING):
                loop.measured_lag = source.measured_lag
            return Parts(loop, started.pop_all())
        raise AssertionError  # an ExitStack lets nothing pass in silence

    def sinks(
        self, plan: TaskPlan, context: StoredTaskContext, started: ExitStack
    ) -> Iterator[FrameSink]:
        """Start and yield the sinks of a task; closing ``started`` stops them."""
        if not plan.sinks:
            to, retention = str(plan.to_topic), plan.common.topic_retention
            yield TopicsWriter(self.topics, to, self.appended, retention)
        for sink in plan.sinks:
            yield self._sink(sink, context, started)

    def application(self, plan: TaskPlan) -> str:
        """Return the name of a task in marks, unique over stores and re-creations."""
        return application_of(self.store, plan.id, plan.identity)

    def capture_spec(self, plan: TaskPlan, topics_dir: Location) -> CaptureSpec:
        """Return the specification of a capture for a plugin host."""
        if plan.source is None:
            raise AssertionError(plan)
        plugin, errors = plan.source.connector, plan.common.errors
        allowed = self.access.paths
        poll = int(plan.common.poll_interval.total_seconds() * 1000)
        return CaptureSpec(
            connector=plan.id.connector,
            task=plan.id.number,
            class_path=class_name(plugin),
            config=plan.source.config,
            application=self.application(plan),
            topics_dir=str(topics_dir),
            topic=str(plan.to_topic),
            stream="" if plan.to_topic == plan.stream else plan.stream,
            dead_letters=errors.dead_letter_topic,
            tolerant=errors.tolerant,
            context_headers=errors.context_headers,
            log_errors=errors.log,
            log_messages=errors.log_messages,
            scratch=str(self.scratch / plan.id.file_name),
            pace=Pace(poll_interval_ms=poll),
            evolution=plan.evolution,
            durability=durability(),
            retention=plan.common.topic_retention,
            allowed_paths=None if allowed is None else tuple(map(str, allowed)),
        )

    def context(self, plan: TaskPlan, lease: Lease, started: ExitStack) -> StoredTaskContext:
        """Return the context of a task; closing ``started`` requests its stop."""
        stop_asked = threading.Event()
        started.callback(stop_asked.set)
        folder = self.scratch / plan.id.file_name
        return StoredTaskContext(
            self.store, lease, folder, stop_asked, plan.identity, self.access, plan.memory
        )

    def _source(
        self,
        plan: TaskPlan,
        context: StoredTaskContext,
        started: ExitStack,
        sinks: Sequence[FrameSink],
    ) -> SourceReader:
        if plan.source is None:
            return self.topic_source(plan, context.lease, sinks, started)
        task = plan.source.connector.task(plan.source.parsed)
        started.callback(task.stop)
        task.start(context)
        return reader_of(task, retry_timeout=plan.common.errors.retry_timeout)

    def topic_source(
        self, plan: TaskPlan, lease: Lease, sinks: Sequence[FrameSink], started: ExitStack
    ) -> SourceReader:
        """Return the reader of a sink task's topic; closing ``started`` closes it."""
        topic = self.topics.get(str(plan.from_topic))
        reader = TopicReader(topic, start=self._start(plan, lease, topic))
        # A rejected record keeps its position; this costs nothing until there is one.
        ordered = plan.common.errors.tolerant or any(sink.ordered for sink in sinks)
        ordered = ordered or any(step.transform.ordered for step in plan.steps)
        source = TopicSource(reader, ordered=ordered)
        converters = () if plan.to_topic else self._converters(plan, started)
        if not converters:
            return source
        folder = self.scratch / f"{plan.id.file_name}-decoded"
        return ConvertingReader(source, converters, folder)

    def _start(self, plan: TaskPlan, lease: Lease, topic: Topic) -> Position | None:
        """Return the start of a task without a position in its topic; None if it has one.

        Guarantee 2: ``latest`` is a different position at each start. It is stored before the
        first batch, so that a retry of this batch has the same range, and rows that are
        appended in between are read.
        """
        task, partition = lease.task, {"topic": topic.name}
        stands = self.store.position(task)
        if stands.offset(partition) is not None or self.store.unfinished_batch(task):
            return None
        start = parse_start(topic, plan.common.topics_start)
        self.store.set_position(task, lease.epoch, stands.merged(start))
        return start

    def _converters(self, plan: TaskPlan, started: ExitStack) -> list[PartConverter]:
        made = []
        for each in plan.converters:
            context = ConverterContext(
                part=each.part,
                topic=str(plan.to_topic or plan.from_topic),
                schemas=StoredSchemas(self.store, plan.id.connector, plan.identity),
                registry=self.registry,
            )
            name = class_name(each.plugin)
            converter = each.plugin(each.config, context)
            started.callback(converter.close)
            made.append(PartConverter(each.part, name, converter))
        return made

    def _sink(
        self, sink: SinkPlan, context: StoredTaskContext, started: ExitStack
    ) -> FrameSink:
        task = sink.connector.task(sink.connector.config_def().parse(sink.config))
        started.callback(task.stop)
        task.start(context)
        return as_frame_sink(task)

    def steps(self, plan: TaskPlan, state: Path, started: ExitStack) -> list[Step]:
        """Return the chain of a task, with its code started; ``state`` is its state folder."""
        return started_steps(plan.steps, plan.id, state, started)

    def _dead_letters(self, plan: TaskPlan) -> DeadLetterWriter | None:
        errors = plan.common.errors
        if not errors.tolerant:
            return None
        name = errors.dead_letter_topic
        return DeadLetterWriter(
            task=plan.id,
            topic=None if name is None else self.topics.get(name),
            appended=self.appended,
            sinks=names_of(plan),
            context_headers=errors.context_headers,
            log=ErrorLog(log.error, errors.log_messages) if errors.log else None,
        )

    def _limits(self, plan: TaskPlan) -> Callable[[Batch, Counts], None] | None:
        guard = guard_of(plan)
        if not guard.limits.are_set:
            return None
        return lambda batch, counts: guard.check(self.store, batch.task, batch.begun, counts)


def finish_sinks(flow: Flow) -> None:
    """Call ``finish`` of a task's sinks at the end of its source."""
    topic = constant_topic(flow.steps, flow.topic) or flow.topic
    with translated("finishing a task"):
        for sink in flow.sinks:
            sink.finish(flow.spark, topic)


def sink_names(plans: Sequence[SinkPlan]) -> list[str]:
    """Return the names of a task's sinks in marks.

    A name is derived from the sink's target, so that adding, removing or moving a sink while a
    batch is in doubt does not affect the others. Several sinks of one plugin that do not name
    their targets are distinguished by their configurations.
    """
    kinds = [plan.connector for plan in plans]
    parsed = [plan.connector.config_def().parse(plan.config) for plan in plans]
    targets = []
    for plan, config in zip(plans, parsed, strict=True):
        target = plan.connector.target(config)
        if not target and kinds.count(plan.connector) > 1:
            target = json.dumps(dict(plan.config), sort_keys=True)
        targets.append(f"{class_name(plan.connector)} {target}")
    names = []
    for number, target in enumerate(targets):
        before = targets[:number].count(target)
        digest = hashlib.blake2b(target.encode(), digest_size=6).hexdigest()
        names.append(f"{digest}-{before}" if before else digest)
    return names


def endpoints_of(definition: Definition, registry: Registry) -> Endpoints:
    """Return the endpoints of a direct copy. Raises ConfigErrors for missing references."""
    found = resolved(definition, registry.references)
    assert found.source is not None
    source = registry.source(found.source.plugin)
    origin = source.origin(source.config_def().parse(plugin_keys(found.source.config)))
    text = f"{class_name(source)} {origin}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return Endpoints(digest, tuple(sink_names(plan_sinks(found, registry))))


def names_of(plan: TaskPlan) -> list[str]:
    """Return the names of a task's sinks in marks; ``[""]`` if it writes to a topic."""
    return sink_names(plan.sinks) or [""]


def guard_of(plan: TaskPlan) -> ToleranceGuard:
    """Return the guard that stops a task when too many of its records are rejected."""
    return ToleranceGuard(plan.common.errors.limits)


def reader_of(task: SourceTask, *, retry_timeout: timedelta | None = None) -> SourceReader:
    """Return the reader of a source task that can be reread.

    ``retry_timeout`` limits how long reads of a split are retried.
    """
    if isinstance(task, FrameSource):
        return FrameReader(task)
    if isinstance(task, SplitSource):
        return SplitReader(task, retry_timeout=retry_timeout)
    if isinstance(task, StreamFrameSource):
        return StreamFrameReader(task)
    if isinstance(task, StreamSplitSource):
        return StreamReader(task, retry_timeout=retry_timeout)
    kind = "a capture" if isinstance(task, CaptureSource) else type(task).__name__
    raise ConfigError(
        problem=f"The source is {kind}, which can be read only once.",
        field="topic",
        fix="Put a topic between this source and its sinks.",
    )


def started_steps(
    plans: Sequence[StepPlan], task: TaskId, state: Path, started: ExitStack
) -> list[Step]:
    """Return the chain for the data plane, with its code started."""
    steps = [Step(step.transform, step.predicate, step.negate) for step in plans]
    for transform in (step.transform for step in steps):
        if isinstance(transform, CodeTransform):
            folder = state / f"transform-{quote(transform.alias, safe='')}"
            started.callback(transform.running.stop)
            transform.running.start(TransformContext(task.connector, task.number, folder))
    return steps


def connector_context(
    store: Store, name: str, identity: str | None = None
) -> StoredConnectorContext:
    """Return the context of a connector that is planned once, without a server."""
    mine = threading.get_ident()

    def fail(error: Exception) -> None:
        if threading.get_ident() == mine:
            raise error
        # A failure in the connector's own thread is only logged; a server uses another context.
        log.warning("connector reported a failure", connector=name, why=str(error))

    # Tasks are planned once per run: requests for reconfiguration are ignored.
    return StoredConnectorContext(store, name, lambda: None, fail, identity)


ONCE_RETRIES = timedelta(minutes=10)
"""The default retry timeout of a bounded run."""
_SECOND_LOOK = timedelta(seconds=10)
"""Captures notify the worker, so polls can be rare: polling a hundred idle captures four times
per second took a tenth of a core."""


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans the tasks of definitions. Thread-safe."""

    store: Store
    registry: Registry
    topics: Topics
    _warned: set[TaskId] = field(default_factory=set)
    """Tasks with a logged warning about unread rows."""

    def plans(self, definition: Definition) -> list[TaskPlan]:
        context = connector_context(self.store, definition.name)
        readers = self._readers(definition.name) if definition.source is None else {}
        plans = plan_tasks(definition, self.registry, context, self._matching, readers)
        self._warn_unread(readers, plans)
        return plans

    def all_plans(self, definition: Definition) -> list[TaskPlan]:
        """Return the tasks; a capture with a chain is split into a capture and a chain task."""
        return self._divided(self.plans(definition))

    def open(self, definition: Definition, context: ConnectorContext) -> OpenPlan:
        """Return an open plan, which can plan the tasks of a checked definition repeatedly."""
        return OpenPlan(definition, self.registry, context, self._matching)

    def open_plans(self, plan: OpenPlan, owner: str | None = None) -> list[TaskPlan]:
        """Return the current tasks; none for a sink whose topics do not exist yet.

        ``owner`` is the name that positions are stored under; None for the definition's name.
        """
        name, source = plan.definition.name, plan.definition.source
        readers = self._readers(name) if source is None else {}
        plans = plan.plans(readers)
        self._warn_unread(readers, plans)
        return self._divided(plans, owner)

    def _divided(self, plans: list[TaskPlan], owner: str | None = None) -> list[TaskPlan]:
        if not any(plan.is_capture for plan in plans):
            return plans
        if not (plans[0].steps or plans[0].sinks or plans[0].converters):
            return plans
        name = plans[0].id.connector
        number = self._readers(owner or name).get(f"{name}.capture", len(plans))
        divided = [plan.behind_capture(number) for plan in plans]
        return [*(capture for capture, _ in divided), divided[0][1]]

    def _readers(self, connector: str) -> dict[str, int]:
        """Return the number of the task that has read, or started to read, each topic."""
        found: dict[str, int] = {}
        for task, position in sorted(self.store.positions(connector).items()):
            unfinished = self.store.unfinished_batch(task)
            stands = [position, *([unfinished.end] if unfinished else [])]
            for partition in (partition for each in stands for partition, _ in each.items()):
                if partition.keys() == {"topic"} and task.number != REPLAYS:
                    found.setdefault(partition["topic"], task.number)
        return found

    def _warn_unread(self, readers: Mapping[str, int], plans: Sequence[TaskPlan]) -> None:
        """Warn about unread rows in topics that a sink no longer reads."""
        for name in readers.keys() - {plan.from_topic for plan in plans}:
            if not plans or not self.topics.get(name).exists():
                continue
            task = TaskId(plans[0].id.connector, readers[name])
            if task in self._warned:
                continue
            with suppress(HeadraceError):  # a failure to count them is not an error
                rows = TopicReader(self.topics.get(name)).lag(self.store.position(task)).rows
                if rows:
                    log.warning(
                        "topic has unread rows, and the sink no longer reads it; to copy them, "
                        "add the topic to the sink until they are read",
                        connector=task.connector,
                        topic=name,
                        rows=rows,
                    )
                    self._warned.add(task)

    def _matching(self, pattern: str) -> list[str]:
        return [topic.name for topic in self.topics.matching(pattern)]


@dataclass(frozen=True, kw_only=True)
class TaskMaker:
    """Creates tasks for one worker. Thread-safe.

    Args:
        notify: Called with a task when it has something to report.
        grace: How long a capture may take to finish its poll when it is stopped.
        once: Whether the tasks are bounded.
        expect_letters: Called with each created task and its dead-letter topic; None if it has
            none.
        isolation: See BatchTask.
    """

    assembler: Assembler
    spark: SparkSupervisor
    hosts: HostSupervisor
    topics_dir: Location
    notify: Callable[[TaskId], None]
    grace: timedelta = timedelta(seconds=5)
    once: bool = False
    expect_letters: Callable[[TaskId, str | None], None] = lambda _task, _topic: None
    isolation: CrashIsolation = field(default_factory=CrashIsolation)

    def task(self, plan: TaskPlan) -> Task:
        """Return the task of a plan, not started."""
        self.expect_letters(plan.id, plan.common.errors.dead_letter_topic)
        backoff = backoff_of(plan, once=self.once)
        if plan.is_capture:
            return self._capture(plan, backoff)
        return BatchTask(
            plan.id,
            lambda lease: self.assembler.parts(self.spark.session(), plan, lease),
            self.spark.jobs,
            reads=plan.from_topic,
            writes=plan.to_topic,
            routes=plan.routes,
            poll_interval=plan.common.poll_interval,
            backoff=backoff,
            isolation=self.isolation,
        )

    def _capture(self, plan: TaskPlan, backoff: Backoff) -> Task:
        keeping = CaptureKeeping(
            store=self.assembler.store,
            hosts=self.hosts,
            targets=lambda spec: Targets(self.topics_dir, spec.topic, spec.application),
            appended=self.assembler.appended,
            clock=self.assembler.clock,
            notify=self.notify,
        )
        return CaptureTask(
            plan.id,
            self.assembler.capture_spec(plan, self.topics_dir),
            keeping,
            poll_interval=_SECOND_LOOK,
            backoff=backoff,
            guard=guard_of(plan),
            grace=self.grace,
            identity=plan.identity,
        )


def backoff_of(plan: TaskPlan, *, once: bool) -> Backoff:
    """Return the retry backoff of a task, and its timeout."""
    errors = plan.common.errors
    timeout = ONCE_RETRIES if once and not errors.retry_given else errors.retry_timeout
    return Backoff(errors.retry_delay_max, timeout)


def check_topics(plans: Sequence[TaskPlan], topics: Topics) -> None:
    """Raise ConfigError if a topic that is read neither exists nor is written by the plans."""
    if any(plan.routes for plan in plans):
        return  # the data determine the topics that are written
    written = {plan.to_topic for plan in plans}
    for plan in plans:
        topic = plan.from_topic
        if topic and topic not in written and not topics.get(topic).exists():
            problem = f"Topic {topic} does not exist, and no connector here writes to it."
            fix = "Run its source connector first, or in the same command."
            raise ConfigError(problem, field="topics", fix=fix)
