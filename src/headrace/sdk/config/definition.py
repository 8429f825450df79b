"""Definitions of configuration keys, and what can be done with them."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, Final, TypedDict, final

from typing_extensions import Unpack, override

from headrace.sdk.config.validators import Validator
from headrace.sdk.config.values import Config, ConfigType, missing, parse_value, shown, to_text
from headrace.sdk.errors import ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.frozen import FrozenMap

_PATH_WORDS = re.compile(
    r"(?:.*[._-])?(?:path|paths|file|files|filename|dir|directory|folder|location|keystore|"
    r"truststore|certfile|keyfile)",
    re.IGNORECASE,
)
"""What the name of a key ends with that names something on the machine's disk."""


class Importance(StrEnum):
    """How much a key matters to users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """How wide the input field in a console should be."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Meaning(StrEnum):
    """What the value of a key stands for, where that decides whether it is allowed.

    PATH: a file, a folder or a glob on the machine that runs the connector.
    CODE: Python, or where Python is.
    DRIVER: Maven coordinates of a JDBC driver, or the path of its jar.
    TOPIC: the name of a topic, or a template of names.
    TEXT: none of these, though the key's name sounds so.
    """

    PATH = "PATH"
    CODE = "CODE"
    DRIVER = "DRIVER"
    TOPIC = "TOPIC"
    TEXT = "TEXT"


class NoDefault(Enum):
    """The type of `NO_DEFAULT`."""

    NO_DEFAULT = "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT
"""In place of a default: the key is required. (None is a default: the value may be null.)"""


