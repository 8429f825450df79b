"""Renames topics by patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import (
    Importance,
    Meaning,
    Regex,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.sqltext import literal, literal_text
from headrace_plugins.kafka.java_regex import JavaRegex, Replacement, java_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr

_ARROW = "->"


@dataclass(frozen=True)
class _Rule:
    regex: JavaRegex
    name: Replacement

    @classmethod
    def of(cls, pattern: str, name: str) -> _Rule:
        """Read a rule. Raises ConfigError where the name refers to no group."""
        regex = JavaRegex.of(pattern)
        return cls(regex, java_replacement(regex, name, key="routes"))

    def routed(self, topic: str) -> str | None:
        """Return what a topic that Python's engine knows becomes; None: it does not match."""
        return self.regex.replaced_whole(topic, self.name)

    def matches(self, topic: str) -> str:
        return f"{topic} RLIKE {literal(self.regex.whole)}"

    def case(self, topic: str) -> str:
        whole, new = literal(self.regex.whole), literal(self.name.java())
        return f"WHEN {self.matches(topic)} THEN regexp_replace({topic}, {whole}, {new})"


def _rules(text: str) -> list[tuple[str, str]]:
    rules = (rule for line in text.splitlines() for rule in line.split(";") if rule.strip())
    pairs = (rule.partition(_ARROW) for rule in rules)
    return [(pattern.strip(), name.strip()) for pattern, _, name in pairs]


def _check_routes(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    text = props.get("routes")
    if text is None:
        return
    rules = _rules(str(text))
    fix = "Write a rule as pattern -> topic, such as orders_\\d+ -> orders."
    if not rules:
        yield ConfigError(problem="There is no rule.", field="routes", fix=fix)
    for pattern, name in rules:
        if not pattern or not name:
            problem = f"{pattern or name!r} is half a rule."
            yield ConfigError(problem=problem, field="routes", fix=fix)
            continue
        try:
            Regex().check("routes", pattern)
            _Rule.of(pattern, name)
        except ConfigError as error:
            yield error


class RouteSettings(Settings):
    """The settings of ``Route``."""

    routes: str = setting(
        "Rules, pattern -> topic, separated by semicolons or line ends. The first "
        "whose pattern matches the whole topic counts; $1 stands for a group.",
        importance=Importance.HIGH,
        meaning=Meaning.TOPIC,
    )
    unmatched: str = setting(
        "What to do with records that no rule is for: keep their topic, or drop them.",
        default="keep",
        validator=ValidString("keep", "drop"),
    )

    rules = (_check_routes,)


class Route(Transform):
    r"""Sends records to the topic that the first rule for their topic names.

    A rule is ``pattern -> topic``: a regular expression of Java that the whole topic must
    match, and the new name, in which ``$1`` or ``${name}`` stand for groups. Several patterns
    may lead to one topic, as when the shards of a table are merged; its schema then grows to
    hold the fields of all.
    """

    parts = False
    routes = True

    settings: RouteSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        rules = [_Rule.of(*pair) for pair in _rules(self.settings.routes)]
        keep = self.settings.unmatched == "keep"
        constant = literal_text(shape.topic)
        # A constant stays one: the flow then needs not look at each record's topic.
        if constant is not None and all(rule.regex.knows(constant) for rule in rules):
            routed = next(filter(None, (rule.routed(constant) for rule in rules)), None)
            if routed is not None:
                return replace(shape, topic=literal(routed))
            return shape if keep else shape.dropping("true", self.alias)
        return _matched(shape, rules) if keep else self._dropping(shape, rules)

    def _dropping(self, shape: RecordExpr, rules: list[_Rule]) -> RecordExpr:
        some = " OR ".join(rule.matches(shape.topic) for rule in rules)
        return _matched(shape, rules).dropping(f"NOT coalesce({some}, false)", self.alias)


def _matched(shape: RecordExpr, rules: list[_Rule]) -> RecordExpr:
    topic = shape.topic
    cases = " ".join(rule.case(topic) for rule in rules)
    return replace(shape, topic=f"CASE {cases} ELSE {topic} END")
