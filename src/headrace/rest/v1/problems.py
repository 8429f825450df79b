"""Error responses of Headrace's own API: problem details (RFC 9457)."""

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from inspect import getdoc
from typing import Any, Self

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from headrace.rest.errors import statuses_of
from headrace.rest.requests import PROBLEM, methods_at, tellable
from headrace.sdk import (
    ConfigErrors,
    HeadraceError,
    RetriableError,
)

PREFIX = "/v1"
"""The prefix of this API's paths."""

MEDIA_TYPE = PROBLEM
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
"""Error codes are derived from these titles; Python's names differ between its versions."""
_FIXES = {
    404: "See /v1/openapi.json for the existing paths.",
    405: "Use one of the methods in the Allow header.",
}


class Shown(BaseModel):
    """A model that copies the attributes of an object with the names of its fields."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, found: object) -> Self:
        return cls.model_validate(found)

    @classmethod
    def all(cls, found: Iterable[object]) -> list[Self]:
        return [cls.of(each) for each in found]


class Fault(Shown):
    """One error.

    ``code`` is stable and listed in the error reference.
    """

    code: str = Field(examples=["config.invalid"])
    field: str | None = Field(description="The key or part of the request that is wrong.")
    problem: str = Field(description="What is wrong, as a sentence.")
    fix: str = Field(description="How to fix it; empty if unknown.")


class Problem(BaseModel):
    """Why a request failed. Nothing was changed, unless the text says otherwise."""

    type: str = Field(description="Identifies the kind of problem by its code.")
    title: str = Field(description="The kind of problem; the same for the same type.")
    status: int = Field(description="The HTTP status of this response.")
    detail: str = Field(description="The problem and its fix.")
    instance: str = Field(description="The requested path.")
    code: str
    field: str | None
    problem: str
    fix: str
    errors: list[Fault] = Field(description="All errors; at least one.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the problems that a route may return.

    With a schema reference, because problems have another media type than other responses.
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
    """A response with problem details."""

    media_type = MEDIA_TYPE


def refusal(path: str, status: int, text: str, headers: Mapping[str, str]) -> ProblemJson:
    """Return the response for a request that the listener's checks reject."""
    body = _body(status, path, _title(status), [_fault(status, text)])
    return ProblemJson(body, status, dict(headers))


class Problems:
    """Error responses as problem details."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def failed(self, request: Request, error: HeadraceError) -> ProblemJson:
        title = (getdoc(type(error)) or "").partition("\n")[0].rstrip(".")
        parts = error.errors if isinstance(error, ConfigErrors) else [error]
        faults = Fault.all(parts)
        answer = _answer(request, statuses_of(error).v1, title, faults, Fault.of(error))
        if isinstance(error, RetriableError) and error.after is not None:
            answer.headers["Retry-After"] = str(math.ceil(error.after.total_seconds()))
        return answer

    def invalid(self, request: Request, error: RequestValidationError) -> ProblemJson:
        found = error.errors()
        status = 400 if found[0]["type"] == "json_invalid" else 422
        return _answer(request, status, _title(status), [_misread(each) for each in found])

    def refused(self, request: Request, error: HTTPException) -> ProblemJson:
        status = error.status_code
        fault = _fault(status, str(error.detail))
        answer = _answer(request, status, _title(status), [fault])
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            answer.headers["Allow"] = ", ".join(sorted(methods_at(self._app, request.scope)))
        return answer

    def broken(self, request: Request, problem: str) -> ProblemJson:
        return _answer(request, 500, _title(500), [_fault(500, problem)])


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


def _fault(status: int, text: str) -> Fault:
    name = _title(status).lower().replace(" ", "_")
    problem = text if text.endswith(".") else f"{text}."
    return Fault(
        code=f"request.{name}", field=None, problem=problem, fix=_FIXES.get(status, "")
    )


def _misread(error: Mapping[str, Any]) -> Fault:
    where: Iterable[Any] = error["loc"]
    if error["type"] == "json_invalid":
        where = ("body",)  # its location is a character offset
    kind, *path = (tellable(str(part)) for part in where)
    return Fault(
        code="request.invalid",
        field=".".join(path) or kind,
        problem=f"{error['msg']}.",
        fix="",
    )
