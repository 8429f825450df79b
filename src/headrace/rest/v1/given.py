"""Parts of requests, which are taken as the description says and not otherwise."""

import re
from collections import Counter
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StrictBool

__all__ = ["IS_NUMBER", "Moment", "QuerySwitch", "Switch", "Whole", "given", "said_once"]

_SEVERAL = {"id", "kind", "name", "plugin", "state", "task_state"}
"""What a query may have several of, in whatever route."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _text_of_moment(value: object) -> object:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        problem = "Write it as 2026-01-31T00:00:00Z"
        raise ValueError(problem)
    return value


def _number(value: object) -> object:
    if isinstance(value, str | bool):
        problem = "It must be a number"
        raise ValueError(problem)  # noqa: TRY004 - what pydantic turns into an answer
    return value


def _switch(value: object) -> object:
    if str(value).lower() not in {"true", "false"}:
        problem = "It must be true or false"
        raise ValueError(problem)
    return value


def _in_range(moment: datetime) -> datetime:
    """Refuse what no clock shows: it could not be told as a number of microseconds."""
    moment.timestamp()
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_text_of_moment), AfterValidator(_in_range)]
"""A time with its zone, as RFC 3339 writes it; a number would be taken for one otherwise."""

IS_NUMBER = BeforeValidator(_number)
"""Goes behind the bounds of a number, which the description would not have otherwise."""

Whole = Annotated[int, IS_NUMBER]
"""A number of a body; a text of digits would be taken for one otherwise."""

Switch = StrictBool
"""A boolean of a body; ``"yes"`` would be taken for one otherwise."""


QuerySwitch = Annotated[bool, BeforeValidator(_switch)]
"""A boolean of a query."""


def given(**more: Any) -> Any:
    """Return a field that is None unless it is given; its type does not have to say so."""
    return Field(default=None, json_schema_extra=_no_default, **more)


def _no_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def said_once(request: Request) -> None:
    """Refuse a query that says something twice of which there is one: which is meant?"""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name, count in counts.items() if count > 1 and name not in _SEVERAL]
    if repeated:
        wrong = {"type": "repeated", "msg": "It is given more than once"}
        raise RequestValidationError([{**wrong, "loc": ("query", name)} for name in repeated])
