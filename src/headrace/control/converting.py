"""The converters that a definition names, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import DEFAULT_HEADER_CONVERTER
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model import Definition
    from headrace.plugins import Registry
    from headrace.sdk import Converter
    from headrace.sdk.config import Config

CONVERTER_PREFIXES = tuple(f"{part}.converter." for part in RecordPart)
"""What the keys of converters begin with."""


@dataclass(frozen=True)
class ConverterPlan:
    """A configured converter for one part.

    Args:
        part: The part.
        plugin: Its class.
        config: Its own keys.
    """

    part: RecordPart
    plugin: type[Converter]
    config: Config


def plan_converters(definition: Definition, registry: Registry) -> tuple[ConverterPlan, ...]:
    """Return the converters that the definition sets; raise what is wrong with them.

    Where a key or a value is converted headers are as well, if need be by the default.
    """
    plans: list[ConverterPlan] = []
    for part in RecordPart:
        name = definition.common.get(f"{part}.converter")
        if not name and plans and part is RecordPart.HEADER:
            name = DEFAULT_HEADER_CONVERTER
        if not name:
            continue
        plugin = registry.converter(name, field=f"{part}.converter")
        if part not in plugin.parts:
            parts = " and ".join(sorted(plugin.parts))
            raise ConfigError(
                problem=f"{name} does not convert a {part}.",
                field=f"{part}.converter",
                fix=f"It is for: {parts}. Choose another.",
            )
        try:
            config = plugin.config_def().parse(converter_props(definition, part))
        except ConfigErrors as several:
            raise ConfigErrors(
                ConfigError(error.problem, fix=error.fix, field=_at(part, error.field))
                for error in several.errors
            ) from several
        plans.append(ConverterPlan(part, plugin, config))
    return tuple(plans)


def unknown_keys(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield the keys that no converter knows; all of its converters must be good."""
    for plan in plan_converters(definition, registry):
        keys = plan.plugin.config_def()
        for name, close in keys.unknown(converter_props(definition, plan.part)):
            known = ", ".join(keys.keys) or "none"
            fix = f"Did you mean {close}?" if close else f"Known keys: {known}."
            yield ConfigError("Is not a known key.", field=_at(plan.part, name), fix=fix)


def converter_props(definition: Definition, part: RecordPart) -> dict[str, str]:
    """Return a converter's keys, without their prefix."""
    prefix = f"{part}.converter."
    props = {
        key.removeprefix(prefix): value
        for key, value in definition.common.items()
        if key.startswith(prefix)
    }
    props.pop("plugin.version", None)
    return props | {CONVERTER_TYPE: part.value}


def _at(part: RecordPart, key: str | None) -> str:
    return ".".join(piece for piece in (f"{part}.converter", key) if piece)
