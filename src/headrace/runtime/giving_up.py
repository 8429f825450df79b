"""Gives up batches that can no longer run, after asking their targets for receipts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from headrace.control import (
    REPLAYS,
    GivenUp,
    Holding,
    TargetView,
    TaskPlan,
    definition_of,
    meaning_of,
    places_text,
    replay_plan,
    require_not_held,
)
from headrace.dataplane import Step, constant_topic, sink_marks, sink_title, topic_mark
from headrace.evolution import topic_of
from headrace.model import (
    RUNNABLE,
    Batch,
    BatchState,
    Connector,
    Counts,
    EventKind,
    Lease,
    RunState,
    Stamp,
    TaskId,
    memory_name,
)
from headrace.plugins import aside, has_ended
from headrace.runtime.tasks import Assembler, Planner, connector_context, names_of
from headrace.sdk import ConfigError, DeliveryGuarantee, FrameSink, Mark, StateError

if TYPE_CHECKING:
    from headrace.control import Jobs
    from headrace.model import Run
    from headrace.runtime.jobs import RunPlanner
    from headrace.store import Store


_ALL = "its targets"
_LATE = "They do not respond."
_ONCE = DeliveryGuarantee.EXACTLY_ONCE


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """Starts the sinks of a task that is not running, and asks them. Thread-safe.

    Args:
        timeout: The timeout for the targets' answers.
    """

    planner: Planner
    assembler: Assembler
    timeout: timedelta = timedelta(seconds=30)

    def ask(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        return self.ask_of(partial(self._plan, connector, batch), batch, topics)

    def ask_of(
        self, planned: Callable[[], TaskPlan], batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        """Return the state of a batch in each target, with the task's plan from ``planned``.

        The topics may also be the names under which the targets' schemas are stored.
        """
        until = time.monotonic() + self.timeout.total_seconds()
        work = partial(self._asked, planned, batch, topics, until)
        asked = aside(f"headrace-receipts-{batch.task.connector}", work)
        if not has_ended(asked, until):
            return [TargetView(_ALL, Holding.UNKNOWN, _LATE)]
        try:
            return asked.result()
        except Exception as error:  # noqa: BLE001 - plugins may raise anything
            return [TargetView(_ALL, Holding.UNKNOWN, str(error))]

    def _asked(
        self,
        planned: Callable[[], TaskPlan],
        batch: Batch,
        topics: Sequence[str],
        until: float,
    ) -> list[TargetView]:
        plan = planned()
        if plan.is_capture:
            why = "The batch of a capture is settled when the connector is started."
            return [TargetView(str(plan.to_topic), Holding.UNKNOWN, why)]
        # An epoch that was never issued cannot write anything (Guarantee 3).
        lease = Lease(batch.task, "receipts", -1, self.assembler.clock())
        with ExitStack() as started:
            context = self.assembler.context(plan, lease, started)
            sinks = list(self.assembler.sinks(plan, context, started))
            marked = [sink.connector.delivery is _ONCE for sink in plan.sinks] or [True]
            application, names = self.assembler.application(plan), names_of(plan)

            def marks(writer: str) -> list[Mark]:
                of_sinks = sink_marks(writer, sinks, names, batch)
                return [mark for _, _, mark in of_sinks]

            # Inspected, not started: only user code would have to be started.
            steps = [Step(each.transform, each.predicate, each.negate) for each in plan.steps]
            known = dict.fromkeys([plan.stream, *map(topic_of, topics)])
            sent = {topic: constant_topic(steps, topic) for topic in known}
            of_streams = {topic: marks(f"{application}/{topic}") for topic in sent}
            asked = [
                _Questions(whole, {t: own[n] for t, own in of_streams.items()}, sent)
                for n, whole in enumerate(marks(application))
            ]

            def held(sink: FrameSink, mark: Mark, topic: str) -> bool:
                if time.monotonic() > until:
                    raise StateError(_LATE)
                return sink.committed(mark, topic) is not None

            return [
                _view(sink, asked[number], held, keeps_marks=marked[number])
                for number, sink in enumerate(sinks)
            ]
        raise AssertionError  # an ExitStack lets nothing pass in silence

    def _plan(self, connector: Connector, batch: Batch) -> TaskPlan:
        planner = self.planner
        context = connector_context(planner.store, connector.name, connector.uid)
        definition = definition_of(connector, planner.registry)
        with closing(planner.open(definition, context)) as opened:
            plans = [replace(p, identity=connector.uid) for p in planner.open_plans(opened)]
        return plan_of(plans, batch.task)


def plan_of(plans: Sequence[TaskPlan], task: TaskId) -> TaskPlan:
    """Return the plan of a task, or one with its targets. Raises StateError without plans."""
    for plan in plans:
        if plan.id == task:
            return plan
    if not plans:
        problem = f"Connector {task.connector} currently plans no tasks."
        raise StateError(problem)
    if task.number == REPLAYS:
        return replay_plan(plans[0])
    # The assignment to tasks has changed; all tasks have the same targets.
    return replace(plans[0], id=task)


_Held = Callable[["FrameSink", "Mark", str], bool]
"""Returns whether a sink contains a mark in a topic. Raises StateError after the timeout."""


@dataclass(frozen=True)
class _Questions:
    """The marks that one sink may have of a batch.

    Records of many streams are written stream by stream, and records that transforms route are
    written topic by topic, each part with its own mark. A chain may also send all records, or
    all of a stream, to another topic; their mark stays the same.

    Args:
        whole: The mark of a batch that is written as a whole.
        streams: The mark of each stream's part.
        sent: The topic to which the chain sends all records of each stream; None if that
            depends on the records.
    """

    whole: Mark
    streams: Mapping[str, Mark]
    sent: Mapping[str, str | None]

    def has_all(self, sink: FrameSink, held: _Held) -> bool:
        """Return whether a sink has the mark of the whole batch, in any topic."""
        return any(held(sink, self.whole, topic) for topic in self._places)

    def parts(self, sink: FrameSink, held: _Held) -> list[str]:
        """Return the topics and streams whose parts a sink contains, if any."""
        found = [t for t in self._places if held(sink, topic_mark(self.whole, t), t)]
        for stream, mark in self.streams.items():
            if any(held(sink, mark, topic) for topic in self._of(stream)):
                found.append(stream)
        if not found:  # one is enough, and there may be very many
            routed = (
                stream
                for stream, mark in self.streams.items()
                if self.sent[stream] is None
                and any(held(sink, topic_mark(mark, t), t) for t in self._places)
            )
            found = list(islice(routed, 1))
        return list(dict.fromkeys(found))

    def _of(self, stream: str) -> Sequence[str]:
        """Return the topics where a stream's own mark may be."""
        topic = self.sent[stream]
        return self._places if topic is None else list(dict.fromkeys([stream, topic]))

    @property
    def _places(self) -> Sequence[str]:
        topics = [topic for topic in self.sent.values() if topic is not None]
        return list(dict.fromkeys([*self.sent, *topics]))


