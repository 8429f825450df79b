"""Topics: what they hold, who reads them, and how long they keep their rows."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Self

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.model import Reading, TopicRetention
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import problems
from headrace.rest.v1.requests import IS_NUMBER, Switch, given
from headrace.rest.v1.trials import Workbench

if TYPE_CHECKING:
    from headrace.topics import Topic

_NO_LIMIT = -1
_MS = "After how many milliseconds rows are removed; -1 for never."
_BYTES = "From how many bytes on the oldest rows are removed; -1 for any size."
_UNREAD = "Whether rows are removed, as in Kafka, that a sink has yet to read."
_MOST = 2**53
"""JSON has no larger whole numbers that every client reads as they are."""
Limit = Annotated[int, Field(ge=_NO_LIMIT, le=_MOST), IS_NUMBER]


class RetentionShown(BaseModel):
    """How long a topic keeps its rows."""

    ms: int = Field(description=_MS)
    bytes: int = Field(description=_BYTES)
    unread: bool = Field(description=_UNREAD)

    @classmethod
    def of(cls, kept: TopicRetention) -> Self:
        """Show it."""
        age, size = kept.age, kept.size_bytes
        return cls(
            ms=_NO_LIMIT if age is None else age // timedelta(milliseconds=1),
            bytes=_NO_LIMIT if size is None else size,
            unread=kept.unread,
        )


class TopicReader(BaseModel):
    """A task that reads a topic."""

    task: str
    version: int = Field(description="The newest version that it has read as a whole.")
    running: bool = Field(description="Whether a batch of it is unfinished.")

    @classmethod
    def of(cls, reading: Reading) -> Self:
        """Show it."""
        return cls(task=reading.reader, version=reading.version, running=reading.running)


class TopicShown(BaseModel):
    """A topic."""

    name: str
    version: int = Field(description="The newest version.")
    oldest_version: int = Field(description="The oldest that can still be read.")
    rows: int
    size_bytes: int
    files: int
    first_append: datetime | None
    last_append: datetime | None
    retention: RetentionShown
    readers: list[TopicReader]


class TopicChange(BaseModel):
    """What is to change of how long a topic keeps its rows; the rest stays."""

    model_config = ConfigDict(extra="forbid")

    retention_ms: Limit = given(description=_MS)
    retention_bytes: Limit = given(description=_BYTES)
    retention_unread: Switch = given(description=_UNREAD)


def topic_routes(bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/topics", tags=["topics"])

    @router.get(
        "/{topic}",
        summary="Show a topic",
        responses=problems(404),
        dependencies=[Depends(bench.slots)],
    )
    def show(topic: Encoded) -> TopicShown:
        """Answer with its figures, who reads it, and how long it keeps its rows."""
        return _shown(bench.topic(topic), bench)

    @router.patch(
        "/{topic}",
        summary="Change how long a topic keeps its rows",
        responses=problems(404),
        dependencies=[Depends(bench.slots)],
    )
    def change(topic: Encoded, body: TopicChange, request: Request) -> TopicShown:
        """Answer with the topic as it is then.

        It is stored with the topic, and counts from the next look of whoever keeps it, within
        some ten minutes. What is removed cannot be brought back.
        """
        found = bench.topic(topic)
        kept = found.retention().changed(
            body.retention_ms, body.retention_bytes, unread=body.retention_unread
        )
        found.configure(kept, by=caller(request))
        return _shown(found, bench)

    return router


def _shown(topic: "Topic", bench: Workbench) -> TopicShown:
    told = topic.describe()
    return TopicShown(
        name=told.name,
        version=told.version,
        oldest_version=told.oldest_version,
        rows=told.rows,
        size_bytes=told.size_bytes,
        files=told.files,
        first_append=told.first_append,
        last_append=told.last_append,
        retention=RetentionShown.of(told.retention),
        readers=[TopicReader.of(each) for each in bench.readings(topic.name)],
    )
