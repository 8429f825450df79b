"""Checks a definition and reports all errors at once.

Also plans the converters of a definition, and resolves its references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.control.connector_settings import (
    DEAD_LETTERS,
    DEFAULT_HEADER_CONVERTER,
    common_def,
    common_props,
    parse_common,
)
from headrace.evolution import EvolutionSettings, evolution_keys, plugin_keys
from headrace.model import (
    Definition,
    PluginNotFoundError,
    PluginSpec,
    StepSpec,
    is_topic_name,
    topic_name_error,
)
from headrace.plugins import PluginTimeoutError, References, Registry, within
from headrace.sdk import (
    ConfigError,
    ConfigErrors,
    Connector,
    Converter,
    HeadraceError,
    SinkConnector,
    SourceConnector,
    Transform,
)
from headrace.sdk.config import (
    Config,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Meaning,
    Password,
)
from headrace.sdk.converter import CONVERTER_TYPE, RecordPart

if TYPE_CHECKING:
    from collections.abc import Container


def below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the keys that begin with a prefix, with the prefix removed."""
    return {
        key.removeprefix(prefix): value
        for key, value in config.items()
        if key.startswith(prefix)
    }


def _key_at(place: str, key: str | None) -> str:
    """Return the full name of a key of a part, or the name of the part if ``key`` is None."""
    return ".".join(part for part in (place, key) if part)


def errors_at(errors: Iterable[HeadraceError], place: str = "") -> ConfigErrors:
    """Return the errors of a part with the full names of its keys."""
    return ConfigErrors(
        ConfigError(error.problem, fix=error.fix, field=_key_at(place, error.field) or None)
        for error in errors
    )


def unknown_keys(
    keys: ConfigDef,
    config: Mapping[str, str],
    place: str,
    prefixes: Sequence[str] = (),
    at_top: Container[str] = (),
) -> Iterator[ConfigError]:
    """Yield an error for each key that is not defined and has none of the prefixes.

    ``at_top`` contains the keys that are valid at the top level, outside of ``place``.
    """
    for name, close in keys.unknown(config, prefixes=prefixes):
        known = ", ".join(keys.keys) or "none"
        fix = f"Did you mean {close}?" if close else f"Known keys: {known}."
        if name in at_top:
            fix = f"Move {name} to the top level: it is a key of the connector, not of {place}."
        yield ConfigError("Unknown key.", field=_key_at(place, name), fix=fix)


CONVERTER_PREFIXES = tuple(f"{part}.converter." for part in RecordPart)
"""The prefixes of converter keys."""


@dataclass(frozen=True)
class ConverterPlan:
    """A configured converter for one part of a record."""

    part: RecordPart
    plugin: type[Converter]
    config: Config


def plan_converters(definition: Definition, registry: Registry) -> tuple[ConverterPlan, ...]:
    """Return the converters of a definition; raise their errors.

    If keys or values are converted, headers are too, by default with
    ``DEFAULT_HEADER_CONVERTER``.
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
                problem=f"{name} cannot convert a {part}, only {parts}.",
                field=f"{part}.converter",
                fix="Choose another converter.",
            )
        try:
            config = plugin.config_def().parse(_converter_props(definition, part))
        except ConfigErrors as several:
            raise errors_at(several.errors, f"{part}.converter") from several
        plans.append(ConverterPlan(part, plugin, config))
    return tuple(plans)


def unknown_converter_keys(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield errors for unknown converter keys; raises if a converter is not valid."""
    for plan in plan_converters(definition, registry):
        keys, props = plan.plugin.config_def(), _converter_props(definition, plan.part)
        yield from unknown_keys(keys, props, f"{plan.part}.converter")


def _converter_props(definition: Definition, part: RecordPart) -> dict[str, str]:
    """Return a converter's keys, without their prefix."""
    props = below(definition.common, f"{part}.converter.")
    props.pop("plugin.version", None)
    return props | {CONVERTER_TYPE: part.value}


def resolved(definition: Definition, references: References) -> Definition:
    """Return a definition with its references resolved.

    Called only to check a definition and to plan its tasks: stored and displayed definitions
    keep their references.

    Raises:
        ConfigErrors: References have no value; contains all of them.
    """
    found, errors = resolvable(definition, references)
    if errors:
        raise ConfigErrors(errors)
    return found


