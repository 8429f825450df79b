"""Headrace's own API, under /v1/: features that the compatible APIs do not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from typing_extensions import override

from headrace import __version__
from headrace.control import Connectors, Jobs
from headrace.rest.auth import behind, needs_admin_to_change
from headrace.rest.errors import add_errors
from headrace.rest.listener import Listener, Role
from headrace.rest.v1.callbacks import CallbackTokens, callback_routes, is_callback
from headrace.rest.v1.connectors import (
    bulk_routes,
    connector_routes,
    count_routes,
    version_routes,
)
from headrace.rest.v1.dead_letters import letter_routes
from headrace.rest.v1.events import backup_routes, event_routes, log_routes
from headrace.rest.v1.jobs import alert_routes, job_routes
from headrace.rest.v1.offsets import offset_routes, unfinished_routes
from headrace.rest.v1.problems import PREFIX, Problem, Problems, problems, refusal
from headrace.rest.v1.requests import said_once
from headrace.rest.v1.topics import schema_routes, topic_routes
from headrace.rest.v1.trials import Workbench, trial_routes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp


_OF_OPERATORS = re.compile(
    r"/v1/(bulk/(pause|resume|stop|restart)|dead-letters/[^/]+/discard|alerts/test"
    r"|jobs/[^/]+/(approve|reject|suspend|resume|trigger|backfills"
    r"|backfills/[^/]+/(stop|pause|resume)|runs/[^/]+/(stop|retry|rerun|give-up))"
    r"|connectors/[^/]+/(dead-letters/replay|offsets|offsets/(reset|rewind|undo)"
    r"|tasks/[^/]+/batches/[^/]+/give-up))"
)
"""Requests that change the state and offsets of connectors and jobs, but not what they do.

Not in it: previews and trials, which run code from the configuration and so require an admin.
"""


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request requires, by its method and undecoded path."""
    if is_callback(method, path):
        return Role.OPERATOR  # the role of every callback token
    needed = needs_admin_to_change(method, path)
    operates = needed is Role.ADMIN and _OF_OPERATORS.fullmatch(path)
    return Role.OPERATOR if operates else needed


SCHEMES: Mapping[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token from `headrace token create`.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "The token as the password of any user.",
    },
    "callback": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token that a server gave to the external scheduler of a job.",
    },
}


def add_security(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Add to each operation that it requires a token, and with which role."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            role = needed_role(method.upper(), path).value
            clients = [{scheme: [role]} for scheme in SCHEMES if scheme != "callback"]
            signed = is_callback(method.upper(), path)
            operation["security"] = [{"callback": []}] if signed else clients


_ABOUT = (
    "Features of Headrace beyond the APIs that it shares with other systems. "
    "Every error is a problem as in RFC 9457, with a code, the problem and its fix. A "
    "name in a path may contain a slash as %2F. Fields and "
    "paths may be added to this version; none is changed or removed."
)
_ALWAYS = (400, 401, 403, 408, 413, 422, 429, 503)
"""The statuses that any route may return, for rejected requests or an unavailable store."""


def v1_app(connectors: Connectors, jobs: Jobs, bench: Workbench, listener: Listener) -> ASGIApp:
    """Return the API, behind a listener's checks."""
    app = v1_api(connectors, jobs, bench)
    app.asks_who = listener.keys is not None
    return behind(app, listener, refusal, needed_role, signed=CallbackTokens(bench))


def v1_api(connectors: Connectors, jobs: Jobs, bench: Workbench) -> V1:
    """Return the API without the listener's checks; it also serves its OpenAPI description."""
    app = V1(
        title="Headrace",
        version=__version__,
        description=_ABOUT,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    add_errors(app, Problems(app), connectors.registry.references.secrets)
    # To add an area: a module with `xxx_routes(...) -> APIRouter`, and a line here.
    for router in (
        connector_routes(connectors),
        bulk_routes(connectors),
        version_routes(connectors),
        count_routes(connectors),
        offset_routes(connectors),
        unfinished_routes(connectors, bench),
        job_routes(jobs),
        alert_routes(bench),
        callback_routes(bench),
        event_routes(connectors),
        log_routes(bench),
        schema_routes(connectors, bench),
        letter_routes(connectors, bench),
        trial_routes(connectors, bench),
        backup_routes(connectors, bench),
        topic_routes(bench),
    ):
        app.include_router(
            router,
            prefix=PREFIX,
            responses=problems(*_ALWAYS),
            dependencies=[Depends(said_once)],
        )
    return app


class V1(FastAPI):
    """An application whose OpenAPI includes problems, which no route declares, and tokens."""

    asks_who = False
    """Whether the server requires a token."""

    @override
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            made = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=self.routes,
            )
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= {**schema.pop("$defs"), "Problem": schema}
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            made["components"]["securitySchemes"] = SCHEMES
            if self.asks_who:
                add_security(made["paths"])
            self.openapi_schema = made
        return self.openapi_schema
