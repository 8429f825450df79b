"""Keeps Spark running: starts a new session when the JVM ends, and cancels a task's jobs."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import structlog
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from headrace.model import SparkLostError, SparkUnavailableError, TaskId
from headrace.sdk.errors import HeadraceError
from headrace.sdk.storage import causes
from headrace.spark.jvm import gateway_of
from headrace.spark.session import close_session

log = structlog.get_logger(__name__)

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


_LOOK_SECONDS = 0.2
_REAP_SECONDS = 2.0
"""The timeout for the system to report the end of a process whose sockets are closed."""
_CLOSE_SECONDS = 30.0
"""The timeout at the end for a start in progress."""
_TERMINATED = {-signal.SIGTERM, 128 + signal.SIGTERM}
_SIGKILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}
_ATTRIBUTION_SECONDS = 1.0
"""How long after a crash a task may say that it counts against that task."""
_ATTRIBUTED = 5
"""The JVM may end this many times as often as its limit if the crashes count against tasks."""
_STOP_SECONDS = 2.0
"""The timeout for ``end`` after the JVM was terminated; systemd signals both at once."""
_CONNECTION = (ConnectionError, EOFError, Py4JError)


def has_lost_jvm(error: BaseException) -> bool:
    """Return whether an error was caused by a failed connection to the JVM."""
    return any(isinstance(each, Py4JNetworkError) for each in causes(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathLimit:
    """The limit of JVM failures: ``count`` failures ``within`` a period are too many."""

    count: int = 3
    within: timedelta = timedelta(minutes=5)


class SparkSupervisor:
    """Provides the current Spark session. Thread-safe.

    Long-running code must get the session from here for each use, and must not keep objects of
    an earlier session.

    Args:
        start: Starts a session; called again after its JVM has ended.
        limit: How often the JVM may end.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        limit: DeathLimit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._limit = limit or DeathLimit()
        self._clock = clock
        self._lock = threading.RLock()
        self._session: SparkSession | None = None
        self._ours = False
        self._watched = False
        self._over = False
        """Whether the newest context of ``watching`` has ended: threads that it left over must
        not start Spark anew."""
        self._deaths: deque[float] = deque(maxlen=100)
        self._attributed: deque[float] = deque(maxlen=100)
        self._suspected = threading.Event()
        self._closing = threading.Event()
        self.failure: SparkLostError | None = None
        """Why Spark is no longer restarted; None while it is."""
        self.starts = 0
        """The number of started sessions."""

    def session(self) -> SparkSession:
        """Return the session; the first call starts it.

        Raises SparkUnavailableError: its JVM has ended. A new one is being started, or this
        process is stopping, or ends with ``failure``, which is not a failure of the tasks that
        it runs.
        """
        session = self._session
        if session is None and not self._watched and not self._over:
            with self._lock:
                session = self._session or self._started()
        if session is None or self.is_lost(session):
            raise SparkUnavailableError
        return session

    def jobs(self) -> SparkJobs:
        """Return the jobs of the current session. Raises the errors of ``session``."""
        session = self.session()
        # PySpark has one gateway, that of the newest JVM.
        process = getattr(gateway_of(session), "proc", None)
        return SparkJobs(session, self.is_lost, process.poll if process else lambda: None)

    def run(self, work: Callable[[SparkSession], T]) -> T:
        """Run work on the session; raise SparkUnavailableError if its JVM ended meanwhile."""
        session = self.session()
        try:
            return work(session)
        except Exception as error:
            if self.is_lost(session, error):
                raise SparkUnavailableError from error
            raise

    @property
    def application(self) -> str | None:
        """The id of the session's Spark application; None without a live session."""
        session = self._session
        if session is None or self.is_lost(session):
            return None
        return str(session.sparkContext.applicationId)

    def answers(self) -> bool:
        """Return whether the JVM responds. Blocks; raises the errors of ``session``."""
        return answers(self.session())

    def adopt(self, session: SparkSession) -> None:
        """Use a session that the caller has started, and will stop."""
        self._session, self._ours = session, False

    def forget(self) -> None:
        """Drop the session without stopping it."""
        self._session, self._ours = None, False

    def is_lost(self, session: SparkSession, error: BaseException | None = None) -> bool:
        """Return whether a session's JVM has ended, or was given up.

        Args:
            session: The session.
            error: An error of the session, after which this method checks whether the JVM
                still responds if the connection failed, and whether Spark has stopped.
        """
        if not self._ours or not self._watched:
            return False
        if session is not self._session or _has_ended(session):
            return True
        if error is None:
            return False
        is_cut = any(isinstance(each, _CONNECTION) for each in causes(error))
        # A JVM that is being terminated stops Spark, and still responds for a second.
        if not is_cut and not _has_stopped(session):
            return False
        end = self._clock() + _REAP_SECONDS
        while not _has_ended(session):
            if answers(session) and not _has_stopped(session):
                return False
            if self._clock() > end:
                # It is running but unreachable or stopped, and therefore useless.
                _kill(session)
            time.sleep(_LOOK_SECONDS / 10)
        self._suspected.set()
        return True

    @contextmanager
    def watching(
        self,
        *,
        restarted: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Restart Spark each time its JVM ends, inside this context.

        Args:
            restarted: Called after each restart.
            lost: Called when the JVM has ended too often, with ``failure`` set.

        Raises:
            SparkLostError: The JVM has ended too often; raised at the end.
        """
        self._closing.clear()  # `end` may have been called outside of this context
        self._over = False
        self.session()
        if not self._ours:
            yield
            return
        self._watched = True
        watch = threading.Thread(
            target=self._watch,
            args=(restarted, lost),
            name="headrace-spark",
            daemon=True,
        )
        watch.start()
        try:
            yield
        finally:
            self.end()
            watch.join(_CLOSE_SECONDS)
            self._watched, self._over = False, True
        if self.failure is not None:
            raise self.failure

    def attribute(self) -> None:
        """Do not count one failure of the JVM, as it counts against a task."""
        self._attributed.append(self._clock())

    def end(self) -> None:
        """Restart Spark no more, as this process is stopping."""
        self._closing.set()
        self._suspected.set()

    def close(self) -> None:
        if self._ours:
            close_session()
        self.forget()

    def _started(self) -> SparkSession:
        session = self._start()
        self._session, self._ours = session, True
        self.starts += 1
        return session

    def _watch(self, restarted: Callable[[], None], lost: Callable[[], None]) -> None:
        while not self._closing.is_set():
            session = self._session
            if session is None or _has_ended(session):
                if self._closing.is_set():
                    return  # the process began to stop before the JVM ended
                self._session = None
                if session is not None:
                    code = _exit_code(session)
                    if code in _TERMINATED and self._closing.wait(_STOP_SECONDS):
                        log.info("Spark's JVM was terminated with this process")
                        return
                    if has_crashed(code) and self._closing.wait(_ATTRIBUTION_SECONDS):
                        return
                    self._died(code)
                if self.failure is not None:
                    lost()
                    return
                if not self._closing.is_set() and self._started_again():
                    restarted()
            self._suspected.wait(_LOOK_SECONDS)
            self._suspected.clear()

    def _died(self, code: int | None) -> None:
        now = self._clock()
        self._deaths.append(now)
        within = self._limit.within.total_seconds()

        def count(times: deque[float]) -> int:
            return sum(now - each <= within for each in list(times))

        every = count(self._deaths)
        recent = max(1, every - count(self._attributed))
        fix = SparkUnavailableError().fix
        if code in _SIGKILLED:
            fix = "It was killed, by a person or by the kernel for lack of memory: see dmesg."
        log.error("Spark's JVM has ended", exit_code=code, times=every, fix=fix)
        if recent >= self._limit.count or every >= _ATTRIBUTED * self._limit.count:
            problem = f"Spark's JVM has ended {every} times within {within:.0f} s."
            self.failure = SparkLostError(problem, fix=fix)
            log.error("Spark is not restarted", why=str(self.failure))

    def _started_again(self) -> bool:
        began = self._clock()
        try:
            self._started()
        except Exception as error:
            if isinstance(error, HeadraceError):  # its words say what is wrong
                log.error("Spark could not be started", why=str(error))  # noqa: TRY400
            else:
                log.exception("Spark could not be started")
            self._died(None)
            return False
        log.info("Spark was restarted", seconds=round(self._clock() - began, 1))
        return True


def answers(session: SparkSession) -> bool:
    """Return whether the session's JVM responds. Blocks."""
    try:
        gateway_of(session).jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def _exit_code(session: SparkSession) -> int | None:
    process = getattr(gateway_of(session), "proc", None)
    code: int | None = None if process is None else process.poll()
    return code


def _has_ended(session: SparkSession) -> bool:
    return _exit_code(session) is not None


def _has_stopped(session: SparkSession) -> bool:
    """Return whether Spark has stopped in a JVM that responds."""
    context = session.sparkContext._jsc  # noqa: SLF001 - no other way; None after `stop`
    try:
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return False


def _kill(session: SparkSession) -> None:
    process = gateway_of(session).proc
    process.kill()
    process.wait()
