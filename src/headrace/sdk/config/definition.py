"""Definitions of configuration keys; they parse, validate and describe configurations."""

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
"""Matches key names with an ending that suggests a file or folder on the machine."""


class Importance(StrEnum):
    """The importance of a key to users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """The width of the input field in a console."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Meaning(StrEnum):
    """The meaning of a key's value, if access to the value has to be checked.

    PATH: a file, a folder or a glob on the machine that runs the connector.
    CODE: Python code, or its location.
    DRIVER: Maven coordinates of a JDBC driver, or the path of its jar.
    TOPIC: the name of a topic, or a template of names.
    TEXT: none of these, even if the key's name suggests it.
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
"""Marks a required key, which has no default. (None is a default: the value is nullable.)"""


class KeyTerms(TypedDict, total=False):
    """The optional attributes of a key, besides its name, type and default.

    validator: Checks values, including the default.
    importance: The importance to users.
    group: The group in which a console shows the key.
    order: The position in the group, from 1.
    width: The width of a console's input field.
    display_name: The name in a console; the key by default.
    meaning: The meaning of the value: a server checks in its settings whether a path or code is
        allowed. By default a key that ends with `path`, `file` or similar is a path.
    paths: Returns the paths inside a value that also contains other text, such as a URL; a
        server checks in its settings whether they are allowed. It must not raise.
    """

    validator: Validator | None
    importance: Importance
    group: str | None
    order: int
    width: Width
    display_name: str
    meaning: Meaning | None
    paths: Callable[[str], Iterable[str]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """The definition of a key; see `KeyTerms`."""

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
    meaning: Meaning | None = None
    paths: Callable[[str], Iterable[str]] | None = None

    @property
    def means(self) -> Meaning:
        """The meaning of the value; if it is not set, derived from names such as `key.file`.

        So a plugin that does not declare meanings cannot be used to access arbitrary files.
        """
        if self.meaning is not None:
            return self.meaning
        texts = {ConfigType.STRING, ConfigType.LIST}
        sounds_so = self.type in texts and _PATH_WORDS.fullmatch(self.name)
        return Meaning.PATH if sounds_so else Meaning.TEXT

    @property
    def required(self) -> bool:
        """Whether the key has no default."""
        return self.default is NO_DEFAULT

    @property
    def default_text(self) -> str | None:
        """The default in the form of the REST API; None if it is null or missing."""
        return None if self.required else to_text(self.default, self.type)

    def to_kafka_json(self) -> dict[str, Any]:
        """Return Kafka Connect's ConfigKeyInfo, with both its old and new field names."""
        return {
            "name": self.name,
            "type": self.type.value,
            "required": self.required,
            "default_value": self.default_text,
            "importance": self.importance.value,
            "documentation": self.doc,
            "group": self.group,
            # It is named `order` up to Kafka 4.0; clients of either version must find it.
            "order": self.order,
            "order_in_group": self.order,
            "width": self.width.value,
            "display_name": self.display_name,
            "dependents": [],
        }

    def embedded(self, prefix: str, group: str, order: int) -> "ConfigKey":
        """Return the key as part of a larger definition, see `ConfigDef.embed`."""
        return replace(
            self,
            name=prefix + self.name,
            validator=self.validator and _EmbeddedValidator(prefix, self.validator),
            group=group if self.group is None else f"{group}: {self.group}",
            order=order,
        )


@dataclass(frozen=True, slots=True)
class _EmbeddedValidator:
    """A validator that uses the key without prefix in its messages."""

    prefix: str
    validator: Validator

    def check(self, name: str, value: object) -> None:
        self.validator.check(name.removeprefix(self.prefix), value)

    @override
    def __str__(self) -> str:
        return str(self.validator)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """The validation result of one key.

    Args:
        value: The parsed value; None if it is null or not valid.
        errors: All errors of the value.
        visible: Whether a console should show the key.
    """

    name: str
    value: Any = None
    errors: tuple[ConfigError, ...] = ()
    visible: bool = True

    @property
    def error_messages(self) -> tuple[str, ...]:
        """The error messages in Kafka's words."""
        return tuple(error.problem for error in self.errors)

    def to_kafka_json(self, kind: ConfigType = ConfigType.STRING) -> dict[str, Any]:
        """Return Kafka Connect's ConfigValueInfo for a key of that type."""
        return {
            "name": self.name,
            "value": to_text(self.value, kind),
            "recommended_values": [],
            "errors": list(self.error_messages),
            "visible": self.visible,
        }


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """The response to a validation request.

    Args:
        values: The result of each key, in display order.
        groups: The groups, in display order.
        warnings: Problems that do not prevent a start, such as unknown keys.
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
        """Return Kafka Connect's ConfigInfos; `error_count` is the number of messages."""
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
"""A check across several keys: takes all values as strings and yields errors, each with the key
to show it at as its `field`. It must accept missing and invalid values without raising."""


