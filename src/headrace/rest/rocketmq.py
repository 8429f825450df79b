"""RocketMQ Connect's REST API, so that its clients and scripts work as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, FastAPI, Query, Request

from headrace import __version__
from headrace.control import (
    Connectors,
    config_infos,
    from_rocketmq,
    plugin_keys_of,
    to_rocketmq,
)
from headrace.model import TargetState
from headrace.plugins import PluginKind, Registry
from headrace.rest.auth import behind, caller
from headrace.rest.errors import add_errors
from headrace.rest.listener import Listener
from headrace.rest.requests import Encoded
from headrace.rest.rocketmq_answers import (
    RocketmqErrors,
    RocketmqMiddleware,
    refusal,
    success,
)
from headrace.rest.rocketmq_json import (
    allocated_json,
    connector_json,
    found_json,
    key_json,
    status_json,
    task_json,
    tasks_json,
)
from headrace.rest.tokens import Role
from headrace.sdk import ConfigError, StateError
from headrace.store import ConnectorNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp


_READS = {"GET", "HEAD", "OPTIONS"}
_OF_VIEWERS = re.compile(
    r"/|/getClusterInfo|/allocated/(connectors|tasks)|/plugin/(list|list/connectors|config)"
    r"|/connectors/list|/connectors/[^/]+/(config|status|tasks|tasks/[^/]+/status)"
)
_OF_OPERATORS = re.compile(r"/connectors/([^/]+/(pause|resume)|(pause|resume)/all)")


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request needs, by its method and its path as it was sent.

    What is not known to only look, or to change no more than how a connector is, needs an
    admin: most of what creates and removes is a GET too.
    """
    path = path.rstrip("/") or "/"
    if method in _READS and _OF_VIEWERS.fullmatch(path):
        return Role.VIEWER
    return Role.OPERATOR if _OF_OPERATORS.fullmatch(path) else Role.ADMIN


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


Json: TypeAlias = Any
_TYPES = {
    PluginKind.SINK: "SINK",
    PluginKind.SOURCE: "SOURCE",
    PluginKind.TRANSFORM: "TRANSFORMATION",
    PluginKind.CONVERTER: "CONVERTER",
}
"""In the order in which RocketMQ Connect lists them; it has no predicates."""
ClassName = Annotated[str, Query(alias="className")]


def rocketmq_plugin_routes(registry: Registry) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/plugin")

    @router.get("/reload")
    def reload() -> Json:
        registry.reload()
        return success("Plugin reload succeeded")

    @router.get("/list")
    def plugins() -> Json:
        return success(list(_listed(registry, list(_TYPES))))

    @router.get("/list/connectors")
    def connectors() -> Json:
        return success(list(_listed(registry, [PluginKind.SINK, PluginKind.SOURCE])))

    @router.get("/config")
    def keys(name: ClassName) -> Json:
        found = plugin_keys_of(name, registry)
        return success([key_json(key, {}) for key in found.keys.values()])

    @router.api_route("/config/validate", methods=["GET", "POST", "PUT"])
    def validate(given: GivenConfig) -> Json:
        return success(_checked(given, registry))

    return router


def _listed(registry: Registry, kinds: list[PluginKind]) -> Iterator[dict[str, str]]:
    for kind in kinds:
        for info in registry.all_of(kind):
            for name in (info.class_path, *info.aliases):
                yield {"className": name, "type": _TYPES[kind], "version": info.version}


def _checked(given: Given, registry: Registry) -> Json:
    config = from_rocketmq(given.config, registry.reads)
    return found_json(config_infos(config, registry), config)


def rocketmq_app(connectors: Connectors, listener: Listener) -> ASGIApp:
    """Return the API over an installation's connectors, behind a listener's checks.

    Its clients change things by GET, as they do there.
    """
    app = FastAPI(title="Headrace", version=__version__, openapi_url=None)
    add_errors(app, RocketmqErrors(), connectors.registry.references.secrets)
    for routes in (_cluster, _all, _one, _views):
        app.include_router(routes(connectors))
    app.include_router(rocketmq_plugin_routes(connectors.registry))
    return behind(RocketmqMiddleware(app), listener, refusal, needed_role, gets_change=True)


