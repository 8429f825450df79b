"""Settings of a definition for schema changes: for all targets, and per target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sdk.config import (
    Importance,
    Lambda,
    NullOr,
    Settings,
    ValidString,
    Width,
    invalid,
    setting,
)
from headrace.sdk.schema_evolution import EVOLUTION_KINDS, EvolutionPolicy, Handling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model import Definition, PluginSpec

PREFIX = "schema.evolution"
"""The prefix of these settings. They are allowed at the top level of a definition, for all its
targets, and in the section of a source (for the topic that it writes) or of a sink."""


def _on(kind: str, doc: str) -> Any:
    return setting(
        f"How to handle {doc} If null, schema.evolution applies.",
        default=None,
        validator=NullOr(ValidString(*Handling)),
        importance=Importance.LOW,
        width=Width.SHORT,
        display_name=f"On {kind}",
    )


def _check_renames(name: str, value: object) -> None:
    for text in value if isinstance(value, list | tuple) else ():
        old, _, new = str(text).partition(":")
        within = old.strip().rpartition(".")[0] == new.strip().rpartition(".")[0]
        if not old.strip() or not new.strip() or not within:
            raise invalid(
                name,
                text,
                "Must be old:new, two names in the same struct",
                fix="For example address.zip:address.postcode.",
            )


class EvolutionSettings(Settings, group="Schema Evolution"):
    """How a connector's target handles schema changes."""

    schema_evolution: Handling = setting(
        "How the target handles a changed schema of the records: evolve adopts the change, "
        "lenient stores old and new fields side by side, ignore keeps the target's schema and "
        "writes the records that fit it, reject stops the task without writing the batch.",
        default=Handling.EVOLVE,
        width=Width.SHORT,
        display_name="Schema evolution",
    )
    schema_evolution_add: Handling | None = _on(
        "add",
        "a field that the target does not have: evolve and lenient add it as an optional "
        "field; ignore omits it and logs a warning.",
    )
    schema_evolution_widen: Handling | None = _on(
        "widen",
        "a type with a larger range of values than the target's type, or a field that has "
        "become optional: evolve and lenient widen the target's type; ignore keeps it and "
        "rejects the records whose values do not fit.",
    )
    schema_evolution_narrow: Handling | None = _on(
        "narrow",
        "a type with a smaller range of values than the target's type: the target keeps its "
        "type, except that reject stops the task.",
    )
    schema_evolution_retype: Handling | None = _on(
        "retype",
        "a type that is neither wider nor narrower than the target's: evolve changes the "
        "target's type, which the target may refuse; lenient writes the values to an "
        "additional field, such as price__string; ignore keeps the target's type and rejects "
        "the records whose values do not fit.",
    )
    schema_evolution_rename: Handling | None = _on(
        "rename",
        "a renamed field, as declared by schema.evolution.renames: evolve uses the new name, "
        "ignore the old name, lenient both.",
    )
    schema_evolution_drop: Handling | None = _on(
        "drop",
        "a field of the target that the records no longer have: evolve omits it; lenient "
        "keeps it as an optional field, with null; ignore keeps it unchanged, with its default "
        "or null, and stops the task if it is required and has no default.",
    )
    schema_evolution_reorder: Handling | None = _on(
        "reorder",
        "fields in a different order: evolve adopts the new order, lenient and ignore keep "
        "the target's order.",
    )
    schema_evolution_renames: tuple[str, ...] = setting(
        "The renamed fields, as pairs old:new; for fields in a struct with their paths, for "
        "example address.zip:address.postcode. Renames cannot be detected automatically.",
        default=(),
        validator=Lambda(_check_renames, "old:new pairs"),
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Renamed fields",
    )

    def policy(self) -> EvolutionPolicy:
        handlings = {
            kind: getattr(self, f"schema_evolution_{kind}") for kind in EVOLUTION_KINDS
        }
        pairs = (text.partition(":") for text in self.schema_evolution_renames)
        return EvolutionPolicy(
            self.schema_evolution,
            {kind: handling for kind, handling in handlings.items() if handling},
            {old.strip(): new.strip() for old, _, new in pairs},
        )


def evolution_of(definition: Definition, section: PluginSpec | None) -> EvolutionPolicy:
    """Return the policy for the target of a section of a checked definition."""
    own = {} if section is None else evolution_keys(section.config)
    return EvolutionSettings.parsed({**evolution_keys(definition.common), **own}).policy()


def evolution_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return only the schema evolution keys."""
    return {key: text for key, text in props.items() if _is_ours(key)}


def plugin_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return all other keys, which belong to the plugin."""
    return {key: text for key, text in props.items() if not _is_ours(key)}


def _is_ours(key: str) -> bool:
    return key == PREFIX or key.startswith(f"{PREFIX}.")
