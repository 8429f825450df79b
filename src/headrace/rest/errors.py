"""Error responses: the status of each error in every API, and the shared handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headrace.control import (
    BackfillNotFoundError,
    ConfigVersionNotFoundError,
    NotApproverError,
)
from headrace.model import PluginNotFoundError, TopicNotFoundError
from headrace.scheduler import CallbackTokenError, NotAWindowError, WindowNotDueError
from headrace.sdk import (
    ConfigError,
    HeadraceError,
    RetriableError,
    SinkError,
    SourceError,
    StateError,
)
from headrace.sdk.errors import Category, StaleEpochError
from headrace.store import (
    BackupNotSupportedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    JobChangedError,
    JobExistsError,
    JobNotFoundError,
    RunNotFoundError,
    StoreDamagedError,
    StoreUnavailableError,
    TaskNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI, Request, Response

    from headrace.plugins import Secrets

log = structlog.get_logger(__name__)


class Statuses(NamedTuple):
    """The HTTP status of an error in each API.

    For RocketMQ Connect it is the code in the envelope, which is 500 for most client errors.
    """

    v1: int
    connect: int
    rocketmq: int


_STATUSES: dict[type[HeadraceError], Statuses] = {
    ConnectorNotFoundError: Statuses(404, 404, 400),
    TaskNotFoundError: Statuses(404, 404, 400),
    TopicNotFoundError: Statuses(404, 400, 400),
    ConfigVersionNotFoundError: Statuses(404, 500, 500),
    ConnectorExistsError: Statuses(409, 409, 500),
    JobNotFoundError: Statuses(404, 404, 400),
    RunNotFoundError: Statuses(404, 404, 400),
    BackfillNotFoundError: Statuses(404, 404, 400),
    JobExistsError: Statuses(409, 409, 500),
    JobChangedError: Statuses(409, 409, 500),
    NotApproverError: Statuses(403, 403, 403),
    CallbackTokenError: Statuses(401, 401, 401),
    NotAWindowError: Statuses(400, 400, 400),
    WindowNotDueError: Statuses(409, 409, 500),
    BackupNotSupportedError: Statuses(409, 500, 500),
    StaleEpochError: Statuses(409, 500, 500),
    StateError: Statuses(409, 400, 400),
    StoreUnavailableError: Statuses(503, 503, 500),
    StoreDamagedError: Statuses(503, 503, 500),
    RetriableError: Statuses(503, 500, 500),
    PluginNotFoundError: Statuses(422, 400, 400),
    ConfigError: Statuses(422, 400, 400),
    # The system in a configuration cannot be read or written: the client must act.
    SourceError: Statuses(422, 500, 500),
    SinkError: Statuses(422, 500, 500),
}
"""The first matching class applies; without a match, the category does."""
_BY_CATEGORY = {
    Category.CONFIG: Statuses(422, 500, 500),
    Category.RUN: Statuses(500, 500, 500),
    Category.ENVIRONMENT: Statuses(503, 500, 500),
}


def statuses_of(error: HeadraceError) -> Statuses:
    """Return the status of an error in each API."""
    found = (each for kind, each in _STATUSES.items() if isinstance(error, kind))
    return next(found, _BY_CATEGORY[error.category])


class ErrorStyle(Protocol):
    """The error responses of one API."""

    def failed(self, request: Request, error: HeadraceError) -> Response:
        """Return the response for an error of Headrace."""

    def invalid(self, request: Request, error: RequestValidationError) -> Response:
        """Return the response for an invalid path, query or body."""

    def refused(self, request: Request, error: HTTPException) -> Response:
        """Return the response for an HTTP error, such as an unknown path or method."""

    def broken(self, request: Request, problem: str) -> Response:
        """Return the response for an unexpected error."""


def add_errors(app: FastAPI, style: ErrorStyle, secrets: Secrets | None = None) -> None:
    """Add handlers that return all errors in the given style, with secrets redacted."""

    def failed(request: Request, error: HeadraceError) -> Response:
        shown = error if secrets is None else secrets.redacted_error(error)
        assert isinstance(shown, HeadraceError)
        return style.failed(request, shown)

    def broken(request: Request, error: Exception) -> Response:
        log.error("a request failed", path=request.url.path, exc_info=error)
        return style.broken(request, f"Internal error: {type(error).__name__}")

    handlers: dict[type[Exception], Callable[..., Response]] = {
        HeadraceError: failed,
        RequestValidationError: style.invalid,
        HTTPException: style.refused,
        Exception: broken,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
