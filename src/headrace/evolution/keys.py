"""How a definition's targets handle changes of schemas: for all of them, and for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.config import evolution_config
from headrace.sdk.schema_evolution import EvolutionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model import Definition, PluginSpec

PREFIX = "schema.evolution"
"""What the names of these keys begin with. They may stand at the top of a definition, for all
its targets, and in the section of a source (for the topic that it writes) or of a sink."""


def evolution_of(definition: Definition, section: PluginSpec | None) -> EvolutionPolicy:
    """Return the policy of the target that a section of a checked definition writes."""
    own = {} if section is None else evolution_keys(section.config)
    props = {**evolution_keys(definition.common), **own}
    return EvolutionPolicy.from_config(evolution_config().parse(props))


def evolution_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return only these keys."""
    return {key: text for key, text in props.items() if _is_ours(key)}


def plugin_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return all other keys: those of the plugin itself."""
    return {key: text for key, text in props.items() if not _is_ours(key)}


def _is_ours(key: str) -> bool:
    return key == PREFIX or key.startswith(f"{PREFIX}.")
