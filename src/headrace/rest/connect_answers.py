"""How Kafka Connect's REST API answers: its errors, and what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from headrace.rest.errors import statuses_of
from headrace.rest.requests import PROBLEM, accepted, methods_at, tellable
from headrace.sdk import ConfigErrors, HeadraceError
from headrace.store import (
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


log = structlog.get_logger(__name__)

_METHOD_NOT_ALLOWED = 405
_UNKNOWN = {
    ("GET", "/status"): "No status found for connector {name}",
    ("GET", "/tasks/{number}/status"): "No status found for task {name}-{number}",
    ("POST", "/tasks/{number}/restart"): "Unknown task: {name}-{number}",
    ("POST", "/restart"): "Unknown connector: {name}",
    ("PUT", "/pause"): "Unknown connector {name}",
    ("PUT", "/resume"): "Unknown connector {name}",
    ("PUT", "/stop"): "Unknown connector {name}",
}
"""What Kafka Connect says of a connector or a task that is not there, by request."""


class ConnectErrors:
    """Answers errors as Kafka Connect does."""

    def __init__(self, app: FastAPI) -> None:
        """Take the application whose routes say which methods there are."""
        self._app = app

    def failed(self, request: Request, error: HeadraceError) -> JSONResponse:
        status = statuses_of(error).connect
        if isinstance(error, ConnectorNotFoundError | TaskNotFoundError):
            return answer(status, _unknown(request))
        return answer(status, _told(error), more=_more(request, error))

    def invalid(self, _: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["loc"][0] == "path":  # there is nothing at such a path, as with JAX-RS
            return answer(404, "HTTP 404 Not Found")
        where = tellable(".".join(str(part) for part in first["loc"][1:]))
        broken = first["type"] == "json_invalid"  # its place is a number of characters
        text = first["msg"] if broken or not where else f"{where}: {first['msg']}"
        return answer(400, text)

    def refused(self, request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code != _METHOD_NOT_ALLOWED:
            return answer(error.status_code, str(error.detail))
        methods = methods_at(self._app, request.scope)
        extra = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
        allowed = {"Allow": ",".join(sorted(methods | extra))}
        if request.method == "OPTIONS":
            return JSONResponse(None, headers=allowed)
        text = f"HTTP {error.status_code} {error.detail}"
        return answer(error.status_code, text, headers=allowed)

    def broken(self, _: Request, problem: str) -> JSONResponse:
        return answer(500, problem)


def refusal(_: str, status: int, message: str, headers: Mapping[str, str]) -> JSONResponse:
    """Refuse a request before it is read, see Refuse."""
    return answer(status, message, dict(headers))


def answer(
    status: int,
    message: str,
    headers: dict[str, str] | None = None,
    *,
    more: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """Return an error in Kafka Connect's form, with more for those who asked for it."""
    told = {"error_code": status, "message": message, **(more or {})}
    return JSONResponse(told, status, headers)


def _more(request: Request, error: HeadraceError) -> dict[str, Any]:
    """Return what a client that takes problems is told beside Kafka Connect's words."""
    if PROBLEM not in accepted(request.headers):
        return {}
    if isinstance(error, ConfigErrors):
        return {"errors": [each.to_json() for each in error.errors]}
    return {"problem": error.problem, "field": error.field, "fix": error.fix}


def _told(error: HeadraceError) -> str:
    if isinstance(error, ConnectorExistsError):
        return error.problem.removesuffix(".")
    if isinstance(error, ConfigErrors):
        lines = "".join(f"{each.problem}\n" for each in error.errors)
        return (
            "Connector configuration is invalid and contains the following "
            f"{len(error.errors)} error(s):\n{lines}You can also find the above list of errors "
            "at the endpoint `/connector-plugins/{connectorType}/config/validate`"
        )
    if error.field == "connector.class":  # as Kafka Connect names the classes that there are
        return f"{error.problem} {error.fix}".rstrip()
    return error.problem


def _unknown(request: Request) -> str:
    """Say what is not there, in the words that Kafka Connect has for each request."""
    names = {key: unquote(value) for key, value in request.path_params.items()}
    path = request.scope["route"].path_format
    _, _, rest = path.partition("{name}")
    words = _UNKNOWN.get((request.method, rest), "Connector {name} not found")
    return words.format(**names)


class ConnectMiddleware:
    """Takes requests as Kafka Connect's server does, before they are routed.

    A slash at the end of a path does not matter; HEAD is a GET without its body; a body that is
    not said to be JSON is refused, and so is a client that does not take JSON.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        path = scope["path"].rstrip("/") or "/"
        raw = scope["raw_path"].rstrip(b"/") or b"/" if scope.get("raw_path") else None
        changed: dict[str, Any] = {"path": path, "raw_path": raw}
        if scope["method"] != "HEAD":
            await self._app({**scope, **changed}, receive, send)
            return

        async def bodiless(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, **changed, "method": "GET"}, receive, bodiless)


def _refusal(scope: Scope) -> JSONResponse | None:
    headers = Headers(scope=scope)
    if not {"", "*/*", "application/*", "application/json"} & accepted(headers):
        return answer(406, "HTTP 406 Not Acceptable")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        return answer(415, "HTTP 415 Unsupported Media Type")
    return None
