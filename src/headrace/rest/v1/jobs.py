"""Offline jobs: their documents, approvals and schedules, their runs, backfills and alerts."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from headrace.control import BALANCE, Jobs, JobView
from headrace.model import (
    AlertKind,
    DeliveryState,
    JobState,
    Mode,
    Registration,
    Run,
    RunState,
    Trigger,
)
from headrace.rest.auth import caller, caller_name
from headrace.rest.requests import Encoded, JsonMap, WholeText, storable
from headrace.rest.v1.connectors import RecordCounts
from headrace.rest.v1.events import Storable
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.requests import IS_NUMBER, Moment, if_set
from headrace.rest.v1.trials import Workbench
from headrace.sdk import BoundaryKind
from headrace.store import StoredAlert

_MOST = 2**63 - 1
Number = Annotated[int, Path(ge=1, le=_MOST, description="The run.")]
Version = Annotated[
    int | None,
    Query(ge=1, le=2**31 - 1, description="The reviewed version; any other is rejected."),
]
Document = Annotated[
    JsonMap,
    Body(
        description="The sections source, sinks and transforms, and the job keys.",
        examples=[
            {
                "name": "orders",
                "source": {"connector": "jdbc", "table": "orders"},
                "sinks": [{"connector": "delta", "path": "lake/orders"}],
                "schedule": {"every": "1 hour"},
            }
        ],
    ),
]
_WINDOW_IS_KEPT = "A window that already has a run gets no new one."


class BoundariesShown(Shown):
    """The range that a run reads: from `lower`, inclusive, to `upper`, exclusive."""

    kind: BoundaryKind
    lower: str | None = Field(description="Null for the beginning.")
    upper: str | None = Field(description="Null for no end.")


class RunShown(BaseModel):
    """One execution of a job over one window."""

    id: int = Field(description="Its number, unique over all jobs and increasing.")
    job: str
    state: RunState
    attempt: int = Field(
        description="The number of its newest attempt, from 1; 0 before the first."
    )
    trigger: Trigger = Field(description="What created it.")
    by: str = Field(description="Who created it.")
    boundaries: BoundariesShown
    backfill: str | None = Field(description="The backfill that it belongs to.")
    due: datetime = Field(description="The earliest start of the run or of its next attempt.")
    generation: int = Field(description="How often it was read from the beginning, from 1.")
    counts: RecordCounts = Field(description="The record counts of all attempts.")
    balance: str = Field(default=BALANCE, description="The equation of balanced counts.")
    worker: str | None = Field(description="The worker that runs it.")
    stopping: bool = Field(description="Whether a stop was requested.")
    paused: bool = Field(description="Whether it waits because its backfill is paused.")
    application: str | None = Field(description="The Spark application of the newest attempt.")
    error: str | None = Field(description="Why the newest attempt failed or is retrying.")
    began: datetime | None = Field(description="When the newest attempt began.")
    ended: datetime | None
    seconds: float | None = Field(description="How long it took, or has taken so far.")

    @classmethod
    def of(cls, run: Run, now: datetime) -> Self:
        took = None if run.began is None else (run.ended or now) - run.began
        return cls(
            id=run.id,
            job=run.job,
            state=run.state,
            attempt=run.attempt,
            trigger=run.trigger,
            by=run.by,
            boundaries=BoundariesShown.of(run.boundaries),
            backfill=run.backfill,
            due=run.due,
            generation=run.generation,
            counts=RecordCounts.of(run.counts),
            worker=run.owner,
            stopping=run.stop_asked and run.state is RunState.RUNNING,
            paused=run.paused and run.state is RunState.QUEUED,
            application=run.application,
            error=run.error,
            began=run.began,
            ended=run.ended,
            seconds=None if took is None else took.total_seconds(),
        )


class RunPage(BaseModel):
    """A page of a job's runs, newest first."""

    items: list[RunShown]
    next: int | None = Field(description="The `before` of the next page; null on the last.")


