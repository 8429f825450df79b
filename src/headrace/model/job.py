"""Sync jobs and their runs: one run per window, or one run in real time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.model.batch import Counts
from headrace.model.task import TaskId

if TYPE_CHECKING:
    from headrace.model.alert import AlertPolicy
    from headrace.model.connector import Definition
    from headrace.model.schedule import Schedule
    from headrace.sdk.position import Boundaries, BoundaryKind


class Mode(StrEnum):
    """How a job reads its source."""

    OFFLINE = "offline"
    """One bounded run per window."""
    REALTIME = "realtime"
    """One run that continues with new data until the job is suspended."""


def is_realtime(document: Mapping[str, object]) -> bool:
    """Return whether a job's document has the mode REALTIME."""
    return str(document.get("mode")).lower() == Mode.REALTIME.value


class JobState(StrEnum):
    """The states of a job, as of InLong's groups; a deleted job is not stored."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    REJECTED = "rejected"
    APPROVED = "approved"
    """It waits for a scheduler to accept it."""
    CONFIGURED = "configured"
    """Its windows run when they are due; none has run yet."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    """Its schedule and all its runs have ended."""
    FAILED = "failed"
    """Its document can no longer be read."""


SCHEDULED = frozenset({JobState.CONFIGURED, JobState.RUNNING})
"""The states in which a schedule creates runs."""
RUNNABLE = SCHEDULED | {JobState.APPROVED, JobState.FINISHED}
"""The states in which runs may start: the job is approved and not suspended."""


class CatchUp(StrEnum):
    """Which windows run that became due while nothing could run."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


class Overlap(StrEnum):
    """What happens to a window that is due while an earlier window runs."""

    QUEUE = "queue"
    SKIP = "skip"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The order, parallelism and retries of a job's runs.

    Args:
        parallel: The maximum number of parallel runs if ``overlap`` is PARALLEL.
        depends_on_past: Whether a window waits until all earlier windows have succeeded.
        retries: The number of retries of a failed run.
        retry_delay: The wait before the first retry; it doubles with each retry.
        timeout: The time limit of an attempt; None for no limit.
    """

    catch_up: CatchUp = CatchUp.ALL
    overlap: Overlap = Overlap.QUEUE
    parallel: int = 1
    depends_on_past: bool = False
    retries: int = 2
    retry_delay: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None

    @property
    def side_by_side(self) -> int:
        """Return the maximum number of parallel scheduled runs."""
        return self.parallel if self.overlap is Overlap.PARALLEL else 1

    def wait(self, attempt: int) -> timedelta | None:
        """Return the wait after a failed attempt, numbered from 1; None to give up."""
        if attempt > self.retries:
            return None
        wait: timedelta = self.retry_delay * 2 ** (attempt - 1)
        return min(wait, timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The parsed document of a job.

    Args:
        definition: The direct connector: one source and its sinks.
        kind: The kind of its runs' bounds.
        alerts: Its alert policy.
        mode: Whether it reads window by window, or in real time.
        schedule: When it runs; None if it is started in another way.
        after: The job whose successful windows trigger this job's runs, if any.
        engine: The external scheduler that triggers it; None for Headrace's own.
        approvers: Who may approve it; empty if no approval is required.
    """

    definition: Definition
    kind: BoundaryKind
    alerts: AlertPolicy
    mode: Mode = Mode.OFFLINE
    schedule: Schedule | None = None
    after: str | None = None
    engine: str | None = None
    policy: RunPolicy = field(default_factory=RunPolicy)
    approvers: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it is stored.

    Args:
        uid: Its identity; a job that is re-created with the same name has another.
        document: Its definition as submitted.
        version: The number of the document, from 1.
        cursor: The lower bound of the next window of its schedule, or the start of a run in
            real time; None for the very beginning.
        due: When that window is due; None if there are no more windows.
        why: Why it was rejected or suspended, or has failed.
        engine: The external scheduler that triggers it; None for Headrace's own.
    """

    name: str
    uid: str
    document: Mapping[str, object]
    version: int
    state: JobState
    cursor: datetime | None = None
    due: datetime | None = None
    why: str | None = None
    engine: str | None = None
    changed: datetime
    by: str


class RunState(StrEnum):
    """The states of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    """An earlier window was running when it was due."""


