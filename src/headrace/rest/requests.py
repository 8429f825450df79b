"""What requests hold, in the forms in which Java's servers take it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator
from starlette.routing import Match

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.datastructures import Headers
    from starlette.types import Scope


PROBLEM = "application/problem+json"
"""The media type of problem details, which RFC 9457 defines."""


def accepted(headers: Headers) -> set[str]:
    """Return the media types that a client takes."""
    return {each.partition(";")[0].strip() for each in headers.get("accept", "").split(",")}


def storable(text: str) -> str:
    """Return a text without the character that PostgreSQL cannot take: nothing is named so."""
    return text.replace("\x00", "\x1a")


Encoded = Annotated[str, Path(), AfterValidator(unquote), AfterValidator(storable)]
"""A part of a path, which is routed as it was sent, so that it may hold a slash as %2F."""


def _answerable(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what could be stored and not be told again: NaN, and halves of characters."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        problem = "It holds what no JSON in UTF-8 can"
        raise ValueError(problem) from None
    return value


def _whole(text: str) -> str:
    """Refuse halves of characters, which could be stored and not be told again."""
    if tellable(text) != text:
        problem = "It holds a half of a character"
        raise ValueError(problem)
    return text


def tellable(text: str) -> str:
    """Return a text with halves of characters, which UTF-8 cannot write, as escapes."""
    return text.encode(errors="backslashreplace").decode()


WholeText = Annotated[str, AfterValidator(_whole)]
"""A text of a body that is kept as it is."""

JsonMap = Annotated[dict[str, Any], AfterValidator(_answerable)]
"""An object of a body that is kept as it is."""


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


Flag = Annotated[bool, BeforeValidator(_is_true), Query()]
"""A boolean of a query as Java reads it: all but ``true``, in whatever case, is false."""


def methods_at(app: FastAPI, scope: Scope) -> set[str]:
    """Return the methods that are served at the path of a request."""
    return {
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        for route in app.routes
        if route.matches({**scope, "method": method})[0] is Match.FULL
    }
