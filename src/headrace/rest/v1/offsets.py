"""Offsets of connectors: show, change while the connector is stopped, and undo."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import (
    REPLAYS,
    Connectors,
    GivenUp,
    Holding,
    Offset,
    OffsetChange,
    OffsetEffect,
    Offsets,
    UnfinishedBatches,
)
from headrace.model import TaskId
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded, JsonMap
from headrace.rest.v1.connectors import BatchShown
from headrace.rest.v1.jobs import Number
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.requests import Moment, Switch
from headrace.rest.v1.trials import Workbench
from headrace.sdk import ConfigError, StateError

_STOPPED = "The connector must be stopped and have no unfinished batch."


class OffsetEntry(Shown):
    """The offset of a connector in a partition, in Kafka Connect's form."""

    model_config = ConfigDict(extra="forbid")

    partition: JsonMap
    offset: JsonMap | None = Field(description="Null means the beginning.")


class OffsetList(BaseModel):
    """The offsets of a connector."""

    offsets: list[OffsetEntry]


class NewOffsets(BaseModel):
    """The new offsets of a connector."""

    model_config = ConfigDict(extra="forbid")

    offsets: list[OffsetEntry] = Field(min_length=1)


class OffsetStep(Shown):
    """The change of a partition's offset, and its effect on the data."""

    partition: dict[str, Any]
    before: dict[str, Any] | None = Field(description="Null means the beginning.")
    after: dict[str, Any] | None = Field(description="Null means the beginning.")
    effect: OffsetEffect = Field(
        description="Whether the records in between are read again or skipped."
    )
    meaning: str = Field(description="The effect in a sentence.")


class OffsetSteps(BaseModel):
    """The changes that a request made; empty if there was nothing to change."""

    changes: list[OffsetStep]


class OffsetRecord(Shown):
    """A past change of offsets."""

    event: int = Field(validation_alias="id", description="The id of its event.")
    action: str = Field(description="`alter`, `reset`, `rewind`, `undo` or `give-up`.")
    at: datetime
    by: str
    changes: list[OffsetStep]


class Reset(BaseModel):
    """The body of a reset, which has no fields."""

    model_config = ConfigDict(extra="forbid")


class Rewind(BaseModel):
    """The time to rewind to."""

    model_config = ConfigDict(extra="forbid")

    to: Moment = Field(description="Records from this time on are read again.")


class Undo(BaseModel):
    """The options of an undo."""

    model_config = ConfigDict(extra="forbid")

    force: Switch = Field(
        default=False, description="Undo even if data was copied since the change."
    )


def _steps(changes: list[OffsetChange]) -> OffsetSteps:
    return OffsetSteps(changes=OffsetStep.all(changes))


@contextmanager
def _refusal() -> Iterator[None]:
    """Raise ConfigErrors as StateErrors: the request is valid, but the target rejects it."""
    try:
        yield
    except ConfigError as error:
        raise StateError(error.problem, fix=error.fix, field=error.field) from error


def offset_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connectors/{name}/offsets", tags=["offsets"])
    offsets = Offsets(connectors)

    @router.get("", summary="Show a connector's offsets", responses=problems(404))
    def show(name: Encoded) -> OffsetList:
        return OffsetList(offsets=OffsetEntry.all(offsets.view(name)))

    @router.patch(
        "",
        summary="Alter a connector's offsets",
        description=f"{_STOPPED} Other partitions keep their offsets.",
        responses=problems(404, 409),
    )
    def alter(name: Encoded, body: NewOffsets, request: Request) -> OffsetSteps:
        result = [Offset(each.partition, each.offset) for each in body.offsets]
        with _refusal():
            return _steps(offsets.alter(name, result, caller(request)))

    @router.post(
        "/reset",
        summary="Reset a connector's offsets",
        description=_STOPPED,
        responses=problems(404, 409),
    )
    def reset(name: Encoded, body: Reset, request: Request) -> OffsetSteps:
        return _steps(offsets.reset(name, caller(request)))

    _add_ways_back(router, offsets)
    return router


