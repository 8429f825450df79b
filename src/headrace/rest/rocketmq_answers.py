"""How RocketMQ Connect's REST API answers: everything, also an error, in an envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.control import in_rocketmq_words
from headrace.rest.errors import statuses_of
from headrace.sdk import ConfigErrors, HeadraceError
from headrace.store import ConnectorNotFoundError, TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request
    from starlette.types import ASGIApp, Receive, Scope, Send


Json: TypeAlias = Any

log = structlog.get_logger(__name__)


def success(body: Json) -> dict[str, Json]:
    """Return what a request gave, in its envelope."""
    return {"status": 200, "body": body}


def failure(code: int, message: str, status: int = 200) -> JSONResponse:
    """Return an error in its envelope: HTTP's own status is that of success."""
    return JSONResponse({"errorCode": code, "message": message}, status)


def refusal(_: str, status: int, message: str, headers: Mapping[str, str]) -> JSONResponse:
    """Refuse a request before it is read, see Refuse."""
    told = {"errorCode": status, "message": message}
    return JSONResponse(told, status, dict(headers))


class RocketmqErrors:
    """Answers errors as RocketMQ Connect does."""

    def failed(self, request: Request, error: HeadraceError) -> JSONResponse:
        missing = isinstance(error, ConnectorNotFoundError | TaskNotFoundError)
        text = _unknown(request) if missing else _told(error)
        return failure(statuses_of(error).rocketmq, text)

    def invalid(self, _: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return failure(400, f"{where}: {first['msg']}")

    def refused(self, _: Request, error: HTTPException) -> JSONResponse:
        return failure(error.status_code, str(error.detail), error.status_code)

    def broken(self, _: Request, problem: str) -> JSONResponse:
        return failure(500, problem)


def _told(error: HeadraceError) -> str:
    errors = error.errors if isinstance(error, ConfigErrors) else (error,)
    return "\n".join(_sentence(each) for each in errors)


def _sentence(error: HeadraceError) -> str:
    text = " ".join(part for part in (error.problem, error.fix) if part)
    named = error.field is None or error.field in error.problem
    return in_rocketmq_words(text if named else f"{error.field}: {text}", {})


def _unknown(request: Request) -> str:
    """Say what is not there, in the words that RocketMQ Connect has for each request."""
    path = request.scope["route"].path_format
    given = {key: unquote(value) for key, value in request.path_params.items()}
    name = given["name"]
    if "number" in given:
        return f"No status found for task {name}-{given['number']}"
    if path.endswith("/status"):
        return f"No status found for connector {name}"
    space = "" if path.endswith(("/config", "/tasks")) else " "
    return f"Connector{space}[{name}] does not exist"


class RocketmqMiddleware:
    """Takes requests as RocketMQ Connect's server does: a slash at the end does not matter."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        changed = {"path": scope["path"].rstrip("/") or "/"}
        if scope.get("raw_path"):
            changed["raw_path"] = scope["raw_path"].rstrip(b"/") or b"/"
        await self._app({**scope, **changed}, receive, send)
