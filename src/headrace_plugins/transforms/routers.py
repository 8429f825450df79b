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
        yield ConfigError(problem="There is no rule.", field="routes", fix=fix)
    for pattern, name in rules:
        if not pattern or not name:
            problem = f"{pattern or name!r} is half a rule."
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
        rules = [(JavaRegex.of(rule), name) for rule, name in _rules(self.settings.routes)]
        keep = self.settings.unmatched == "keep"
        topic, constant = shape.topic, literal_text(shape.topic)
        # A constant stays one: the flow then needs not look at each record's topic.
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
        regex, text = JavaRegex.of(self.settings.regex), self.settings.replacement
        topic = literal_text(shape.topic)
        pattern = None if topic is None else regex.re2_for(topic)
        # A constant stays one: the flow then needs not look at each record's topic.
        if topic is not None and pattern is not None:
            if not pattern.fullmatch(topic):
                return shape
            expand = regex.replacement(text, key="replacement")
            return replace(shape, topic=literal(pattern.sub(expand, topic, count=1)))
        # SQL replaces every match, Kafka the first. As the whole name matches, the first match
        # is at its start.
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
            problem=f"{wrong[0]!r} is not a part of a date in Spark's patterns.",
            field="pattern",
            fix="Write it as yyyyMM or yyyy-MM-dd, with other letters in single quotes.",
        )


def _check_bounds(bounds: object) -> Iterable[ConfigError]:
    """Yield an error for bounds that ascend as values of no type; the field's is not known."""
    texts = [str(each) for each in bounds] if isinstance(bounds, list | tuple) else []
    texts = texts or [text.strip() for text in str(bounds).split(",")]
    for read, _ in dict.fromkeys(_BOUNDS.values()):
        with suppress(ValueError, InvalidOperation):
            values = [read(text) for text in texts]
            if all(before < after for before, after in pairwise(values)):
                return
    yield _wrong(problem=f"The bounds {', '.join(texts)} do not ascend.")


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    strategy = str(props.get("strategy") or "hash")
    needed = _NEEDED.get(strategy)
    if needed and not props.get(needed):
        yield ConfigError(
            problem=f"The strategy {strategy} needs it.", field=needed, fix=f"Set {needed}."
        )
    if strategy == "date" and props.get("pattern"):
        yield from _check_pattern(str(props["pattern"]))
    if strategy == "range" and props.get("bounds"):
        yield from _check_bounds(props["bounds"])
    if "${shard}" not in str(props.get("topic.format") or "${shard}"):
        yield ConfigError(
            problem="All shards would have one name.",
            field="topic.format",
            fix="Put ${shard} into it.",
        )
    try:
        ZoneInfo(str(props.get("time.zone") or "UTC"))
    except (ValueError, OSError, KeyError):
        fix = "Name one of the IANA's zones, such as Europe/Paris."
        yield ConfigError(problem="Unknown time zone.", field="time.zone", fix=fix)


class ShardSettings(Settings):
    """The settings of ``Shard``."""

    field: str = setting(
        "The field to look at; dots lead into structs, back-ticks quote names.",
        importance=Importance.HIGH,
    )
    strategy: str = setting(
        "hash spreads values evenly over shards, 0 to shards - 1; range numbers "
        "what is between bounds, from 0; date names a shard by the field's time.",
        default="hash",
        validator=ValidString(*_NEEDED),
        importance=Importance.HIGH,
    )
    shards: int | None = setting(
        "For hash: how many shards there are.",
        default=None,
        validator=NullOr(Range(at_least=1)),
    )
    bounds: tuple[str, ...] = setting(
        "For range: the first value of each shard but the first, ascending; dates "
        "and times in ISO's form.",
        default=(),
    )
    pattern: str | None = setting(
        "For date: Spark's date pattern, such as yyyyMM.", default=None
    )
    time_zone: str = setting("For date: the zone to take the date in.", default="UTC")
    topic_format: str = setting(
        "The new topic; ${topic} stands for the old one, ${shard} for the shard.",
        default="${topic}_${shard}",
        meaning=Meaning.TOPIC,
    )
    null_shard: str = setting(
        "The shard of records whose field is null, or is not a date for date.", default="null"
    )

    rules = (_check,)


class Shard(Transform):
    """Sends each record to a shard's topic: by hash, range or date pattern of a field.

    The same value goes to the same shard, whatever the batch. The hash is xxHash64 of the
    value as text, so that it stays when a number's type is widened.
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
        shards = self.config.get_int("shards")
        shard = f"pmod(xxhash64(CAST({sql} AS STRING)), {shards}L)"
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
                raise _wrong(problem=f"{after} does not follow {before}.")
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


# How a field's bounds are read, and what they are called.
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
    fix = "Give values of the field's type, each larger than the one before."
    return ConfigError(problem=problem, field="bounds", fix=fix)


def _parts(form: str, values: Mapping[str, str]) -> list[str]:
    """Return the SQL of a text's pieces, with expressions for what stands in it."""
    pieces = [form]
    for name in values:
        pieces = [
            piece
            for text in pieces
            for piece in (text.replace(name, f"\0{name}\0").split("\0") if text else [])
        ]
    return [values.get(piece, literal(piece)) for piece in pieces if piece]
