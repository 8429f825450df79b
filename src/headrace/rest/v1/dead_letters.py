"""Dead letters: list, discard or replay rejected records."""

import json
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.control import Connectors, definition_of
from headrace.model import EventKind
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded
from headrace.rest.v1.problems import Fault, problems
from headrace.rest.v1.requests import Moment, if_set
from headrace.rest.v1.trials import Workbench
from headrace.sdk import HeadraceError
from headrace.store import existing

if TYPE_CHECKING:
    from headrace.dataplane import DeadLetterFilter


CONNECTOR = "The connector that rejected them."
STAGE = "The stage, by its Kafka Connect name."
EXCEPTION = "The class of the error, with or without its package."
SINCE = "Rejected by batches begun at or after this time."
UNTIL = "Rejected by batches begun before this time."
IDS = "The ids of the letters."


class LetterChoice(BaseModel):
    """A filter of letters; omitted fields match any."""

    model_config = ConfigDict(extra="forbid")

    stage: str | None = Field(default=None, description=STAGE)
    exception: str | None = Field(default=None, description=EXCEPTION)
    since: Moment | None = Field(default=None, description=SINCE)
    until: Moment | None = Field(default=None, description=UNTIL)
    id: list[str] = Field(default=[], description=IDS)

    def filter(self, connector: str | None) -> "DeadLetterFilter":
        # This imports pyspark, which the schema registry's server does not need.
        from headrace.dataplane import DeadLetterFilter  # noqa: PLC0415

        return DeadLetterFilter(
            connector=connector,
            stage=self.stage and self.stage.upper(),
            exception=self.exception,
            since=self.since,
            until=self.until,
            ids=tuple(self.id),
        )


class ConnectorLetters(LetterChoice):
    """A filter of letters, of one connector or of all."""

    connector: str | None = Field(default=None, description=CONNECTOR)


class LetterPage(ConnectorLetters):
    """A filter of letters, and their maximum number."""

    limit: int = Field(default=20, ge=1, le=1000, description="The maximum number of letters.")


class LetterGroup(BaseModel):
    """The open letters with the same cause."""

    topic: str = Field(description="The dead-letter topic.")
    connector: str | None
    stage: str | None
    class_: str | None = Field(alias="class", description="The plugin that rejected them.")
    exception: str | None
    letters: int
    first: datetime | None
    last: datetime | None


class LetterHeader(BaseModel):
    """A header of a record."""

    key: str | None = None
    value: str | None = None
    type: str | None = None


class Letter(BaseModel):
    """A record that was rejected, and why."""

    id: str
    connector: str | None = None
    task: int | None = None
    stage: str | None = None
    class_: str | None = Field(
        default=None, alias="class", description="The plugin that rejected it."
    )
    exception: str | None = None
    message: str | None = None
    rejected: datetime | None = Field(
        default=None, description="When the batch that rejected it began."
    )
    topic: str | None = Field(default=None, description="Where the record came from.")
    partition: int | None = None
    position: str | None = None
    sink: int | None = Field(default=None, description="The only sink that rejected it.")
    timestamp: datetime | None = None
    headers: list[LetterHeader] | None = None
    key: Any = None
    value: Any = None


class Discard(BaseModel):
    """The letters to close. It must not be empty."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    all: Literal[True] = if_set(description="All letters that match the other fields.")
    connector: str = if_set(description=CONNECTOR)
    stage: str = if_set(description=STAGE)
    exception: str = if_set(description=EXCEPTION)
    since: Moment = if_set(description=SINCE)
    until: Moment = if_set(description=UNTIL)
    id: list[str] = if_set(description=IDS, min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            problem = "Set a filter, or set all to true"
            raise ValueError(problem)
        return self

    def filter(self) -> "DeadLetterFilter":
        fields = self.model_dump(exclude_unset=True, exclude={"all"})
        chosen = ConnectorLetters.model_construct(**fields)  # it is checked already
        return chosen.filter(chosen.connector)


class Discarded(BaseModel):
    """The number of closed letters."""

    discarded: int


class Repaired(BaseModel):
    """A repaired letter; omitted fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")

    id: str
    key: Any = None
    value: Any = None
    headers: list[LetterHeader] | None = None


class Replay(LetterChoice):
    """The letters to replay."""

    repaired: list[Repaired] | None = Field(
        default=None, description="Only these letters, with these repairs."
    )


class Replayed(BaseModel):
    """The result of a replay."""

    records: int = Field(description="How many letters the replay claimed.")
    unrepaired: int = Field(description="How many were skipped: not valid records yet.")
    unknown: int = Field(description="How many of the given letters are not open.")
    error: Fault | None = Field(
        description="Why the replay ended early; the next one finishes it."
    )


def letter_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["dead letters"], dependencies=[Depends(bench.slots)])

    @router.get("/dead-letters", summary="Count open dead letters by cause")
    def groups(asked: Annotated[ConnectorLetters, Query()]) -> list[LetterGroup]:
        return [
            LetterGroup.model_validate({"topic": topic.name, **group})
            for topic in bench.runtime.topics.list()
            if topic.schema().field("cause") is not None
            for group in bench.dead_letter_queue(topic.name).groups(
                asked.filter(asked.connector)
            )
        ]

    @router.get(
        "/dead-letters/{topic}", summary="List open dead letters", responses=problems(404)
    )
    def letters(topic: Encoded, asked: Annotated[LetterPage, Query()]) -> list[Letter]:
        """Return the oldest first."""
        chosen = asked.filter(asked.connector)
        lines = bench.dead_letter_queue(topic).lines(chosen, asked.limit)
        return [Letter.model_validate(line) for line in lines]

    @router.post(
        "/dead-letters/{topic}/discard",
        summary="Close dead letters",
        responses=problems(404, 409),
    )
    def discard(
        topic: Encoded, asked: Annotated[Discard, Body()], request: Request
    ) -> Discarded:
        """Close letters that will not be replayed. They stay in the topic."""
        closed = bench.dead_letter_queue(topic).discard(asked.filter())
        detail = {"topic": topic, "letters": closed}
        connectors.record_event(EventKind.DISCARDED, caller(request), detail)
        return Discarded(discarded=closed)

    @router.post(
        "/connectors/{name}/dead-letters/replay",
        summary="Replay dead letters",
        responses=problems(404, 409),
    )
    def replay(name: Encoded, asked: Annotated[Replay, Body()]) -> Replayed:
        """Send letters through their connector's transforms to its sinks, each once.

        Responds when that is done. A record that fails again becomes a new letter.
        """
        # As stored, with its passwords.
        stored = existing(name, connectors.store.connector(name))
        definition = definition_of(stored, connectors.registry)
        with tempfile.TemporaryDirectory(prefix="headrace-letters-") as folder:
            file = _file(asked, Path(folder))
            chosen = asked.filter(None)  # the replay knows its connector
            claimed, outcome = bench.replay(definition, chosen, file)
        error = next(iter(outcome.errors.values()), None)
        return Replayed(
            records=claimed.records,
            unrepaired=claimed.unrepaired,
            unknown=claimed.unknown,
            error=None if error is None else _fault(error),
        )

    return router


def _file(asked: Replay, folder: Path) -> Path | None:
    """Write the repaired letters to a file of JSON lines, the form that a replay reads."""
    if asked.repaired is None:
        return None
    lines = (each.model_dump(exclude_unset=True) for each in asked.repaired)
    file = folder / "letters"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return file


def _fault(error: Exception) -> Fault:
    if isinstance(error, HeadraceError):
        return Fault.of(error)
    return Fault(code="internal", field=None, problem=f"{error}", fix="")