UNENDED = frozenset({RunState.QUEUED, RunState.RUNNING})
"""The states of a run that has not ended."""


def unended(runs: Mapping[RunState, int]) -> int:
    """Return the number of runs that have not ended, from the number in each state."""
    return sum(runs.get(state, 0) for state in UNENDED)


class Trigger(StrEnum):
    """What created a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    AFTER = "after"
    """The success of another job."""
    REALTIME = "realtime"
    """Its job reads in real time: the run continues until the job is suspended or edited."""
    CALLBACK = "callback"
    """An external scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The stored registration of a job with an external scheduler.

    It outlives its job, until it is removed from the engine.

    Args:
        uid: The identity of the registered job.
        version: The version of the registered document.
        active: Whether the engine triggers it; it is paused while the job may not run.
        registered: Whether the engine has the registration in this form.
        error: Why it is not registered, if it failed.
    """

    engine: str
    job: str
    uid: str
    version: int
    active: bool
    registered: bool
    error: str | None = None
    changed: datetime

    def is_of(self, job: Job) -> bool:
        """Return whether the engine has the current version and state of a job."""
        wanted = (job.uid, job.version, job.state in RUNNABLE)
        return self.registered and (self.uid, self.version, self.active) == wanted


def memory_name(job: str) -> str:
    """Return the name that stands for all runs of a job in place of a connector's name.

    The schemas of the job's streams and its metrics are stored under it.
    """
    return f"{job}@"


def task_of_job(task: TaskId) -> TaskId:
    """Return the task id of a run with the name of all runs, see ``memory_name``."""
    job, _, _ = task.connector.rpartition("@")
    return TaskId(memory_name(job), task.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a job over one window; unique per job and window (Guarantee 5).

    Args:
        due: When it may start, or its next attempt.
        backfill: The backfill that it belongs to.
        attempt: The number of its newest attempt, from 1; 0 before the first.
        deaths: The number of attempts in which its worker, or Spark, died.
        generation: How many times it was started from the beginning, from 1; what an earlier
            generation has written does not count.
        epoch: Increases with each attempt; every write about an attempt includes it
            (Guarantee 3).
        owner: The worker that runs it.
        held_until: When the lease ends, unless the owner renews it.
        stop_asked: Whether a stop was requested.
        paused: Whether its backfill is paused; then it does not start.
        application: The id of the newest attempt's Spark application.
        error: Why the newest attempt failed.
    """

    id: int
    job: str
    boundaries: Boundaries
    state: RunState
    trigger: Trigger
    by: str
    due: datetime
    backfill: str | None = None
    attempt: int = 0
    deaths: int = 0
    generation: int = 1
    epoch: int = 0
    owner: str | None = None
    held_until: datetime | None = None
    stop_asked: bool = False
    paused: bool = False
    began: datetime | None = None
    ended: datetime | None = None
    counts: Counts = field(default_factory=Counts)
    application: str | None = None
    error: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether the run is in real time, and therefore unbounded."""
        return self.trigger is Trigger.REALTIME

    @property
    def seconds(self) -> float | None:
        """Return the duration of the newest attempt; None until it has ended."""
        if self.began is None or self.ended is None:
            return None
        return (self.ended - self.began).total_seconds()

    @property
    def name(self) -> str:
        """Return the run's name in marks; the same after a restart from the beginning."""
        return f"{self.job}@{self.id}"

    @property
    def task_name(self) -> str:
        """Return the connector part of its tasks' ids.

        All attempts of a generation share it, so that a retry continues at the position of the
        attempt before and finds its marks (Guarantee 2). A restart from the beginning has a new
        name.
        """
        return f"{self.name}.{self.generation}"
