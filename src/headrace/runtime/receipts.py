"""Asks the targets of tasks whether they hold a batch."""

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
    """Starts the sinks of a task that nobody runs, and asks them. Any thread may use it.

    Args:
        timeout: How long the targets may take to answer.
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
        """Do the same for a task that is planned otherwise.

        The topics may also be the names under which the schemas of targets are remembered.
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
            why = "What is captured is settled when the connector is started."
            return [TargetView(str(plan.to_topic), Holding.UNKNOWN, why)]
        # Nothing can be written under an epoch that was never given (Guarantee 3).
        lease = Lease(batch.task, "receipts", -1, self.assembler.clock())
        with ExitStack() as started:
            context = self.assembler.context(plan, lease, started)
            sinks = list(self.assembler.sinks(plan, context, started))
            marked = [sink.connector.delivery is _ONCE for sink in plan.sinks] or [True]
            application, names = self.assembler.application(plan), names_of(plan)

            def marks(writer: str) -> list[Mark]:
                of_sinks = sink_marks(writer, sinks, names, batch)
                return [mark for _, _, mark in of_sinks]

            # Looked at, not started: only what a person's code does has to be started.
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
    """Return the plan of a task, or one with its targets. Raises StateError without any."""
    for plan in plans:
        if plan.id == task:
            return plan
    if not plans:
        problem = f"Connector {task.connector} plans no tasks now."
        raise StateError(problem)
    if task.number == REPLAYS:
        return replay_plan(plans[0])
    # The division of its work has changed; its targets are those of all its tasks.
    return replace(plans[0], id=task)


_Held = Callable[["FrameSink", "Mark", str], bool]
"""Returns whether a sink holds a mark in a topic. Raises StateError when it is late."""


@dataclass(frozen=True)
class _Questions:
    """The marks that one sink may have of a batch.

    Records of many streams go stream by stream, and those that transforms route go topic by
    topic, each part under a mark of its own. A chain may also send all records, or all of a
    stream, into another topic under the mark that they have anyway.

    Args:
        whole: The mark of a batch that is written at once.
        streams: The mark of each stream's part.
        sent: The topic into which the chain sends all records of each; None where that depends
            on them.
    """

    whole: Mark
    streams: Mapping[str, Mark]
    sent: Mapping[str, str | None]

    def has_all(self, sink: FrameSink, held: _Held) -> bool:
        """Return whether a sink holds the batch under its one mark, in whatever topic."""
        return any(held(sink, self.whole, topic) for topic in self._places)

    def parts(self, sink: FrameSink, held: _Held) -> list[str]:
        """Return the topics and streams whose parts a sink holds, if any."""
        found = [t for t in self._places if held(sink, topic_mark(self.whole, t), t)]
        for stream, mark in self.streams.items():
            if any(held(sink, mark, topic) for topic in self._of(stream)):
                found.append(stream)
        if not found:  # one of them says enough, and there may be very many
            routed = (
                stream
                for stream, mark in self.streams.items()
                if self.sent[stream] is None
                and any(held(sink, topic_mark(mark, t), t) for t in self._places)
            )
            found = list(islice(routed, 1))
        return list(dict.fromkeys(found))

    def _of(self, stream: str) -> Sequence[str]:
        """Return the topics where a stream may be under the mark that it has anyway."""
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
        # Which topics this batch had records for is not known: a part may be all of it.
        why = f"It has what went to or came as {', '.join(parts)}, and may lack the rest."
        return TargetView(name, Holding.PART, why)
    why = "" if keeps_marks else "It keeps no marks, and may have some of it."
    return TargetView(name, Holding.NO, why)