def _add_ways_back(router: APIRouter, offsets: Offsets) -> None:
    @router.post(
        "/rewind",
        summary="Rewind a connector to a time",
        description=f"{_STOPPED} A source that does not know the times of its data goes back "
        "to its offset of that time: exactly within its last 1,000 batches, before these to "
        "the hour, for 30 days.",
        responses=problems(404, 409),
    )
    def rewind(name: Encoded, body: Rewind, request: Request) -> OffsetSteps:
        with _refusal():
            return _steps(offsets.rewind(name, body.to, caller(request)))

    @router.post(
        "/undo",
        summary="Undo the last change of a connector's offsets",
        description=f"{_STOPPED} Undoing an undo applies the change again.",
        responses=problems(404, 409),
    )
    def undo(name: Encoded, body: Undo, request: Request) -> OffsetSteps:
        return _steps(offsets.undo(name, caller(request), force=body.force))

    @router.get("/history", summary="List changes of offsets", responses=problems(404))
    def history(name: Encoded) -> list[OffsetRecord]:
        """Return who changed which offsets and when, newest first."""
        return OffsetRecord.all(offsets.history(name))


_TASK = f"The task, from 0; {REPLAYS} is the task that replays dead letters."
AnyTask = Annotated[int, Path(ge=REPLAYS, le=2**31 - 1, description=_TASK)]
BatchId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The unfinished batch.")]


class GiveUp(BaseModel):
    """The options of giving up a batch."""

    model_config = ConfigDict(extra="forbid")

    skip: Switch = Field(
        default=False,
        description="Skip its records: the task continues after the batch. Otherwise they are "
        "read again in a new batch, as far as they still exist.",
    )
    force: Switch = Field(
        default=False,
        description="Force it, even if a target contains the batch or cannot be reached.",
    )
    dry_run: Switch = Field(
        default=False, description="Dry run: only return what would be done."
    )


class GiveUpOfRun(GiveUp):
    """The options of giving up a batch of a run."""

    task: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="The task; null for the task with an unfinished batch."
    )


class TargetShown(Shown):
    """A target of the task."""

    name: str = Field(description="The class of its sink.")
    holds: Holding = Field(description="Whether it contains the batch.")
    why: str = Field(description="Why that is unknown, or further details.")


class GivenUpBatch(BaseModel):
    """A batch that was given up, or would be."""

    task: int
    batch: BatchShown
    skipped: bool = Field(description="Whether its records are skipped.")
    targets: list[TargetShown]
    done: bool = Field(description="False for a dry run.")
    meaning: str = Field(description="The effect on its records, in a sentence.")

    @classmethod
    def of(cls, result: GivenUp) -> Self:
        return cls(
            task=result.batch.task.number,
            batch=BatchShown.of(result.batch),
            skipped=result.skipped,
            targets=TargetShown.all(result.targets),
            done=result.done,
            meaning=result.meaning,
        )


def unfinished_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["offsets"])

    @router.post(
        "/connectors/{name}/tasks/{task}/batches/{batch}/give-up",
        summary="Give up a batch that can no longer complete",
        description="The connector must be stopped. Rejected if a target contains the batch or "
        "cannot be reached. The batch id is not reused; the list of changes of offsets shows "
        "who gave it up.",
        responses=problems(404, 409),
        dependencies=[Depends(bench.slots)],
    )
    def give_up(
        name: Encoded, task: AnyTask, batch: BatchId, body: GiveUp, request: Request
    ) -> GivenUpBatch:
        batches = UnfinishedBatches(connectors, bench.runtime.receipts)
        result = batches.give_up(
            TaskId(name, task),
            batch,
            caller(request),
            skip=body.skip,
            force=body.force,
            dry_run=body.dry_run,
        )
        return GivenUpBatch.of(result)

    @router.post(
        "/jobs/{name}/runs/{run}/give-up",
        summary="Give up a run's batch that can no longer complete",
        description="The run must have ended or, in real time, its job must be suspended. A "
        "retry continues after the batch, or reads again what still exists of it. Rejected if "
        "a target contains the batch or cannot be reached.",
        responses=problems(404, 409),
        dependencies=[Depends(bench.slots)],
        tags=["jobs"],
    )
    def give_up_of_run(
        name: Encoded, run: Number, body: GiveUpOfRun, request: Request
    ) -> GivenUpBatch:
        with _refusal():
            result = bench.runtime.giving_up_of_runs().give_up(
                name,
                run,
                caller(request),
                task=body.task,
                skip=body.skip,
                force=body.force,
                dry_run=body.dry_run,
            )
        return GivenUpBatch.of(result)

    return router
