"""RocketMQ Connect's REST API, for its unchanged clients and scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace import __version__
from headrace.control import (
    Connectors,
    ConnectorView,
    TaskView,
    config_infos,
    from_rocketmq,
    in_rocketmq_words,
    plugin_keys_of,
    to_rocketmq,
)
from headrace.model import Connector, TargetState, TaskConfig, TaskState
from headrace.plugins import PluginKind, Registry
from headrace.rest import connect
from headrace.rest.auth import behind, caller
from headrace.rest.errors import add_errors, statuses_of
from headrace.rest.listener import Listener, Role
from headrace.rest.requests import Encoded, without_last_slash
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError, StateError
from headrace.store import ConnectorNotFoundError, TaskNotFoundError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.sdk.config import ConfigInfos, ConfigKey

_READS = {"GET", "HEAD", "OPTIONS"}
_OF_VIEWERS = re.compile(
    r"/|/getClusterInfo|/allocated/(connectors|tasks)|/plugin/(list|list/connectors|config)"
    r"|/connectors/list|/connectors/[^/]+/(config|status|tasks|tasks/[^/]+/status)"
)
_OF_OPERATORS = re.compile(r"/connectors/([^/]+/(pause|resume)|(pause|resume)/all)")


def needed_role(method: str, path: str) -> Role:
    """Return the role that a request requires, by its method and undecoded path.

    All requests require an admin, except those known to only read or to only change the state
    of connectors: most requests that create or delete are GETs too.
    """
    path = path.rstrip("/") or "/"
    if method in _READS and _OF_VIEWERS.fullmatch(path):
        return Role.VIEWER
    return Role.OPERATOR if _OF_OPERATORS.fullmatch(path) else Role.ADMIN


@dataclass(frozen=True)
class SentConfig:
    """A configuration from a request, as sent and with all values as strings."""

    sent: Mapping[str, Any]

    @property
    def config(self) -> dict[str, str]:
        """The configuration with all values as strings, without nulls."""
        return {key: _text(value) for key, value in self.sent.items() if value is not None}


async def _sent_config(request: Request, config: Annotated[str, Query()] = "") -> SentConfig:
    """Parse the query parameter of a GET, or the body regardless of its media type."""
    posted = request.method != "GET"
    sent = (await request.body()).decode(errors="replace") if posted else config
    if not sent.strip():
        problem = "Failed! query param 'config' is required "
        raise ConfigError(problem)
    try:
        document = json.loads(sent)
        # Also reject values that could be stored but not returned.
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        problem = "Failed! query param 'config' is malformed"
        raise ConfigError(problem)
    return SentConfig(document)


SentBody = Annotated[SentConfig, Depends(_sent_config)]


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
"""In the order of RocketMQ Connect's list; it has no predicates."""
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
    def validate(sent: SentBody) -> Json:
        config = from_rocketmq(sent.config, registry.reads)
        return success(found_json(config_infos(config, registry), config))

    return router


def _listed(registry: Registry, kinds: list[PluginKind]) -> Iterator[dict[str, str]]:
    for kind in kinds:
        for info in registry.all_of(kind):
            for name in (info.class_path, *info.aliases):
                yield {"className": name, "type": _TYPES[kind], "version": info.version}


def rocketmq_app(connectors: Connectors, listener: Listener) -> ASGIApp:
    """Return the API for the connectors, behind a listener's checks.

    As in RocketMQ Connect, GET requests make changes.
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
        count = _set_all_targets(connectors, TargetState.PAUSED, caller(request))
        return success(f"{count} connectors are suspended" if count else _none("paused"))

    @router.get("/connectors/resume/all")
    def resume(request: Request) -> Json:
        count = _set_all_targets(connectors, TargetState.RUNNING, caller(request))
        return success(f"{count} connectors are resumed" if count else _none("resumed"))

    return router


def _none(done: str) -> str:
    return f"No connector needs to be {done}, please add connector first"


def _set_all_targets(connectors: Connectors, target: TargetState, by: str) -> int:
    names = connectors.names()
    for name in names:
        with suppress(ConnectorNotFoundError):  # deleted meanwhile
            connectors.set_target(name, target, by)
    return len(names)


def _one(connectors: Connectors) -> APIRouter:
    router = APIRouter(prefix="/connectors/{name}")

    @router.api_route("", methods=["GET", "POST"])
    def put(name: Encoded, sent: SentBody, request: Request) -> Json:
        _put(connectors, name, sent, caller(request))
        return success(sent.sent)

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


def _put(connectors: Connectors, name: str, sent: SentConfig, by: str) -> None:
    config = from_rocketmq(sent.config, connectors.registry.reads)
    named = {**config, "name": config.get("name", name)}
    with suppress(ConnectorNotFoundError):
        if connectors.get(name).config == named:
            problem = "Connector with same config already exist."
            raise StateError(problem)
    connectors.configure(name, named, by)


_POOLS = {
    TaskState.UNASSIGNED: ("pendingTasks", "PENDING"),
    TaskState.RESTARTING: ("pendingTasks", "PENDING"),
    TaskState.RUNNING: ("runningTasks", "RUNNING"),
    TaskState.PAUSED: ("runningTasks", "RUNNING"),
    TaskState.FAILED: ("errorTasks", "ERROR"),
}
"""RocketMQ Connect's pool and state for each of Headrace's task states.