@final
@dataclass(frozen=True, slots=True)
class ConfigDef:
    """The keys of a plugin. It is immutable: `define` returns a new definition.

        ConfigDef().define("path", ConfigType.STRING, doc="Where the files are.").define(...)

    Trap: a call of `define` whose result is not used has no effect.

    Args:
        keys: The definitions by name, in definition order.
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
        """Return these definitions with one more key.

        The default is a value or its string form. Without a default the key is required; None
        makes it nullable. See `KeyTerms` for `terms`. Raises ConfigError: the key is already
        defined, or the default is not valid.
        """
        parsed = default if default is NO_DEFAULT else parse_value(name, default, type)
        named: KeyTerms = {"display_name": name, **terms}
        key = ConfigKey(name=name, type=type, default=parsed, doc=doc, **named)
        if parsed is not NO_DEFAULT and key.validator is not None:
            key.validator.check(name, parsed)
        return self._with_keys([key])

    def merged(self, other: "ConfigDef") -> "ConfigDef":
        """Return these definitions and the other's; for keys in both, these definitions win."""
        keys = [key for key in other.keys.values() if key.name not in self.keys]
        return replace(self._with_keys(keys), rules=(*self.rules, *other.rules))

    def embed(self, prefix: str, group: str, order: int, child: "ConfigDef") -> "ConfigDef":
        """Return these definitions and a child's, whose keys get a prefix.

        The child's keys are shown in `group`, or in `group: child's group`, from the position
        `order`. The messages of the child's validators name the keys without the prefix, like
        Kafka Connect's.
        """
        keys = [
            key.embedded(prefix, group, order + index)
            for index, key in enumerate(child.sorted_keys())
        ]
        rules = tuple(_embedded_rule(prefix, rule) for rule in child.rules)
        return replace(self._with_keys(keys), rules=(*self.rules, *rules))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order of their first use."""
        named = (key.group for key in self.keys.values() if key.group is not None)
        return tuple(dict.fromkeys(named))

    def sorted_keys(self) -> list[ConfigKey]:
        """Return the keys sorted by group, order in it, required first, importance and name."""
        groups = {group: index for index, group in enumerate(self.groups)}
        importances = list(Importance)

        def place(key: ConfigKey) -> tuple[int, int, bool, int, str]:
            group = -1 if key.group is None else groups[key.group]
            importance = importances.index(key.importance)
            return group, key.order, not key.required, importance, key.name

        return sorted(self.keys.values(), key=place)

    def parse(self, props: Mapping[str, Any]) -> Config:
        """Return the values of all keys.

        Undefined keys are allowed, see `unknown`. Raises ConfigErrors with all errors.
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
        """Return the validation result of each key, in definition order.

        As in Kafka Connect, a value that cannot be parsed is also validated as null, which may
        add a second message.
        """
        values = {key.name: _validated(key, props) for key in self.keys.values()}
        for rule in self.rules:
            for error in rule(props):
                name = error.field or ""
                value = values.get(name, ConfigValue(name=name, value=props.get(name)))
                values[name] = replace(value, errors=(*value.errors, error))
        return list(values.values())

    def infos(self, name: str, props: Mapping[str, Any]) -> ConfigInfos:
        """Validate, and return the response in Kafka Connect's form."""
        return ConfigInfos(name, self.keys, self.validate(props), self.groups)

    def unknown(
        self, props: Mapping[str, Any], *, prefixes: Sequence[str] = ()
    ) -> list[tuple[str, str | None]]:
        """Return each undefined key, with the most similar defined key or None.

        Keys that begin with one of the prefixes belong to other definitions and are left out.
        """
        found = []
        for key in props:
            if key not in self.keys and not key.startswith(tuple(prefixes)):
                # predicates.even.type belongs to predicates and is not a misspelling of it.
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
    """Return the error with the full key as its field; its message may name a part of it."""
    return (
        error if error.field == name else type(error)(error.problem, fix=error.fix, field=name)
    )


def _embedded_rule(prefix: str, rule: Rule) -> Rule:
    def embedded(props: Mapping[str, Any]) -> Iterable[ConfigError]:
        own = {k.removeprefix(prefix): v for k, v in props.items() if k.startswith(prefix)}
        for error in rule(own):
            yield _of_key(error, f"{prefix}{error.field or ''}")

    return embedded
