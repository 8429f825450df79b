"""The plugins of an installation, as Kafka Connect's REST API shows and checks them."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Body, HTTPException, Query, Request
from pydantic import BeforeValidator

from headrace.control import config_infos, plugin_keys_of
from headrace.model import PluginNotFoundError
from headrace.plugins import PluginInfo, PluginKind, Registry
from headrace.rest.requests import PROBLEM, Encoded, Flag, accepted
from headrace.sdk import ConfigError

Json: TypeAlias = Any
_TYPES = {
    PluginKind.SINK: "sink",
    PluginKind.SOURCE: "source",
    PluginKind.TRANSFORM: "transformation",
    PluginKind.PREDICATE: "predicate",
    PluginKind.CONVERTER: "converter",
}
"""In the order in which Kafka Connect lists them."""


def _unpacked(body: object) -> object:
    """Return what a text holds: ``kc validate-config`` sends its JSON as a text of JSON."""
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
        told = found.to_kafka_json()
        if PROBLEM in accepted(request.headers):  # Kafka's words of an error have no fix
            told["faults"] = [error.to_json() for error in found.errors]
        return told

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
    """Return all names of a plugin: its own, its aliases, and their last parts."""
    try:
        found = registry.find(plugin)
    except PluginNotFoundError:
        return {plugin}
    names = {name for info in found for name in (info.name, *_classes(info))}
    return names | {name.rpartition(".")[2] for name in names} | {plugin}
