"""Record counts by task and by batch, and whether they are balanced."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import BALANCE, Connectors, Tallies, Tally
from headrace.model import Batch, BatchState
from headrace.rest.requests import Encoded
from headrace.rest.v1.connectors import Choice
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.requests import Moment
from headrace.sdk import Position

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
