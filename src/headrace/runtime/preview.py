"""Runs a definition apart from its tasks: previews, trials of transforms, replays."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headrace.control import StepPlan, TaskPlan, replay_plan, try_transforms
from headrace.dataplane import (
    Claimed,
    DeadLetterFilter,
    DeadLetterQueue,
    ReplayReader,
    SourceReader,
    Stage,
    preview,
    try_chain,
)
from headrace.model import Lease, TaskId
from headrace.runtime.tasks import Assembler, backoff_of, names_of, reader_of, started_steps
from headrace.sdk import CaptureSource, ConfigError
from headrace.spark import SparkJobs
from headrace.worker import BatchTask, Events, Outcome, StoredTaskContext, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from headrace.plugins import Registry
    from headrace.sdk.location import Location


def preview_of(
    plan: TaskPlan, lease: Lease, assembler: Assembler, spark: SparkSession, rows: int
) -> list[Stage]:
    """Return the first records of a task at its source and after each step."""
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
            stop = threading.Event()
            context = StoredTaskContext(
                assembler.store, lease, folder, stop, access=assembler.access
            )
            task.start(context)
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


def replay(
    plan: TaskPlan,
    chosen: DeadLetterFilter,
    file: Path | None,
    events: Events,
    *,
    spark: SparkSession,
    assembler: Assembler,
    topics_dir: Location,
    owner: str,
    lease: timedelta,
) -> tuple[Claimed, Outcome]:
    """Claim letters of a plan's connector, and carry all that is claimed and not yet replayed.

    Of exported lines that were repaired, in a file, only their letters are. Raises StateError
    while another replay of the connector runs.
    """
    plan, errors = replay_plan(plan), plan.common.errors
    name = errors.dead_letter_topic
    if name is None:
        problem = "The connector has no dead-letter topic."
        fix = "Set errors.tolerance to all, and name the topic if it is not <name>.dlq."
        raise ConfigError(problem, field="errors.deadletterqueue.topic.name", fix=fix)
    store, topic, sinks = assembler.store, assembler.topics.get(name), names_of(plan)
    # Two replays at once would get in each other's way.
    held = store.lease(plan.id, owner, store.now(), lease)
    try:
        chosen = replace(chosen, connector=plan.id.connector)
        claimed = DeadLetterQueue(spark, topic, topics_dir).claim(chosen, file, sinks)
    finally:
        store.release(held)
    reader = ReplayReader(name, topics_dir, sinks)
    task = BatchTask(
        plan.id,
        lambda lease: assembler.parts(spark, plan, lease, reader),
        lambda: SparkJobs(spark),
        backoff=backoff_of(plan, once=True),
    )
    worker = Worker(
        store=store, owner=owner, events=events, clock=assembler.clock, lease=lease, once=True
    )
    worker.add([task])
    return claimed, worker.run()
