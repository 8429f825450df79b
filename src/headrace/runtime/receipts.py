"""Asks the targets of tasks whether they contain a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice

from headrace.control import REPLAYS, Holding, TargetView, TaskPlan, definition_of, replay_plan
from headrace.dataplane import Step, constant_topic, sink_marks, sink_title, topic_mark
from headrace.evolution import topic_of
from headrace.model import Batch, Connector, Lease, TaskId
from headrace.plugins import aside, has_ended
from headrace.runtime.tasks import Assembler, Planner, connector_context, names_of
from headrace.sdk import DeliveryGuarantee, FrameSink, Mark, StateError

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
