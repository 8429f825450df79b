"""Callbacks of external schedulers: each requests the run of a due window of a job."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from headrace.control import read_job
from headrace.model import RUNNABLE, Job, Run, Schedule, TimeWindow, Trigger
from headrace.sdk import Boundaries, BoundaryKind, ConfigError, RetriableError
from headrace.sdk.errors import Category, HeadraceError
from headrace.store import JobChangedError, JobNotFoundError

if TYPE_CHECKING:
    from headrace.control import Jobs
    from headrace.scheduler.tick import Scheduler

PREFIX = "hrc_"
"""The prefix of callback tokens, so that secret scanners find them."""
_RACES = 10
"""How often a callback retries after a concurrent change of the job."""
_FAR = timedelta(days=366)
"""The error for a time further in the future does not say when to ask again."""


class CallbackTokenError(HeadraceError):
    """The token does not allow this callback."""

    code: ClassVar[str] = "callback.unauthorized"
    category: ClassVar[Category] = Category.CONFIG


class NotAWindowError(ConfigError):
    """The bounds do not match a window of the job's schedule."""

    code: ClassVar[str] = "callback.not_a_window"


class WindowNotDueError(RetriableError):
    """The window is not past yet, or still waits for late data."""

    code: ClassVar[str] = "callback.not_due"


class Caller(NamedTuple):
    """The content of a token: the job and the engine that may wake it."""

    job: str
    uid: str
    engine: str


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """Wakes jobs on request of external schedulers. Thread-safe.

    A token is signed and names its job, so that invalid tokens are rejected without a store
    query. It is valid as long as the same job exists and uses the same engine.

    Args:
        secret: The key that signs tokens.
    """

    jobs: Jobs
    scheduler: Scheduler
    secret: bytes

    def token(self, job: Job) -> str:
        """Return the token with which a job's engine wakes the job; always the same."""
        caller = Caller(job.name, job.uid, job.engine or "")
        said = json.dumps(caller, ensure_ascii=False).encode()
        return f"{PREFIX}{_text(said)}.{_text(self._signature(said))}"

    def caller(self, token: str) -> Caller | None:
        """Return the content of a token; None if the token is not valid."""
        said, _, signature = token.removeprefix(PREFIX).partition(".")
        try:
            payload, shown = _bytes(said), _bytes(signature)
        except (ValueError, binascii.Error):
            return None
        if not hmac.compare_digest(self._signature(payload), shown):
            return None
        return Caller(*json.loads(payload))

    def _signature(self, said: bytes) -> bytes:
        return hmac.digest(self.secret, said, "sha256")

    def wake(
        self,
        name: str,
        token: str,
        by: str,
        *,
        job: str | None = None,
        stream: str | None = None,
        kind: BoundaryKind | None = None,
        lower: str | None = None,
        upper: str | None = None,
    ) -> Run:
        """Create runs of all due windows of a job; return the run of the requested window.

        A window has one run however often it is requested (Guarantee 5). Windows whose
        callbacks were lost get their runs with the next callback.

        Args:
            name: The job.
            token: The token of the request.
            by: The caller, for the event.
            job: The job again.
            stream: InLong's stream name; a job has one stream, with the job's name.
            kind: The kind of the bounds.
            lower: The start of the window; if set, the bounds must be those of a window.
            upper: The end of the window. Without ``lower``, it selects the newest window that
                ends by then; without both, the newest window that is due is selected.

        Raises:
            CallbackTokenError: The token is not, or no longer, valid for this job.
            NotAWindowError: The bounds do not match a window.
            WindowNotDueError: The window is not due yet; ``after`` is the time until then.
            JobChangedError: The job may not run now.
        """
        admitted = self._admitted(name, token)
        spec = read_job(admitted.document)
        for field, said in (("job", job), ("stream", stream)):
            if said not in {None, name}:
                problem = f"The token is for job {name}, not for {field} {said}."
                raise NotAWindowError(problem, field=field, fix="Remove it.")
        if spec.schedule is None or kind not in {None, spec.kind}:
            problem = f"Only windows of a schedule, of kind {spec.kind}, may be requested."
            raise NotAWindowError(problem, field="kind", fix="Remove it.")
        window = _window(spec.schedule, lower, upper, self.jobs.clock())
        self._fire(admitted, by)
        bounds = Boundaries.between(window.lower, window.upper)
        return self.jobs.trigger(name, by, bounds.lower, bounds.upper, Trigger.CALLBACK)

    def run(self, run: Run) -> Run:
        """Return a run as it is now."""
        return self.jobs.store.run(run.id)

    def _admitted(self, name: str, token: str) -> Job:
        caller = self.caller(token)
        try:
            job = self.jobs.store.job(name)
        except JobNotFoundError:
            job = None
        if caller is None or job is None or caller != (name, job.uid, job.engine):
            problem = "The token is not, or no longer, valid for this job."
            fix = "Headrace sends the engine a new token when it registers the job."
            raise CallbackTokenError(problem, fix=fix)
        if job.state not in RUNNABLE:
            problem, fix = f"Job {name} is {job.state}.", "Retry when the job may run."
            raise JobChangedError(problem, field="state", fix=fix)
        return job

    def _fire(self, job: Job, by: str) -> None:
        for _ in range(_RACES):
            try:
                self.scheduler.fire(job, Trigger.CALLBACK, by)
            except JobChangedError:  # another callback, or a worker that has started a run
                job = self.jobs.store.job(job.name)
                if job.state not in RUNNABLE:
                    return
            else:
                return


def _window(
    schedule: Schedule, lower: str | None, upper: str | None, now: datetime
) -> TimeWindow:
    """Return the requested window. Raises NotAWindowError or WindowNotDueError."""
    if lower is None:
        window = _newest(schedule, upper, now)
    else:
        start, end = Boundaries(BoundaryKind.TIME, lower, upper).times
        found = next(schedule.windows(start), None)
        if end is None or found is None or (found.lower, found.upper) != (start, end):
            near = "" if found is None else f" The nearest is {_words(found)}."
            asked_for = f"{lower} to {upper}"
            raise NotAWindowError(
                problem=f"{asked_for} is not a window of the schedule.{near}",
                fix="Use the bounds of a window, or only the upper bound.",
                field="lower",
            )
        window = found
    due = schedule.due(window)
    if due > now:
        problem = f"The window {_words(window)} is due at {due.isoformat()}."
        raise WindowNotDueError(problem, after=due - now, fix="Ask again then.", field="upper")
    return window


def _newest(schedule: Schedule, upper: str | None, now: datetime) -> TimeWindow:
    """Return the newest window that ends by a time, or the newest that is due."""
    if upper is None:
        window = schedule.newest_past(now)
    else:
        by = Boundaries(BoundaryKind.TIME, None, upper).times[1]
        assert by is not None
        if by > now + _FAR:
            problem = f"No window up to {by.isoformat()} is past yet."
            raise WindowNotDueError(problem, fix="Ask again later.", field="upper")
        # ``by`` refers to the end of a window, not to the time at which the window is due.
        window = schedule.newest_past(by + schedule.delay)
    if window is None:
        first = next(schedule.windows(), None)
        after = None if first is None else schedule.due(first) - now
        problem = "No window of the schedule is past yet."
        raise WindowNotDueError(problem, after=after, fix="Ask again later.", field="upper")
    return window


def _words(window: TimeWindow) -> str:
    return f"{window.lower.isoformat()} to {window.upper.isoformat()}"


def _text(said: bytes) -> str:
    return base64.urlsafe_b64encode(said).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)
