"""How a definition's targets handle changes of schemas: for all of them, and for each."""

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
"""What the names of these keys begin with. They may stand at the top of a definition, for all
its targets, and in the section of a source (for the topic that it writes) or of a sink."""


def _on(kind: str, doc: str) -> Any:
    return setting(
        f"The same for {doc} As schema.evolution if null.",
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
                "Must be old:new, two names in one struct",
                fix="Write as in address.zip:address.postcode.",
            )


class EvolutionSettings(Settings, group="Schema Evolution"):
    """What a connector's target does when schemas change."""

    schema_evolution: Handling = setting(
        "What the target does when the schema of the records changes: evolve follows, "
        "lenient takes old and new side by side, ignore stays as it is and takes what fits, "
        "reject stops the task with nothing of the batch written.",
        default=Handling.EVOLVE,
        width=Width.SHORT,
        display_name="Schema evolution",
    )
    schema_evolution_add: Handling | None = _on(
        "add",
        "a field that the target does not have: evolve and lenient add it, as one that may "
        "be null; ignore leaves it out, with a notice.",
    )
    schema_evolution_widen: Handling | None = _on(
        "widen",
        "a type that takes more values than the target's, null among them: evolve and "
        "lenient widen the target's; ignore keeps the target's and rejects the records whose "
        "values do not fit it.",
    )
    schema_evolution_narrow: Handling | None = _on(
        "narrow",
        "a type that takes fewer values than the target's: the target keeps its type, "
        "unless reject says so.",
    )
    schema_evolution_retype: Handling | None = _on(
        "retype",
        "another type, neither wider nor narrower: evolve gives it to the target, which "
        "may refuse; lenient puts the values into a field of their own, such as price__string; "
        "ignore keeps the target's type and rejects the records whose values do not fit it.",
    )
    schema_evolution_rename: Handling | None = _on(
        "rename",
        "a field that schema.evolution.renames declares: evolve goes on under the new "
        "name, ignore under the old one, lenient under both.",
    )
    schema_evolution_drop: Handling | None = _on(
        "drop",
        "a field of the target that is no longer there: evolve goes on without it; lenient "
        "keeps it, as null; ignore keeps it as it is, and stops if it must not be null and has "
        "no default.",
    )
    schema_evolution_reorder: Handling | None = _on(
        "reorder",
        "fields in another order: evolve takes the new order, lenient and ignore keep "
        "the target's.",
    )
    schema_evolution_renames: tuple[str, ...] = setting(
        "The fields that have been renamed, as pairs old:new; inside of a struct with the "
        "path to it, as in address.zip:address.postcode. Names alone cannot tell a rename.",
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
    """Return the policy of the target that a section of a checked definition writes."""
    own = {} if section is None else evolution_keys(section.config)
    return EvolutionSettings.parsed({**evolution_keys(definition.common), **own}).policy()


def evolution_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return only these keys."""
    return {key: text for key, text in props.items() if _is_ours(key)}


def plugin_keys(props: Mapping[str, str]) -> dict[str, str]:
    """Return all other keys: those of the plugin itself."""
    return {key: text for key, text in props.items() if not _is_ours(key)}


def _is_ours(key: str) -> bool:
    return key == PREFIX or key.startswith(f"{PREFIX}.")
