"""Previews of configurations and trials of transforms, which store and write nothing."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, ConfigDict, Field

from headrace.control import Connectors
from headrace.model import Definition, TopicNotFoundError
from headrace.rest.v1.problems import Shown
from headrace.rest.v1.requests import Slots, Whole
from headrace.runtime.server_log import ServerLog
from headrace.sdk import StateError
from headrace.store import Backups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from headrace.dataplane import Claimed, DeadLetterFilter, DeadLetterQueue, Stage
    from headrace.runtime.app import Runtime
    from headrace.topics import Topic
    from headrace.worker import Events, Outcome


@dataclass
class Workbench:
    """The runtime as the API uses it: Spark starts on first use. Thread-safe."""

    runtime: Runtime
    events: Events
    clock: Callable[[], datetime]
    slots: Slots = field(default_factory=Slots)
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises TopicNotFoundError if it does not exist."""
        found = self.runtime.topics.find(name)
        if found is None:
            problem = f"There is no topic {name}."
            raise TopicNotFoundError(problem, field="topic", fix="Use an existing topic.")
        return found

    @cached_property
    def backups(self) -> Backups:
        settings = self.runtime.settings
        return Backups(
            place=settings.store_place,
            folder=settings.home / "backups",
            clock=self.clock,
            kept=settings.store_backups_kept,
        )

    @cached_property
    def log(self) -> ServerLog:
        return ServerLog(self.runtime.settings.log_file)

    def preview(self, definition: Definition, rows: int) -> Sequence[Stage]:
        return self.runtime.preview(definition, rows)

    def try_transforms(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.runtime.try_transforms(request)

    def dead_letter_queue(self, topic: str) -> DeadLetterQueue:
        """Return the queue of a dead-letter topic. Raises TopicNotFoundError for others."""
        return self.runtime.dead_letter_queue(self.topic(topic).name)

    def replay(
        self, definition: Definition, chosen: DeadLetterFilter, file: Path | None
    ) -> tuple[Claimed, Outcome]:
        """Send letters through their connector's transforms again, each once.

        Raises StateError while another replay of the connector runs.
        """
        with self._only(definition.name):
            return self.runtime.replay(definition, chosen, file, self.events)

    @contextmanager
    def _only(self, connector: str) -> Iterator[None]:
        """Exclude other replays of a connector in this process: they would share its lease."""
        with self._lock:
            if connector in self._busy:
                problem = f"A replay of {connector} is already running."
                raise StateError(problem, fix="Wait until it is done, then try again.")
            self._busy.add(connector)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(connector)


class PreviewRequest(BaseModel):
    """A connector's configuration in Kafka Connect's form."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, str] = Field(
        examples=[{"connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}]
    )
    rows: Whole = Field(default=20, ge=1, le=1000, description="How many records to read.")


class RecordShown(Shown):
    """A record at one stage."""

    key: Any
    value: Any
    dropped: str | None = Field(
        default=None, description="The name of the step, if it dropped the record."
    )
    error: dict[str, Any] | None = Field(default=None, description="Why this step rejected it.")


class StageShown(Shown):
    """The records at one stage: at the source or after a transform."""

    name: str = Field(description="`source`, or the name of the preceding transform.")
    fields: dict[str, str] = Field(description="The fields of the value, with their types.")
    records: list[RecordShown]
    reader: str | None = Field(
        description="Which reader reads the source, and why, if there is more than one."
    )


class Preview(BaseModel):
    """The first records at the source, and after each transform."""

    stages: list[StageShown]


class TrialRequest(BaseModel):
    """A chain of transforms, and records to send through it."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any] = Field(
        description="The keys of the chain: `transforms` and the keys below it. All keys of a "
        "connector are accepted, and so is a list of sections as in YAML.",
        examples=[
            {
                "transforms": "wrap",
                "transforms.wrap.type": "HoistField$Value",
                "transforms.wrap.field": "line",
            }
        ],
    )
    records: list[Any] = Field(
        max_length=1000,
        description="Values, or objects with `key`, `value`, `headers` and more.",
        examples=[[{"value": {"id": 1}}]],
    )


class TrialFault(BaseModel):
    """Why a record was rejected."""

    class_: str = Field(alias="class")
    message: str | None


class TrialOutcome(BaseModel):
    """The outcome for a record: one of the three fields is set."""

    record: Any = None
    dropped: str | None = None
    error: TrialFault | None = None


class TrialStep(TrialOutcome):
    """The outcome of a step for a record."""

    name: str


class TrialResult(TrialOutcome):
    """The outcome of the chain for a record, with all steps."""

    steps: list[TrialStep]


class Trial(BaseModel):
    """A result for each record, in order."""

    results: list[TrialResult]


def trial_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["trials"], dependencies=[Depends(bench.slots)])

    @router.post("/preview", summary="Preview a configuration")
    def preview(asked: Annotated[PreviewRequest, Body()]) -> Preview:
        """Return the first records at the source and after each transform. Stores nothing."""
        stages = bench.preview(connectors.definition(asked.config), asked.rows)
        return Preview(stages=StageShown.all(stages))

    @router.post(
        "/transforms/try",
        summary="Try transforms on records",
        response_model_exclude_unset=True,
    )
    def try_transforms(asked: Annotated[TrialRequest, Body()]) -> Trial:
        """Send records through a chain and return the outcome of each step for each record."""
        return Trial.model_validate(bench.try_transforms(asked.model_dump()))

    return router
