"""Renames topics by patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, literal
from headrace.sdk.config import ConfigDef, ConfigType, Importance, Regex, ValidString

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Shape

_ARROW = "->"


class Route(Transform):
    r"""Sends records to the topic that the first rule for their topic names.

    A rule is ``pattern -> topic``: a regular expression of Java that the whole topic must
    match, and the new name, in which ``$1`` or ``${name}`` stand for groups. Several patterns
    may lead to one topic, as when the shards of a table are merged; its schema then grows to
    hold the fields of all.
    """

    parts = False
    routes = True

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "routes",
                ConfigType.STRING,
                importance=Importance.HIGH,
                doc="Rules, pattern -> topic, separated by semicolons or line ends. The first "
                "whose pattern matches the whole topic counts; $1 stands for a group.",
            )
            .define(
                "unmatched",
                ConfigType.STRING,
                "keep",
                validator=ValidString("keep", "drop"),
                doc="What to do with records that no rule is for: keep their topic, or drop "
                "them.",
            )
            .rule(_check_routes)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        topic = shape.topic
        cases, matches = [], []
        for pattern, name in _rules(self.config.get_str("routes")):
            whole = literal(rf"\A(?:{pattern})\z")
            matches.append(f"{topic} RLIKE {whole}")
            new = f"regexp_replace({topic}, {whole}, {literal(name)})"
            cases.append(f"WHEN {topic} RLIKE {whole} THEN {new}")
        routed = replace(shape, topic=f"CASE {' '.join(cases)} ELSE {topic} END")
        if self.config.get_str("unmatched") == "keep":
            return routed
        return routed.dropping(f"NOT coalesce({' OR '.join(matches)}, false)", self.alias)


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
        except ConfigError as error:
            yield error
