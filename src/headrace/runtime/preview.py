"""Runs definitions outside their tasks: previews, trials of transforms, replays."""

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
    RepairReader,
    ReplayReader,
    SourceReader,
    Stage,
    preview,
    try_chain,
)
from headrace.model import Lease, SparkUnavailableError, TaskId, TaskState
from headrace.runtime.tasks import Assembler, backoff_of, names_of, reader_of, started_steps
from headrace.sdk import CaptureSource, ConfigError, StateError
from headrace.spark import SparkJobs, has_lost_jvm
from headrace.worker import (
    BatchTask,
    Events,
    Everyone,
    Outcome,
    StoredTaskContext,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from headrace.plugins import Registry
    from headrace.sdk.location import Location
    from headrace.store import Store

    Trial = list[dict[str, Any]]


def preview_of(
    plan: TaskPlan, lease: Lease, assembler: Assembler, spark: SparkSession, rows: int
) -> list[Stage]:
    """Return the first records of a task at its source and after each step."""
    with ExitStack() as started:
        # Several previews may run in parallel, also with the same name.
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
    request: Mapping[str, Any],
    registry: Registry,
    on_spark: Callable[[Callable[[SparkSession], Trial]], Trial],
) -> dict[str, Any]:
    """Run a chain over sample records, see `headrace.control.try_transforms`.

    ``on_spark`` is called after the request has been validated, as it may have to start Spark.
    """

    def engine(steps: Sequence[StepPlan], records: Sequence[object]) -> Trial:
        with TemporaryDirectory(prefix="headrace-trial-") as state, ExitStack() as started:
            chain = started_steps(steps, TaskId("trial", 0), Path(state), started)
            return on_spark(lambda spark: try_chain(spark, chain, records))
        raise AssertionError  # an ExitStack lets nothing pass in silence

    return try_transforms(request, registry, engine)


def replay(
    plan: TaskPlan,
    chosen: DeadLetterFilter,
    file: Path | None,
    events: Events,
    *,
    spark: Callable[[], SparkSession],
    assembler: Assembler,
    topics_dir: Location,
    owner: str,
    lease: timedelta,
) -> tuple[Claimed, Outcome]:
    """Claim dead letters of a plan's connector, and replay all claimed letters.

    With a file of exported and repaired lines, only their letters are claimed. Raises
    StateError while another replay of the connector runs.
    """
    plan, errors = replay_plan(plan), plan.common.errors
    name = errors.dead_letter_topic
    if name is None:
        problem = "The connector has no dead-letter topic."
        fix = "Set errors.tolerance to all, and the topic's name if it is not <name>.dlq."
        raise ConfigError(problem, field="errors.deadletterqueue.topic.name", fix=fix)
    store, topic, sinks = assembler.store, assembler.topics.get(name), names_of(plan)
    require_own_replays(store, plan.id, ReplayReader.PARTITION)
    # The lease keeps two replays from claiming at the same time.
    held = store.lease(plan.id, owner, store.now(), lease)
    try:
        queue = DeadLetterQueue(spark, topic, topics_dir)
        claimed = queue.claim(plan.id.connector, chosen, file, sinks)
    finally:
        store.release(held)
    reader = ReplayReader(name, topics_dir, sinks, plan.id.connector)
    position = store.position(plan.id)
    if store.unfinished_batch(plan.id) is None and not reader.has_more(position):
        # A task would have to start Spark to find that out.
        events.state_changed(plan.id, TaskState.COMPLETED, None)
        return claimed, Outcome({plan.id: TaskState.COMPLETED}, {})
    outcome = resend(
        plan, reader, events, spark=spark(), assembler=assembler, owner=owner, lease=lease
    )
    return claimed, outcome


def resend(
    plan: TaskPlan,
    reader: SourceReader,
    events: Events | None = None,
    *,
    spark: SparkSession,
    assembler: Assembler,
    owner: str,
    lease: timedelta,
) -> Outcome:
    """Run the task that resends records, see ``replay_plan``, to the end of a reader."""
    task = BatchTask(
        plan.id,
        lambda lease: assembler.parts(spark, plan, lease, reader),
        lambda: SparkJobs(spark),
        backoff=backoff_of(plan, once=True),
    )
    worker = Worker(
        store=assembler.store,
        owner=owner,
        events=events or Everyone([]),
        clock=assembler.clock,
        lease=lease,
        once=True,
    )
    worker.add([task])
    outcome = worker.run()
    if not any(map(has_lost_jvm, outcome.errors.values())):
        return outcome
    lost = SparkUnavailableError(
        "Spark's JVM ended while records were resent.",
        fix="Run this command again: it first finishes what this one has begun.",
    )
    return replace(outcome, errors=dict.fromkeys(outcome.errors, lost))


_FINISHING = {
    ReplayReader.PARTITION: "headrace dlq replay",
    RepairReader.PARTITION: "headrace verify --repair",
}


def require_own_replays(store: Store, task: TaskId, partition: str) -> None:
    """Raise StateError if another command has an unfinished batch of resent records.

    Args:
        store: The store.
        task: The task that resends records.
        partition: The partition key of this command's positions.
    """
    batch = store.unfinished_batch(task)
    for found in () if batch is None else batch.end.changed(batch.start):
        other = next((key for key in _FINISHING if key in found and key != partition), None)
        if other is not None:
            problem = f"Another command is resending records of {task.connector}."
            raise StateError(problem, fix=f"Finish it first with `{_FINISHING[other]}`.")