def _view(sink: FrameSink, asked: _Questions, held: _Held, *, keeps_marks: bool) -> TargetView:
    name = sink_title(sink)
    if asked.has_all(sink, held):
        return TargetView(name, Holding.YES)
    if parts := asked.parts(sink, held):
        # The topics of the batch's records are unknown: a part may be the whole batch.
        why = f"It has the part of {', '.join(parts)}; the rest may be missing."
        return TargetView(name, Holding.PART, why)
    why = "" if keeps_marks else "It stores no marks, and may contain part of the batch."
    return TargetView(name, Holding.NO, why)


@dataclass(frozen=True, kw_only=True)
class GivingUp:
    """Abandons the unfinished batch of a task that no worker runs.

    Args:
        name: The connector part of the tasks' ids.
        tasks: The tasks that may have an unfinished batch.
        planned: Returns the plan of a task; may raise anything.
        memory: The name under which the schemas of the targets are stored.
        owner: The owner of the task's lease meanwhile, so that nothing else runs the task.
        before: Called with the batch, while the lease is held, before it is given up.
    """

    store: Store
    receipts: Receipts
    name: str
    tasks: Sequence[TaskId]
    planned: Callable[[TaskId], TaskPlan]
    memory: str
    owner: str
    lease: timedelta
    before: Callable[[Batch], None] = field(default=lambda _: None)

    def give_up(self, number: int | None, *, skip: bool, force: bool, dry_run: bool) -> GivenUp:
        """Give up the unfinished batch of a task by number, or of the only task that has one.

        The task then plans a new batch from the start of this one or, to ``skip`` its records,
        from its end. With ``dry_run`` nothing is changed.

        Raises:
            ConfigError: No task has an unfinished batch, or several have.
            StateError: The task runs or, unless forced, a target contains the batch or cannot
                be asked.
        """
        batch = self._unfinished(number)
        held = self.store.lease(batch.task, self.owner, self.store.now(), self.lease)
        try:
            planned = partial(self.planned, batch.task)
            topics = sorted(self.store.schemas(self.memory))
            targets = self.receipts.ask_of(planned, batch, topics)
            if not dry_run and not force:
                require_not_held(batch, targets)
            if not dry_run:
                self.before(batch)
            # Guarantee 3: the batch's former worker has an older epoch, and cannot finish it.
            if not dry_run and skip:
                none = Counts()
                self.store.finish_batch(
                    batch.task, held.epoch, batch.id, none, self.store.now()
                )
            elif not dry_run:
                self.store.abandon_batch(batch.task, held.epoch, batch.id)
        finally:
            self.store.release(held)
        start, end = (places_text(each.items()) for each in (batch.start, batch.end))
        return GivenUp(batch, skip, targets, not dry_run, meaning_of(start, end, skip=skip))

    def _unfinished(self, number: int | None) -> Batch:
        name = self.name
        tasks = self.tasks if number is None else [TaskId(name, number)]
        newest = [batch for task in tasks for batch in self.store.batches(task, 1)]
        found = [batch for batch in newest if batch.state is not BatchState.FINISHED]
        if len(found) == 1:
            return found[0]
        if not found:
            problem, fix = f"{name} has no unfinished batch.", "Run it."
            raise ConfigError(problem, fix=fix, field="--task")
        numbers = ", ".join(str(batch.task.number) for batch in found)
        problem = f"The tasks {numbers} of {name} have unfinished batches."
        raise ConfigError(problem, field="--task", fix="Select one of them.")


