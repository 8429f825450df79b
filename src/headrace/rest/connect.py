"""Kafka Connect's REST API, for its unchanged clients and tools."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import quote, unquote

from fastapi import APIRouter, Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from headrace import __version__
from headrace.control import (
    Connectors,
    ConnectorView,
    Offset,
    Offsets,
    TaskView,
    config_infos,
    plugin_keys_of,
    target_state,
)
from headrace.model import Connector, EventKind, PluginNotFoundError, TargetState, TaskConfig
from headrace.plugins import PluginInfo, PluginKind, Registry
from headrace.rest.auth import behind, caller, is_known, needs_admin_to_change
from headrace.rest.errors import add_errors, statuses_of
from headrace.rest.listener import Listener, Role
from headrace.rest.requests import (
    PROBLEM,
    Encoded,
    Flag,
    JsonMap,
    WholeText,
    accepted,
    methods_at,
    tellable,
    without_last_slash,
)
from headrace.runtime.health import Health, HealthState, store_look
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.store import ConnectorExistsError, ConnectorNotFoundError, TaskNotFoundError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_OF_OPERATORS = re.compile(
    r"/connectors/[^/]+/"
    r"(pause|resume|stop|restart|offsets|topics/reset|tasks/[^/]+/restart)"
)
"""Requests that change the state and offsets of a connector, but not its configuration."""


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request requires, by its method and undecoded path."""
    needed = needs_admin_to_change(method, path)
    if needed is Role.ADMIN and _OF_OPERATORS.fullmatch(path.rstrip("/")):
        return Role.OPERATOR
    return needed


Json: TypeAlias = Any
_LEFT_BEHIND = "Headrace-Left-Behind"
_TYPES = {
    PluginKind.SINK: "sink",
    PluginKind.SOURCE: "source",
    PluginKind.TRANSFORM: "transformation",
    PluginKind.PREDICATE: "predicate",
    PluginKind.CONVERTER: "converter",
}
"""In the order of Kafka Connect's list."""


def _unpacked(body: object) -> object:
    """Parse a JSON string that contains JSON, which ``kc validate-config`` sends."""
    try:
        return json.loads(body) if isinstance(body, str) else body
    except ValueError:
        return body


CheckedConfig = Annotated[dict[str, str | None], BeforeValidator(_unpacked), Body()]
OnlyConnectors = Annotated[Flag, Query(alias="connectorsOnly")]


def plugin_routes(registry: Registry) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/connector-plugins")

    @router.get("")
    def list_plugins(only: OnlyConnectors = True) -> Json:  # noqa: FBT002 - a query
        return list(_listed(registry, only_connectors=only))

    @router.get("/{plugin}/config")
    def keys(plugin: Encoded) -> Json:
        try:
            found = plugin_keys_of(plugin, registry)
        except PluginNotFoundError:
            raise HTTPException(404, f"Unknown plugin {plugin}.") from None
        return [key.to_kafka_json() for key in found.keys.values()]

    @router.put("/{plugin}/config/validate")
    def validate(plugin: Encoded, config: CheckedConfig, request: Request) -> Json:
        given = {key: value for key, value in config.items() if value is not None}
        named = given.get("connector.class", "")
        if named and named not in _names_of(plugin, registry):
            problem = f"Included connector type {named} does not match request type {plugin}"
            raise ConfigError(problem, field="connector.class")
        found = config_infos(given, registry)
        body = found.to_kafka_json()
        if PROBLEM in accepted(request.headers):  # Kafka's error form has no field for a fix
            body["faults"] = [error.to_json() for error in found.errors]
            body["warnings"] = [warning.to_json() for warning in found.warnings]
        return body

    return router


def _listed(registry: Registry, *, only_connectors: bool) -> Iterator[dict[str, str]]:
    kinds = list(_TYPES)[:2] if only_connectors else list(_TYPES)
    for kind in kinds:
        for info in registry.all_of(kind):
            for name in _classes(info):
                yield {"class": name, "type": _TYPES[kind], "version": info.version}


def _classes(info: PluginInfo) -> list[str]:
    return [info.class_path, *info.aliases]


def _names_of(plugin: str, registry: Registry) -> set[str]:
    try:
        found = registry.find(plugin)
    except PluginNotFoundError:
        return {plugin}
    names = {name for info in found for name in (info.name, *_classes(info))}
    return names | {name.rpartition(".")[2] for name in names} | {plugin}


