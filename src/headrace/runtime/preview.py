"""Tries out what is defined, without keeping anything."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headrace.control import try_transforms
from headrace.dataplane import preview, try_chain
from headrace.model import TaskId
from headrace.runtime.build import reader_of, started_steps
from headrace.sdk import CaptureSource
from headrace.worker import StoredTaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.control import StepPlan, TaskPlan
    from headrace.dataplane import SourceReader, Stage
    from headrace.model import Lease
    from headrace.plugins import Registry
    from headrace.runtime.build import Assembler


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
