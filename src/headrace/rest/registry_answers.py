"""How the schema registry answers: its media type, and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.sdk import ConfigError, HeadraceError
from headrace.sdk.schemaregistry import SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

log = structlog.get_logger(__name__)

_STORE_ERROR = 50001
_UNAUTHORIZED = 401
_UNAUTHORIZED_CODE = 40101


class RegistryJson(JSONResponse):
    """JSON under the registry's own media type."""

    media_type = "application/vnd.schemaregistry.v1+json"


def add_error_handlers(app: FastAPI) -> None:
    """Make the application answer every error as Confluent's registry does."""

    @app.exception_handler(SchemaRegistryError)
    def refused(_: Request, error: Exception) -> RegistryJson:
        assert isinstance(error, SchemaRegistryError)
        return _answer(error.status, error.error_code, error.problem)

    @app.exception_handler(HeadraceError)
    def failed(_: Request, error: Exception) -> RegistryJson:
        assert isinstance(error, HeadraceError)
        text = " ".join(part for part in (error.problem, error.fix) if part)
        status = 422 if isinstance(error, ConfigError) else 500
        return _answer(status, status, text)

    @app.exception_handler(RequestValidationError)
    def misunderstood(_: Request, error: Exception) -> RegistryJson:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        broken = first["type"] == "json_invalid"
        status = 400 if broken else 422
        return _answer(status, status, f"{where}: {first['msg']}" if where else first["msg"])

    @app.exception_handler(HTTPException)
    def unknown(_: Request, error: Exception) -> RegistryJson:
        assert isinstance(error, HTTPException)
        return _answer(error.status_code, error.status_code, f"HTTP {error.detail}")

    @app.exception_handler(Exception)
    def broken(_: Request, error: Exception) -> RegistryJson:
        log.error("a request to the schema registry failed", exc_info=error)
        problem = f"Internal error: {type(error).__name__}"
        return _answer(500, _STORE_ERROR, problem)


def _answer(status: int, error_code: int, message: str) -> RegistryJson:
    return RegistryJson({"error_code": error_code, "message": message}, status_code=status)


def refusal(_: str, status: int, message: str, headers: Mapping[str, str]) -> RegistryJson:
    """Refuse a request before it is read, see Refuse."""
    code = _UNAUTHORIZED_CODE if status == _UNAUTHORIZED else status
    return RegistryJson({"error_code": code, "message": message}, status, dict(headers))
