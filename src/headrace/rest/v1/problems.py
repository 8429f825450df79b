"""How our own API answers what it cannot do: problem details, as RFC 9457 has them."""

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from inspect import getdoc
from typing import Any, Self

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from headrace.control import ConfigVersionNotFoundError
from headrace.model import TopicNotFoundError
from headrace.plugins import Secrets
from headrace.rest.requests import PROBLEM, methods_at, tellable
from headrace.sdk import (
    ConfigErrors,
    HeadraceError,
    RetriableError,
    SinkError,
    SourceError,
    StaleEpochError,
    StateError,
)
from headrace.sdk.errors import Category
from headrace.store import (
    BackupNotSupportedError,
    ConnectorExistsError,
    ConnectorNotFoundError,
    TaskNotFoundError,
)

log = structlog.get_logger(__name__)

PREFIX = "/v1"
"""With what the paths of this API begin."""

MEDIA_TYPE = PROBLEM
_STATUSES: dict[type[HeadraceError], int] = {
    ConnectorNotFoundError: 404,
    TaskNotFoundError: 404,
    TopicNotFoundError: 404,
    ConfigVersionNotFoundError: 404,
    BackupNotSupportedError: 409,
    ConnectorExistsError: 409,
    StateError: 409,
    StaleEpochError: 409,
    RetriableError: 503,
    # The system that a configuration names cannot be read or written: its author has to act.
    SourceError: 422,
    SinkError: 422,
}
"""The first class that fits decides; otherwise the category does."""
_BY_CATEGORY = {Category.CONFIG: 422, Category.RUN: 500, Category.ENVIRONMENT: 503}
_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Content too large",
    422: "Unprocessable content",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}
"""Python's own names of statuses differ between its versions, and codes are made of these."""
_FIXES = {
    404: "See /v1/openapi.json for what there is.",
    405: "Use one of the methods in the Allow header.",
}


class Fault(BaseModel):
    """One thing that is wrong.

    ``code`` is stable, and listed in the reference of errors.
    """

    code: str = Field(examples=["config.invalid"])
    field: str | None = Field(description="The key or the part of the request at fault.")
    problem: str = Field(description="What is wrong, as a sentence.")
    fix: str = Field(description="What to do about it; empty if nobody knows.")

    @classmethod
    def of(cls, error: HeadraceError) -> Self:
        """Tell an error."""
        return cls(code=error.code, field=error.field, problem=error.problem, fix=error.fix)


class Problem(BaseModel):
    """Why a request was not done. Nothing is changed then, unless it says otherwise."""

    type: str = Field(description="Names the kind of problem, with its code.")
    title: str = Field(description="The kind of problem; the same for the same type.")
    status: int = Field(description="The status of this answer.")
    detail: str = Field(description="The problem and its fix.")
    instance: str = Field(description="The path that was asked for.")
    code: str
    field: str | None
    problem: str
    fix: str
    errors: list[Fault] = Field(description="Everything that is wrong; at least one.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI is told of the problems with which a route may answer.

    A reference, for a problem is no JSON of the media type that all other answers have.
    """
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": _title(status),
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


class ProblemJson(JSONResponse):
    """A problem."""

    media_type = MEDIA_TYPE


def refusal(path: str, status: int, told: str, headers: Mapping[str, str]) -> ProblemJson:
    """Return what is answered to a request that is not let in."""
    body = _body(status, path, _title(status), [_fault(status, told)])
    return ProblemJson(body, status, dict(headers))


def add_problems(app: FastAPI, secrets: Secrets) -> None:
    """Make the application answer every error as a problem, without secrets."""

    @app.exception_handler(HeadraceError)
    def failed(request: Request, raised: Exception) -> ProblemJson:
        error = secrets.redacted_error(raised)
        assert isinstance(error, HeadraceError)
        kinds = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
        status = next(kinds, _BY_CATEGORY[error.category])
        title = (getdoc(type(error)) or "").partition("\n")[0].rstrip(".")
        parts = error.errors if isinstance(error, ConfigErrors) else [error]
        faults = [Fault.of(each) for each in parts]
        answer = _answer(request, status, title, faults, Fault.of(error))
        if isinstance(error, RetriableError) and error.after is not None:
            answer.headers["Retry-After"] = str(math.ceil(error.after.total_seconds()))
        return answer

    @app.exception_handler(RequestValidationError)
    def misunderstood(request: Request, error: Exception) -> ProblemJson:
        assert isinstance(error, RequestValidationError)
        found = error.errors()
        broken = found[0]["type"] == "json_invalid"
        status = 400 if broken else 422
        return _answer(request, status, _title(status), [_misread(each) for each in found])

    @app.exception_handler(HTTPException)
    def unknown(request: Request, error: Exception) -> ProblemJson:
        assert isinstance(error, HTTPException)
        status = error.status_code
        fault = _fault(status, str(error.detail))
        answer = _answer(request, status, _title(status), [fault])
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            answer.headers["Allow"] = ", ".join(sorted(methods_at(app, request.scope)))
        return answer

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> ProblemJson:
        log.error("a request failed", path=request.url.path, exc_info=error)
        fault = _fault(500, f"Internal error: {type(error).__name__}.")
        return _answer(request, 500, _title(500), [fault])


def _answer(
    request: Request,
    status: int,
    title: str,
    faults: list[Fault],
    whole: Fault | None = None,
) -> ProblemJson:
    return ProblemJson(_body(status, request.url.path, title, faults, whole), status)


def _body(
    status: int, path: str, title: str, faults: list[Fault], whole: Fault | None = None
) -> dict[str, Any]:
    first = whole or faults[0]
    return Problem(
        type=f"urn:headrace:problem:{first.code}",
        title=title,
        status=status,
        detail=" ".join(part for part in (first.problem, first.fix) if part),
        instance=path,
        errors=faults,
        **first.model_dump(),
    ).model_dump()


def _title(status: int) -> str:
    return _TITLES.get(status) or HTTPStatus(status).phrase


def _fault(status: int, told: str) -> Fault:
    name = _title(status).lower().replace(" ", "_")
    problem = told if told.endswith(".") else f"{told}."
    return Fault(
        code=f"request.{name}", field=None, problem=problem, fix=_FIXES.get(status, "")
    )


def _misread(error: Mapping[str, Any]) -> Fault:
    """Return what is wrong with a part of a request."""
    where: Iterable[Any] = error["loc"]
    if error["type"] == "json_invalid":
        where = ("body",)  # its place is a number of characters
    kind, *path = (tellable(str(part)) for part in where)
    return Fault(
        code="request.invalid",
        field=".".join(path) or kind,
        problem=f"{error['msg']}.",
        fix="",
    )
