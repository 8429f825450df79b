"""Connectors: lists, details, and bulk actions."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Body, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from headrace.control import (
    Bulk,
    BulkAction,
    BulkResult,
    ConnectorFilter,
    Connectors,
    ConnectorView,
    TaskView,
)
from headrace.model import ConnectorKind, ConnectorState, TargetState, TaskState
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import Fault, problems
from headrace.rest.v1.requests import Switch, if_set

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
        status = task.status
        return cls(
            task=task.number,
            state=status.state,
            worker=task.worker,
            trace=status.trace,
            next_try=status.next_try,
            restarts=status.restarts,
        )


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
