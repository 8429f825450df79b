"""The keys that say how a source connector's topics are made, as Kafka Connect has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model import TopicRetention
from headrace.model.topic import AGE, SIZE
from headrace.sdk.config import ConfigType, Importance, Lambda, invalid

if TYPE_CHECKING:
    from headrace.sdk.config import Config, ConfigDef

__all__ = ["retention_of", "with_topic_creation"]

_PREFIX = "topic.creation.default."
_GROUP = "Topic creation"
_AGE, _SIZE = f"{_PREFIX}{AGE}", f"{_PREFIX}{SIZE}"


def with_topic_creation(definition: ConfigDef) -> ConfigDef:
    """Add the keys, which count when a topic is made, and not once it is there."""
    return definition.define(
        _AGE,
        ConfigType.LONG,
        None,
        validator=Lambda(_check_limit, "a number above 0, or -1 for no limit"),
        importance=Importance.LOW,
        doc="For topics that the connector makes: after how many milliseconds rows are "
        "removed; -1 for never. If null, after seven days. Later `headrace topic configure` "
        "changes it.",
        group=_GROUP,
        order=1,
    ).define(
        _SIZE,
        ConfigType.LONG,
        None,
        validator=Lambda(_check_limit, "a number above 0, or -1 for no limit"),
        importance=Importance.LOW,
        doc="For topics that the connector makes: from how many bytes on the oldest rows are "
        "removed; -1, or null, for any size.",
        group=_GROUP,
        order=2,
    )


def retention_of(config: Config) -> TopicRetention | None:
    """Return what is configured; None where nothing is."""
    millis, size = config.find_int(_AGE), config.find_int(_SIZE)
    if millis is None and size is None:
        return None
    return TopicRetention.of(millis, size)


def _check_limit(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < -1 or value == 0):
        fix = "Give a number above 0, or -1 for no limit."
        raise invalid(name, value, "Must be above 0, or -1", fix=fix)