def _cluster(connectors: Connectors) -> APIRouter:
    router = APIRouter()

    @router.get("/getClusterInfo")
    def workers() -> Json:
        return success(list(connectors.workers()))

    @router.get("/allocated/connectors")
    def allocated() -> Json:
        return success({each.name: to_rocketmq(each.config) for each in connectors.all()})

    @router.get("/allocated/tasks")
    def tasks() -> Json:
        return success(allocated_json(connectors.views(), connectors.all_tasks()))

    return router


def _all(connectors: Connectors) -> APIRouter:
    router = APIRouter()

    @router.get("/connectors/list")
    def show() -> Json:
        return success(
            {
                view.connector.name: {
                    "status": status_json(view),
                    "info": connector_json(view.connector, view.tasks),
                }
                for view in connectors.views()
            }
        )

    @router.get("/connectors/stop/all")
    def delete(request: Request) -> Json:
        names = connectors.names()
        if not names:
            return success(_none("deleted"))
        for name in names:
            with suppress(ConnectorNotFoundError):  # deleted meanwhile
                connectors.delete(name, caller(request))
        return success(f"[{', '.join(names)}] connectors are deleted")

    @router.get("/connectors/pause/all")
    def pause(request: Request) -> Json:
        count = _aim_all(connectors, TargetState.PAUSED, caller(request))
        return success(f"{count} connectors are suspended" if count else _none("paused"))

    @router.get("/connectors/resume/all")
    def resume(request: Request) -> Json:
        count = _aim_all(connectors, TargetState.RUNNING, caller(request))
        return success(f"{count} connectors are resumed" if count else _none("resumed"))

    return router


def _none(done: str) -> str:
    return f"No connector needs to be {done}, please add connector first"


def _aim_all(connectors: Connectors, target: TargetState, by: str) -> int:
    """Say what is wanted of all connectors, and return how many there are."""
    names = connectors.names()
    for name in names:
        with suppress(ConnectorNotFoundError):  # deleted meanwhile
            connectors.set_target(name, target, by)
    return len(names)


def _one(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}")

    @router.api_route("", methods=["GET", "POST"])
    def put(name: Encoded, given: GivenConfig, request: Request) -> Json:
        _put(connectors, name, given, caller(request))
        return success(given.sent)

    @router.get("/stop")
    @router.get("/delete")
    def delete(name: Encoded, request: Request) -> Json:
        connectors.delete(name, caller(request))
        return success(f"Connector [{name}] deleted successfully")

    @router.get("/pause")
    def pause(name: Encoded, request: Request) -> Json:
        connectors.set_target(name, TargetState.PAUSED, caller(request))
        return success(f"Connector [{name}] paused successfully")

    @router.get("/resume")
    def resume(name: Encoded, request: Request) -> Json:
        connectors.set_target(name, TargetState.RUNNING, caller(request))
        return success(f"Connector [{name}] resumed successfully")

    return router


def _views(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}")

    @router.get("/config")
    def config(name: Encoded) -> Json:
        return success(connector_json(connectors.get(name), connectors.tasks(name)))

    @router.get("/status")
    def status(name: Encoded) -> Json:
        return success(status_json(connectors.view(name)))

    @router.get("/tasks")
    def tasks(name: Encoded) -> Json:
        return success(tasks_json(name, connectors.tasks(name)))

    @router.get("/tasks/{number}/status")
    def task(name: Encoded, number: int) -> Json:
        return success(task_json(connectors.task(name, number)))

    return router


def _put(connectors: Connectors, name: str, given: Given, by: str) -> None:
    """Create a connector, or give it another configuration than it has."""
    config = from_rocketmq(given.config, connectors.registry.reads)
    named = {**config, "name": config.get("name", name)}
    with suppress(ConnectorNotFoundError):
        if connectors.get(name).config == named:
            problem = "Connector with same config already exist."
            raise StateError(problem)
    connectors.configure(name, named, by)
