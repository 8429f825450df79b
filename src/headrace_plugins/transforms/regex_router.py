"""Changes topics by a regular expression."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import (
    Importance,
    Meaning,
    Regex,
    Settings,
    setting,
)
from headrace.sdk.sqltext import literal, literal_text
from headrace_plugins.kafka.java_regex import JavaRegex, Replacement, java_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr


def _check_replacement(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    regex, replacement = props.get("regex"), props.get("replacement")
    if regex is None or replacement is None:
        return
    try:
        java_replacement(JavaRegex.of(str(regex)), str(replacement), key="replacement")
    except ConfigError as error:
        yield error


class RegexRouterSettings(Settings):
    """The settings of ``RegexRouter``."""

    regex: str = setting(
        "Regular expression to use for matching.", validator=Regex(), importance=Importance.HIGH
    )
    replacement: str = setting(
        "Replacement string.", importance=Importance.HIGH, meaning=Meaning.TOPIC
    )

    rules = (_check_replacement,)


class RegexRouter(Transform):
    """Sends records to another topic where a regular expression matches the topic's name.

    The expression, in Java's syntax, has to match the whole name; then its first match is
    replaced. `$1` in the replacement stands for the first group.
    """

    aliases = (
        "org.apache.kafka.connect.transforms.RegexRouter",
        "org.apache.rocketmq.connect.transforms.RegexRouter",
    )
    parts = False
    routes = True

    settings: RegexRouterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        regex = JavaRegex.of(self.settings.regex)
        text = self.settings.replacement
        replacement = java_replacement(regex, text, key="replacement")
        topic = literal_text(shape.topic)
        # A constant stays one: the flow then needs not look at each record's topic.
        if topic is not None and (matches := regex.matches(topic)) is not None:
            routed = regex.replaced_first(topic, replacement) if matches else topic
            return replace(shape, topic=literal(routed or ""))
        return replace(shape, topic=_routed(shape.topic, regex, replacement))


def _routed(topic: str, regex: JavaRegex, replacement: Replacement) -> str:
    # SQL replaces every match, Kafka the first. As the whole name matches, the first match
    # is at its start; the rest goes along as one more group.
    first = Replacement((*replacement.parts, regex.groups + 1))
    replaced = f"regexp_replace({topic}, {literal(regex.head)}, {literal(first.java())})"
    return f"IF({topic} RLIKE {literal(regex.whole)}, {replaced}, {topic})"
