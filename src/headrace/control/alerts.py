"""Decides when a run that ends or is late alerts, and writes the alerts' text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from headrace.control.job_definitions import read_job
from headrace.model import (
    RUNNABLE,
    UNENDED,
    AlertKind,
    AlertPolicy,
    Job,
    JobSpec,
    JobState,
    Run,
    RunState,
    figure,
)
from headrace.sdk import Alert, Boundaries, BoundaryKind, ConfigError, ConfigErrors
from headrace.store import JobNotFoundError, LateRun, NewAlert, StoreUnavailableError

if TYPE_CHECKING:
    from headrace.store import AlertStore, JobStore

log = structlog.get_logger(__name__)

_COMPARED = 100
"""How many earlier runs are read to find those that a run is compared with."""
_NAMED = 10
"""How many late runs a text lists."""
_COUNTS = ("read", "written", "filtered", "rejected")


@dataclass(kw_only=True)
class AlertRules:
    """Creates the alerts of jobs. Thread-safe.

    Args:
        channels: The names of all channels.
        made: Called with the kind of each new alert.
    """

    jobs: JobStore
    alerts: AlertStore
    channels: Sequence[str]
    clock: Callable[[], datetime]
    made: Callable[[AlertKind], None] = lambda _: None
    _specs: dict[str, tuple[object, JobSpec | None]] = field(default_factory=dict)
    """Cached parsed documents by job name, each with the job's uid and version."""

    def of_end(self, run: Run, cause: str) -> Sequence[NewAlert]:
        """Return the alerts for a run that is about to end, or that makes no progress.

        The caller stores them in the same transaction as the end. An error in a rule is logged
        and does not prevent the run from ending. Raises StoreUnavailableError.

        Args:
            run: The run as it will have ended.
            cause: Why the run has failed, see ``cause_of``; empty if it has not.
        """
        if run.state is RunState.QUEUED and not run.is_live:
            return ()  # it is retried, and alerts only after the last retry
        try:
            return self._of_end(run, cause)
        except JobNotFoundError:
            return ()
        except StoreUnavailableError:
            raise
        except Exception:
            log.exception("cannot determine the alerts of a run", job=run.job, run=run.id)
            return ()

    def _of_end(self, run: Run, cause: str) -> Sequence[NewAlert]:
        job = self.jobs.job(run.job)
        if run.state in UNENDED and self.alerts.has(_alert_id(job, run, self.clock())):
            return []  # a run that is retried without a limit alerts once an hour
        policy = self._policy(job)
        earlier: Sequence[Run] = ()
        if policy.compares and run.state is RunState.SUCCEEDED:
            done = [RunState.SUCCEEDED]
            found = self.jobs.runs(run.job, states=done, limit=_COMPARED)
            earlier = [each for each in found if each.id != run.id and not each.is_live]
        return [
            self._alert(job, policy, kind, run, what)
            for kind, what in policy.findings(run, earlier, cause)
        ]

    def _alert(
        self, job: Job, policy: AlertPolicy, kind: AlertKind, run: Run, what: str
    ) -> NewAlert:
        command = f"headrace job show-run {shlex.quote(job.name)} {run.id}"
        now = self.clock()
        subject = "fails" if run.state in UNENDED else _SUBJECTS[kind]
        lines = [f"Run {run.id} of job {job.name} {what}.", "", *_lines(run), f"See: {command}"]
        return self._new(
            policy,
            Alert(
                id=_alert_id(job, run, now, kind),
                kind=kind.value,
                at=now,
                job=job.name,
                run=run.id,
                subject=f"Run {run.id} of job {job.name} {subject}",
                text="\n".join(lines) + "\n",
                details={**_facts(run), "what": what, "command": command},
            ),
        )

    def of_job(self, job: Job, why: str) -> Sequence[NewAlert]:
        """Return the alerts for a job that fails because its document cannot be parsed."""
        command = f"headrace job show {shlex.quote(job.name)}"
        subject = f"Job {job.name} has failed"
        text = f"{subject} and creates no more runs: its document cannot be parsed."
        alert = Alert(
            id=f"{job.uid}-{job.version}-{uuid4().hex[:8]}-job",
            kind=AlertKind.FAILED.value,
            at=self.clock(),
            job=job.name,
            subject=subject,
            text=f"{text}\n\nJob: {job.name}, version {job.version}\nSee: {command}\n",
            details={"state": JobState.FAILED.value, "what": why, "command": command},
        )
        return [self._new(AlertPolicy(), alert)]

    def look_for_late(self) -> int:
        """Create alerts for late runs, one per job; return how many runs are late.

        Called periodically, by any number of servers: each run alerts once.
        """
        now, found = self.clock(), 0
        jobs = self.jobs.in_states(RUNNABLE)
        self._specs = {job.name: (_version(job), self._spec(job)) for job in jobs}
        for job in jobs:
            spec = self._spec(job)
            if spec is None or spec.alerts.late is None:
                continue
            allowed = spec.alerts.late
            delay = timedelta() if spec.schedule is None else spec.schedule.delay

            def alerts_of(
                late: Sequence[LateRun], job: Job = job, policy: AlertPolicy = spec.alerts
            ) -> Sequence[NewAlert]:
                return [self._late(job, policy, late)]

            found += self.alerts.add_late(job.name, now - allowed - delay, alerts_of)
        return found

    def _late(self, job: Job, policy: AlertPolicy, late: Sequence[LateRun]) -> NewAlert:
        first, name = late[0], shlex.quote(job.name)
        if len(late) == 1:
            subject = f"Run {first.id} of job {job.name} is late"
            command = f"headrace job show-run {name} {first.id}"
        else:
            subject = f"{len(late)} runs of job {job.name} are late"
            command = f"headrace job runs {name}"
        have = "it has" if len(late) == 1 else "they have"
        what = f"{have} not succeeded within {policy.late} after the window was due"
        shown = [f"Run: {r.id}, {r.state}, {_window(r.boundaries)}" for r in late[:_NAMED]]
        if len(late) > _NAMED:
            shown.append(f"and {len(late) - _NAMED} more")
        lines = [f"{subject}: {what}.", "", f"Job: {job.name}", *shown, f"See: {command}"]
        windows = [
            {"run": run.id, "state": run.state.value, **_bounds(run.boundaries)}
            for run in late[:_NAMED]
        ]
        alert = Alert(
            id=f"{job.uid}-{first.id}-{AlertKind.LATE}",
            kind=AlertKind.LATE.value,
            at=self.clock(),
            job=job.name,
            run=first.id,
            subject=subject,
            text="\n".join(lines) + "\n",
            details={"runs": len(late), "late": windows, "what": what, "command": command},
        )
        return self._new(policy, alert)

    def _new(self, policy: AlertPolicy, alert: Alert) -> NewAlert:
        self.made(AlertKind(alert.kind))
        channels = self.channels if policy.channels is None else policy.channels
        return NewAlert(alert, tuple(dict.fromkeys(channels)))

    def _policy(self, job: Job) -> AlertPolicy:
        """Return a job's alert policy; the default if its document cannot be parsed."""
        spec = self._spec(job)
        return AlertPolicy() if spec is None else spec.alerts

    def _spec(self, job: Job) -> JobSpec | None:
        version, spec = self._specs.get(job.name, (None, None))
        if version != _version(job):
            try:
                spec = read_job(job.document)
            except ConfigErrors:
                spec = None
        return spec