In RocketMQ Connect a paused task still occupies its thread, so it counts as running.
"""


def connector_json(
    found: Connector, tasks: Sequence[TaskConfig] | Sequence[TaskView]
) -> dict[str, Any]:
    """Return a connector as JSON: its configuration and the ids of its tasks."""
    shown = connect.connector_json(found, tasks)
    return shown | {"config": to_rocketmq(found.config), "type": found.kind.value.upper()}


def tasks_json(name: str, tasks: Sequence[TaskConfig]) -> list[dict[str, Any]]:
    """Return the tasks of a connector with their configurations as JSON."""
    shown = connect.tasks_json(name, tasks)
    return [{**task, "config": to_rocketmq(task["config"])} for task in shown]


def status_json(view: ConnectorView) -> dict[str, Any]:
    """Return the status of a connector and its tasks as JSON."""
    status = view.status
    return {
        "name": view.connector.name,
        "connector": {
            "state": status.state.value,
            "trace": status.trace or None,
            "workerId": status.worker,
        },
        "tasks": [task_json(task) for task in view.tasks],
        "type": view.connector.kind.value.upper(),
    }


def task_json(task: TaskView) -> dict[str, Any]:
    """Return the status of a task as JSON."""
    return {
        "state": task.status.state.value,
        "trace": task.status.trace or None,
        "workerId": task.worker,
        "id": task.number,
    }


def allocated_json(
    views: Iterable[ConnectorView], planned: Mapping[str, Sequence[TaskConfig]]
) -> dict[str, Any]:
    """Return the tasks of connectors by pool, with their configurations from ``planned``."""
    pools = ("pendingTasks", "runningTasks", "stoppingTasks", "stoppedTasks", "errorTasks")
    found: dict[str, list[dict[str, Any]]] = {pool: [] for pool in pools}
    for view in views:
        tasks = planned.get(view.connector.name, ())
        configs = {task.number: task.config for task in tasks}
        for task in view.tasks:
            pool, state = _POOLS.get(task.status.state, ("stoppedTasks", "STOPPED"))
            found[pool].append(
                {
                    "connectorName": view.connector.name,
                    "config": to_rocketmq(configs.get(task.number, {})),
                    "taskState": state,
                }
            )
    return found


def key_json(key: ConfigKey, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition of a key as JSON."""
    return {
        "name": in_rocketmq_words(key.name, config),
        "type": key.type.value,
        "required": key.required,
        "defaultValue": key.default_text,
        "importance": key.importance.value,
        "documentation": key.doc,
        "group": key.group,
        "orderInGroup": key.order,
        "width": key.width.value,
        "displayName": key.display_name,
        "dependents": [],
    }


def found_json(infos: ConfigInfos, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of a validation as JSON, key by key."""
    configs = []
    for value in infos.values:
        key = infos.keys.get(value.name)
        configs.append(
            {
                "definition": None if key is None else key_json(key, config),
                "value": {
                    "name": in_rocketmq_words(value.name, config),
                    "value": None if key is None else value.to_kafka_json(key.type)["value"],
                    "recommendedValues": [],
                    "errors": [in_rocketmq_words(e.problem, config) for e in value.errors],
                    "visible": value.visible,
                },
            }
        )
    return {
        "name": infos.name,
        "errorCount": len(infos.errors),
        "groups": list(infos.groups),
        "configs": configs,
    }


def success(body: Json) -> dict[str, Json]:
    """Return a result in its envelope."""
    return {"status": 200, "body": body}


def failure(code: int, message: str, status: int = 200) -> JSONResponse:
    """Return an error in its envelope; the HTTP status is 200 by default."""
    return JSONResponse({"errorCode": code, "message": message}, status)


def refusal(_: str, status: int, message: str, headers: Mapping[str, str]) -> JSONResponse:
    """Reject a request before its body is read; a ``Refuse``."""
    body = {"errorCode": status, "message": message}
    return JSONResponse(body, status, dict(headers))


class RocketmqErrors:
    """RocketMQ Connect's error responses."""

    def failed(self, request: Request, error: HeadraceError) -> JSONResponse:
        missing = isinstance(error, ConnectorNotFoundError | TaskNotFoundError)
        errors = error.errors if isinstance(error, ConfigErrors) else (error,)
        text = _unknown(request) if missing else "\n".join(map(_sentence, errors))
        return failure(statuses_of(error).rocketmq, text)

    def invalid(self, _: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return failure(400, f"{where}: {first['msg']}")

    def refused(self, _: Request, error: HTTPException) -> JSONResponse:
        return failure(error.status_code, str(error.detail), error.status_code)

    def broken(self, _: Request, problem: str) -> JSONResponse:
        return failure(500, problem)


def _sentence(error: HeadraceError) -> str:
    text = " ".join(part for part in (error.problem, error.fix) if part)
    named = error.field is None or error.field in error.problem
    return in_rocketmq_words(text if named else f"{error.field}: {text}", {})


def _unknown(request: Request) -> str:
    """Return RocketMQ Connect's message for the unknown connector or task of a request."""
    path = request.scope["route"].path_format
    sent = {key: unquote(value) for key, value in request.path_params.items()}
    name = sent["name"]
    if "number" in sent:
        return f"No status found for task {name}-{sent['number']}"
    if path.endswith("/status"):
        return f"No status found for connector {name}"
    space = "" if path.endswith(("/config", "/tasks")) else " "
    return f"Connector{space}[{name}] does not exist"


class RocketmqMiddleware:
    """Ignores a trailing slash in paths, as RocketMQ Connect's server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        await self._app(without_last_slash(scope) if is_http else scope, receive, send)