class KeyTerms(TypedDict, total=False):
    """What may be said of a key besides its name, type and default.

    validator: Checks values, the default included.
    importance: How much it matters.
    group: The group that a console shows it in.
    order: Its place in the group, from 1.
    width: How wide a console's input field should be.
    display_name: What a console calls it; the key by default.
    alternative: What the documentation shows instead of the default, where the default
        depends on the machine.
    meaning: What its value stands for: a server asks its settings whether a path or code is
        allowed. By default what ends with `path`, `file`, `location` or the like is a path.
    paths: Returns the paths that a value holds beside other things, as a URL may; a server asks
        its settings whether they are allowed. It raises nothing.
    """

    validator: Validator | None
    importance: Importance
    group: str | None
    order: int
    width: Width
    display_name: str
    alternative: str | None
    meaning: Meaning | None
    paths: Callable[[str], Iterable[str]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """What a key is called, takes and means; see `KeyTerms`."""

    name: str
    type: ConfigType
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    doc: str
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str
    alternative: str | None = None
    meaning: Meaning | None = None
    paths: Callable[[str], Iterable[str]] | None = None

    @property
    def means(self) -> Meaning:
        """What its value stands for; where nothing is said, a name such as `key.file` says it.

        So a plugin that does not know of meanings cannot be used to reach any file.
        """
        if self.meaning is not None:
            return self.meaning
        texts = {ConfigType.STRING, ConfigType.LIST}
        sounds_so = self.type in texts and _PATH_WORDS.fullmatch(self.name)
        return Meaning.PATH if sounds_so else Meaning.TEXT

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NO_DEFAULT

    @property
    def default_text(self) -> str | None:
        """The default as REST shows it; None if it is null or there is none."""
        return None if self.required else to_text(self.default, self.type)

    def to_kafka_json(self) -> dict[str, Any]:
        """Give Kafka Connect's ConfigKeyInfo, with the names of both its old and new form."""
        return {
            "name": self.name,
            "type": self.type.value,
            "required": self.required,
            "default_value": self.default_text,
            "importance": self.importance.value,
            "documentation": self.doc,
            "group": self.group,
            # Up to Kafka 4.0 it was called `order`; clients of either must find it.
            "order": self.order,
            "order_in_group": self.order,
            "width": self.width.value,
            "display_name": self.display_name,
            "dependents": [],
        }

    def embedded(self, prefix: str, group: str, order: int) -> "ConfigKey":
        """Give the key as part of a larger definition, see `ConfigDef.embed`."""
        return replace(
            self,
            name=prefix + self.name,
            validator=self.validator and _EmbeddedValidator(prefix, self.validator),
            group=group if self.group is None else f"{group}: {self.group}",
            order=order,
        )


@dataclass(frozen=True, slots=True)
class _EmbeddedValidator:
    """Checks under the key's own name: its messages are those of the key on its own."""

    prefix: str
    validator: Validator

    def check(self, name: str, value: object) -> None:
        self.validator.check(name.removeprefix(self.prefix), value)

    @override
    def __str__(self) -> str:
        return str(self.validator)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """What validation found for one key.

    Args:
        value: The parsed value; None if it is null or not valid.
        errors: All that is wrong with it.
        visible: Whether a console should show it.
    """

    name: str
    value: Any = None
    errors: tuple[ConfigError, ...] = ()
    visible: bool = True

    @property
    def error_messages(self) -> tuple[str, ...]:
        """The errors as Kafka words them."""
        return tuple(error.problem for error in self.errors)

    def to_kafka_json(self, kind: ConfigType = ConfigType.STRING) -> dict[str, Any]:
        """Give Kafka Connect's ConfigValueInfo for a key of that type."""
        return {
            "name": self.name,
            "value": to_text(self.value, kind),
            "recommended_values": [],
            "errors": list(self.error_messages),
            "visible": self.visible,
        }


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """The answer to a request for validation.

    Args:
        values: What was found, in the order to show it.
        groups: The groups, in the order to show them.
        warnings: What does not keep it from running, such as keys that nothing knows.
    """

    name: str
    keys: Mapping[str, ConfigKey]
    values: Sequence[ConfigValue]
    groups: Sequence[str]
    warnings: Sequence[HeadraceError] = ()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """All errors of all keys."""
        return tuple(error for value in self.values for error in value.errors)

    def to_kafka_json(self) -> dict[str, Any]:
        """Give Kafka Connect's ConfigInfos; `error_count` is the number of messages."""
        configs = []
        for value in self.values:
            key = self.keys.get(value.name)
            kind = ConfigType.STRING if key is None else key.type
            definition = None if key is None else key.to_kafka_json()
            configs.append({"definition": definition, "value": value.to_kafka_json(kind)})
        return {
            "name": self.name,
            "error_count": len(self.errors),
            "groups": list(self.groups),
            "configs": configs,
        }


Rule = Callable[[Mapping[str, Any]], Iterable[ConfigError]]
"""A check of several keys at once: given all texts, it yields errors, whose `field` is the key
to show each with. It must bear values that are missing or not valid."""


@final
@dataclass(frozen=True, slots=True)
class ConfigDef:
    """The keys that a plugin takes; it never changes, so `define` gives a new one.

        ConfigDef().define("path", ConfigType.STRING, doc="Where the files are.").define(...)

    Trap: a call of `define` whose result is not used has no effect.

    Args:
        keys: The definitions by name, in the order in which they were made.
    """

    keys: Mapping[str, ConfigKey] = FrozenMap()
    rules: tuple[Rule, ...] = ()

    def define(
        self,
        name: str,
        type: ConfigType,  # noqa: A002 - Kafka calls it so
        default: Any = NO_DEFAULT,
        *,
        doc: str,
        **terms: Unpack[KeyTerms],
    ) -> "ConfigDef":
        """Give these definitions with one more key.

        The default is a value or its text; without one the key is required, and None lets it be
        null. `terms` are those of `KeyTerms`. Raises ConfigError: the key is defined already,
        or the default is not valid.
        """
        parsed = default if default is NO_DEFAULT else parse_value(name, default, type)
        named: KeyTerms = {"display_name": name, **terms}
        key = ConfigKey(name=name, type=type, default=parsed, doc=doc, **named)
        if parsed is not NO_DEFAULT and key.validator is not None:
            key.validator.check(name, parsed)
        return self._with_keys([key])

    def merged(self, other: "ConfigDef") -> "ConfigDef":
        """Give these definitions and the other's, without those of its keys that are here."""
        keys = [key for key in other.keys.values() if key.name not in self.keys]
        return replace(self._with_keys(keys), rules=(*self.rules, *other.rules))

    def embed(self, prefix: str, group: str, order: int, child: "ConfigDef") -> "ConfigDef":
        """Give these definitions and a child's, whose keys get a prefix.

        They are shown in `group`, or in `group: child's group`, from the place `order` on.
        The messages of the child's validators name the keys without the prefix, as Kafka
        Connect's do.
        """
        keys = [
            key.embedded(prefix, group, order + index)
            for index, key in enumerate(child.sorted_keys())
        ]
        rules = tuple(_embedded_rule(prefix, rule) for rule in child.rules)
        return replace(self._with_keys(keys), rules=(*self.rules, *rules))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order in which they were first named."""
        named = (key.group for key in self.keys.values() if key.group is not None)
        return tuple(dict.fromkeys(named))

    def sorted_keys(self) -> list[ConfigKey]:
        """Give the keys by group, place in it, required first, importance and name."""
        groups = {group: index for index, group in enumerate(self.groups)}
        importances = list(Importance)

        def place(key: ConfigKey) -> tuple[int, int, bool, int, str]:
            group = -1 if key.group is None else groups[key.group]
            importance = importances.index(key.importance)
            return group, key.order, not key.required, importance, key.name

        return sorted(self.keys.values(), key=place)

    def parse(self, props: Mapping[str, Any]) -> Config:
        """Give the values of all keys.

        Keys that are not defined are let through, see `unknown`. Raises ConfigErrors with
        everything that is wrong.
        """
        values: dict[str, Any] = {}
        errors: list[ConfigError] = []
        for key in self.keys.values():
            try:
                values[key.name] = _parsed(key, props)
                if key.validator is not None:
                    key.validator.check(key.name, values[key.name])
            except ConfigError as error:
                errors.append(_of_key(error, key.name))
        errors += [error for rule in self.rules for error in rule(props)]
        if errors:
            raise ConfigErrors(errors)
        originals = {key: shown(value) for key, value in props.items() if value is not None}
        return Config(values, originals)

    def validate(self, props: Mapping[str, Any]) -> list[ConfigValue]:
        """Give what is to be said of each key's value, in the order of definition.

        As in Kafka Connect, a value that cannot be parsed is also checked as null, which may
        give a second message.
        """
        values = {key.name: _validated(key, props) for key in self.keys.values()}
        for rule in self.rules:
            for error in rule(props):
                name = error.field or ""
                value = values.get(name, ConfigValue(name=name, value=props.get(name)))
                values[name] = replace(value, errors=(*value.errors, error))
        return list(values.values())

    def infos(self, name: str, props: Mapping[str, Any]) -> ConfigInfos:
        """Validate, and give the answer in Kafka Connect's form."""
        return ConfigInfos(name, self.keys, self.validate(props), self.groups)

    def unknown(
        self, props: Mapping[str, Any], *, prefixes: Sequence[str] = ()
    ) -> list[tuple[str, str | None]]:
        """Give each key that is not defined, with a defined one that is close to it.

        Keys that begin with one of the prefixes belong to others and are left out.
        """
        found = []
        for key in props:
            if key not in self.keys and not key.startswith(tuple(prefixes)):
                # predicates.even.type belongs to predicates, and is no slip for it.
                others = [known for known in self.keys if not key.startswith(f"{known}.")]
                close = difflib.get_close_matches(key, others, n=1)
                found.append((key, close[0] if close else None))
        return found

    def _with_keys(self, keys: Iterable[ConfigKey]) -> "ConfigDef":
        named = {key.name: key for key in keys}
        for name in named.keys() & self.keys.keys():
            raise ConfigError(problem=f"Configuration {name} is defined twice.", field=name)
        return replace(self, keys=FrozenMap({**self.keys, **named}))


def _parsed(key: ConfigKey, props: Mapping[str, Any]) -> Any:
    if key.name in props:
        return parse_value(key.name, props[key.name], key.type)
    if key.required:
        raise missing(key.name)
    return key.default


def _validated(key: ConfigKey, props: Mapping[str, Any]) -> ConfigValue:
    value: Any = None
    errors: list[ConfigError] = []
    try:
        value = _parsed(key, props)
    except ConfigError as error:
        errors.append(error)
    if key.validator is not None:
        try:
            key.validator.check(key.name, value)
        except ConfigError as error:
            errors.append(_of_key(error, key.name))
    return ConfigValue(name=key.name, value=value, errors=tuple(errors))


def _of_key(error: ConfigError, name: str) -> ConfigError:
    """Give the error with the whole key as its field, where the message has a part of it."""
    return (
        error if error.field == name else type(error)(error.problem, fix=error.fix, field=name)
    )


def _embedded_rule(prefix: str, rule: Rule) -> Rule:
    def embedded(props: Mapping[str, Any]) -> Iterable[ConfigError]:
        own = {k.removeprefix(prefix): v for k, v in props.items() if k.startswith(prefix)}
        for error in rule(own):
            yield _of_key(error, f"{prefix}{error.field or ''}")

    return embedded
