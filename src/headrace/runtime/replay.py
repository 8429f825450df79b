"""Sends rejected records through their connector's chain to its sinks, once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.control import replay_plan
from headrace.dataplane import Letterbox, ReplayReader
from headrace.runtime.build import names_of
from headrace.runtime.tasks import backoff_of
from headrace.sdk import ConfigError
from headrace.spark import SparkJobs
from headrace.worker import BatchTask, Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.control import TaskPlan
    from headrace.dataplane import Claimed, LetterFilter
    from headrace.runtime.build import Assembler
    from headrace.worker import Events, Outcome


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
    topics_dir: Path
    owner: str
    lease: timedelta
    clock: Callable[[], datetime]

    def run(
        self, plan: TaskPlan, chosen: LetterFilter, file: Path | None, events: Events
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
            box = Letterbox(self.spark, topic, self.topics_dir)
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
