"""Topics: their statistics, readers, retention and schemas; and schemas of connectors."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Self

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import Connectors
from headrace.model import TopicRetention
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.requests import IS_NUMBER, Switch, if_set
from headrace.rest.v1.trials import Workbench
from headrace.sdk import Schema
from headrace.sdk.sparktypes import to_spark_json

if TYPE_CHECKING:
    from headrace.topics import SchemaVersion, Topic

_NO_LIMIT = -1
_MS = "Rows older than this many milliseconds are removed; -1 for no limit."
_BYTES = "Above this many bytes the oldest rows are removed; -1 for no limit."
_UNREAD = "Whether to remove rows that a sink has not read yet, as Kafka does."
_MOST = 2**53
"""The largest integer that all JSON clients parse exactly."""
Limit = Annotated[int, Field(ge=_NO_LIMIT, le=_MOST), IS_NUMBER]


class RetentionShown(BaseModel):
    """The retention of a topic."""

    ms: int = Field(description=_MS)
    bytes: int = Field(description=_BYTES)
    unread: bool = Field(description=_UNREAD)

    @classmethod
    def of(cls, retention: TopicRetention) -> Self:
        age, size = retention.age, retention.size_bytes
        return cls(
            ms=_NO_LIMIT if age is None else age // timedelta(milliseconds=1),
            bytes=_NO_LIMIT if size is None else size,
            unread=retention.unread,
        )


class TopicReader(Shown):
    """A task that reads a topic."""

    task: str = Field(validation_alias="reader")
    version: int = Field(description="The newest version that it has read completely.")
    running: bool = Field(description="Whether it has an unfinished batch.")


class TopicShown(BaseModel):
    """A topic."""

    name: str
    version: int = Field(description="The newest version.")
    oldest_version: int = Field(description="The oldest version that can still be read.")
    rows: int
    size_bytes: int
    files: int
    first_append: datetime | None
    last_append: datetime | None
    retention: RetentionShown
    readers: list[TopicReader]


class TopicChange(BaseModel):
    """Changes of a topic's retention; omitted fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")

    retention_ms: Limit = if_set(description=_MS)
    retention_bytes: Limit = if_set(description=_BYTES)
    retention_unread: Switch = if_set(description=_UNREAD)


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
        """Return the statistics, readers and retention of a topic."""
        return _shown(bench.topic(topic), bench)

    @router.patch(
        "/{topic}",
        summary="Change a topic's retention",
        responses=problems(404),
        dependencies=[Depends(bench.slots)],
    )
    def change(topic: Encoded, body: TopicChange, request: Request) -> TopicShown:
        """Change the retention and return the topic.

        The retention is stored with the topic and takes effect at the next cleanup, within
        about ten minutes. Removed rows cannot be restored.
        """
        found = bench.topic(topic)
        retention = found.retention().changed(
            body.retention_ms, body.retention_bytes, unread=body.retention_unread
        )
        found.configure(retention, by=caller(request))
        return _shown(found, bench)

    return router


def _shown(topic: "Topic", bench: Workbench) -> TopicShown:
    found = topic.describe()
    return TopicShown(
        name=found.name,
        version=found.version,
        oldest_version=found.oldest_version,
        rows=found.rows,
        size_bytes=found.size_bytes,
        files=found.files,
        first_append=found.first_append,
        last_append=found.last_append,
        retention=RetentionShown.of(found.retention),
        readers=TopicReader.all(bench.runtime.readings(topic.name)),
    )


_FORM = "A field in Spark's JSON form: type, nullability and metadata."


class StreamSchema(BaseModel):
    """A current or earlier schema of a connector's stream."""

    version: int = Field(description="The number of the stream's schema, from 1.")
    value: dict[str, Any] = Field(description=_FORM)


class StreamSchemas(BaseModel):
    """The schemas of a stream, such as a table or a file, newest first."""

    stream: str
    versions: list[StreamSchema]


class TopicSchema(BaseModel):
    """A current or earlier schema of a topic's stream."""

    stream: str = Field(description="The stream; the topic's name if it has only one stream.")
    version: int = Field(description="The number of the stream's schema, from 1.")
    since: int = Field(description="The first version of the topic with this schema.")
    at: datetime = Field(description="When that version was appended.")
    value: dict[str, Any] = Field(description=_FORM)
    key: dict[str, Any] | None = Field(description="Null if records have no key.")
    writer: str | None = Field(description="Who wrote the first batch with it.")

    @classmethod
    def of(cls, found: "SchemaVersion") -> Self:
        return cls(
            stream=found.stream,
            version=found.number,
            since=found.version,
            at=found.time,
            value=_field(found.value),
            key=None if found.key is None else _field(found.key),
            writer=found.application,
        )


def schema_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["schemas"])

    @router.get(
        "/connectors/{name}/schemas",
        summary="Show the schemas of a connector's streams",
        responses=problems(404),
    )
    def of_connector(name: Encoded) -> list[StreamSchemas]:
        """Return the streams by name, if the connector stores their schemas."""
        connectors.get(name)
        found = connectors.task_store.schemas(name)
        return [StreamSchemas(stream=s, versions=_versions(found[s])) for s in sorted(found)]

    @router.get(
        "/topics/{topic}/schemas",
        summary="Show a topic's schemas",
        responses=problems(404),
        dependencies=[Depends(bench.slots)],
    )
    def of_topic(topic: Encoded) -> list[TopicSchema]:
        """Return the oldest first."""
        return [TopicSchema.of(each) for each in bench.topic(topic).history.versions()]

    return router


def _versions(schemas: Sequence[Schema]) -> list[StreamSchema]:
    numbered = enumerate(schemas, 1)
    return [StreamSchema(version=n, value=_field(each)) for n, each in numbered][::-1]


def _field(schema: Schema) -> dict[str, Any]:
    [field] = to_spark_json(Schema.struct({"value": schema}))["fields"]
    return {name: value for name, value in field.items() if name != "name"}
