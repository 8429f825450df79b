"""Routes of events, as pages and as a stream, of the server's log, and of backups."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from headrace.control import Connectors
from headrace.model import BY_ITSELF, EventKind
from headrace.rest.auth import caller
from headrace.rest.requests import storable
from headrace.rest.v1.problems import Shown, problems
from headrace.rest.v1.requests import ClosedStream, QuerySwitch, Streams
from headrace.rest.v1.trials import Workbench
from headrace.runtime.server_log import LogChoice, LogLine, LogPlace
from headrace.store import ConnectorStore

Storable = Annotated[str, AfterValidator(storable)]
_MOST = 2**63 - 1
_LOOK_SECONDS = 0.5
"""The poll interval of a stream."""
_HEARTBEAT_SECONDS = 15
_PAGE = 500
_STREAM = "text/event-stream"
_EVENT = {
    "type": "object",
    "properties": {
        "data": {"type": "string", "contentMediaType": "application/json"},
        "event": {"type": "string"},
        "id": {"type": "string"},
        "retry": {"type": "integer", "minimum": 0},
    },
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events.", "content": {_STREAM: {"itemSchema": _EVENT}}}
}
"""The OpenAPI description of a stream of events."""


class EventStream(ClosedStream):
    """A response of server-sent events.

    FastAPI's own EventSourceResponse logs an error when the client disconnects.
    """

    def __init__(self, events: AsyncIterator[bytes], closed: Callable[[], None]) -> None:
        super().__init__(events, _STREAM, closed)


class EventShown(Shown):
    """An event of a connector, a task, a job or the server."""

    id: int = Field(description="Increases with time.")
    at: datetime
    connector: str = Field(
        description="The connector or job; empty for the server, and for dead letters of "
        "several connectors."
    )
    task: int | None = Field(description="Null for the connector itself.")
    kind: str = Field(examples=list(EventKind))
    by: str = Field(description="Who caused it: a caller or a worker.")
    detail: dict[str, Any] = Field(description="Further details, by kind.")


class EventPage(BaseModel):
    """A page of events, oldest first."""

    items: list[EventShown]
    next: int = Field(description="The `after` of the next page, which may still be empty.")


class EventChoice(BaseModel):
    """A filter of events; omitted fields match any."""

    model_config = ConfigDict(extra="forbid")

    connector: Storable | None = Field(
        default=None, description="Only of this connector or job, which may be deleted."
    )
    kind: list[EventKind] = Field(default=[], description="Only events of these kinds.")
    changes: QuerySwitch = Field(
        default=False,
        description="Only changes that callers made, without the state changes that followed.",
    )

    def kinds(self) -> set[EventKind] | None:
        """Return the matching kinds; None for all."""
        if not self.kind and not self.changes:
            return None
        kinds = set(self.kind or EventKind)
        return kinds - BY_ITSELF if self.changes else kinds


class EventQuery(EventChoice):
    """A filter of events, and the page."""

    after: int = Field(default=0, ge=0, le=_MOST, description="Only events after this id.")
    limit: int = Field(default=100, ge=1, le=1000, description="The size of the page.")


class StreamQuery(EventChoice):
    """A filter of events, and the duration of the stream."""

    after: int | None = Field(
        default=None,
        ge=0,
        le=_MOST,
        description="Start after this id; by default with new events only.",
    )
    seconds: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="End after this time; by default when the client disconnects.",
    )


LastEventId = Annotated[
    str,
    Header(
        alias="Last-Event-ID",
        pattern=r"^[0-9]{0,18}$",
        description="The last id received; a reconnecting client sends it to miss no event.",
    ),
]


def event_routes(connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/events", tags=["events"])
    store, streams = connectors.store, Streams()

    @router.get("", summary="List events")
    def list_events(asked: Annotated[EventQuery, Query()]) -> EventPage:
        """Return events; with `changes` only those that callers caused."""
        found = store.events(asked.after, asked.limit, asked.connector, asked.kinds())
        newest = found[-1].id if found else asked.after
        return EventPage(items=EventShown.all(found), next=newest)

    @router.get(
        "/stream",
        summary="Follow events",
        status_code=200,
        response_class=EventStream,
        responses=_EVENTS,
    )
    def stream(
        request: Request,
        asked: Annotated[StreamQuery, Query()],
        last_event_id: LastEventId = "",
    ) -> EventStream:
        """Send events as they happen, and a comment after every 15 seconds without one.

        The data of each is the same object as in a page of events, its id is the event's id,
        and its name the event's kind. Limits: 20 open streams per client, 100 in total.
        """
        seen = int(last_event_id) if last_event_id else asked.after
        seen = store.last_event() if seen is None else seen
        return EventStream(_followed(store, seen, asked), streams.take(caller(request)))

    return router


async def _followed(
    store: ConnectorStore, seen: int, asked: StreamQuery
) -> AsyncIterator[bytes]:
    """Yield events as they happen; a disconnect of the client cancels this at any point."""
    kinds, seconds = asked.kinds(), asked.seconds
    start = quiet = time.monotonic()
    yield format_sse_event(comment=f"after {seen}", retry=1000)
    while True:
        found = await run_in_threadpool(store.events, seen, _PAGE, asked.connector, kinds)
        for each in found:
            data = EventShown.of(each).model_dump_json()
            yield format_sse_event(data_str=data, event=each.kind, id=f"{each.id}")
        now = time.monotonic()
        if found:
            seen, quiet = found[-1].id, now
        if seconds is not None and now >= start + seconds:
            return
        if now >= quiet + _HEARTBEAT_SECONDS:
            yield KEEPALIVE_COMMENT
            quiet = now
        if not found:
            await asyncio.sleep(_LOOK_SECONDS)


_LONGEST = 8192
"""The maximum characters of a text, because a whole page is held in memory."""
_PLACE = r"^[0-9]{1,20}-[0-9]{1,18}$"


class Level(StrEnum):
    """The level of a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLineShown(BaseModel):
    """A line of the log. Secrets are hidden, and very long texts truncated."""

    at: str
    level: str
    logger: str = Field(description="The logger.")
    text: str
    connector: str | None = Field(description="Null for the server itself.")
    task: int | None = Field(description="The number of the task.")
    detail: dict[str, Any] = Field(description="Further details.")
    trace: str | None = Field(description="The traceback; null if there is none.")

    @classmethod
    def of(cls, line: LogLine) -> Self:
        return cls(
            at=line.at,
            level=line.level,
            logger=line.logger,
            text=_cut(line.text),
            connector=line.connector,
            task=line.task,
            detail={key: _short(each) for key, each in line.detail.items()},
            trace=None if line.trace is None else _cut(line.trace),
        )


