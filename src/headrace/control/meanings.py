"""Checks what a definition's keys stand for: paths and code that are allowed, topics' names.

It asks what the definition of each key says that its value means, so that plugins enter by
themselves.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from headrace.control.error_keys import DEAD_LETTERS
from headrace.control.evolution_keys import plugin_keys
from headrace.control.runtime_keys import parse_common
from headrace.sdk import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.config import ConfigType, Meaning
from headrace.sdk.converter import RecordPart
from headrace.sdk.topicname import is_topic_name, topic_name_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.model import Definition, StepSpec
    from headrace.plugins import References, Registry
    from headrace.sdk.config import ConfigDef, ConfigKey

__all__ = ["check_access", "not_allowed", "references_in_names", "wrong_topics"]

_TEMPLATE = re.compile(r"\$\{(?:(?!\$\{)[^}])*\}|\$\d+|\\(?=.)")
"""What stands for something else in a template of names."""


class _Value(NamedTuple):
    key: ConfigKey
    text: str
    field: str


def check_access(definition: Definition, registry: Registry) -> None:
    """Raise ConfigErrors if a definition names paths or code that it may not use.

    Called with values in place of references, where a definition is checked and each time its
    tasks are planned: links on the disk, and the settings, may have changed in between.
    """
    if errors := list(not_allowed(definition, registry)):
        raise ConfigErrors(errors)


def not_allowed(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each path and each piece of code that is not allowed."""
    access = registry.access
    for key, text, field in _values(definition, registry):
        try:
            if key.means is Meaning.CODE:
                access.check_code(field)
            elif key.means is Meaning.PATH:
                several = key.type is ConfigType.LIST
                for path in text.split(",") if several else [text]:
                    access.check_path(path, field)
        except ConfigError as error:
            yield error


def wrong_topics(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each name, of a topic that it uses, that no topic may have."""
    named = [(topic, _topics_key(definition)) for topic in definition.topics]
    with suppress(HeadraceError):  # what is wrong with the keys themselves is told elsewhere
        dead_letters = parse_common(definition).errors.dead_letter_topic
        named += [] if dead_letters is None else [(dead_letters, DEAD_LETTERS)]
    if not definition.sinks:  # else a step names what a sink writes, such as a table
        named += [
            (_TEMPLATE.sub("x", name), field)
            for key, text, field in _values(definition, registry)
            if key.means is Meaning.TOPIC
            for name in _names(text)
        ]
    for name, field in named:
        if not is_topic_name(name):
            yield topic_name_error(name, field)


def _topics_key(definition: Definition) -> str:
    return "topics" if definition.source is None else "topic"


def references_in_names(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each topic's name that holds a reference, where others may see it.

    Guarantee 6: a topic's name stands in folders, marks, offsets, labels of metrics and
    events, each of which would show the value.
    """
    references: References = registry.references
    named = [(topic, _topics_key(definition)) for topic in definition.topics]
    named.append((definition.common.get(DEAD_LETTERS, ""), DEAD_LETTERS))
    named += [
        (text, field)
        for key, text, field in _values(definition, registry)
        if key.means is Meaning.TOPIC
    ]
    for field in dict.fromkeys(field for text, field in named if references.has_any(text)):
        problem = "The name of a topic is shown in many places, and a reference's value is not."
        yield ConfigError(problem, field=field, fix="Write the name out.")


def _names(text: str) -> list[str]:
    """Return the templates of names in a value: one, or those of rules ``pattern -> name``."""
    rules = re.split(r"[;\n]", text) if "->" in text else [text]
    return [rule.rpartition("->")[2].strip() for rule in rules if rule.strip()]


def _values(definition: Definition, registry: Registry) -> Iterator[_Value]:
    """Yield the keys of a definition's plugins that have a value."""
    source = definition.source
    for spec in ([] if source is None else [source], definition.sinks):
        for each in spec:
            find: Callable[..., type] = registry.source if each is source else registry.sink
            yield from _of(find, each.plugin, plugin_keys(each.config), each.field)
    for step in definition.steps:
        yield from _of_step(step, registry)
    for part in RecordPart:
        prefix = f"{part}.converter"
        given = _below(definition.common, f"{prefix}.")
        name = definition.common.get(prefix, "")
        yield from _of(registry.converter, name, given, f"{prefix}.{{}}".format)


def _of_step(step: StepSpec, registry: Registry) -> Iterator[_Value]:
    name = step.transform.partition("$")[0]
    yield from _of(registry.transform, name, step.config, f"{step.place}.{{}}".format)
    if step.predicate is not None:
        prefix = f"predicates.{step.predicate_alias}.{{}}".format
        yield from _of(registry.predicate, step.predicate, step.predicate_config, prefix)


def _of(
    find: Callable[..., type],
    name: str,
    config: Mapping[str, str],
    field: Callable[[str], str],
) -> Iterable[_Value]:
    if not name:
        return []
    try:
        definition: ConfigDef = find(name).config_def()  # type: ignore[attr-defined]  # all plugins have it
    except HeadraceError:
        return []  # told as an error of its name
    return [
        _Value(key, text, field(key.name))
        for key in definition.keys.values()
        if (text := str(config.get(key.name) or "")).strip()
    ]


def _below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): text for key, text in config.items() if key.startswith(prefix)
    }
