"""The configurations that clients of RocketMQ Connect send: in the body, or in the query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Query, Request

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Given", "GivenConfig"]


@dataclass(frozen=True)
class Given:
    """A configuration as it was sent, and as texts, which is all that configurations hold."""

    sent: Mapping[str, Any]

    @property
    def config(self) -> dict[str, str]:
        """Return it as texts; nulls are left out."""
        return {key: _text(value) for key, value in self.sent.items() if value is not None}


async def _given(request: Request, config: Annotated[str, Query()] = "") -> Given:
    """Read it from a GET's query, or from the body, of whatever type that is said to be."""
    posted = request.method != "GET"
    sent = (await request.body()).decode(errors="replace") if posted else config
    if not sent.strip():
        problem = "Failed! query param 'config' is required "
        raise ConfigError(problem)
    try:
        document = json.loads(sent)
        # What could be stored and not be told again is no JSON either.
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        problem = "Failed! query param 'config' is malformed"
        raise ConfigError(problem)
    return Given(document)


GivenConfig = Annotated[Given, Depends(_given)]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
