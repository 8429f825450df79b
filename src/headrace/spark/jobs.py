"""The Spark jobs of each task: tagged, in a separate pool, and cancellable."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from headrace.model import TaskId

T = TypeVar("T")

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KILLED = {None, 0, 1, *(code for each in _SIGNALS for code in (-each, 128 + each))}
"""The exit codes of a JVM that still runs, that another process has ended, or whose own exit
code is unknown (1)."""


def has_crashed(exit_code: int | None) -> bool:
    """Return whether a JVM with this exit code ended by itself, as it does without memory."""
    return exit_code not in _KILLED


@dataclass(frozen=True)
class SparkJobs:
    """The jobs of tasks that share one session.

    Args:
        is_lost: Returns whether a session's JVM has ended; an error may be the evidence.
        exit_code: Returns the exit code of the session's JVM; None while it runs, or unknown.
    """

    spark: SparkSession
    is_lost: Callable[[SparkSession, BaseException | None], bool] = lambda _session, _error: (
        False
    )
    exit_code: Callable[[], int | None] = lambda: None

    def lost(self, error: BaseException | None = None) -> bool:
        """Return whether the session's JVM has ended; an error may be the evidence."""
        return self.is_lost(self.spark, error)

    def crashed(self) -> bool:
        """Return whether the session's JVM ended by itself, as it does without memory."""
        return has_crashed(self.exit_code())

    def run(self, task: TaskId, work: Callable[[], T]) -> T:
        """Run ``work``; Spark jobs that this thread starts meanwhile belong to the task."""
        context = self.spark.sparkContext
        tag = _tag(task)
        context.addJobTag(tag)
        context.setLocalProperty("spark.scheduler.pool", str(task))
        context.setJobDescription(str(task))
        try:
            return work()
        finally:
            context.removeJobTag(tag)

    def cancel(self, task: TaskId) -> None:
        """Cancel the task's jobs. Thread-safe."""
        self.spark.sparkContext.cancelJobsWithTag(_tag(task))

    def progress(self, task: TaskId) -> tuple[int, int]:
        """Return the numbers of completed and of all Spark tasks of the running stages."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [info for s in self._stages(task) if (info := tracker.getStageInfo(s))]
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)

    def activity(self, task: TaskId) -> object | None:
        """Return metrics of the task's running stages; None if no job is running.

        Executors send these metrics with their heartbeats, every ten seconds.
        """
        running = self._stages(task)
        if not running:
            return None
        stages = self.spark.sparkContext._jsc.sc().statusStore().activeStages()  # noqa: SLF001
        each = [stages.apply(number) for number in range(stages.size())]
        return tuple(
            getattr(stage, figure)()
            for stage in each
            if stage.stageId() in running
            for figure in ("stageId", *_FIGURES)
        )

    def _stages(self, task: TaskId) -> list[int]:
        """Return the stages of the task's running jobs."""
        context = self.spark.sparkContext
        # PySpark's tracker does not support tags; the JVM's does.
        jobs = context._jsc.sc().statusTracker().getJobIdsForTag(_tag(task))  # noqa: SLF001
        found = [context.statusTracker().getJobInfo(job) for job in sorted(jobs)]
        return [s for job in found if job and job.status == "RUNNING" for s in job.stageIds]


_FIGURES = (
    "attemptId",
    "numCompleteTasks",
    "executorCpuTime",
    "inputBytes",
    "inputRecords",
    "outputRecords",
    "shuffleReadRecords",
    "shuffleWriteRecords",
)


def _tag(task: TaskId) -> str:
    return f"headrace-{task}".replace(",", "_")  # a tag may not contain a comma
