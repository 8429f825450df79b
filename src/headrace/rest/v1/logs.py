"""The server's own log."""

import json
from enum import StrEnum
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from headrace.rest.v1.trials import Workbench
from headrace.runtime.server_log import LogChoice, LogLine, LogPlace

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
