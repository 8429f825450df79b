"""Runs a definition apart from its tasks: previews, trials of transforms, replays."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headrace.control import replay_plan, try_transforms
from headrace.dataplane import DeadLetterQueue, ReplayReader, preview, try_chain
from headrace.model import TaskId
from headrace.runtime.build import names_of, reader_of, started_steps
from headrace.runtime.tasks import backoff_of
from headrace.sdk import CaptureSource, ConfigError
from headrace.spark import SparkJobs
from headrace.worker import BatchTask, StoredTaskContext, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from pyspark.sql import SparkSession

    from headrace.control import StepPlan, TaskPlan
    from headrace.dataplane import Claimed, DeadLetterFilter, SourceReader, Stage
    from headrace.model import Lease
    from headrace.plugins import Registry
    from headrace.runtime.build import Assembler
    from headrace.sdk.location import Location
    from headrace.worker import Events, Outcome


def preview_of(
    plan: TaskPlan, lease: Lease, assembler: Assembler, spark: SparkSession, rows: int
) -> list[Stage]:
    """Return the first records of a task at its source and after each step.

    Args:
        plan: The task.
        lease: Its lease, in the assembler's store, which is thrown away.
        assembler: Makes its parts.
        spark: The session that moves the records.
        rows: How many there are at most.
    """
    with ExitStack() as started:
        # Several may be asked for at once, of one name too.
        made = started.enter_context(TemporaryDirectory(prefix="headrace-preview-"))
        folder = Path(made)
        steps = assembler.steps(plan, folder / "state", started)
        if plan.source is None:
            source: SourceReader | CaptureSource = assembler.topic_source(
                plan, lease, [], started
            )
        else:
            task = plan.source.connector.task(plan.source.parsed)
            started.callback(task.stop)
            task.start(StoredTaskContext(assembler.store, lease, folder, threading.Event()))
            source = task if isinstance(task, CaptureSource) else reader_of(task)
        return preview(spark, source, plan.stream, steps, rows)
    raise AssertionError  # an ExitStack lets nothing pass in silence


def trial_of(
    request: Mapping[str, Any], registry: Registry, session: Callable[[], SparkSession]
) -> dict[str, Any]:
    """Run a chain over sample records, see `headrace.control.try_transforms`.

    ``session`` is asked once the request is known to be right: it may have to start Spark.
    """

    def engine(steps: Sequence[StepPlan], records: Sequence[object]) -> list[dict[str, Any]]:
        with TemporaryDirectory(prefix="headrace-trial-") as state, ExitStack() as started:
            chain = started_steps(steps, TaskId("trial", 0), Path(state), started)
            return try_chain(session(), chain, records)
        raise AssertionError  # an ExitStack lets nothing pass in silence

    return try_transforms(request, registry, engine)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The replays of one worker process.

    Args:
        spark: The session.
        assembler: Makes the task's parts.
        topics_dir: The folder of all topics.
        owner: This process, as an owner of leases.
        lease: How long a lease lasts.
        clock: Gives the present, aware.
    """

    spark: SparkSession
    assembler: Assembler
    topics_dir: Location
    owner: str
    lease: timedelta
    clock: Callable[[], datetime]

    def run(
        self, plan: TaskPlan, chosen: DeadLetterFilter, file: Path | None, events: Events
    ) -> tuple[Claimed, Outcome]:
        """Claim letters, and carry all that is claimed and not yet replayed.

        Raises StateError while another replay of the connector runs.

        Args:
            plan: A task of the connector.
            chosen: Which letters.
            file: Exported lines that were repaired: only their letters; None for all.
            events: Who is told what happens.
        """
        plan, errors = replay_plan(plan), plan.common.errors
        name = errors.dead_letter_topic
        if name is None:
            problem = "The connector has no dead-letter topic."
            fix = "Set errors.tolerance to all, and name the topic if it is not <name>.dlq."
            raise ConfigError(problem, field="errors.deadletterqueue.topic.name", fix=fix)
        store, topic = self.assembler.store, self.assembler.topics.get(name)
        sinks = names_of(plan)
        # Two replays at once would get in each other's way.
        held = store.lease(plan.id, self.owner, store.now(), self.lease)
        try:
            chosen = replace(chosen, connector=plan.id.connector)
            box = DeadLetterQueue(self.spark, topic, self.topics_dir)
            claimed = box.claim(chosen, file, sinks)
        finally:
            store.release(held)
        reader = ReplayReader(name, self.topics_dir, sinks)
        task = BatchTask(
            plan.id,
            lambda lease: self.assembler.parts(self.spark, plan, lease, reader),
            lambda: SparkJobs(self.spark),
            backoff=backoff_of(plan, once=True),
        )
        worker = Worker(
            store=store,
            owner=self.owner,
            events=events,
            clock=self.clock,
            lease=self.lease,
            once=True,
        )
        worker.add([task])
        return claimed, worker.run()
