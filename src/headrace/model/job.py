"""A sync job, and its runs: one for each window, or one that follows in real time."""

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
    from headrace.sdk.boundaries import Boundaries, BoundaryKind


class Mode(StrEnum):
    """How a job reads its source."""

    OFFLINE = "offline"
    """Window by window, each a run that ends."""
    REALTIME = "realtime"
    """By one run that goes on with what comes until the job is suspended."""


def is_realtime(document: Mapping[str, object]) -> bool:
    """Return whether a job's document is of one in real time."""
    return str(document.get("mode")).lower() == Mode.REALTIME.value


class JobState(StrEnum):
    """The states of a job, as InLong's groups have them; one that is deleted is gone."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    REJECTED = "rejected"
    APPROVED = "approved"
    """It waits for a scheduler to take it on."""
    CONFIGURED = "configured"
    """Its windows are run when they are due, and none has been yet."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    """Its schedule has come to its end, and so have its runs."""
    FAILED = "failed"
    """Its document cannot be read any more."""


SCHEDULED = frozenset({JobState.CONFIGURED, JobState.RUNNING})
"""The states in which a schedule makes runs."""
RUNNABLE = SCHEDULED | {JobState.APPROVED, JobState.FINISHED}
"""The states in which runs begin: nobody has suspended the job, or is to approve it yet."""


class CatchUp(StrEnum):
    """Which of the windows are run that became due while nothing could run."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


class Overlap(StrEnum):
    """What becomes of a window that is due while an earlier one runs."""

    QUEUE = "queue"
    SKIP = "skip"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How the runs of a job follow each other, and what is done when one fails.

    Args:
        parallel: How many run side by side at most, where ``overlap`` is PARALLEL.
        depends_on_past: Whether a window waits until all before it have succeeded.
        retries: How often a run that has failed is tried again.
        retry_delay: The wait before the first retry; it doubles from one to the next.
        timeout: How long an attempt may take; None for as long as it likes.
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
        """Return how many runs of a schedule may run at a time."""
        return self.parallel if self.overlap is Overlap.PARALLEL else 1

    def wait(self, attempt: int) -> timedelta | None:
        """Return the wait after an attempt, from 1, that has failed; None to give up."""
        if attempt > self.retries:
            return None
        wait: timedelta = self.retry_delay * 2 ** (attempt - 1)
        return min(wait, timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a job's document says.

    Args:
        definition: The copy: one source and its sinks, direct.
        mode: Whether it reads window by window, or follows its source.
        kind: What the bounds of its runs are.
        alerts: About what it alerts people.
        schedule: When it runs; None for one that is started otherwise.
        after: The job whose successful windows it runs over, if that is its schedule.
        engine: The outside scheduler that wakes it; None for our own.
        approvers: Who may approve it; empty where nobody is asked.
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
        uid: Its identity; a job that is made again under the name has another.
        document: Its definition as it was given.
        version: The number of the document, from 1.
        cursor: The lower bound of the next window of its schedule, or from which on it reads in
            real time; None for the very beginning.
        due: When that window is due; None where no more come.
        why: Why it was rejected, suspended or has failed.
        engine: The outside scheduler that wakes it; None for our own.
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
    """An earlier window ran when it was due."""


UNENDED = frozenset({RunState.QUEUED, RunState.RUNNING})
"""The states of a run that waits or runs."""


def unended(runs: Mapping[RunState, int]) -> int:
    """Return how many runs wait or run, of so many in each state."""
    return sum(runs.get(state, 0) for state in UNENDED)


class Trigger(StrEnum):
    """What made a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    AFTER = "after"
    """The success of another job."""
    REALTIME = "realtime"
    """Its job reads in real time: it goes on until the job is suspended or edited."""
    CALLBACK = "callback"
    """An outside scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """That an outside scheduler wakes a job, or is to, as it is stored.

    It outlives its job, until the engine knows nothing of it any more.

    Args:
        uid: The identity of the job that was registered.
        version: The document of the job that was registered.
        active: Whether the engine wakes it; it is paused while the job may not run.
        registered: Whether the engine has it like this.
        error: Why it has not, or not yet.
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
        """Return whether the engine has a job as it is now."""
        wanted = (job.uid, job.version, job.state in RUNNABLE)
        return self.registered and (self.uid, self.version, self.active) == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineJobRequest:
    """What an outside scheduler asks for when it wakes a job.

    Args:
        job: The job.
        stream: InLong's name of the copy in a job: a job has one, with its own name.
        kind: What the bounds are.
        lower: Where the window begins; with it, the bounds must be those of a window.
        upper: Where it ends. Without ``lower``, the newest window that ends by then is meant;
            without both, the newest that is due.
    """

    job: str | None = None
    stream: str | None = None
    kind: BoundaryKind | None = None
    lower: str | None = None
    upper: str | None = None


def memory_name(job: str) -> str:
    """Return what stands for a job, for all its runs, where connectors have their names.

    The schemas of its streams are kept under it, and its metrics.
    """
    return f"{job}@"


def task_of_job(task: TaskId) -> TaskId:
    """Return the task of a run as that of its job."""
    job, _, _ = task.connector.rpartition("@")
    return TaskId(memory_name(job), task.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a job over one window, unique by the two (Guarantee 5).

    Args:
        due: When it may begin, or its next attempt.
        backfill: The backfill that it is a part of.
        attempt: The number of its newest attempt, from 1; 0 before the first.
        deaths: In how many of them its worker, or Spark, has died.
        generation: How often it was asked for from the beginning, from 1: what an earlier one
            has written does not count.
        epoch: Grows with each attempt; whoever writes about one names it (Guarantee 3).
        owner: Who runs it.
        held_until: When another may take it, unless its owner is heard of.
        stop_asked: Whether it is to be stopped.
        paused: Whether its backfill is paused: it does not begin while it is.
        application: Spark's, of the newest attempt.
        error: Why the newest attempt has failed.
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
        """Return whether it follows its source, and so has no end of its own."""
        return self.trigger is Trigger.REALTIME

    @property
    def seconds(self) -> float | None:
        """Return how long its newest attempt took; None until it has ended."""
        if self.began is None or self.ended is None:
            return None
        return (self.ended - self.began).total_seconds()

    @property
    def name(self) -> str:
        """Return what its tasks have in common in marks, however often it is begun anew."""
        return f"{self.job}@{self.id}"

    @property
    def task_name(self) -> str:
        """Return what its tasks are named by, in the place of a connector.

        A retry has the name of the attempt before it, so that it goes on where that stood and
        finds its marks (Guarantee 2); a run from the beginning has a name of its own.
        """
        return f"{self.name}.{self.generation}"
