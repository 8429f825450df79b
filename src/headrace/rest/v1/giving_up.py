"""The way out of batches that were begun and cannot run any more."""

from typing import Annotated, Self

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import REPLAYS, Connectors, GivenUp, Holding, UnfinishedBatches
from headrace.model import TaskId
from headrace.rest.guard import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.counts import BatchShown
from headrace.rest.v1.given import Switch
from headrace.rest.v1.problems import problems
from headrace.rest.v1.workbench import Workbench

_TASK = f"The task, from 0; {REPLAYS} is the one that replays dead letters."
AnyTask = Annotated[int, Path(ge=REPLAYS, le=2**31 - 1, description=_TASK)]
BatchId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The unfinished batch.")]


class GiveUp(BaseModel):
    """How to give a batch up."""

    model_config = ConfigDict(extra="forbid")

    skip: Switch = Field(
        default=False,
        description="Leave its records out: the task goes on from its end. Else they are "
        "read again in a new batch, as far as they are there.",
    )
    force: Switch = Field(
        default=False, description="Do it although a target holds it, or cannot be asked."
    )
    dry_run: Switch = Field(default=False, description="Only tell what would be done.")


class TargetShown(BaseModel):
    """A target of the task."""

    name: str = Field(description="The class of its sink.")
    holds: Holding = Field(description="Whether it holds the batch.")
    why: str = Field(description="Why that is not known, or what else is to be known.")


class GivenUpBatch(BaseModel):
    """A batch that was given up, or would be."""

    task: int
    batch: BatchShown
    skipped: bool = Field(description="Whether its records are left out.")
    targets: list[TargetShown]
    done: bool = Field(description="False for a dry run.")
    meaning: str = Field(description="What becomes of its records, in a sentence.")

    @classmethod
    def of(cls, given: GivenUp) -> Self:
        """Show what was done."""
        return cls(
            task=given.batch.task.number,
            batch=BatchShown.of(given.batch),
            skipped=given.skipped,
            targets=[
                TargetShown(name=each.name, holds=each.holds, why=each.why)
                for each in given.targets
            ],
            done=given.done,
            meaning=given.meaning,
        )


def unfinished_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["offsets"])

    @router.post(
        "/connectors/{name}/tasks/{task}/batches/{batch}/give-up",
        summary="Give up a batch that cannot run any more",
        description="The connector has to be stopped. It is refused where a target holds the "
        "batch, or cannot be asked. The id stays used; the list of changes of offsets tells "
        "who did it.",
        responses=problems(404, 409),
        dependencies=[Depends(bench.slots)],
    )
    def give_up(
        name: Encoded, task: AnyTask, batch: BatchId, body: GiveUp, request: Request
    ) -> GivenUpBatch:
        batches = UnfinishedBatches(connectors, bench.targets)
        given = batches.give_up(
            TaskId(name, task),
            batch,
            caller(request),
            skip=body.skip,
            force=body.force,
            dry_run=body.dry_run,
        )
        return GivenUpBatch.of(given)

    return router
