"""What validation found, in Kafka Connect's form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sdk.config.key import ConfigKey
from headrace.sdk.config.parsing import ConfigType, to_text
from headrace.sdk.errors import ConfigError, HeadraceError

__all__ = ["ConfigInfos", "ConfigValue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """What validation found for one key.

    Args:
        name: The key.
        value: The parsed value; None if it is null or not valid.
        errors: All that is wrong with it.
        recommended_values: What a console may offer.
        visible: Whether a console should show it.
    """

    name: str
    value: Any = None
    errors: tuple[ConfigError, ...] = ()
    recommended_values: tuple[Any, ...] = ()
    visible: bool = True

    @property
    def error_messages(self) -> tuple[str, ...]:
        """The errors as Kafka words them."""
        return tuple(error.problem for error in self.errors)

    def to_kafka_json(self, kind: ConfigType = ConfigType.STRING) -> dict[str, Any]:
        """Give Kafka Connect's ConfigValueInfo for a key of that type."""
        item = ConfigType.STRING if kind is ConfigType.LIST else kind
        return {
            "name": self.name,
            "value": to_text(self.value, kind),
            "recommended_values": [to_text(value, item) for value in self.recommended_values],
            "errors": list(self.error_messages),
            "visible": self.visible,
        }


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """The answer to a request for validation.

    Args:
        name: The plugin, as the request named it.
        keys: The definitions, by name.
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
