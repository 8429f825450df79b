"""The plugins of an installation, as RocketMQ Connect's REST API shows and checks them."""

from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query

from headrace.control import config_infos, from_rocketmq, plugin_keys_of
from headrace.plugins import PluginKind, Registry
from headrace.rest.rocketmq_answers import success
from headrace.rest.rocketmq_bodies import Given, GivenConfig
from headrace.rest.rocketmq_json import found_json, key_json

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
