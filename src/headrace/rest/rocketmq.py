"""RocketMQ Connect's REST API, so that its clients and scripts work as they are."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from fastapi import APIRouter, FastAPI, Request

from headrace import __version__
from headrace.control import Connectors, from_rocketmq, to_rocketmq
from headrace.model import TargetState
from headrace.rest.door import Door
from headrace.rest.guard import behind, caller
from headrace.rest.requests import Encoded
from headrace.rest.rocketmq_answers import (
    RocketmqManners,
    add_rocketmq_errors,
    refusal,
    success,
)
from headrace.rest.rocketmq_bodies import Given, GivenConfig
from headrace.rest.rocketmq_json import (
    allocated_json,
    connector_json,
    status_json,
    task_json,
    tasks_json,
)
from headrace.rest.rocketmq_plugins import rocketmq_plugin_routes
from headrace.rest.rocketmq_roles import needed_role
from headrace.sdk import StateError
from headrace.store import ConnectorNotFoundError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Json: TypeAlias = Any


def rocketmq_app(connectors: Connectors, door: Door) -> "ASGIApp":
    """Return the API over an installation's connectors, behind a door.

    Its clients change things by GET, as they do there.
    """
    app = FastAPI(title="Headrace", version=__version__, openapi_url=None)
    add_rocketmq_errors(app, connectors.registry.references.secrets)
    for routes in (_cluster, _all, _one, _views):
        app.include_router(routes(connectors))
    app.include_router(rocketmq_plugin_routes(connectors.registry))
    return behind(RocketmqManners(app), door, refusal, needed_role, gets_change=True)


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