def giving_up_of(
    plans: Sequence[TaskPlan], store: Store, receipts: Receipts, owner: str, lease: timedelta
) -> GivingUp:
    """Return GivingUp for a connector without a server, from its tasks, at least one."""
    name = plans[0].id.connector
    return GivingUp(
        store=store,
        receipts=receipts,
        name=name,
        tasks=[*(plan.id for plan in plans), TaskId(name, REPLAYS)],
        planned=partial(plan_of, plans),
        memory=name,
        owner=owner,
        lease=lease,
    )


@dataclass(frozen=True, kw_only=True)
class GivingUpOfRuns:
    """Abandons unfinished batches of stopped job runs. Thread-safe.

    Args:
        planner: Plans the tasks of runs.
        owner: The owner of a task's lease meanwhile.
    """

    jobs: Jobs
    planner: RunPlanner
    receipts: Receipts
    owner: str
    lease: timedelta

    def give_up(
        self,
        job: str,
        number: int,
        by: str,
        *,
        task: int | None = None,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> GivenUp:
        """Give up the unfinished batch of a run, as ``GivingUp.give_up`` does.

        Raises JobNotFoundError and RunNotFoundError, and StateError while the run is running or
        queued.
        """
        run = self.jobs.run(job, number)
        self._require_at_rest(run)
        tasks = sorted(self.planner.state.positions(run.task_name))

        def before(batch: Batch) -> None:
            self._require_at_rest(self.jobs.run(job, number))  # the lease is held only now
            detail = {"run": number, "task": batch.task.number, "batch": batch.id, "skip": skip}
            stamp = Stamp(self.jobs.clock(), by)
            self.jobs.store.tell(job, EventKind.RUN_GIVE_UP, stamp, detail)

        return GivingUp(
            store=self.planner.state,
            receipts=self.receipts,
            name=run.task_name,
            tasks=tasks,
            planned=lambda each: plan_of(self.planner.planned(run), each),
            memory=memory_name(job),
            owner=self.owner,
            lease=self.lease,
            before=before,
        ).give_up(task, skip=skip, force=force, dry_run=dry_run)

    def _require_at_rest(self, run: Run) -> None:
        job = self.jobs.store.job(run.job)
        waits = run.state is RunState.QUEUED and job.state in RUNNABLE
        if waits or run.state is RunState.RUNNING:
            way = f"headrace job {'suspend' if run.is_live else 'stop-run'} {run.job}"
            problem = f"Run {run.id} of job {run.job} is {run.state}."
            fix = f"Stop it first: {way}{'' if run.is_live else f' {run.id}'}."
            raise StateError(problem, field="run", fix=fix)
