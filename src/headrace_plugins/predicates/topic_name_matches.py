"""A predicate by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Predicate
from headrace.sdk.config import (
    Composite,
    Importance,
    NonEmptyString,
    Regex,
    Settings,
    setting,
)
from headrace.sdk.sqltext import literal, literal_text
from headrace_plugins.kafka.java_regex import JavaRegex

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class TopicNameMatchesSettings(Settings):
    """The settings of ``TopicNameMatches``."""

    pattern: str = setting(
        "A Java regular expression for matching against the name of a record's topic.",
        validator=Composite(NonEmptyString(), Regex()),
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
