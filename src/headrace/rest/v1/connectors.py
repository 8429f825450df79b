"""Connectors: lists, details, bulk actions, configuration versions and record counts."""

from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from headrace.control import (
    BALANCE,
    Bulk,
    BulkAction,
    BulkResult,
    ConfigVersions,
    ConnectorFilter,
    Connectors,
    ConnectorView,
    Tallies,
    Tally,
    TaskView,
)
from headrace.model import (
    Batch,
    BatchState,
    ConnectorKind,
    ConnectorState,
    TargetState,
    TaskState,
)
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import Fault, Shown, problems
from headrace.rest.v1.requests import Moment, Switch, if_set
from headrace.sdk import Position

_SETS = 100


def _few_sets(pattern: str) -> str:
    """Reject patterns with many sets such as `[a-z]`: compiling their regex takes long."""
    if pattern.count("[") > _SETS:
        problem = f"A pattern may have at most {_SETS} character sets"
        raise ValueError(problem)
    return pattern


Pattern = Annotated[str, Field(max_length=2048), AfterValidator(_few_sets)]
"""A pattern of names, bounded because it is matched against all connectors."""
PATTERNS = 100
"""The maximum number of patterns."""
NAME = "Glob patterns of names, with `*`, `?` and `[a-z]`."
KIND = "The kinds of connectors."
STATE = "The states of connectors."
TASK_STATE = "The states of tasks; one matching task is enough."
PLUGIN = "The plugins, by name, alias or class."


class Choice(BaseModel):
    """A filter of connectors: one value per field must match; an empty field matches any."""

    model_config = ConfigDict(extra="forbid")

    name: list[Pattern] = Field(default=[], description=NAME, max_length=PATTERNS)
    kind: list[ConnectorKind] = Field(default=[], description=KIND)
    state: list[ConnectorState] = Field(default=[], description=STATE)
    task_state: list[TaskState] = Field(default=[], description=TASK_STATE)
    plugin: list[str] = Field(default=[], description=PLUGIN)

    def filter(self) -> ConnectorFilter:
        return ConnectorFilter(
            names=self.name,
            kinds=self.kind,
            states=self.state,
            task_states=self.task_state,
            plugins=self.plugin,
        )