def connector_json(
    found: Connector, tasks: Sequence[TaskConfig] | Sequence[TaskView]
) -> dict[str, Any]:
    """Return a connector as JSON: its configuration and the ids of its tasks."""
    return {
        "name": found.name,
        "config": dict(found.config),
        "tasks": [{"connector": found.name, "task": task.number} for task in tasks],
        "type": found.kind.value,
    }


def tasks_json(name: str, tasks: Sequence[TaskConfig]) -> list[dict[str, Any]]:
    """Return the tasks of a connector with their configurations as JSON."""
    return [
        {"id": {"connector": name, "task": task.number}, "config": dict(task.config)}
        for task in tasks
    ]


def status_json(view: ConnectorView, version: str) -> dict[str, Any]:
    """Return the status of a connector and its tasks as JSON."""
    status = view.status
    return {
        "name": view.connector.name,
        "connector": {
            "state": status.state.value,
            "worker_id": status.worker,
            **({"trace": status.trace} if status.trace else {}),
            "version": version,
        },
        "tasks": [task_json(task, version) for task in view.tasks],
        "type": view.connector.kind.value,
    }


def task_json(task: TaskView, version: str) -> dict[str, Any]:
    """Return the status of a task as JSON."""
    trace = task.status.trace
    return {
        "id": task.number,
        "state": task.status.state.value,
        "worker_id": task.worker,
        **({"trace": trace} if trace else {}),
        "version": version,
    }


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        problem = "Contains a number that JSON cannot represent, such as NaN or 1e999"
        raise ValueError(problem)
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[WholeText, BeforeValidator(_text)]
ConfigBody = Annotated[dict[WholeText, Text], Body()]
PatchBody = Annotated[dict[WholeText, Text | None], Body()]


_LOOK_SECONDS = 0.01


class NewConnector(BaseModel):
    """The request body for a new connector."""

    model_config = ConfigDict(extra="forbid")

    name: WholeText | None = None
    config: dict[WholeText, Text]
    initial_state: str | None = None


class OffsetBody(BaseModel):
    """The offset of a partition in a request; null means the beginning."""

    partition: JsonMap
    offset: JsonMap | None


class OffsetsBody(BaseModel):
    """The request body for new offsets."""

    model_config = ConfigDict(extra="forbid")

    offsets: list[OffsetBody] | None = None


def connect_app(
    connectors: Connectors, listener: Listener, health: Health | None = None
) -> ASGIApp:
    """Return the API for the connectors, behind a listener's checks."""
    return behind(
        ConnectMiddleware(connect_api(connectors, health)), listener, refusal, needed_role
    )


def connect_api(connectors: Connectors, health: Health | None = None) -> FastAPI:
    """Return the API without the listener's checks."""
    app = FastAPI(title="Headrace", version=__version__, openapi_url=None)
    add_errors(app, ConnectErrors(app), connectors.registry.references.secrets)
    app.include_router(_about(health or Health({"store": store_look(connectors.names)})))
    for routes in (_connectors, _configs, _states, _tasks, _topics, _offsets):
        app.include_router(routes(connectors))
    app.include_router(plugin_routes(connectors.registry))
    app.include_router(logger_routes(Loggers(), connectors))
    return app


def _location(request: Request, name: str) -> dict[str, str]:
    base = str(request.base_url).rstrip("/")
    return {"Location": f"{base}/connectors/{quote(name, safe='')}"}


def _about(condition: Health) -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def root() -> Json:
        return {"version": __version__, "commit": "", "kafka_cluster_id": "headrace"}

    @router.get("/health")
    async def health(request: Request) -> JSONResponse:
        # Not in a request thread: all of these may be blocked by something that hangs. Where
        # tokens are needed, the answer without one omits details such as locations.
        condition.look()
        while condition.looking:  # noqa: ASYNC110 - in threads that may never signal
            await asyncio.sleep(_LOOK_SECONDS)
        found = condition.to_json(full=is_known(request))
        unhealthy = found["status"] == HealthState.UNHEALTHY
        return JSONResponse(found, 503 if unhealthy else 200)

    return router


def _info(connectors: Connectors, name: str) -> Json:
    return connector_json(connectors.get(name), connectors.store.tasks(name))


