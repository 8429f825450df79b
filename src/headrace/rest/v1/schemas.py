"""The schemas that records have had, by connector and by topic."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from headrace.control import Connectors
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import problems
from headrace.rest.v1.trials import Workbench
from headrace.sdk import Schema
from headrace.sdk.sparktypes import to_spark_json

if TYPE_CHECKING:
    from headrace.topics import SchemaVersion

_FORM = "As Spark writes a field: its type, whether it may be null, and metadata."


class StreamSchema(BaseModel):
    """A schema that a stream of a connector has or had."""

    version: int = Field(description="Counts the stream's schemas, from 1.")
    value: dict[str, Any] = Field(description=_FORM)


class StreamSchemas(BaseModel):
    """The schemas of a stream, such as a table or a file, the newest first."""

    stream: str
    versions: list[StreamSchema]


class TopicSchema(BaseModel):
    """A schema that a stream of a topic has or had."""

    stream: str = Field(description="The topic's name, for a topic that is one stream.")
    version: int = Field(description="Counts the stream's schemas, from 1.")
    since: int = Field(description="The version of the topic from which it applies.")
    at: datetime = Field(description="When that was appended.")
    value: dict[str, Any] = Field(description=_FORM)
    key: dict[str, Any] | None = Field(description="Null where records have no key.")
    writer: str | None = Field(description="Who wrote the first batch with it.")

    @classmethod
    def of(cls, found: "SchemaVersion") -> Self:
        """Show a schema."""
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
        """Answer with the streams by name, as far as the connector keeps their schemas."""
        connectors.get(name)
        found = connectors.state.schemas(name)
        return [StreamSchemas(stream=s, versions=_versions(found[s])) for s in sorted(found)]

    @router.get(
        "/topics/{topic}/schemas",
        summary="Show a topic's schemas",
        responses=problems(404),
        dependencies=[Depends(bench.slots)],
    )
    def of_topic(topic: Encoded) -> list[TopicSchema]:
        """Answer with the oldest first."""
        return [TopicSchema.of(each) for each in bench.topic(topic).history.versions()]

    return router


def _versions(schemas: Sequence[Schema]) -> list[StreamSchema]:
    numbered = enumerate(schemas, 1)
    return [StreamSchema(version=n, value=_field(each)) for n, each in numbered][::-1]


def _field(schema: Schema) -> dict[str, Any]:
    [field] = to_spark_json(Schema.struct({"value": schema}))["fields"]
    return {name: value for name, value in field.items() if name != "name"}
