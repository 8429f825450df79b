"""Makes the tasks that a worker runs, from definitions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from headrace.capture import Targets
from headrace.control import REPLAYS, OpenPlan, plan_tasks
from headrace.model import Backoff, TaskId
from headrace.runtime.build import connector_context, guard_of
from headrace.sdk import ConfigError, HeadraceError
from headrace.topics import TopicReader
from headrace.worker import BatchTask, CaptureKeeping, CaptureTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from headrace.capture import HostSupervisor
    from headrace.control import TaskPlan
    from headrace.model import Definition
    from headrace.plugins import Registry
    from headrace.runtime.build import Assembler
    from headrace.sdk import ConnectorContext
    from headrace.sdk.location import Location
    from headrace.spark import SparkSupervisor
    from headrace.store import Store
    from headrace.topics import Topics
    from headrace.worker import Task

log = structlog.get_logger(__name__)

ONCE_RETRIES = timedelta(minutes=10)
"""How long a run that is to end tries again without a success, unless its definition says."""
_SECOND_LOOK = timedelta(seconds=10)
"""A capture tells of what happens: four looks a second at each of a hundred idle ones were a
tenth of a core."""


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans the tasks of definitions. Any thread may use it.

    Args:
        store: Where connectors keep what they remember.
        registry: The installed plugins.
        topics: The topics.
        assembler: Makes the parts of tasks.
    """

    store: Store
    registry: Registry
    topics: Topics
    assembler: Assembler
    _told: set[TaskId] = field(default_factory=set)
    """Tasks of which it was told that rows of their topics are left unread."""

    def plans(self, definition: Definition) -> list[TaskPlan]:
        """Return the tasks of a checked definition."""
        context = connector_context(self.store, definition.name)
        readers = self._readers(definition.name) if definition.source is None else {}
        plans = plan_tasks(definition, self.registry, context, self._matching, readers)
        self._tell_unread(readers, plans)
        return plans

    def all_plans(self, definition: Definition) -> list[TaskPlan]:
        """Return the tasks, with those whose source is a capture divided where needed."""
        return self._divided(self.plans(definition))

    def open(self, definition: Definition, context: ConnectorContext) -> OpenPlan:
        """Return what plans the tasks of a checked definition again and again."""
        return OpenPlan(definition, self.registry, context, self._matching)

    def open_plans(self, plan: OpenPlan) -> list[TaskPlan]:
        """Return the tasks as they are to be now; none of a sink whose topics are to come."""
        name, source = plan.definition.name, plan.definition.source
        readers = self._readers(name) if source is None else {}
        plans = plan.plans(readers)
        self._tell_unread(readers, plans)
        return self._divided(plans)

    def _divided(self, plans: list[TaskPlan]) -> list[TaskPlan]:
        if not any(plan.is_capture for plan in plans):
            return plans
        if not (plans[0].steps or plans[0].sinks or plans[0].converters):
            return plans
        name = plans[0].id.connector
        number = self._readers(name).get(f"{name}.capture", len(plans))
        divided = [plan.behind_capture(number) for plan in plans]
        return [*(capture for capture, _ in divided), divided[0][1]]

    def _readers(self, connector: str) -> dict[str, int]:
        """Return which of a sink's tasks has read a topic, or has begun to."""
        found: dict[str, int] = {}
        for task, position in sorted(self.store.positions(connector).items()):
            unfinished = self.store.unfinished_batch(task)
            stands = [position, *([unfinished.end] if unfinished else [])]
            for partition in (partition for each in stands for partition, _ in each.items()):
                if partition.keys() == {"topic"} and task.number != REPLAYS:
                    found.setdefault(partition["topic"], task.number)
        return found

    def _tell_unread(self, readers: Mapping[str, int], plans: Sequence[TaskPlan]) -> None:
        """Warn of rows in topics that a sink has read and is not to read any more."""
        for name in readers.keys() - {plan.from_topic for plan in plans}:
            if not plans or not self.topics.get(name).exists():
                continue
            task = TaskId(plans[0].id.connector, readers[name])
            if task in self._told:
                continue
            with suppress(HeadraceError):  # how many there are is not worth an error
                rows = TopicReader(self.topics.get(name)).lag(self.store.position(task)).rows
                if rows:
                    log.warning(
                        "rows are left unread, as the sink does not read their topic any more; "
                        "to move them, let it read that topic too until they are read",
                        connector=task.connector,
                        topic=name,
                        rows=rows,
                    )
                    self._told.add(task)

    def _matching(self, pattern: str) -> list[str]:
        return [topic.name for topic in self.topics.matching(pattern)]


@dataclass(frozen=True, kw_only=True)
class TaskMaker:
    """Makes tasks for one worker. Any thread may use it.

    Args:
        planner: Plans them.
        spark: Gives the session that moves their data.
        hosts: The processes of captures.
        topics_dir: The folder of all topics.
        appended: Called with a topic's name after each append to it.
        clock: Gives the present, aware.
        grace: How long a capture that is to end may finish its poll.
        once: Whether the tasks are to end.
        planned: Told of each plan that a task is made of.
        told: Called with a task when it has something to tell the worker.
    """

    planner: Planner
    spark: SparkSupervisor
    hosts: HostSupervisor
    topics_dir: Location
    appended: Callable[[str], None]
    clock: Callable[[], datetime]
    told: Callable[[TaskId], None]
    grace: timedelta = timedelta(seconds=5)
    once: bool = False
    planned: Callable[[TaskPlan], None] = lambda _: None

    def task(self, plan: TaskPlan) -> Task:
        """Return the task of a plan; nothing of it is started yet."""
        self.planned(plan)
        backoff = backoff_of(plan, once=self.once)
        if plan.is_capture:
            return self._capture(plan, backoff)
        return BatchTask(
            plan.id,
            lambda lease: self.planner.assembler.parts(self.spark.session(), plan, lease),
            self.spark.jobs,
            reads=plan.from_topic,
            writes=plan.to_topic,
            routes=plan.routes,
            poll_interval=plan.common.poll_interval,
            backoff=backoff,
        )

    def _capture(self, plan: TaskPlan, backoff: Backoff) -> Task:
        keeping = CaptureKeeping(
            store=self.planner.store,
            hosts=self.hosts,
            targets=lambda spec: Targets(self.topics_dir, spec.topic, spec.application),
            appended=self.appended,
            clock=self.clock,
            told=self.told,
        )
        spec = self.planner.assembler.capture_spec(plan, self.topics_dir)
        return CaptureTask(
            plan.id,
            spec,
            keeping,
            poll_interval=_SECOND_LOOK,
            backoff=backoff,
            guard=guard_of(plan),
            grace=self.grace,
            identity=plan.identity,
        )


def backoff_of(plan: TaskPlan, *, once: bool) -> Backoff:
    """Return when a task tries again, and when it gives up."""
    errors = plan.common.errors
    timeout = ONCE_RETRIES if once and not errors.retry_given else errors.retry_timeout
    return Backoff(errors.retry_delay_max, timeout)


def check_topics(plans: Sequence[TaskPlan], topics: Topics) -> None:
    """Raise ConfigError if a topic that is read neither exists nor is written here."""
    if any(plan.routes for plan in plans):
        return  # the data says which topics are written
    written = {plan.to_topic for plan in plans}
    for plan in plans:
        topic = plan.from_topic
        if topic and topic not in written and not topics.get(topic).exists():
            problem = f"Topic {topic} does not exist, and nothing here writes it."
            fix = "Run its source connector first, or in the same command."
            raise ConfigError(problem, field="topics", fix=fix)
