"""Transforms that choose the topic or the partition: Route, RegexRouter and Shard."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from typing_extensions import override

from headrace.sdk import ConfigError, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Meaning,
    NullOr,
    Range,
    Regex,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.schema import DATE, DECIMAL, NUMBERS, TIMESTAMP
from headrace.sdk.sqltext import FieldPath, literal, literal_text
from headrace_plugins.kafka_compat.java_regex import JavaRegex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk import RecordExpr, Schema


def _rules(text: str) -> list[tuple[str, str]]:
    rules = (rule for line in text.splitlines() for rule in line.split(";") if rule.strip())
    pairs = (rule.partition("->") for rule in rules)
    return [(pattern.strip(), name.strip()) for pattern, _, name in pairs]


def _check_routes(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    text = props.get("routes")
    if text is None:
        return
    rules = _rules(str(text))
    fix = "Write a rule as pattern -> topic, such as orders_\\d+ -> orders."
    if not rules:
        yield ConfigError(problem="routes contains no rule.", field="routes", fix=fix)
    for pattern, name in rules:
        if not pattern or not name:
            problem = f"The rule with {pattern or name!r} is incomplete."
            yield ConfigError(problem=problem, field="routes", fix=fix)
            continue
        try:
            Regex().check("routes", pattern)
            JavaRegex.of(pattern).replacement(name, key="routes")
        except ConfigError as error:
            yield error


class RouteSettings(Settings):
    """The settings of ``Route``."""

    routes: str = setting(
        "Rules, pattern -> topic, separated by semicolons or line breaks. The first rule "
        "whose pattern matches the whole topic applies; $1 refers to a group.",
        importance=Importance.HIGH,
        meaning=Meaning.TOPIC,
    )
    unmatched: str = setting(
        "How to handle records that no rule matches: keep their topic, or drop them.",
        default="keep",
        validator=ValidString("keep", "drop"),
    )

    rules = (_check_routes,)


class Route(Transform):
    r"""Sends records to the topic of the first rule that matches their current topic.

    A rule is ``pattern -> topic``: a Java regular expression that must match the whole topic,
    and the new name, in which ``$1`` or ``${name}`` refer to groups. Several patterns may have
    the same topic, for example to merge the shards of a table; the schema of the topic is then
    extended to the fields of all.
    """

    parts = False
    routes = True

    settings: RouteSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        rules = [(JavaRegex.of(rule), name) for rule, name in _rules(self.settings.routes)]
        keep = self.settings.unmatched == "keep"
        topic, constant = shape.topic, literal_text(shape.topic)
        # Keep a constant topic constant: the flow then need not compute each record's topic.
        if constant is not None and all(regex.re2_for(constant) for regex, _ in rules):
            for regex, name in rules:
                pattern = regex.re2_for(constant)
                if pattern is not None and (match := pattern.fullmatch(constant)):
                    routed = regex.replacement(name, key="routes")(match)
                    return replace(shape, topic=literal(routed))
            return shape if keep else shape.dropping("true", self.alias)
        tests = [f"{topic} RLIKE {literal(regex.whole)}" for regex, _ in rules]
        cases = " ".join(
            f"WHEN {test} THEN regexp_replace({topic}, {literal(regex.whole)}, {literal(name)})"
            for test, (regex, name) in zip(tests, rules, strict=True)
        )
        after = replace(shape, topic=f"CASE {cases} ELSE {topic} END")
        if keep:
            return after
        return after.dropping(f"NOT coalesce({' OR '.join(tests)}, false)", self.alias)


def _check_replacement(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    regex, replacement = props.get("regex"), props.get("replacement")
    if regex is None or replacement is None:
        return
    try:
        JavaRegex.of(str(regex)).replacement(str(replacement), key="replacement")
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
    """Sends records to another topic if a regular expression matches the topic's name.

    The expression, in Java's syntax, must match the whole name; then its first match is
    replaced. `$1` in the replacement refers to the first group.
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
        regex, text = JavaRegex.of(self.settings.regex), self.settings.replacement
        topic = literal_text(shape.topic)
        pattern = None if topic is None else regex.re2_for(topic)
        # Keep a constant topic constant: the flow then need not compute each record's topic.
        if topic is not None and pattern is not None:
            if not pattern.fullmatch(topic):
                return shape
            expand = regex.replacement(text, key="replacement")
            return replace(shape, topic=literal(pattern.sub(expand, topic, count=1)))
        # SQL replaces every match, Kafka Connect only the first. As the whole name matches, the
        # first match is at the start.
        first = f"regexp_replace({shape.topic}, {literal(regex.head)}, {literal(text)})"
        matches = f"{shape.topic} RLIKE {literal(regex.whole)}"
        return replace(shape, topic=f"IF({matches}, {first}, {shape.topic})")


