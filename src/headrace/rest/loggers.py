"""The levels of this process's loggers, as Kafka Connect's REST API shows and sets them."""

import logging
import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from headrace.control import Connectors
from headrace.model import EventKind
from headrace.rest.auth import caller
from headrace.rest.requests import Encoded

Json: TypeAlias = Any
ROOT = "root"
_NUMBERS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Python's numbers of Log4j's levels and of Python's names for them."""
_NAMES = {number: name for name, number in reversed(_NUMBERS.items())}
"""Log4j's names, which come first in ``_NUMBERS``."""


class LevelBody(BaseModel):
    """A level that a client sets."""

    level: str | None = None


@dataclass
class Loggers:
    """The loggers of this process. Thread-safe."""

    _changed: dict[str, int] = field(default_factory=dict)

    def all(self) -> dict[str, Json]:
        # A copy: another thread may create a logger in the meantime.
        manager = dict(logging.root.manager.loggerDict)
        there = [name for name, each in manager.items() if isinstance(each, logging.Logger)]
        return {name: self.show(name) for name in [*sorted(there), ROOT]}

    def has(self, name: str) -> bool:
        """Return whether a logger or a child of it exists."""
        known = logging.root.manager.loggerDict
        return name == ROOT or name in known

    def show(self, name: str) -> Json:
        """Return the effective level of a logger."""
        level = _logger(name).getEffectiveLevel()
        shown = _NAMES.get(level, logging.getLevelName(level))
        return {"level": shown, "last_modified": self._changed.get(name)}

    def set(self, name: str, level: int) -> list[str]:
        """Set the level of a logger and its children; return their names."""
        below = [each for each in self.all() if each.startswith(f"{name}.")]
        names = [name, *below]
        for each in names:
            _logger(each).setLevel(level)
            self._changed[each] = time.time_ns() // 1_000_000
        return names


def logger_routes(loggers: Loggers, connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/admin/loggers")

    @router.get("")
    def list_loggers() -> Json:
        return loggers.all()

    @router.get("/{name}")
    def show(name: Encoded) -> Json:
        if not loggers.has(name):
            raise HTTPException(404, f"Logger {name} not found.")
        return loggers.show(name)

    @router.put("/{name}")
    def set_level(
        name: Encoded, body: LevelBody, request: Request, scope: str = "worker"
    ) -> Response:
        if body.level is None:
            problem = "Desired 'level' parameter was not specified in request."
            raise HTTPException(400, problem)
        number = _NUMBERS.get(body.level.upper())
        if number is None:
            raise HTTPException(404, f"invalid log level '{body.level}'.")
        changed = loggers.set(name, number)
        detail = {"logger": name, "level": body.level.upper()}
        connectors.record_event(EventKind.LOGGER, caller(request), detail)
        # The cluster is this one process.
        return Response(status_code=204) if scope == "cluster" else JSONResponse(changed)

    return router


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