def check_channels(spec: JobSpec, channels: Collection[str]) -> None:
    """Raise ConfigError for a channel in a job's alerts that does not exist."""
    unknown = [name for name in spec.alerts.channels or () if name not in channels]
    if unknown:
        raise ConfigError(
            problem=f"There is no alert channel {unknown[0]!r}.",
            fix=f"Use {' or '.join(channels)}, or add it to the server's setting alerts.",
            field="alerts.channels",
        )


def trial_alert(now: datetime, by: str) -> Alert:
    """Return a test alert, which shows that a channel works."""
    subject = "This is a test of alerts"
    return Alert(
        id=f"test-{uuid4().hex[:12]}",
        kind=AlertKind.TEST.value,
        at=now,
        job="",
        subject=subject,
        text=f"{subject}, sent by {by}. Nothing is wrong.\n\nSee: headrace job alerts\n",
        details={"by": by, "command": "headrace job alerts"},
    )


_SUBJECTS: Mapping[AlertKind, str] = {
    AlertKind.FAILED: "has failed",
    AlertKind.EMPTY: "has found no records",
    AlertKind.BALANCE: "has unaccounted records",
    AlertKind.DURATION: "has taken an unusual time",
    AlertKind.ROWS: "has read an unusual number of records",
}


def _alert_id(job: Job, run: Run, now: datetime, kind: AlertKind = AlertKind.FAILED) -> str:
    """Return the id of an alert: one per attempt, or one per hour for a continuing run."""
    which = f"{now:%Y%m%d%H}" if run.state in UNENDED else run.epoch
    return f"{job.uid}-{run.id}-{which}-{kind}"


def _version(job: Job) -> tuple[str, int]:
    return job.uid, job.version


def _window(boundaries: Boundaries) -> str:
    """Return bounds on one line; times are in UTC."""
    lower, upper = boundaries.lower, boundaries.upper
    if boundaries.kind is BoundaryKind.TIME:
        lower, upper = (
            None if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
            for time in boundaries.times
        )
    return f"{lower or 'the beginning'} to {upper or 'the end'}"


def _bounds(boundaries: Boundaries) -> dict[str, str | None]:
    return {
        "boundaries": boundaries.kind.value,
        "lower": boundaries.lower,
        "upper": boundaries.upper,
    }


def _facts(run: Run) -> dict[str, Any]:
    """Return the facts about a run as JSON values."""
    began, ended = (time and time.isoformat() for time in (run.began, run.ended))
    return {
        "state": run.state.value,
        "trigger": run.trigger.value,
        "attempt": run.attempt,
        **_bounds(run.boundaries),
        **{name: getattr(run.counts, name) for name in _COUNTS},
        "began": began,
        "ended": ended,
        "seconds": run.seconds,
    }


def _lines(run: Run) -> Iterator[str]:
    """Yield the facts about a run as lines of text."""
    yield f"Job: {run.job}"
    yield f"Run: {run.id}, {run.state}"
    yield f"Window: {_window(run.boundaries)}"
    yield "Records: " + ", ".join(f"{getattr(run.counts, name):,} {name}" for name in _COUNTS)
    if run.seconds is not None:
        yield f"Took: {figure(run.seconds)} seconds, in attempt {run.attempt}"