# https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html; weeks are not among them.
_LETTERS = frozenset("GyDMLdQqEFahKkHmsSVzOXxZ")
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_NEEDED = {"hash": "shards", "range": "bounds", "date": "pattern"}


def _check_pattern(pattern: str) -> Iterable[ConfigError]:
    bare = _QUOTED.sub("", pattern)
    wrong = [
        sign for sign in bare if sign in "'{}#" or (sign.isalpha() and sign not in _LETTERS)
    ]
    if wrong:
        yield ConfigError(
            problem=f"{wrong[0]!r} is not a letter of Spark's date patterns.",
            field="pattern",
            fix="Write a pattern such as yyyyMM or yyyy-MM-dd, with text in single quotes.",
        )


def _check_bounds(bounds: object) -> Iterable[ConfigError]:
    """Yield an error if the bounds ascend for no type; the field's type is unknown here."""
    texts = [str(each) for each in bounds] if isinstance(bounds, list | tuple) else []
    texts = texts or [text.strip() for text in str(bounds).split(",")]
    for read, _ in dict.fromkeys(_BOUNDS.values()):
        with suppress(ValueError, InvalidOperation):
            values = [read(text) for text in texts]
            if all(before < after for before, after in pairwise(values)):
                return
    yield _wrong(problem=f"The bounds {', '.join(texts)} are not in ascending order.")


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    strategy = str(props.get("strategy") or "hash")
    needed = _NEEDED.get(strategy)
    if needed and not props.get(needed):
        yield ConfigError(
            problem=f"The strategy {strategy} requires {needed}.",
            field=needed,
            fix=f"Set {needed}.",
        )
    if strategy == "date" and props.get("pattern"):
        yield from _check_pattern(str(props["pattern"]))
    if strategy == "range" and props.get("bounds"):
        yield from _check_bounds(props["bounds"])
    if "${shard}" not in str(props.get("topic.format") or "${shard}"):
        yield ConfigError(
            problem="All shards would have the same topic name.",
            field="topic.format",
            fix="Add ${shard} to topic.format.",
        )
    try:
        ZoneInfo(str(props.get("time.zone") or "UTC"))
    except (ValueError, OSError, KeyError):
        fix = "Set an IANA time zone, such as Europe/Paris."
        yield ConfigError(problem="Unknown time zone.", field="time.zone", fix=fix)


