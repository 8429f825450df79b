"""Connectors that are asked without being started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.control.evolution_keys import plugin_keys
from headrace.control.infos import definition_of

if TYPE_CHECKING:
    from headrace.model import Connector
    from headrace.plugins import Registry
    from headrace.sdk import SinkConnector, SourceConnector


def unstarted(found: Connector, registry: Registry) -> SourceConnector | SinkConnector:
    """Return a connector's plugin with its parsed configuration, which it reads only.

    Raises what is wrong with the configuration.
    """
    definition = definition_of(found, registry)
    spec = definition.source or definition.sinks[0]
    reads = definition.source is not None
    plugin = registry.source(spec.plugin) if reads else registry.sink(spec.plugin)
    made: SourceConnector | SinkConnector = plugin()
    made.config = made.config_def().parse(plugin_keys(spec.config))
    return made