def _expanded(connectors: Connectors, expand: list[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for view in connectors.views():
        each = view.connector
        shown = found.setdefault(each.name, {})
        if "status" in expand:
            shown["status"] = status_json(view, connectors.version_of(each))
        if "info" in expand:
            shown["info"] = connector_json(each, view.tasks)
    return found


def _connectors(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors")

    @router.get("")
    def list_connectors(expand: Annotated[list[str] | None, Query()] = None) -> Json:
        return _expanded(connectors, expand) if expand else connectors.names()

    @router.post("", status_code=201)
    def create(body: NewConnector, request: Request) -> Response:
        name = (body.name or "").strip()
        target = target_state(body.initial_state, "initial_state")
        made = connectors.create(name, body.config, caller(request), target)
        shown = _info(connectors, made.name)
        return JSONResponse(shown, 201, _location(request, made.name))

    @router.get("/{name}")
    def show(name: Encoded) -> Json:
        return _info(connectors, name)

    @router.delete("/{name}", status_code=204)
    def delete(name: Encoded, request: Request, response: Response) -> None:
        # Kafka Connect's response has no body, so this is a header.
        left = connectors.delete(name, caller(request))
        if left:
            response.headers[_LEFT_BEHIND] = json.dumps(left)

    return router


def _configs(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors")

    @router.get("/{name}/config")
    def config(name: Encoded) -> Json:
        return dict(connectors.get(name).config)

    @router.put("/{name}/config")
    def configure(name: Encoded, body: ConfigBody, request: Request) -> Response:
        _, created = connectors.configure(name, body, caller(request))
        headers = _location(request, name) if created else {}
        return JSONResponse(_info(connectors, name), 201 if created else 200, headers)

    @router.patch("/{name}/config")
    def patch(name: Encoded, body: PatchBody, request: Request) -> Json:
        connectors.patch(name, body, caller(request))
        return _info(connectors, name)

    return router


def _states(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}")

    @router.get("/status")
    def status(name: Encoded) -> Json:
        view = connectors.view(name)
        return status_json(view, connectors.version_of(view.connector))

    @router.put("/pause", status_code=202, response_class=Response)
    def pause(name: Encoded, request: Request) -> None:
        connectors.set_target(name, TargetState.PAUSED, caller(request))

    @router.put("/resume", status_code=202, response_class=Response)
    def resume(name: Encoded, request: Request) -> None:
        connectors.set_target(name, TargetState.RUNNING, caller(request))

    @router.put("/stop", status_code=204)
    def stop(name: Encoded, request: Request) -> None:
        connectors.set_target(name, TargetState.STOPPED, caller(request))

    @router.post("/restart")
    def restart(
        name: Encoded,
        request: Request,
        tasks: Annotated[Flag, Query(alias="includeTasks")] = False,  # noqa: FBT002 - a query
        only_failed: Annotated[Flag, Query(alias="onlyFailed")] = False,  # noqa: FBT002
    ) -> Response:
        view = connectors.restart(name, caller(request), tasks=tasks, only_failed=only_failed)
        if not tasks and not only_failed:
            return Response(status_code=204)
        return JSONResponse(status_json(view, connectors.version_of(view.connector)), 202)

    return router


def _tasks(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}/tasks")

    @router.get("")
    def list_tasks(name: Encoded) -> Json:
        return tasks_json(name, connectors.tasks(name))

    @router.get("/{number}/status")
    def status(name: Encoded, number: int) -> Json:
        version = connectors.version_of(connectors.get(name))
        return task_json(connectors.task(name, number), version)

    @router.post("/{number}/restart", status_code=204)
    def restart(name: Encoded, number: int, request: Request) -> None:
        connectors.restart_task(name, number, caller(request))

    return router


def _offsets(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}/offsets")
    offsets = Offsets(connectors)

    @router.get("")
    def view(name: Encoded) -> Json:
        shown = offsets.view(name)
        return {"offsets": [{"partition": o.partition, "offset": o.offset} for o in shown]}

    @router.patch("")
    def alter(name: Encoded, body: OffsetsBody, request: Request) -> Json:
        given = [Offset(each.partition, each.offset) for each in body.offsets or ()]
        offsets.alter(name, given, caller(request))
        return {"message": "The offsets for this connector have been altered successfully"}

    @router.delete("")
    def reset(name: Encoded, request: Request) -> Json:
        offsets.reset(name, caller(request))
        return {"message": "The offsets for this connector have been reset successfully"}

    return router


def _topics(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}/topics")

    @router.get("")
    def topics(name: Encoded) -> Json:
        return {name: {"topics": list(connectors.store.topics(name))}}

    @router.put("/reset", status_code=202, response_class=Response)
    def reset(name: Encoded) -> None:
        connectors.store.reset_topics(name)

    return router


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
"""Kafka Connect's messages for an unknown connector or task, by request."""


class ConnectErrors:
    """Kafka Connect's error responses."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def failed(self, request: Request, error: HeadraceError) -> JSONResponse:
        status = statuses_of(error).connect
        if isinstance(error, ConnectorNotFoundError | TaskNotFoundError):
            return answer(status, _unknown(request))
        return answer(status, _told(error), more=_more(request, error))

    def invalid(self, _: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["loc"][0] == "path":  # an invalid path parameter is 404, as with JAX-RS
            return answer(404, "HTTP 404 Not Found")
        where = tellable(".".join(str(part) for part in first["loc"][1:]))
        broken = first["type"] == "json_invalid"  # its location is a character offset
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
    """Reject a request before its body is read; a ``Refuse``."""
    return answer(status, message, dict(headers))


def answer(
    status: int,
    message: str,
    headers: dict[str, str] | None = None,
    *,
    more: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """Return an error in Kafka Connect's form, with additional fields if given."""
    body = {"error_code": status, "message": message, **(more or {})}
    return JSONResponse(body, status, headers)


def _more(request: Request, error: HeadraceError) -> dict[str, Any]:
    """Return additional error fields for a client that accepts problem details."""
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
    if error.field == "connector.class":  # Kafka Connect lists the known classes too
        return f"{error.problem} {error.fix}".rstrip()
    return error.problem


def _unknown(request: Request) -> str:
    """Return Kafka Connect's message for the unknown connector or task of a request."""
    names = {key: unquote(value) for key, value in request.path_params.items()}
    path = request.scope["route"].path_format
    _, _, rest = path.partition("{name}")
    words = _UNKNOWN.get((request.method, rest), "Connector {name} not found")
    return words.format(**names)


class ConnectMiddleware:
    """Preprocesses requests as Kafka Connect's server does, before routing.

    Ignores a trailing slash, answers HEAD as GET without the body, and rejects a body whose
    media type is not JSON and a client that does not accept JSON.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope = without_last_slash(scope)
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, bodiless)


def _refusal(scope: Scope) -> JSONResponse | None:
    headers = Headers(scope=scope)
    if not {"", "*/*", "application/*", "application/json"} & accepted(headers):
        return answer(406, "HTTP 406 Not Acceptable")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        return answer(415, "HTTP 415 Unsupported Media Type")
    return None


ROOT = "root"
_NUMBERS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Python's numbers of Log4j's levels and of Python's names for them."""
_NAMES = {number: name for name, number in reversed(_NUMBERS.items())}
"""Log4j's names, which come first in ``_NUMBERS``."""


class LevelBody(BaseModel):
    """A level that a client sets."""

    level: str | None = None


@dataclass
class Loggers:
    """The loggers of this process. Thread-safe."""

    _changed: dict[str, int] = field(default_factory=dict)

    def all(self) -> dict[str, Json]:
        # A copy: another thread may create a logger in the meantime.
        manager = dict(logging.root.manager.loggerDict)
        there = [name for name, each in manager.items() if isinstance(each, logging.Logger)]
        return {name: self.show(name) for name in [*sorted(there), ROOT]}

    def has(self, name: str) -> bool:
        """Return whether a logger or a child of it exists."""
        known = logging.root.manager.loggerDict
        return name == ROOT or name in known

    def show(self, name: str) -> Json:
        """Return the effective level of a logger."""
        level = _logger(name).getEffectiveLevel()
        shown = _NAMES.get(level, logging.getLevelName(level))
        return {"level": shown, "last_modified": self._changed.get(name)}

    def set(self, name: str, level: int) -> list[str]:
        """Set the level of a logger and its children; return their names."""
        below = [each for each in self.all() if each.startswith(f"{name}.")]
        names = [name, *below]
        for each in names:
            _logger(each).setLevel(level)
            self._changed[each] = time.time_ns() // 1_000_000
        return names


def logger_routes(loggers: Loggers, connectors: Connectors) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/admin/loggers")

    @router.get("")
    def list_loggers() -> Json:
        return loggers.all()

    @router.get("/{name}")
    def show(name: Encoded) -> Json:
        if not loggers.has(name):
            raise HTTPException(404, f"Logger {name} not found.")
        return loggers.show(name)

    @router.put("/{name}")
    def set_level(
        name: Encoded, body: LevelBody, request: Request, scope: str = "worker"
    ) -> Response:
        if body.level is None:
            problem = "Desired 'level' parameter was not specified in request."
            raise HTTPException(400, problem)
        number = _NUMBERS.get(body.level.upper())
        if number is None:
            raise HTTPException(404, f"invalid log level '{body.level}'.")
        changed = loggers.set(name, number)
        detail = {"logger": name, "level": body.level.upper()}
        connectors.record_event(EventKind.LOGGER, caller(request), detail)
        # The cluster is this one process.
        return Response(status_code=204) if scope == "cluster" else JSONResponse(changed)

    return router


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