class RunQuery(BaseModel):
    """A filter of runs, and the page."""

    model_config = ConfigDict(extra="forbid")

    state: list[RunState] = Field(default=[], description="Only runs in one of these states.")
    backfill: Storable | None = Field(default=None, description="Only runs of this backfill.")
    before: int | None = Field(
        default=None, ge=1, le=_MOST, description="Only runs before this one."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class RegistrationShown(BaseModel):
    """The registration of a job with its external scheduler."""

    model_config = ConfigDict(from_attributes=True)

    registered: bool = Field(description="Whether the job's current version is registered.")
    active: bool = Field(description="Whether it triggers the job; else it is paused there.")
    error: str | None = Field(description="Why registration failed. It is retried.")
    changed: datetime | None = Field(description="Since when; null before the first attempt.")

    @classmethod
    def of(cls, found: Registration | None) -> Self:
        if found is None:
            return cls(registered=False, active=False, error=None, changed=None)
        return cls.model_validate(found)


class JobSummary(BaseModel):
    """A job and its state."""

    name: str
    state: JobState
    why: str | None = Field(description="Why it was rejected or failed.")
    mode: Mode | None = Field(
        description="Whether it reads windows or follows its source; null if its document "
        "cannot be parsed."
    )
    version: int = Field(description="The version of its document, from 1.")
    changed: datetime
    by: str = Field(description="Who changed it last.")
    boundaries: BoundaryKind | None = Field(
        description="The kind of its runs' bounds; null if its document cannot be parsed."
    )
    schedule: dict[str, Any] | None = Field(
        description="The section schedule of its document; null if runs are only triggered "
        "manually."
    )
    zone: str | None = Field(description="The time zone of its schedule.")
    engine: str | None = Field(
        description="The external scheduler; null for Headrace's own scheduler."
    )
    registration: RegistrationShown | None = Field(
        description="Its registration with the external scheduler; null without one."
    )
    approvers: list[str] = Field(description="Who may approve it.")
    runs: dict[RunState, int] = Field(description="The number of runs in each state.")
    newest: RunShown | None = Field(description="Its newest run.")
    fires: list[datetime] = Field(
        description="When its next windows are due; empty while its schedule creates no runs."
    )

    @classmethod
    def of(cls, view: JobView, now: datetime, **more: object) -> Self:
        job, spec = view.job, view.spec
        shown = {
            "name": job.name,
            "state": job.state,
            "why": job.why,
            "mode": spec and spec.mode,
            "version": job.version,
            "changed": job.changed,
            "by": job.by,
            "boundaries": spec and spec.kind,
            "schedule": job.document.get("schedule"),
            "zone": spec.schedule.zone if spec and spec.schedule else None,
            "engine": job.engine,
            "registration": job.engine and RegistrationShown.of(view.registration),
            "approvers": view.approvers,
            "runs": dict(view.runs),
            "newest": view.newest and RunShown.of(view.newest, now),
            "fires": view.fires,
        }
        return cls.model_validate({**shown, **more})


class JobDetail(JobSummary):
    """A job with its document."""

    document: dict[str, Any] = Field(description="As given, with the schedule's start added.")


class JobDeleted(BaseModel):
    """A job that was deleted with its runs. Written data is kept."""

    name: str
    left: list[str] = Field(
        description="What it leaves at its source, such as a replication slot, and how to drop "
        "that."
    )


class Rejection(BaseModel):
    """Why a job is rejected."""

    model_config = ConfigDict(extra="forbid")

    why: Annotated[WholeText, AfterValidator(storable)] = Field(
        min_length=1, max_length=10_000, description="What must be changed."
    )


class TriggerRequest(BaseModel):
    """The window to run: without bounds, the newest past window of the schedule."""

    model_config = ConfigDict(extra="forbid")

    lower: Annotated[WholeText, AfterValidator(storable)] = if_set(
        max_length=100_000, description="The inclusive lower bound, of the job's kind."
    )
    upper: Annotated[WholeText, AfterValidator(storable)] = if_set(
        max_length=100_000, description="The exclusive upper bound; a time must be past."
    )


class BackfillRequest(BaseModel):
    """A range of the schedule, whose past windows without a run are to be run."""

    model_config = ConfigDict(extra="forbid")

    lower: Moment = Field(description="The start of the range.")
    upper: Moment = Field(description="Its end. Partly covered windows run as a whole.")
    chunk: Annotated[int, Field(ge=1, le=100_000), IS_NUMBER] = Field(
        default=1, description="How many consecutive windows one run reads."
    )


class BackfillShown(Shown):
    """The progress of a backfill."""

    id: str
    job: str
    runs: dict[RunState, int] = Field(description="The number of its runs in each state.")
    total: int = Field(description="The number of its runs; one without runs is not kept.")
    done: bool = Field(description="Whether all runs have ended.")
    paused: bool = Field(description="Whether queued runs wait until the backfill is resumed.")


class FireList(BaseModel):
    """When the next windows of a schedule are due."""

    fires: list[datetime] = Field(description="None after the last, or without a schedule.")


def job_routes(jobs: Jobs) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/jobs", tags=["jobs"])

    @router.get("", summary="List jobs")
    def list_jobs() -> list[JobSummary]:
        """Return all jobs by name, each with its next due times."""
        return [JobSummary.of(view, jobs.clock()) for view in jobs.views()]

    @router.post("", status_code=201, summary="Create a job", responses=problems(409))
    def create(document: Document, request: Request) -> JobDetail:
        """Create a job as a draft: it runs once it is submitted and, if required, approved."""
        return _detail(jobs, jobs.create(document, caller(request)).name)

    @router.get("/{name}", summary="Show a job", responses=problems(404))
    def show(name: Encoded) -> JobDetail:
        return _detail(jobs, name)

    @router.put("/{name}", summary="Edit a job", responses=problems(404, 409))
    def edit(name: Encoded, document: Document, request: Request) -> JobDetail:
        """Replace the document of a job. Its windows continue where they were.

        A job that requires approval is submitted again, and starts no run before its approval.
        Only approvers may change the approvers.
        """
        jobs.edit(name, document, caller(request), caller_name(request))
        return _detail(jobs, name)

    @router.delete("/{name}", summary="Delete a job", responses=problems(404, 409))
    def delete(name: Encoded, request: Request) -> JobDeleted:
        """Delete a job with its runs. Written data is kept."""
        return JobDeleted(name=name, left=list(jobs.delete(name, caller(request))))

    @router.get("/{name}/fires", summary="Preview a job's schedule", responses=problems(404))
    def fires(name: Encoded, count: Annotated[int, Query(ge=1, le=1000)] = 10) -> FireList:
        """Return when the schedule's next windows are due, regardless of the job's state."""
        return FireList(fires=jobs.fires(name, count))

    _add_states(router, jobs)
    _add_runs(router, jobs)
    _add_backfills(router, jobs)
    return router


def _detail(jobs: Jobs, name: str) -> JobDetail:
    view = jobs.view(name)
    return JobDetail.of(view, jobs.clock(), document=dict(view.job.document))


def _add_states(router: APIRouter, jobs: Jobs) -> None:
    """Add the routes that change the state of a job."""

    @router.post("/{name}/submit", summary="Submit a job", responses=problems(404, 409))
    def submit(name: Encoded, request: Request) -> JobDetail:
        """Submit a draft for approval; a job without approvers is approved at once."""
        return _detail(jobs, jobs.submit(name, caller(request)).name)

    @router.post("/{name}/approve", summary="Approve a job", responses=problems(404, 409))
    def approve(name: Encoded, request: Request, version: Version = None) -> JobDetail:
        """Approve a submitted job. The caller must be one of its approvers."""
        jobs.approve(name, caller(request), caller_name(request), version)
        return _detail(jobs, name)

    @router.post("/{name}/reject", summary="Reject a job", responses=problems(404, 409))
    def reject(name: Encoded, asked: Rejection, request: Request) -> JobDetail:
        """Reject a submitted job. The caller must be one of its approvers."""
        jobs.reject(name, caller(request), caller_name(request), asked.why)
        return _detail(jobs, name)

    @router.post("/{name}/suspend", summary="Suspend a job", responses=problems(404, 409))
    def suspend(name: Encoded, request: Request) -> JobDetail:
        """Start no more runs of a job. Active runs finish."""
        return _detail(jobs, jobs.suspend(name, caller(request)).name)

    @router.post("/{name}/resume", summary="Resume a job", responses=problems(404, 409))
    def resume(name: Encoded, request: Request) -> JobDetail:
        """Resume a job. The setting `catchup` determines which missed windows run."""
        return _detail(jobs, jobs.resume(name, caller(request)).name)


def _add_runs(router: APIRouter, jobs: Jobs) -> None:
    """Add the routes of runs."""
    one = "/{name}/runs/{run}"

    def shown(run: Run) -> RunShown:
        return RunShown.of(run, jobs.clock())

    @router.post(
        "/{name}/trigger",
        summary="Run a window now",
        description=_WINDOW_IS_KEPT,
        responses=problems(404, 409),
    )
    def trigger(name: Encoded, asked: TriggerRequest, request: Request) -> RunShown:
        return shown(jobs.trigger(name, caller(request), asked.lower, asked.upper))

    @router.get("/{name}/runs", summary="List the runs of a job", responses=problems(404))
    def list_runs(name: Encoded, asked: Annotated[RunQuery, Query()]) -> RunPage:
        found = jobs.runs(
            name,
            states=asked.state,
            backfill=asked.backfill,
            before=asked.before,
            limit=asked.limit + 1,
        )
        page = [shown(run) for run in found[: asked.limit]]
        return RunPage(items=page, next=page[-1].id if len(found) > len(page) else None)

    @router.get(one, summary="Show a run", responses=problems(404))
    def show(name: Encoded, run: Number) -> RunShown:
        return shown(jobs.run(name, run))

    @router.post(f"{one}/stop", summary="Stop a run", responses=problems(404, 409))
    def stop(name: Encoded, run: Number, request: Request) -> RunShown:
        """Stop a run after its batch. Written data stays; a retry continues from there."""
        return shown(jobs.stop_run(name, run, caller(request)))

    @router.post(f"{one}/retry", summary="Retry a run", responses=problems(404, 409))
    def retry(name: Encoded, run: Number, request: Request) -> RunShown:
        """Continue a failed or stopped run where it ended."""
        return shown(jobs.retry(name, run, caller(request)))

    @router.post(f"{one}/rerun", summary="Run a window again", responses=problems(404, 409))
    def rerun(name: Encoded, run: Number, request: Request) -> RunShown:
        """Read a run's window from the beginning and write it again.

        Rejected if a sink would then contain duplicate rows.
        """
        return shown(jobs.rerun(name, run, caller(request)))


def _add_backfills(router: APIRouter, jobs: Jobs) -> None:
    """Add the routes of backfills."""
    one = "/{name}/backfills/{backfill}"

    @router.post(
        "/{name}/backfills",
        summary="Run the windows of a range",
        description=_WINDOW_IS_KEPT,
        responses=problems(404, 409),
    )
    def backfill(name: Encoded, asked: BackfillRequest, request: Request) -> BackfillShown:
        by, chunk = caller(request), asked.chunk
        return BackfillShown.of(jobs.backfill(name, asked.lower, asked.upper, by, chunk=chunk))

    @router.get(one, summary="Show a backfill", responses=problems(404))
    def show(name: Encoded, backfill: Encoded) -> BackfillShown:
        return BackfillShown.of(jobs.backfill_of(name, backfill))

    @router.post(f"{one}/stop", summary="Stop a backfill", responses=problems(404))
    def stop(name: Encoded, backfill: Encoded, request: Request) -> BackfillShown:
        """Stop the runs of a backfill that have not ended."""
        return BackfillShown.of(jobs.stop_backfill(name, backfill, caller(request)))

    @router.post(f"{one}/pause", summary="Pause a backfill", responses=problems(404, 409))
    def pause(name: Encoded, backfill: Encoded, request: Request) -> BackfillShown:
        """Start no more of its runs. Active runs finish; its windows stay reserved."""
        return BackfillShown.of(jobs.pause_backfill(name, backfill, caller(request)))

    @router.post(f"{one}/resume", summary="Resume a backfill", responses=problems(404, 409))
    def resume(name: Encoded, backfill: Encoded, request: Request) -> BackfillShown:
        """Let the queued runs of a backfill start."""
        return BackfillShown.of(jobs.resume_backfill(name, backfill, caller(request)))


class DeliveryShown(Shown):
    """The delivery of an alert to one channel."""

    channel: str
    state: DeliveryState
    attempts: int
    due: datetime = Field(description="When the next attempt is due, if it is waiting.")
    ended: datetime | None = Field(description="When it was sent or given up.")
    error: str | None = Field(description="Why the newest attempt failed.")


class AlertShown(BaseModel):
    """An alert about a job."""

    number: int = Field(description="Increases with time.")
    id: str = Field(description="The id that receivers get.")
    kind: AlertKind
    at: datetime
    job: str
    run: int | None = Field(
        description="Null if the alert is about the job itself; the first of several late runs."
    )
    subject: str
    text: str
    details: dict[str, Any] = Field(description="The contents of the text, as values.")
    deliveries: list[DeliveryShown] = Field(description="Its deliveries, by channel.")

    @classmethod
    def of(cls, found: StoredAlert) -> Self:
        shown = found.alert.to_json()
        deliveries = DeliveryShown.all(found.deliveries)
        return cls.model_validate({**shown, "number": found.number, "deliveries": deliveries})


class AlertPage(BaseModel):
    """A page of alerts, newest first."""

    items: list[AlertShown]
    next: int | None = Field(description="The `before` of the next page; null on the last.")


class AlertQuery(BaseModel):
    """A filter of alerts, and the page."""

    model_config = ConfigDict(extra="forbid")

    job: Storable | None = Field(
        default=None, description="Only alerts about this job, which may be deleted."
    )
    before: int | None = Field(
        default=None, ge=1, le=_MOST, description="Only alerts before this number."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class ChannelTest(Shown):
    """The result of a test alert."""

    channel: str
    type: str = Field(description="The plugin of the channel.")
    error: str | None = Field(description="Why it was not sent; null if it was sent.")


def alert_routes(bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/alerts", tags=["jobs"])

    @router.get("", summary="List alerts")
    def list_alerts(asked: Annotated[AlertQuery, Query()]) -> AlertPage:
        """Return the alerts about jobs and their deliveries."""
        found = bench.runtime.alerting.alerts(
            asked.job, before=asked.before, limit=asked.limit + 1
        )
        page = [AlertShown.of(each) for each in found[: asked.limit]]
        return AlertPage(items=page, next=page[-1].number if len(found) > len(page) else None)

    @router.post("/test", summary="Test channels", dependencies=[Depends(bench.slots)])
    def test(request: Request) -> list[ChannelTest]:
        """Send a test alert by each configured channel and return the results.

        Takes as long as the slowest channel, up to 25 seconds.
        """
        return ChannelTest.all(bench.runtime.alerting.test(caller(request)))

    return router