class ChoicePage(Choice):
    """A filter of connectors, and the page."""

    after: str | None = Field(
        default=None, description="Start after this name: the `next` of the previous page."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class TaskSummary(BaseModel):
    """The status of a task."""

    task: int = Field(description="Its number, from 0.")
    state: TaskState
    worker: str = Field(description="The worker that runs it; empty if none does.")
    trace: str | None = Field(description="Why it failed.")

    next_try: datetime | None = Field(
        description="When it is restarted automatically; null if it is not."
    )
    restarts: int = Field(description="How often it was restarted after a failure.")

    @classmethod
    def of(cls, task: TaskView) -> Self:
        return cls(task=task.number, worker=task.worker, **asdict(task.status))


class ConnectorSummary(BaseModel):
    """A connector with its status and the status of its tasks."""

    name: str
    kind: ConnectorKind
    plugin: str | None = Field(
        description="The name of its plugin; null if the plugin is not installed."
    )
    plugin_version: str | None
    delivery: str | None = Field(description="The delivery guarantee of the plugin.")
    config_version: int = Field(description="The number of its configuration, from 1.")
    target: TargetState = Field(description="Its target state.")
    state: ConnectorState
    worker: str = Field(description="The worker that runs it; empty if none does.")
    trace: str | None = Field(description="Why it failed.")
    tasks: list[TaskSummary]

    @classmethod
    def of(cls, view: ConnectorView, connectors: Connectors, **more: object) -> Self:
        found, status = view.connector, view.status
        plugin = connectors.plugin_of(found)
        shown = {
            "name": found.name,
            "kind": found.kind,
            "plugin": plugin and plugin.name,
            "plugin_version": plugin and plugin.version,
            "delivery": plugin and plugin.plugin.delivery.value,
            "config_version": found.version,
            "target": found.target,
            "state": status.state,
            "worker": status.worker,
            "trace": status.trace,
            "tasks": [TaskSummary.of(task) for task in view.tasks],
        }
        return cls.model_validate({**shown, **more})


class ConnectorDetail(ConnectorSummary):
    """A connector with its configuration and topics."""

    config: dict[str, str]
    topics: list[str] = Field(description="The topics that it has used.")


class ConnectorPage(BaseModel):
    """A page of the matching connectors, by name."""

    items: list[ConnectorSummary]
    total: int = Field(description="The number of connectors on all pages.")
    next: str | None = Field(description="The `after` of the next page; null on the last.")


def connector_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connectors", tags=["connectors"])

    @router.get("", summary="List connectors")
    def list_connectors(asked: Annotated[ChoicePage, Query()]) -> ConnectorPage:
        found = connectors.chosen(asked.filter())
        left = [each for each in found if each.connector.name > (asked.after or "")]
        page = [ConnectorSummary.of(e, connectors) for e in islice(left, asked.limit)]
        more = len(left) > len(page)
        return ConnectorPage(items=page, total=len(found), next=page[-1].name if more else None)

    @router.get("/{name}", summary="Show a connector", responses=problems(404))
    def show(name: Encoded) -> ConnectorDetail:
        view = connectors.view(name)
        topics = list(connectors.store.topics(name))
        config = dict(view.connector.config)
        return ConnectorDetail.of(view, connectors, config=config, topics=topics)

    return router


class BulkFilter(BaseModel):
    """A filter of connectors: one value per field must match. It must not be empty."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    name: list[Pattern] = if_set(
        description=f"{NAME} `*` matches all.", min_length=1, max_length=PATTERNS
    )
    kind: list[ConnectorKind] = if_set(description=KIND, min_length=1)
    state: list[ConnectorState] = if_set(description=STATE, min_length=1)
    task_state: list[TaskState] = if_set(description=TASK_STATE, min_length=1)
    plugin: list[str] = if_set(description=PLUGIN, min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            problem = "The filter is empty: use name `*` for all connectors"
            raise ValueError(problem)
        return self

    def filter(self) -> ConnectorFilter:
        return Choice.model_validate(self.model_dump(exclude_unset=True)).filter()


class BulkRequest(BaseModel):
    """A bulk action: its filter and options."""

    model_config = ConfigDict(extra="forbid")

    filter: BulkFilter
    dry_run: Switch = Field(
        default=False, description="Dry run: only return the connectors that would be affected."
    )
    tasks: Switch = Field(default=True, description="Whether a restart includes the tasks.")
    only_failed: Switch = Field(
        default=False, description="Whether a restart is limited to failed parts."
    )


class BulkOutcome(BaseModel):
    """The result for one connector."""

    name: str
    state: ConnectorState = Field(description="Its state before the action.")
    outcome: Literal["done", "failed", "would"]
    error: Fault | None = Field(description="Why it failed.")


class BulkAnswer(BaseModel):
    """The results for the matching connectors, by name."""

    action: BulkAction
    dry_run: bool
    done: int = Field(description="For how many the action succeeded.")
    failed: int = Field(description="For how many it failed.")
    results: list[BulkOutcome]


def bulk_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/bulk", tags=["connectors"])

    @router.post("/{action}", summary="Apply an action to many connectors")
    def bulk(
        action: BulkAction, asked: Annotated[BulkRequest, Body()], request: Request
    ) -> BulkAnswer:
        """Pause, resume, stop, restart or delete the connectors that match a filter."""
        plan = Bulk(action=action, tasks=asked.tasks, only_failed=asked.only_failed)
        found = plan.run(connectors, asked.filter.filter(), caller(request), dry=asked.dry_run)
        return BulkAnswer(
            action=action,
            dry_run=asked.dry_run,
            done=sum(each.done for each in found),
            failed=sum(each.error is not None for each in found),
            results=[_outcome(each) for each in found],
        )

    return router


def _outcome(result: BulkResult) -> BulkOutcome:
    error = result.error
    return BulkOutcome(
        name=result.view.connector.name,
        state=result.view.status.state,
        outcome="failed" if error else "done" if result.done else "would",
        error=None if error is None else Fault.of(error),
    )


_MOST = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=_MOST, description="The number, from 1.")]


class VersionSummary(BaseModel):
    """When a configuration version was created, and by whom."""

    version: int
    at: datetime
    by: str
    changed: list[str] = Field(description="The changed keys, by name.")


class VersionDetail(Shown):
    """A current or earlier configuration of a connector."""

    version: int
    at: datetime
    by: str
    config: dict[str, str]


class Change(Shown):
    """A key that differs; null if a configuration does not contain it."""

    key: str
    before: str | None
    after: str | None


class Diff(BaseModel):
    """The differences between two configurations of a connector."""

    before: int
    after: int
    changes: list[Change] = Field(description="By key; empty if they are equal.")


class DiffQuery(BaseModel):
    """The two versions to compare."""

    model_config = ConfigDict(extra="forbid")

    before: int = Field(ge=1, le=_MOST)
    after: int = Field(ge=1, le=_MOST)


class Restored(BaseModel):
    """The result of a restore."""

    name: str
    version: int = Field(description="The number of the new version.")
    restored: int = Field(description="The number of the restored version.")


def version_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connectors/{name}/versions", tags=["configurations"])
    versions = ConfigVersions(connectors)

    @router.get("", summary="List a connector's configurations", responses=problems(404))
    def list_versions(name: Encoded) -> list[VersionSummary]:
        """Return the newest first."""
        return [
            VersionSummary(version=each.version, at=each.at, by=each.by, changed=changed)
            for each, changed in versions.steps(name)
        ]

    @router.get("/diff", summary="Compare two configurations", responses=problems(404))
    def diff(name: Encoded, asked: Annotated[DiffQuery, Query()]) -> Diff:
        changes = versions.changes(name, asked.before, asked.after)
        return Diff(before=asked.before, after=asked.after, changes=Change.all(changes))

    @router.get("/{number}", summary="Show a configuration", responses=problems(404))
    def show(name: Encoded, number: Number) -> VersionDetail:
        return VersionDetail.of(versions.get(name, number))

    @router.post(
        "/{number}/restore", summary="Restore a configuration", responses=problems(404)
    )
    def restore(name: Encoded, number: Number, request: Request) -> Restored:
        """Restore an earlier configuration of a connector, as a new version."""
        now = versions.restore(name, number, caller(request))
        return Restored(name=name, version=now.version, restored=number)

    return router


TaskNumber = Annotated[int, Path(ge=0, le=2**31 - 1, description="The task, from 0.")]


class SinkShare(Shown):
    """The counts of one of several sinks."""

    written: int
    rejected: int


class RecordCounts(Shown):
    """Record counts. In balance: read = written + filtered + rejected.

    With several sinks, ``written`` counts the records that were written to all of them.
    """

    read: int
    written: int
    filtered: int
    rejected: int = Field(description="Records sent to the dead letters.")
    size_bytes: int = Field(description="The bytes read, if the source knows them.")
    balanced: bool
    filters: dict[str, int] = Field(description="Filtered records, by transform.")
    causes: dict[str, int] = Field(description="Rejected records, by stage and error.")
    sinks: dict[str, SinkShare] = Field(
        description="The counts of each sink, by its number from 0, if they differ."
    )


class TaskCounts(BaseModel):
    """The counts of a task."""

    task: int
    counts: RecordCounts


class ConnectorCounts(BaseModel):
    """The counts of a connector."""

    name: str
    balance: str = Field(default=BALANCE, description="The equation of balanced counts.")
    total: RecordCounts = Field(description="The sum over its tasks.")
    tasks: list[TaskCounts] = Field(description="The tasks that have ever run.")
    replays: RecordCounts = Field(
        description="The counts of replayed dead letters, which count as rejected above."
    )

    @classmethod
    def of(cls, tally: Tally) -> Self:
        return cls(
            name=tally.connector,
            total=RecordCounts.of(tally.total),
            tasks=[
                TaskCounts(task=number, counts=RecordCounts.of(counts))
                for number, counts in tally.tasks.items()
            ],
            replays=RecordCounts.of(tally.replays),
        )


class Place(BaseModel):
    """The offset of a task in a partition of its source, in the source's own form."""

    partition: dict[str, Any]
    offset: dict[str, Any]

    @classmethod
    def all(cls, position: Position) -> list[Self]:
        return [cls(partition=dict(p), offset=dict(o)) for p, o in position.items()]


class BatchShown(BaseModel):
    """A batch: one step of a task from one position to another."""

    id: int = Field(description="Increases by one with each batch of the task.")
    state: BatchState
    start: list[Place] = Field(description="The position before it.")
    end: list[Place] = Field(description="The position after it.")
    begun: datetime
    finished: datetime | None
    counts: RecordCounts | None = Field(description="Null until it is finished.")

    @classmethod
    def of(cls, batch: Batch) -> Self:
        done = batch.state is BatchState.FINISHED
        return cls(
            id=batch.id,
            state=batch.state,
            start=Place.all(batch.start),
            end=Place.all(batch.end),
            begun=batch.begun,
            finished=batch.finished,
            counts=RecordCounts.of(batch.counts) if done else None,
        )


class Since(BaseModel):
    """The time from which to count."""

    model_config = ConfigDict(extra="forbid")

    since: Moment | None = Field(
        default=None,
        description="Only batches begun at or after this time. Complete for the newest 1000 "
        "batches of a task, or as far back as a limit of the connector requires.",
    )


def count_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["counts"])
    tallies = Tallies(connectors)

    @router.get("/counts", summary="Count the records of connectors")
    def counts(asked: Annotated[Choice, Query()]) -> list[ConnectorCounts]:
        return [ConnectorCounts.of(each) for each in tallies.chosen(asked.filter())]

    one = "/connectors/{name}"

    @router.get(
        f"{one}/counts", summary="Count the records of a connector", responses=problems(404)
    )
    def counts_of(name: Encoded, asked: Annotated[Since, Query()]) -> ConnectorCounts:
        return ConnectorCounts.of(tallies.of(name, asked.since))

    @router.get(
        f"{one}/tasks/{{task}}/batches",
        summary="List the newest batches of a task",
        responses=problems(404),
    )
    def batches(
        name: Encoded, task: TaskNumber, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> list[BatchShown]:
        return [BatchShown.of(each) for each in tallies.batches(name, task, limit)]

    return router
