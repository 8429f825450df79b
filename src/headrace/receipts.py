"""Asks the targets of tasks whether they hold a batch."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from headrace.assembly import connector_context, sink_names
from headrace.control import REPLAYS, Holding, TargetView, definition_of, replay_plan
from headrace.dataplane import sink_marks, sink_title, topic_mark
from headrace.model import Lease
from headrace.plugins import aside, has_ended
from headrace.sdk import DeliveryGuarantee, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from headrace.assembly import Assembler
    from headrace.control import TaskPlan
    from headrace.making import Planner
    from headrace.model import Batch, Connector
    from headrace.sdk import FrameSink, Mark

_ALL = "its targets"
_ONCE = DeliveryGuarantee.EXACTLY_ONCE


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """Starts the sinks of a task that nobody runs, and asks them. Any thread may use it.

    Args:
        planner: Plans the task.
        assembler: Makes its sinks.
        clock: Gives the present, aware.
        patience: How long the targets may take to answer.
    """

    planner: Planner
    assembler: Assembler
    clock: Callable[[], datetime]
    patience: timedelta = timedelta(seconds=30)

    def ask(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> Sequence[TargetView]:
        """See BatchTargets."""
        work = partial(self._asked, connector, batch, topics)
        asked = aside(f"headrace-receipts-{connector.name}", work)
        if not has_ended(asked, time.monotonic() + self.patience.total_seconds()):
            return [TargetView(_ALL, Holding.UNKNOWN, "They do not answer.")]
        try:
            return asked.result()
        except Exception as error:  # noqa: BLE001 - plugins may raise anything
            return [TargetView(_ALL, Holding.UNKNOWN, str(error))]

    def _asked(
        self, connector: Connector, batch: Batch, topics: Sequence[str]
    ) -> list[TargetView]:
        plan = self._plan(connector, batch)
        if plan.source is not None and self.planner.is_capture(plan):
            why = "What is captured is settled when the connector is started."
            return [TargetView(str(plan.to_topic), Holding.UNKNOWN, why)]
        # Nothing can be written under an epoch that was never given (Guarantee 3).
        lease = Lease(batch.task, "receipts", -1, self.clock())
        with ExitStack() as started:
            context = self.assembler.context(plan, lease, started)
            sinks = list(self.assembler.sinks(plan, context, started))
            kept = [sink.connector.delivery is _ONCE for sink in plan.sinks] or [True]
            application, names = self.assembler.application(plan), sink_names(plan.sinks)

            def marks(writer: str) -> list[Mark]:
                of_sinks = sink_marks(writer, sinks, names or [""], batch)
                return [mark for _, _, mark in of_sinks]

            parts = _parts(application, plan.stream, topics, marks)
            return [
                _view(sink, parts[number], keeps_marks=kept[number])
                for number, sink in enumerate(sinks)
            ]
        raise AssertionError  # an ExitStack lets nothing pass in silence

    def _plan(self, connector: Connector, batch: Batch) -> TaskPlan:
        planner = self.planner
        context = connector_context(planner.store, connector.name, connector.uid)
        definition = definition_of(connector, planner.registry)
        with closing(planner.open(definition, context)) as opened:
            plans = [replace(p, identity=connector.uid) for p in planner.open_plans(opened)]
        for plan in plans:
            if plan.id == batch.task:
                return plan
        if not plans:
            problem = f"Connector {connector.name} plans no tasks now."
            raise StateError(problem)
        if batch.task.number == REPLAYS:
            return replay_plan(plans[0])
        # The division of its work has changed; its targets are those of all its tasks.
        return replace(plans[0], id=batch.task)


def _parts(
    application: str, stream: str, topics: Sequence[str], marks: Callable[[str], list[Mark]]
) -> list[list[tuple[Mark, str]]]:
    """Return for each sink the marks, with their topics, that it may have of a batch.

    Records of many streams go stream by stream, and those that transforms route go topic by
    topic, each part under a mark of its own. ``marks`` gives those of all sinks for a writer.
    """
    whole = marks(application)
    found = [[(mark, stream)] for mark in whole]
    for topic in topics:
        own = marks(f"{application}/{topic}")
        for parts, mark, of_stream in zip(found, whole, own, strict=True):
            parts += [(topic_mark(mark, topic), topic), (of_stream, topic)]
    return found


def _view(
    sink: FrameSink, parts: Sequence[tuple[Mark, str]], *, keeps_marks: bool
) -> TargetView:
    name = sink_title(sink)
    if any(sink.committed(mark, topic) is not None for mark, topic in parts):
        return TargetView(name, Holding.YES)
    why = "" if keeps_marks else "It keeps no marks, and may have some of it."
    return TargetView(name, Holding.NO, why)
