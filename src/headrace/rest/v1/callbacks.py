"""The callback route by which external schedulers trigger jobs, with its own tokens."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Annotated, TypeAlias
from urllib.parse import unquote

from fastapi import APIRouter, Body, Header, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from headrace.model import UNENDED, Run
from headrace.rest.auth import caller, client_of
from headrace.rest.listener import Principal, Role, shown_token
from headrace.rest.requests import Encoded, WholeText, storable
from headrace.rest.v1.jobs import RunShown
from headrace.rest.v1.problems import problems
from headrace.rest.v1.requests import ClosedStream, Streams, if_set
from headrace.rest.v1.trials import Workbench
from headrace.sdk import BoundaryKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PATH = re.compile(r"/v1/jobs/([^/]+)/callback")
_WAIT = re.compile(r"\bwait=(\d{1,6})\b")
_LONGEST_SECONDS = 86_400
_LOOK_SECONDS = 1.0
_ALIVE_SECONDS = 5.0
"""The interval of keep-alive bytes while a run is active. They are spaces, with which a JSON
response may begin."""
_JSON = "application/json"
Bound: TypeAlias = Annotated[WholeText | None, AfterValidator(storable)]


def is_callback(method: str, path: str) -> bool:
    """Return whether a request is a callback, by its method and undecoded path."""
    return method == "POST" and _PATH.fullmatch(path) is not None


class CallbackTokens:
    """Authenticates external schedulers by their callback tokens. Thread-safe."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def has(self, method: str, path: str) -> bool:
        return is_callback(method, path)

    def principal(self, path: str, token: str) -> Principal | None:
        """Return the scheduler as principal; the route checks whether the job still exists."""
        found, known = _PATH.fullmatch(path), self._bench.runtime.callbacks.caller(token)
        if found is None or known is None or unquote(found[1]) != known.job:
            return None
        return Principal(known.engine, Role.OPERATOR)


class CallbackRequest(BaseModel):
    """The window to run: by default the newest that is due.

    With both bounds, the window between them, which must be a window of the schedule; with only
    the upper bound, the newest window that ends by then.
    """

    model_config = ConfigDict(extra="forbid")

    job: Bound = if_set(max_length=1000, description="The job, as in the path.")
    stream: Bound = if_set(
        max_length=1000, description="A job has one stream, which has the job's name."
    )
    kind: BoundaryKind | None = Field(default=None, description="The kind of bounds: times.")
    lower: Bound = if_set(max_length=100, description="The start of the window.")
    upper: Bound = if_set(max_length=100, description="The end of the window.")


def callback_routes(bench: Workbench) -> APIRouter:
    """Return the route by which external schedulers trigger jobs."""
    router = APIRouter(prefix="/jobs", tags=["jobs"])
    waiting = Streams(of_client=100, total=500)

    @router.post(
        "/{name}/callback",
        summary="Trigger due windows of a job",
        response_model=RunShown,
        responses=problems(404, 409),
    )
    async def wake(
        name: Encoded,
        request: Request,
        asked: Annotated[CallbackRequest | None, Body()] = None,
        prefer: Annotated[
            str, Header(description="`wait=60`: respond when the run has ended, or after 60 s.")
        ] = "",
    ) -> Response:
        """Create runs for all due windows of a job, and return the run of the given window.

        For external schedulers, which have a token for each of their jobs. A window has only
        one run, however often it is requested.
        """
        token = shown_token(request.headers.get("authorization"))
        callbacks, by = bench.runtime.callbacks, caller(request)
        wanted = (asked or CallbackRequest()).model_dump()
        run = await run_in_threadpool(callbacks.wake, name, token, by, **wanted)
        wait = _WAIT.search(prefer)
        if wait is None or run.state not in UNENDED:
            return Response(_json(run, bench), media_type=_JSON)
        seconds = min(int(wait[1]), _LONGEST_SECONDS)
        closed = waiting.take(client_of(request.scope))
        return ClosedStream(_ended(run, bench, seconds), _JSON, closed)

    return router


async def _ended(run: Run, bench: Workbench, seconds: int) -> AsyncIterator[bytes]:
    """Yield the run once it has ended or the time is up, with keep-alive spaces before."""
    sent = time.monotonic()
    end = sent + seconds
    while run.state in UNENDED and (now := time.monotonic()) < end:
        if now - sent > _ALIVE_SECONDS:
            sent = now
            yield b" "
        await asyncio.sleep(min(_LOOK_SECONDS, end - now))
        run = await run_in_threadpool(bench.runtime.callbacks.run, run)
    yield _json(run, bench)


def _json(run: Run, bench: Workbench) -> bytes:
    return RunShown.of(run, bench.clock()).model_dump_json().encode()
