"""Compatibility levels: what is set for a subject and for all, and what a level asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace_plugins.confluent.schema_registry import InvalidSchemaError
from headrace_registry import errors
from headrace_registry.model import CompatibilityLevel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace_registry.languages.parsed import ParsedSchema
    from headrace_registry.store import RegistryRows

GLOBAL = ""
_LEVEL = "compatibilityLevel"


@dataclass(frozen=True)
class Config:
    """What is set of a subject or of all, or holds for it.

    Args:
        level: The compatibility level, None if it is not set.
        normalize: Whether schemas are normalized unasked, None if it is not set.
    """

    level: CompatibilityLevel | None = None
    normalize: bool | None = None

    def to_json(self, level: str = _LEVEL) -> dict[str, Any]:
        """Return it as the REST API does, which names the level so or so."""
        given = {level: self.level, "normalize": self.normalize}
        return {key: value for key, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Config:
        """Read what a client sends, or what `to_json` gave. Raises RegistryRefusedError."""
        values = {key: each for key, each in value.items() if each is not None}
        named, text = values.pop(_LEVEL, None), values.pop("compatibility", None)
        text = text or named
        normalize = values.pop("normalize", None)
        if values:
            problem = f"This registry does not know the settings {', '.join(sorted(values))}."
            raise errors.not_permitted(problem, "Leave them out.")
        level = None
        if text is not None:
            level = _level(str(text))
        return cls(level, None if normalize is None else bool(normalize))


def config_of(rows: RegistryRows, scope: str) -> Config | None:
    """Return what is set for a subject or for all itself."""
    text = rows.setting(scope)
    return None if text is None else Config.from_json(json.loads(text))


def config_for(rows: RegistryRows, scope: str) -> Config:
    """Return what holds for a subject: its own setting, else that of all, else BACKWARD."""
    own = config_of(rows, scope) or Config()
    common = config_of(rows, GLOBAL) or Config()
    normalize = common.normalize if own.normalize is None else own.normalize
    level = own.level or common.level or CompatibilityLevel.BACKWARD
    return Config(level, bool(normalize))


def put_config(rows: RegistryRows, scope: str, config: Config) -> None:
    """Set what the given values say, and leave the others as they were."""
    old = config_of(rows, scope) or Config()
    new = Config(
        config.level or old.level,
        old.normalize if config.normalize is None else config.normalize,
    )
    rows.put_setting(scope, json.dumps(new.to_json()))


def drop_config(rows: RegistryRows, scope: str) -> Config:
    """Unset a subject or all and return what was set. Raises SchemaNotFoundError if nothing."""
    found = config_of(rows, scope)
    if found is None and scope != GLOBAL:
        raise errors.no_subject(scope)
    rows.put_setting(scope, None)
    return found or Config(CompatibilityLevel.BACKWARD)


def incompatibilities(
    level: CompatibilityLevel,
    schema: ParsedSchema,
    earlier: Sequence[tuple[int, ParsedSchema]],
) -> list[str]:
    """Return why the schema does not fit; empty if it does.

    Args:
        level: What is asked of it.
        schema: The schema.
        earlier: The versions it is held against, the newest first. Only the first of them
            counts where the level is not transitive.
    """
    counted = earlier if level.transitive else earlier[:1]
    for version, other in counted if level.backward or level.forward else ():
        found = _between(level, schema, other)
        if found:
            return [*found, f"{{oldSchemaVersion: {version}}}", f"{{compatibility: '{level}'}}"]
    return []


def _between(level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if type(new) is not type(old):
        return ["Incompatible because of different schema type"]
    found: list[str] = []
    try:
        if level.backward:
            why = new.unreadable(old)
            found += [f"the new schema cannot read old data: {each}" for each in why]
        if level.forward:
            why = old.unreadable(new)
            found += [f"the old schema cannot read new data: {each}" for each in why]
    except RecursionError:
        problem = "The schema is nested too deeply to be compared."
        raise InvalidSchemaError(problem) from None
    return found


def _level(text: str) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(text.upper())
    except ValueError:
        raise errors.bad_level(text) from None
