"""Bulk actions: one request for many connectors."""

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.control import Bulk, BulkAction, BulkResult, ConnectorFilter, Connectors
from headrace.model import ConnectorKind, ConnectorState, TaskState
from headrace.rest.guard import caller
from headrace.rest.v1.connectors import (
    KIND,
    NAME,
    PATTERNS,
    PLUGIN,
    STATE,
    TASK_STATE,
    Choice,
    Pattern,
)
from headrace.rest.v1.given import Switch, given
from headrace.rest.v1.problems import Fault


class BulkFilter(BaseModel):
    """Which connectors; of several values one will do. It must say something."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    name: list[Pattern] = given(
        description=f"{NAME} `*` takes all.", min_length=1, max_length=PATTERNS
    )
    kind: list[ConnectorKind] = given(description=KIND, min_length=1)
    state: list[ConnectorState] = given(description=STATE, min_length=1)
    task_state: list[TaskState] = given(description=TASK_STATE, min_length=1)
    plugin: list[str] = given(description=PLUGIN, min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            problem = "Say which connectors: name `*` takes all"
            raise ValueError(problem)
        return self

    def filter(self) -> ConnectorFilter:
        """Return the filter that is meant."""
        return Choice.model_validate(self.model_dump(exclude_unset=True)).filter()


class BulkRequest(BaseModel):
    """What is to be done, and to which connectors."""

    model_config = ConfigDict(extra="forbid")

    filter: BulkFilter
    dry_run: Switch = Field(default=False, description="Only tell what it would be done to.")
    tasks: Switch = Field(default=True, description="Whether a restart takes the tasks along.")
    only_failed: Switch = Field(
        default=False, description="Whether a restart leaves alone what has not failed."
    )


class BulkOutcome(BaseModel):
    """What became of one connector."""

    name: str
    state: ConnectorState = Field(description="How it was before.")
    outcome: Literal["done", "failed", "would"]
    error: Fault | None = Field(description="Why it failed.")


class BulkAnswer(BaseModel):
    """What became of the connectors that were chosen, by name."""

    action: BulkAction
    dry_run: bool
    done: int = Field(description="How many were done.")
    failed: int = Field(description="How many were not, each for a reason of its own.")
    results: list[BulkOutcome]


def bulk_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/bulk", tags=["connectors"])

    @router.post("/{action}", summary="Do one thing to many connectors")
    def bulk(
        action: BulkAction, asked: Annotated[BulkRequest, Body()], request: Request
    ) -> BulkAnswer:
        """Pause, resume, stop, restart or delete the connectors that a filter takes."""
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