class ShardSettings(Settings):
    """The settings of ``Shard``."""

    field: str = setting(
        "The field that selects the shard. A dot separates the names of nested fields; "
        "backticks quote a name.",
        importance=Importance.HIGH,
    )
    strategy: str = setting(
        "How to select the shard. hash: distributes values evenly over the shards 0 to "
        "shards - 1. range: numbers the ranges between the bounds, from 0. date: names the "
        "shard after the field's formatted date.",
        default="hash",
        validator=ValidString(*_NEEDED),
        importance=Importance.HIGH,
    )
    shards: int | None = setting(
        "For hash: the number of shards.",
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    bounds: tuple[str, ...] = setting(
        "For range: the first value of each shard except shard 0, in ascending order; dates "
        "and times in ISO 8601 format.",
        default=(),
    )
    pattern: str | None = setting(
        "For date: Spark's date pattern, such as yyyyMM.", default=None
    )
    time_zone: str = setting("For date: the time zone of the date.", default="UTC")
    topic_format: str = setting(
        "The new topic; ${topic} is replaced by the old topic, ${shard} by the shard.",
        default="${topic}_${shard}",
        meaning=Meaning.TOPIC,
    )
    null_shard: str = setting(
        "The shard of records whose field is null or, for date, not a valid date.",
        default="null",
    )

    rules = (_check,)


class Shard(Transform):
    """Sends each record to the topic of a shard, by hash, range or date pattern of a field.

    A value always goes to the same shard. The hash is the xxHash64 of the value as text, so it
    does not change when a number's type is widened.
    """

    routes = True

    settings: ShardSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "sharding")
        name = self.settings.field
        found = part.find(FieldPath.parse(name, "V2"))
        if found is None:
            raise UnfitRecordError(message=f"Field does not exist: {name}")
        sql, schema = found
        shard = getattr(self, f"_{self.config.get_str('strategy')}")(sql, schema)
        values = {
            "${topic}": shape.topic,
            "${shard}": f"coalesce({shard}, {literal(self.config.get_str('null.shard'))})",
        }
        topic = f"concat({', '.join(_parts(self.config.get_str('topic.format'), values))})"
        return replace(shape, topic=topic)

    def _hash(self, sql: str, schema: Schema) -> str:
        shard = f"pmod(xxhash64(CAST({sql} AS STRING)), {self.settings.shards}L)"
        return f"IF({sql} IS NULL, NULL, CAST({shard} AS STRING))"

    def _range(self, sql: str, schema: Schema) -> str:
        kind = str(schema.name) if schema.is_logical else schema.type
        if kind not in _BOUNDS:
            name = self.settings.field
            raise UnfitRecordError(
                message=f"Field is not a number, date, time or string: {name}"
            )
        read, what = _BOUNDS[kind]
        bounds = [_bound(text, read, what) for text in self.settings.bounds]
        for before, after in pairwise(bounds):
            if not before < after:
                raise _wrong(problem=f"The bound {after} is not larger than {before}.")
        cases = [f"WHEN {sql} < {_sql(bound)} THEN '{n}'" for n, bound in enumerate(bounds)]
        return f"CASE WHEN {sql} IS NULL THEN NULL {' '.join(cases)} ELSE '{len(bounds)}' END"

    def _date(self, sql: str, schema: Schema) -> str:
        pattern = literal(self.config.get_str("pattern"))
        if schema.name == DATE:
            return f"date_format({sql}, {pattern})"
        if schema.name != TIMESTAMP and schema.type is not Type.STRING:
            name = self.settings.field
            raise UnfitRecordError(message=f"Field is not a date, time or string: {name}")
        time = sql if schema.name == TIMESTAMP else f"try_cast({sql} AS TIMESTAMP)"
        zone = literal(self.settings.time_zone)
        return f"date_format(from_utc_timestamp({time}, {zone}), {pattern})"


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise InvalidOperation
    return number


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


# The parser of a field type's bounds, and the name of a bound in messages.
_BOUNDS: Mapping[Type | str, tuple[Callable[[str], Any], str]] = {
    **dict.fromkeys((*NUMBERS, DECIMAL), (_number, "number")),
    Type.STRING: (str, "text"),
    DATE: (date.fromisoformat, "date such as 2026-01-31"),
    TIMESTAMP: (_time, "time such as 2026-01-31T12:00:00Z"),
}


def _bound(text: str, read: Callable[[str], Any], what: str) -> Any:
    try:
        return read(text)
    except (ValueError, InvalidOperation) as error:
        raise _wrong(problem=f"Expected a {what}, got {text!r}.") from error


def _sql(bound: Any) -> str:
    match bound:
        case Decimal():
            return f"{bound:f}"
        case datetime():
            return f"TIMESTAMP'{bound.isoformat()}'"
        case date():
            return f"DATE'{bound.isoformat()}'"
        case _:
            return literal(bound)


def _wrong(*, problem: str) -> ConfigError:
    fix = "Set values of the field's type in ascending order."
    return ConfigError(problem=problem, field="bounds", fix=fix)


def _parts(form: str, values: Mapping[str, str]) -> list[str]:
    """Split a format text into SQL pieces: literals, and the expressions of placeholders."""
    pieces = [form]
    for name in values:
        pieces = [
            piece
            for text in pieces
            for piece in (text.replace(name, f"\0{name}\0").split("\0") if text else [])
        ]
    return [values.get(piece, literal(piece)) for piece in pieces if piece]