def resolvable(
    definition: Definition, references: References
) -> tuple[Definition, list[ConfigError]]:
    """Return the same, and the errors; keys with errors stay unresolved."""
    errors: list[ConfigError] = []

    def put(config: Mapping[str, str], name: Callable[[str], str] = str) -> dict[str, str]:
        values, wrong = references.values(config, name)
        errors.extend(wrong)
        return values

    def plugin(spec: PluginSpec) -> PluginSpec:
        return replace(spec, config=put(spec.config, spec.field))

    def step(spec: StepSpec) -> StepSpec:
        prefix = f"predicates.{spec.predicate_alias}"
        return replace(
            spec,
            config=put(spec.config, lambda key: f"{spec.place}.{key}"),
            predicate_config=put(spec.predicate_config, lambda key: f"{prefix}.{key}"),
        )

    source = None if definition.source is None else plugin(definition.source)
    sinks = tuple(plugin(sink) for sink in definition.sinks)
    steps = tuple(step(each) for each in definition.steps)
    topics = put(
        {str(n): topic for n, topic in enumerate(definition.topics)},
        lambda _: "topics" if definition.source is None else "topic",
    )
    found = replace(
        definition,
        source=source,
        sinks=sinks,
        steps=steps,
        topics=tuple(
            each.strip()
            for topic in topics.values()
            for each in topic.split(",")
            if each.strip()
        ),
        common=put(definition.common),
    )
    return found, errors


_Plugin = TypeVar("_Plugin", bound=Connector)
_TEMPLATE = re.compile(r"\$\{(?:(?!\$\{)[^}])*\}|\$\d+|\\(?=.)")
"""Matches placeholders, group references and escapes in name templates."""


class KeyValue(NamedTuple):
    """A plugin key that is set."""

    key: ConfigKey
    text: str
    field: str


def check_access(definition: Definition, registry: Registry) -> None:
    """Raise ConfigErrors if a definition uses paths, code or drivers that are not allowed.

    Called with resolved references, when a definition is checked and each time its tasks are
    planned, because symbolic links and settings may change in between.
    """
    if errors := list(_not_allowed(definition, registry)):
        raise ConfigErrors(errors)


