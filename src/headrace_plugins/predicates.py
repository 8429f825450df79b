"""The built-in predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate
from headrace.sdk.config import Importance, Lambda, NonEmptyString, Regex, Settings, setting
from headrace.sdk.sqltext import literal, literal_text
from headrace_plugins.kafka_compat.java_regex import JavaRegex
from headrace_plugins.transforms.sql import check_expression, enclosed

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class HasHeaderKeySettings(Settings):
    """The settings of ``HasHeaderKey``."""

    name: str = setting(
        "The header name.", validator=NonEmptyString(), importance=Importance.MEDIUM
    )


class HasHeaderKey(Predicate):
    """Is true for records with at least one header of the given name."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.HasHeaderKey",)

    settings: HasHeaderKeySettings

    @override
    def condition(self, shape: RecordExpr) -> str:
        name = literal(self.settings.name)
        return f"coalesce(exists({shape.headers}, h -> h.key = {name}), false)"


class RecordIsTombstone(Predicate):
    """Is true for tombstones, records whose value is null as a whole."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",)

    @override
    def condition(self, shape: RecordExpr) -> str:
        value = shape.value
        if value.schema is None:
            return "true"
        if value.is_struct:
            return value.missing or "false"
        return f"({value.whole} IS NULL)"


def _check_pattern(name: str, value: object) -> None:
    NonEmptyString().check(name, value)
    Regex().check(name, value)


class TopicNameMatchesSettings(Settings):
    """The settings of ``TopicNameMatches``."""

    pattern: str = setting(
        "A Java regular expression for matching against the name of a record's topic.",
        validator=Lambda(_check_pattern, "non-empty string, valid regex"),
        importance=Importance.MEDIUM,
    )


class TopicNameMatches(Predicate):
    """Is true for records whose whole topic name matches a regular expression."""

    aliases = ("org.apache.kafka.connect.transforms.predicates.TopicNameMatches",)

    settings: TopicNameMatchesSettings

    @override
    def condition(self, shape: RecordExpr) -> str:
        regex = JavaRegex.of(self.settings.pattern)
        topic = literal_text(shape.topic)
        matches = None if topic is None else regex.matches(topic)
        if matches is not None:
            return "true" if matches else "false"
        return f"coalesce({shape.topic} RLIKE {literal(regex.whole)}, false)"


class ConditionSettings(Settings):
    """The settings of ``Condition``."""

    condition: str = setting(
        "A Spark SQL condition. Refer to fields of the value by name, and to the rest of the "
        "record as record.topic, record.key, record.timestamp and record.headers. Null counts "
        "as false.",
        validator=NonEmptyString(),
        importance=Importance.HIGH,
    )

    rules = (lambda props: check_expression(props, "condition"),)


class Condition(Predicate):
    """Is true for records that meet an SQL condition on the value's fields."""

    uses_names = True

    settings: ConditionSettings

    @override
    def condition(self, shape: RecordExpr) -> str:
        return f"coalesce({enclosed(self.config.get_str('condition'))}, false)"