class LogPage(BaseModel):
    """A page of lines, oldest first."""

    items: list[LogLineShown]
    next: str = Field(description="The `after` of the next page, which may still be empty.")


class LogQuery(BaseModel):
    """A filter of lines, and the page."""

    model_config = ConfigDict(extra="forbid")

    connector: str | None = Field(default=None, description="Only of this connector.")
    task: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Only of this task.")
    level: Level = Field(default=Level.INFO, description="Only lines of at least this level.")
    after: str | None = Field(
        default=None,
        pattern=_PLACE,
        description="Continue after this place; by default the newest lines are returned.",
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many of the newest lines.")


def log_routes(bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["logs"])

    @router.get("/logs", summary="Read the server's log", dependencies=[Depends(bench.slots)])
    def logs(asked: Annotated[LogQuery, Query()]) -> LogPage:
        """Return the newest lines, or the lines after a place, to follow the log."""
        choice = LogChoice(asked.connector, asked.task, asked.level.value)
        if asked.after is None:
            found, place = bench.log.newest(choice, asked.limit)
        else:
            file, _, offset = asked.after.partition("-")
            found, place = bench.log.after(LogPlace(int(file), int(offset)), choice)
        items = [LogLineShown.of(each) for each in found]
        return LogPage(items=items, next=f"{place.file}-{place.offset}")

    return router


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _short(value: object) -> object:
    """Return a JSON value; if it is long, the truncated JSON text."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST else _cut(text)


class BackupShown(Shown):
    """A consistent copy of the store."""

    file: Annotated[str, BeforeValidator(str)] = Field(
        description="The path on the server's machine."
    )
    size_bytes: int
    at: datetime


def backup_routes(connectors: Connectors, bench: Workbench) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/store/backups", tags=["store"])
    backups = bench.backups

    @router.get("", summary="List backups of the store")
    def list_backups() -> list[BackupShown]:
        """Return the newest first."""
        return BackupShown.all(backups.all())

    @router.post(
        "",
        status_code=201,
        summary="Back up the store",
        responses=problems(409),
        dependencies=[Depends(bench.slots)],
    )
    def back_up(request: Request) -> BackupShown:
        """Copy the store to a file in the home folder, while it is in use.

        The copy contains connectors, positions, batches, events and registered schemas, but not
        the data of topics. Rejected for a store in PostgreSQL, which has its own backup tools.

        The setting ``store_backups_kept`` limits the number of backups; older ones are deleted.
        """
        made = backups.make()
        detail = {"file": str(made.file), "size_bytes": made.size_bytes}
        connectors.record_event(EventKind.BACKUP, caller(request), detail)
        return BackupShown.of(made)

    return router