def _not_allowed(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each path, driver and piece of code that is not allowed."""
    access = registry.access
    for key, text, field in key_values(definition, registry):
        try:
            if key.means is Meaning.CODE:
                access.check_code(field)
            elif key.means in {Meaning.PATH, Meaning.DRIVER}:
                is_path = key.means is Meaning.PATH
                check = access.check_path if is_path else access.check_driver
                for each in text.split(",") if key.type is ConfigType.LIST else [text]:
                    check(each, field)
            for path in () if key.paths is None else key.paths(text):
                access.check_path(path, field)
        except ConfigError as error:
            yield error


def _wrong_topics(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each invalid topic name."""
    named = [(topic, _topics_key(definition)) for topic in definition.topics]
    with suppress(HeadraceError):  # errors of the keys themselves are reported elsewhere
        dead_letters = parse_common(definition).errors.dead_letter_topic
        named += [] if dead_letters is None else [(dead_letters, DEAD_LETTERS)]
    if not definition.sinks:  # otherwise a step sets names of the sink, such as tables
        named += [
            (_TEMPLATE.sub("x", name), field)
            for key, text, field in key_values(definition, registry)
            if key.means is Meaning.TOPIC
            for name in _names(text)
        ]
    for name, field in named:
        if not is_topic_name(name):
            yield topic_name_error(name, field)


def _topics_key(definition: Definition) -> str:
    return "topics" if definition.source is None else "topic"


def _references_in_names(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each topic name that contains a reference.

    Guarantee 6: topic names appear in folders, marks, offsets, metric labels and events, each
    of which would reveal the value.
    """
    references: References = registry.references
    named = [(topic, _topics_key(definition)) for topic in definition.topics]
    named.append((definition.common.get(DEAD_LETTERS, ""), DEAD_LETTERS))
    named += [
        (text, field)
        for key, text, field in key_values(definition, registry)
        if key.means is Meaning.TOPIC
    ]
    for field in dict.fromkeys(field for text, field in named if references.has_any(text)):
        problem = (
            "A topic name must not contain a reference, because topic names are not secret."
        )
        yield ConfigError(problem, field=field, fix="Write the name itself.")


def _names(text: str) -> list[str]:
    """Return the name templates in a value, which may be ``pattern -> name`` rules."""
    rules = re.split(r"[;\n]", text) if "->" in text else [text]
    return [rule.rpartition("->")[2].strip() for rule in rules if rule.strip()]


def key_values(definition: Definition, registry: Registry) -> Iterator[KeyValue]:
    """Yield the keys that are set of a definition's plugins, each with its text and field."""
    source = definition.source
    for spec in ([] if source is None else [source], definition.sinks):
        for each in spec:
            find: Callable[..., type] = registry.source if each is source else registry.sink
            yield from _of(find, each.plugin, plugin_keys(each.config), each.field)
    for step in definition.steps:
        name = step.transform.partition("$")[0]
        yield from _of(registry.transform, name, step.config, f"{step.place}.{{}}".format)
        if step.predicate is not None:
            field = f"predicates.{step.predicate_alias}.{{}}".format
            yield from _of(registry.predicate, step.predicate, step.predicate_config, field)
    for part in RecordPart:
        prefix = f"{part}.converter"
        if converter := definition.common.get(prefix):
            props = below(definition.common, f"{prefix}.")
            yield from _of(registry.converter, converter, props, f"{prefix}.{{}}".format)


def _of(
    find: Callable[..., type],
    name: str,
    config: Mapping[str, str],
    field: Callable[[str], str],
) -> Iterable[KeyValue]:
    try:
        definition: ConfigDef = find(name).config_def()  # type: ignore[attr-defined]  # all plugins have it
    except HeadraceError:
        return []  # reported as an error of the plugin name
    return [
        KeyValue(key, text, field(key.name))
        for key in definition.keys.values()
        if (text := str(config.get(key.name) or "")).strip()
    ]


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a check."""

    errors: tuple[HeadraceError, ...]
    warnings: tuple[HeadraceError, ...]


def check_definition(definition: Definition, registry: Registry) -> Findings:
    """Return all errors and warnings, each with its field and a fix.

    Resolved references are checked too, without revealing their values.
    """
    in_names = _references_in_names(definition, registry) if registry.references.serving else ()
    named = list(in_names)
    definition, unresolved = resolvable(definition, registry.references)
    check = _Check(definition, registry)
    check.errors += named
    check.common()
    check.converters()
    source = definition.source and check.connector(definition.source, registry.source)
    sinks = [check.connector(sink, registry.sink) for sink in definition.sinks]
    if source:
        check.loops(source, [each for each in sinks if each])
    if source and not definition.steps:
        check.tables(source, [each for each in sinks if each])
    for step in definition.steps:
        check.step(step)
    check.meanings()
    # A plugin's error about the text of an unresolved reference is meaningless.
    fields = {error.field for error in unresolved}
    errors = [*unresolved, *(each for each in check.errors if each.field not in fields)]
    secrets = registry.references.secrets
    return Findings(
        tuple(secrets.clean(each) for each in errors),
        tuple(secrets.clean(each) for each in check.warnings),
    )


def check_steps(steps: Iterable[StepSpec], registry: Registry) -> Findings:
    """Return all errors and warnings of a chain without a connector."""
    chain = tuple(steps)
    check = _Check(Definition("chain", steps=chain), registry)
    for step in chain:
        check.step(step)
    check.errors += _not_allowed(Definition("chain", steps=chain), registry)
    return Findings(tuple(check.errors), tuple(check.warnings))


_Usable = tuple[PluginSpec, type[_Plugin], Config]
_Sinks = Sequence[_Usable[SinkConnector]]


class _Check:
    def __init__(self, definition: Definition, registry: Registry) -> None:
        self._definition = definition
        self._registry = registry
        self.errors: list[HeadraceError] = []
        self.warnings: list[HeadraceError] = []

    def common(self) -> None:
        keys, props = common_def(self._definition), common_props(self._definition)
        self._parse(keys, props, "")
        prefixes = ("topic.creation.", *CONVERTER_PREFIXES)
        self._unknown(keys, props, "", prefixes=prefixes)

    def converters(self) -> None:
        found = self.errors if self._definition.strict else self.warnings
        try:
            found.extend(unknown_converter_keys(self._definition, self._registry))
        except ConfigErrors as several:
            self.errors += several.errors
        except (ConfigError, PluginNotFoundError) as error:
            self.errors.append(error)

    def connector(
        self, spec: PluginSpec, find: Callable[..., type[_Plugin]]
    ) -> _Usable[_Plugin] | None:
        """Check a plugin; return it if it is valid and may be used for further checks."""
        place = spec.field("connector") if spec.place else "connector.class"
        try:
            plugin = find(spec.plugin, field=place)
        except PluginNotFoundError as error:
            self.errors.append(error)
            return None
        keys, props = plugin.config_def(), plugin_keys(spec.config)
        # A plugin may derive names in other systems from the connector's name.
        config = self._parse(keys, {"name": self._definition.name, **props}, spec.place)
        self._unknown(keys, props, spec.place, prefixes=("connector.class", "topic"))
        before = len(self.errors)
        # Do not run plugin code on paths, code or drivers that are not allowed.
        may_run = not any(_not_allowed(self._definition, self._registry))
        if config is not None and may_run:
            self._asked(partial(plugin.check, config), spec.place, place)
        is_usable = may_run and len(self.errors) == before
        keys, props = EvolutionSettings.config_def(), evolution_keys(spec.config)
        self._parse(keys, props, spec.place)
        self._unknown(keys, props, spec.place)
        return (spec, plugin, config) if config is not None and is_usable else None

    def loops(self, source: _Usable[SourceConnector], sinks: _Sinks) -> None:
        """Check that the source does not read what the sinks write."""
        _, reader, of_source = source

        def asked(sink: type[SinkConnector], config: Config) -> Iterable[ConfigError]:
            target = sink.target(config)
            if target and reader.reads(of_source, target):
                yield ConfigError(
                    problem="The source reads what this sink writes, without end.",
                    fix="Choose another target, or a source that does not contain it.",
                    field="path" if "path" in config.originals else "connector",
                )

        self._of_each(sinks, asked)

    def tables(self, source: _Usable[SourceConnector], sinks: _Sinks) -> None:
        """Check whether the sinks support the tables of a source."""
        _, reader, of_source = source

        def asked(sink: type[SinkConnector], config: Config) -> Iterable[ConfigError]:
            with suppress(HeadraceError):  # other checks report an unavailable system
                yield from sink.check_tables(config, lambda: reader.table_rows(of_source) or ())

        self._of_each(sinks, asked)

    def _of_each(
        self,
        sinks: _Sinks,
        ask: Callable[[type[SinkConnector], Config], Iterable[ConfigError]],
    ) -> None:
        for spec, sink, config in sinks:
            place = spec.field("connector") if spec.place else "connector.class"
            self._asked(partial(ask, sink, config), spec.place, place)

    def _asked(self, ask: Callable[[], Iterable[ConfigError]], place: str, field: str) -> None:
        """Add the errors that a plugin returns, or a timeout error."""
        limit = self._registry.check_timeout
        try:
            if wrong := within(limit, "headrace-check", lambda: [*ask()]):
                self.errors += errors_at(wrong, place).errors
        except PluginTimeoutError:
            self.errors.append(PluginTimeoutError(limit, field=field))

    def meanings(self) -> None:
        """Check keys by their ``Meaning``, except keys that already have errors."""
        fields = {error.field for error in self.errors}
        found = [
            *_not_allowed(self._definition, self._registry),
            *_wrong_topics(self._definition, self._registry),
        ]
        self.errors += [error for error in found if error.field not in fields]

    def step(self, step: StepSpec) -> None:
        name, _, part = step.transform.partition("$")
        try:
            transform = self._registry.transform(name, field=f"{step.place}.type")
            if part not in {"", "Key", "Value"} or (part and not transform.parts):
                fix = (
                    f"Write {name} without ${part}."
                    if not transform.parts
                    else "Use $Key or $Value."
                )
                problem = f"{name} has no ${part}."
                self.errors.append(ConfigError(problem, field=f"{step.place}.type", fix=fix))
            config = self._parse(transform.config_def(), step.config, step.place)
            if config is not None:
                self._check_named(transform, config, step)
            self._unknown(transform.config_def(), step.config, step.place)
            if step.predicate is not None:
                place = f"{step.place}.predicate"
                predicate = self._registry.predicate(step.predicate, field=place)
                self._parse(predicate.config_def(), step.predicate_config, place)
        except PluginNotFoundError as error:
            self.errors.append(error)
        if step.negate and step.predicate is None:
            fix = "Add a predicate, or remove negate."
            problem = "Negate needs a predicate."
            self.errors.append(ConfigError(problem, field=f"{step.place}.negate", fix=fix))

    def _check_named(self, transform: type[Transform], config: Config, step: StepSpec) -> None:
        """Run a transform's own check, unless its paths, code or drivers are not allowed.

        Otherwise the errors would reveal what exists.
        """
        if any(_not_allowed(Definition("step", steps=(step,)), self._registry)):
            return
        self._asked(partial(transform.check, config), step.place, f"{step.place}.type")

    def _parse(self, keys: ConfigDef, props: Mapping[str, str], place: str) -> Config | None:
        try:
            config = keys.parse(props)
        except ConfigErrors as several:
            self.errors += errors_at(several.errors, place).errors
            return None
        references = self._registry.references
        passwords = [each.value for each in config.values() if isinstance(each, Password)]
        # An unresolved reference must stay visible, because its error names it.
        references.secrets.remember(p for p in passwords if not references.is_only(p))
        return config

    def _unknown(
        self,
        keys: ConfigDef,
        props: Mapping[str, str],
        place: str,
        prefixes: Sequence[str] = (),
    ) -> None:
        found = self.errors if self._definition.strict else self.warnings
        at_top = common_def(self._definition).keys if place else ()
        known = {error.field for error in self.errors}
        unknown = unknown_keys(keys, props, place, prefixes, at_top)
        found += [error for error in unknown if error.field not in known]
