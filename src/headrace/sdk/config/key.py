"""The definition of one configuration key."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, Final, Protocol

from typing_extensions import override

from headrace.sdk.config.parsing import ConfigType, to_text
from headrace.sdk.config.validators import Validator

__all__ = [
    "NO_DEFAULT",
    "ConfigKey",
    "Importance",
    "Meaning",
    "NoDefault",
    "Recommender",
    "Width",
]

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
    TOPIC: the name of a topic, or a template of names.
    TEXT: none of these, though the key's name sounds so.
    """

    PATH = "PATH"
    CODE = "CODE"
    TOPIC = "TOPIC"
    TEXT = "TEXT"


class NoDefault(Enum):
    """The type of `NO_DEFAULT`."""

    NO_DEFAULT = "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT
"""In place of a default: the key is required. (None is a default: the value may be null.)"""


class Recommender(Protocol):
    """Tells a console what to offer for a key, by the other values."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Sequence[Any]:
        """Give the values to offer. May raise ConfigError, which becomes the key's error."""

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Say whether the key matters, given the other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """What a key is called, takes and means; see `ConfigDef.define` for the parts."""

    name: str
    type: ConfigType
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance
    doc: str
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    alternative: str | None = None
    meaning: Meaning | None = None

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
            "dependents": list(self.dependents),
        }

    def embedded(self, prefix: str, group: str, order: int) -> "ConfigKey":
        """Give the key as part of a larger definition, see `ConfigDef.embed`."""
        return replace(
            self,
            name=prefix + self.name,
            validator=self.validator and _EmbeddedValidator(prefix, self.validator),
            group=group if self.group is None else f"{group}: {self.group}",
            order=order,
            dependents=tuple(prefix + name for name in self.dependents),
            recommender=self.recommender and _EmbeddedRecommender(prefix, self.recommender),
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


@dataclass(frozen=True, slots=True)
class _EmbeddedRecommender:
    prefix: str
    recommender: Recommender

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Sequence[Any]:
        return self.recommender.valid_values(*self._own(name, parsed))

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return self.recommender.visible(*self._own(name, parsed))

    def _own(self, name: str, parsed: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        own = {
            k.removeprefix(self.prefix): v
            for k, v in parsed.items()
            if k.startswith(self.prefix)
        }
        return name.removeprefix(self.prefix), own
