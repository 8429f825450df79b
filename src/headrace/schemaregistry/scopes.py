"""Levels and modes: what is set for a subject, for its context, and for all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.model import DEFAULT_CONTEXT, CompatibilityLevel, RegistryMode, Subject
from headrace.schemaregistry import faults
from headrace.store import RegistrySetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.store import RegistryRows

GLOBAL = ""
_LEVEL = "compatibilityLevel"


@dataclass(frozen=True)
class Config:
    """What is set of a scope, or holds for it.

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
            raise faults.not_permitted(problem, "Leave them out.")
        level = None
        if text is not None:
            level = _level(str(text))
        return cls(level, None if normalize is None else bool(normalize))


def scope_of(text: str | None) -> str:
    """Return the scope that a client names: a subject, a context as `:.name:`, or all."""
    return GLOBAL if text is None else str(Subject.parse(text))


def config_of(rows: RegistryRows, scope: str) -> Config | None:
    """Return what is set for a scope itself."""
    text = rows.setting(RegistrySetting.CONFIG, scope)
    return None if text is None else Config.from_json(json.loads(text))


def config_for(rows: RegistryRows, scope: str) -> Config:
    """Return what holds for a scope: the nearest setting, else BACKWARD."""
    level, normalize = None, None
    for each in _outwards(scope):
        found = config_of(rows, each) or Config()
        level = level or found.level
        normalize = found.normalize if normalize is None else normalize
    return Config(level or CompatibilityLevel.BACKWARD, bool(normalize))


def put_config(rows: RegistryRows, scope: str, config: Config) -> None:
    """Set what the given values say, and leave the others as they were."""
    old = config_of(rows, scope) or Config()
    new = Config(
        config.level or old.level,
        old.normalize if config.normalize is None else config.normalize,
    )
    rows.put_setting(RegistrySetting.CONFIG, scope, json.dumps(new.to_json()))


def drop_config(rows: RegistryRows, scope: str) -> Config:
    """Unset a scope and return what was set. Raises SchemaNotFoundError if nothing was."""
    found = config_of(rows, scope)
    if found is None and scope != GLOBAL:
        raise faults.no_subject(Subject.parse(scope))
    rows.put_setting(RegistrySetting.CONFIG, scope, None)
    return found or Config(CompatibilityLevel.BACKWARD)


def mode_of(rows: RegistryRows, scope: str) -> RegistryMode | None:
    """Return the mode that is set for a scope itself."""
    text = rows.setting(RegistrySetting.MODE, scope)
    return None if text is None else RegistryMode(text)


def mode_for(rows: RegistryRows, scope: str) -> RegistryMode:
    """Return the mode that holds for a scope: the nearest one, else READWRITE."""
    if mode_of(rows, GLOBAL) is RegistryMode.READONLY_OVERRIDE:
        return RegistryMode.READONLY_OVERRIDE
    modes = (mode_of(rows, each) for each in _outwards(scope))
    return next((mode for mode in modes if mode is not None), RegistryMode.READWRITE)


def put_mode(rows: RegistryRows, scope: str, mode: RegistryMode, *, force: bool) -> None:
    """Set a mode; import asks for an empty scope, as it gives ids away."""
    importing = mode is RegistryMode.IMPORT and mode_for(rows, scope) is not mode
    if importing and not force and any(_within(scope, each) for each, _ in rows.subjects()):
        problem = "Cannot import since found existing subjects"
        raise faults.not_permitted(problem, "Delete them for good, or force it.")
    rows.put_setting(RegistrySetting.MODE, scope, mode.value)


def drop_mode(rows: RegistryRows, scope: str) -> RegistryMode:
    """Unset a mode and return it. Raises SchemaNotFoundError if none was set."""
    found = mode_of(rows, scope)
    if found is None and scope != GLOBAL:
        raise faults.no_subject(Subject.parse(scope))
    rows.put_setting(RegistrySetting.MODE, scope, None)
    return found or RegistryMode.READWRITE


def check_writable(rows: RegistryRows, subject: Subject) -> RegistryMode:
    """Return the subject's mode. Raises RegistryRefusedError if it may not be written to."""
    mode = mode_for(rows, str(subject))
    if mode.read_only:
        where = f"Subject {subject} in context {subject.context}"
        problem = f"{where} is in read-only mode"
        raise faults.not_permitted(problem)
    return mode


def _level(text: str) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(text.upper())
    except ValueError:
        raise faults.bad_level(text) from None


def read_mode(text: str) -> RegistryMode:
    """Read a mode. Raises RegistryRefusedError."""
    try:
        return RegistryMode(text.upper())
    except ValueError:
        raise faults.bad_mode(text) from None


def _outwards(scope: str) -> Iterator[str]:
    """Yield the scope and what is around it: its context, unless the default one, and all."""
    if scope != GLOBAL:
        subject = Subject.parse(scope)
        yield scope
        if subject.name and subject.context != DEFAULT_CONTEXT:
            yield str(Subject("", subject.context))
    yield GLOBAL


def _within(scope: str, subject: Subject) -> bool:
    around = Subject.parse(scope)
    return scope == GLOBAL or (
        subject.context == around.context and around.name in {"", subject.name}
    )
