"""Mapping rules: the target tables of a stream and their columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import Rule, Settings, setting
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import sql_type
from headrace.sdk.tables import MappedColumn, MappedTable
from headrace_plugins.target_table import ColumnRules, SkippedIds, TargetTable
from headrace_plugins.transforms.sql import check_expression

if TYPE_CHECKING:
    from typing import Self

    from headrace.sdk import Schema


_PART = re.compile(
    r"\*|\?|\[(?P<range>[^\]]*)\]|\$\{(?P<date>[^}]*)\}|\$\{|[^*?\[$]+|.", re.DOTALL
)
_RANGE = re.compile(r"(\d+)-(\d+)")
_MOST_DIGITS = 18
_MONTH = r"(?:0[1-9]|1[0-2])"
_DAYS = (
    ("(?:0[13578]|1[02])", r"(?:0[1-9]|[12]\d|3[01])"),
    ("(?:0[469]|11)", r"(?:0[1-9]|[12]\d|30)"),
    ("02", r"(?:0[1-9]|[12]\d)"),
)
_DATES = {
    "yyyy": lambda _: r"\d{4}",
    "yyyyMM": lambda sign: rf"\d{{4}}{sign}{_MONTH}",
    "yyyyMMdd": lambda sign: "|".join(
        rf"\d{{4}}{sign}{month}{sign}{day}" for month, day in _DAYS
    ),
}
_SIGNS = ("", "-", "/", r"\.")
"""The separators of a date's parts; a date uses one of them throughout."""
_FIX = (
    "Write a name, a pattern with * and ?, a range such as [0-31] or [0000-0031], a date such "
    "as ${yyyyMM}, or a regular expression as /…/."
)


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern for stream names.

    Args:
        text: The pattern as written.
        groups: The number of captures: the groups of a regular expression, else each
            wildcard, range and date.
    """

    text: str
    groups: int
    _regex: str

    @classmethod
    def of(cls, text: str, *, field: str) -> NamePattern:
        """Parse a pattern.

        - ``/…/`` is an RE2 regular expression, which matches in linear time.
        - ``*`` matches any characters, ``?`` one character.
        - ``[0-31]`` matches an integer in the range without leading zeros; ``[0000-0031]``
          matches exactly four digits.
        - ``${yyyy}``, ``${yyyyMM}`` and ``${yyyyMMdd}`` match dates, also with ``-``, ``/`` or
          ``.`` between the parts.
        - All other text matches itself.

        Raises ConfigError if the pattern is invalid; ``field`` is its key in the configuration.
        """
        if not text:
            raise _wrong(problem="Expected a name or a pattern, got nothing.", field=field)
        if len(text) > 1 and text[0] == text[-1] == "/":
            regex = text[1:-1]
            return cls(text, _matcher(regex, field).groups, regex)
        parts = [_part(found, text, field) for found in _PART.finditer(text)]
        pattern = cls(text, sum(part.startswith("(") for part in parts), "".join(parts))
        _matcher(pattern._regex, field)  # fails if the pattern is too large for RE2
        return pattern

    def match(self, name: str) -> tuple[str, ...] | None:
        """Return the captures of a full match with a name; None without a match.

        A regular expression's group that did not participate is empty.
        """
        found = _matcher(self._regex, self.text).fullmatch(name)
        return None if found is None else tuple(group or "" for group in found.groups())


def _part(found: re.Match[str], text: str, field: str) -> str:
    """Return a part of a pattern as a regular expression, as a group if it is captured."""
    part = found[0]
    if part == "*":
        return "((?s:.*))"
    if part == "?":
        return "((?s:.))"
    if found["range"] is not None:
        return f"({_range(found['range'], text, field)})"
    if found["date"] is not None:
        written: Callable[[str], str] | None = _DATES.get(found["date"])
        if written is None:
            problem = f"Invalid date {part} in {text!r}."
            raise _wrong(
                problem=problem,
                field=field,
                fix=f"Use one of: {', '.join(map(_in_braces, _DATES))}.",
            )
        return f"({'|'.join(dict.fromkeys(written(sign) for sign in _SIGNS))})"
    if part in {"[", "${"}:
        raise _wrong(problem=f"A bracket is not closed in {text!r}.", field=field)
    return re.escape(part)


def _in_braces(name: str) -> str:
    return f"${{{name}}}"


def _range(text: str, whole: str, field: str) -> str:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _wrong(problem=f"Invalid range [{text}] in {whole!r}.", field=field)
    low, high = found[1], found[2]
    if int(low) > int(high):
        problem = f"The range [{text}] in {whole!r} is descending."
        raise _wrong(problem=problem, field=field, fix=f"Write [{high}-{low}].")
    if max(len(low), len(high)) > _MOST_DIGITS:
        raise _wrong(
            problem=f"The range [{text}] in {whole!r} has too many digits.", field=field
        )
    padded = (low[0] == "0" and len(low) > 1) or (high[0] == "0" and len(high) > 1)
    if not padded:
        ends = [
            (
                max(low, "1" + "0" * (n - 1), key=int) if n > 1 else low,
                min(high, "9" * n, key=int),
            )
            for n in range(len(low), len(high) + 1)
        ]
        return "|".join(_digits(*each) for each in ends)
    if len(low) != len(high):
        problem = f"The ends of the range [{text}] in {whole!r} have different lengths."
        fix = f"Write [{low.zfill(len(high))}-{high.zfill(len(low))}], or no leading zeros."
        raise _wrong(problem=problem, field=field, fix=fix)
    return _digits(low, high)


def _digits(low: str, high: str) -> str:
    """Return a regular expression for the numbers from ``low`` to ``high``, of equal length."""
    if low == high:
        return low
    if low[0] == high[0]:
        return f"{low[0]}(?:{_digits(low[1:], high[1:])})"
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    parts = []
    if rest and low[1:] != "0" * rest:
        parts.append(f"{first}(?:{_digits(low[1:], '9' * rest)})")
        first += 1
    tail = []
    if rest and high[1:] != "9" * rest:
        tail.append(f"{last}(?:{_digits('0' * rest, high[1:])})")
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}]" + (rf"\d{{{rest}}}" if rest else ""))
    return "|".join([*parts, *tail])


_MOST_MEMORY = 2 << 20
"""The memory limit of a pattern in bytes; RE2's default is four times as large."""


@lru_cache(maxsize=128)
def _matcher(regex: str, field: str) -> Any:
    import re2  # noqa: PLC0415 - most processes match no patterns

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    try:
        return re2.compile(regex, options)
    except (re2.error, UnicodeEncodeError) as error:
        said = b"".join(e for e in error.args if isinstance(e, bytes)).decode(errors="replace")
        raise ConfigError(
            problem=f"Invalid regular expression {regex!r}: {said}",
            fix="Use RE2 syntax, which is Java's without look-arounds, backreferences and "
            "possessive quantifiers.",
            field=field,
        ) from error


def _wrong(*, problem: str, field: str, fix: str = _FIX) -> ConfigError:
    return ConfigError(problem, field=field, fix=fix)


_DOT = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A dot that is not in quotes."""
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}|\$\{")


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A template for a target's name.

    Placeholders are ``${topic}``, the stream's name; ``${schema}`` and ``${table}``, the last
    two dot-separated parts of it, quoted if a part contains a dot; and ``${1}``, ``${2}``, …,
    the captures of the pattern.
    """

    text: str

    @classmethod
    def of(cls, text: str, patterns: Sequence[NamePattern] = (), *, field: str) -> NameTemplate:
        """Parse a template. Raises ConfigError for an unknown placeholder."""
        if not text.strip():
            raise ConfigError(
                problem="Expected a name, got nothing.", field=field, fix="Name a table."
            )
        for found in _PLACEHOLDER.finditer(text):
            name = found[1]
            if name in {"topic", "schema", "table"}:
                continue
            if name is None or not re.fullmatch(r"[1-9]\d?", name):
                raise ConfigError(
                    problem=f"Unknown placeholder {found[0]} in {text!r}.",
                    fix="Use ${topic}, ${schema}, ${table}, or ${1} and so on for the captures "
                    "of the pattern.",
                    field=field,
                )
            for pattern in patterns:
                if int(name) > pattern.groups:
                    raise _no_group(found[0], pattern, field)
            if not patterns:
                raise ConfigError(
                    problem=f"{found[0]} requires a pattern that captures it.",
                    fix="Use ${topic}, ${schema} or ${table}, or write a rule in "
                    "table.mapping.",
                    field=field,
                )
        return cls(text)

    def filled(self, name: str, captured: Sequence[str] = (), *, field: str) -> str:
        """Return the target's name for a stream.

        Raises ConfigError if the template has ``${schema}`` and the stream's name one part.
        """
        *before, table = _DOT.split(name)

        def value(found: re.Match[str]) -> str:
            if found[1] == "schema" and not before:
                raise ConfigError(
                    problem=f"{name!r} has no schema to fill in for ${{schema}}.",
                    fix="Use ${topic}, or name the table in a rule of table.mapping.",
                    field=field,
                )
            named = {"topic": name, "table": table, "schema": before[-1] if before else ""}
            return named[found[1]] if found[1] in named else captured[int(found[1]) - 1]

        return _PLACEHOLDER.sub(value, self.text)


def _no_group(placeholder: str, pattern: NamePattern, field: str) -> ConfigError:
    has = {0: "nothing", 1: "one part, ${1}"}
    return ConfigError(
        problem=f"{pattern.text!r} captures "
        f"{has.get(pattern.groups, f'{pattern.groups} parts')}, so there is no {placeholder}.",
        fix="Use ${topic}, or a pattern that captures it: a part in (…) of a /regular "
        "expression/, a *, a ?, a range or a date.",
        field=field,
    )


_Read = TypeVar("_Read")

_RULES = "table.mapping"
_FORMAT = "table.name.format"


class Unmatched(Enum):
    """The handling of a stream that no rule matches."""

    DEFAULT = "default"
    IGNORE = "ignore"
    FAIL = "fail"


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    reader, name_format = _Reader(), str(props.get(_FORMAT) or "${topic}")
    reader.template(name_format, (), _FORMAT)
    reader.rules(props.get(_RULES), name_format)
    return reader.errors


class TableSettings(Settings, group="Tables"):
    """The tables that a sink writes to: base class for the settings of sinks with tables."""

    rules: ClassVar[tuple[Rule, ...]] = (_check,)

    table_name_format: str = setting(
        "The table of a stream: ${topic} is the stream's name, ${schema} and ${table} are the "
        "last two parts of a name such as public.orders.",
        default="${topic}",
    )
    table_mapping: str | None = setting(
        "Rules for streams, as a list of maps in YAML or JSON. Each requires `from` (names, "
        "patterns with * and ?, ranges such as offer[0000-0031], dates such as t_${yyyyMM}, "
        "regular expressions as /…/). Optional are `to` (the table: ${topic}, ${schema}, "
        "${table}, ${1} and so on for the captures of the pattern; by default "
        "table.name.format), `columns` with `include`, `exclude`, `rename`, `types` and `add`, "
        "`where`, `skip.ids`, `priority` and `key.fields`. All rules that match a stream "
        "apply, so a stream can go to several tables.",
        default=None,
    )
    table_mapping_unmatched: Unmatched = setting(
        "Handling of streams that match no rule of table.mapping: default writes them to the "
        "table of table.name.format, ignore skips their records, fail stops the task.",
        default=Unmatched.DEFAULT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """A rule of ``table.mapping``."""

    number: int
    sources: tuple[NamePattern, ...]
    template: NameTemplate
    priority: int
    key_fields: tuple[str, ...]
    columns: ColumnRules
    where: str | None
    skipped: SkippedIds | None

    @property
    def place(self) -> str:
        """The path of the rule in the configuration."""
        return f"{_RULES}[{self.number}]"

    @property
    def title(self) -> str:
        """The rule's title for users."""
        return ", ".join(pattern.text for pattern in self.sources)

    def target(self, stream: str) -> TargetTable | None:
        """Return the table of a stream; None if the rule does not match."""
        for pattern in self.sources:
            captured = pattern.match(stream)
            if captured is not None:
                return TargetTable(
                    name=self.template.filled(stream, captured, field=f"{self.place}.to"),
                    priority=self.priority,
                    key_fields=self.key_fields,
                    columns=self.columns,
                    where=self.where,
                    skipped=self.skipped,
                    place=self.place,
                    rule=self.number,
                )
        return None


@dataclass(frozen=True)
class TableRules:
    """All rules of a sink, and the handling of streams that match no rule."""

    rules: tuple[TableRule, ...]
    default: NameTemplate
    unmatched: Unmatched

    @classmethod
    def of(cls, settings: TableSettings) -> Self:
        """Return the rules of a sink's settings. Raises ConfigErrors with all errors."""
        reader, name_format = _Reader(), settings.table_name_format
        default = reader.template(name_format, (), _FORMAT)
        rules = reader.rules(settings.table_mapping, name_format)
        if reader.errors or default is None:
            raise ConfigErrors(reader.errors)
        return cls(rules, default, settings.table_mapping_unmatched)

    @property
    def titles(self) -> list[str]:
        """The title of each rule."""
        return [rule.title for rule in self.rules]

    def targets(self, stream: str) -> tuple[TargetTable, ...]:
        """Return the tables of a stream from all matching rules, sorted by priority.

        Empty for an ignored stream. Raises ConfigError if two rules give the same table, or if
        no rule matches and table.mapping.unmatched is fail.
        """
        matching = [rule.target(stream) for rule in self.rules]
        found = [target for target in matching if target is not None]
        for number, target in enumerate(found):
            same = next((other for other in found[:number] if other.name == target.name), None)
            if same is not None:
                raise ConfigError(
                    problem=f"{same.place} already maps {stream} to {target.name}.",
                    fix="Exclude it from one of the two rules, or set another table in to.",
                    field=f"{target.place}.from",
                )
        if found:
            return tuple(sorted(found, key=lambda target: target.priority))
        if self.unmatched is Unmatched.IGNORE:
            return ()
        if self.unmatched is Unmatched.FAIL:
            raise ConfigError(
                problem=f"No rule matches {stream}.",
                fix="Add a rule for it, or set table.mapping.unmatched to default or ignore.",
                field=_RULES,
            )
        return (TargetTable(name=self.default.filled(stream, field=_FORMAT)),)

    def mapped(self, stream: str, schema: Schema | None) -> list[MappedTable]:
        """Return the result of ``SinkConnector.mapped_tables``."""
        return [_mapped(target, schema) for target in self.targets(stream)]


def _mapped(target: TargetTable, schema: Schema | None) -> MappedTable:
    columns: tuple[MappedColumn, ...] | None = None
    missing: tuple[str, ...] = ()
    key = target.key_fields
    if schema is not None:
        selection = target.select(schema)
        columns = tuple(
            MappedColumn(
                source=target.columns.add.get(c.name) if c.source is None else c.source,
                name=c.name,
                type=None if c.schema is None else sql_type(c.schema),
            )
            for c in selection.columns
        )
        missing = tuple(sorted(target.columns.named - {f.name for f in schema.fields}))
        key = selection.key
    return MappedTable(
        rule=target.rule,
        table=target.name,
        priority=target.priority,
        key=key,
        columns=columns,
        missing=missing,
    )


_KEYS = ("from", "to", "columns", "where", "skip.ids", "priority", "key.fields")
_COLUMN_KEYS = ("include", "exclude", "rename", "types", "add")


class _Reader:
    """Parses rules and collects all errors in them."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []

    def rules(self, text: object, name_format: str = "${topic}") -> tuple[TableRule, ...]:
        if text is None or not str(text).strip():
            return ()
        try:
            found = json.loads(str(text))
        except ValueError as error:
            self._fail(_RULES, f"Invalid JSON: {error}.", _AS_LIST)
            return ()
        if not isinstance(found, list):
            self._fail(_RULES, "Expected a list of rules.", _AS_LIST)
            return ()
        rules = (self._rule(n, each, name_format) for n, each in enumerate(found))
        return tuple(rule for rule in rules if rule is not None)

    def template(
        self, text: str, patterns: Sequence[NamePattern], place: str
    ) -> NameTemplate | None:
        return self._tried(lambda: NameTemplate.of(text, patterns, field=place))

    def _rule(self, number: int, rule: object, name_format: str) -> TableRule | None:
        place, errors = f"{_RULES}[{number}]", len(self.errors)
        if not isinstance(rule, dict):
            self._fail(place, "Expected a map.", "Write a rule with the keys from and to.")
            return None
        self._known(rule, _KEYS, place)
        if "from" not in rule:
            self._fail(f"{place}.from", "Missing required key.", "Name the streams.")
        sources = tuple(
            pattern
            for text in self._names(rule, "from", place)
            if (pattern := self._pattern(text, f"{place}.from")) is not None
        )
        to = rule.get("to", name_format)
        where = self._expression(rule, "where", place)
        skipped = self._skipped(rule.get("skip.ids"), f"{place}.skip.ids")
        priority = rule.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool):
            problem = f"Expected an integer, got {priority!r}."
            self._fail(f"{place}.priority", problem, "Smaller ones are written first.")
        key_fields = tuple(self._names(rule, "key.fields", place))
        columns = self._columns(rule.get("columns", {}), f"{place}.columns")
        if len(self.errors) > errors:
            return None  # an invalid pattern would also report each group as missing
        template = self.template(str(to), sources, f"{place}.to")
        if template is None:
            return None
        return TableRule(
            number=number,
            sources=sources,
            template=template,
            priority=priority,
            key_fields=key_fields,
            columns=columns,
            where=where,
            skipped=skipped,
        )

    def _columns(self, columns: object, place: str) -> ColumnRules:
        if not isinstance(columns, dict):
            self._fail(place, "Expected a map.", f"Known keys: {', '.join(_COLUMN_KEYS)}.")
            return ColumnRules()
        self._known(columns, _COLUMN_KEYS, place)
        if "include" in columns and "exclude" in columns:
            problem = "include and exclude are both set."
            self._fail(f"{place}.exclude", problem, "Set one of them.")
        include, exclude = (self._names(columns, key, place) for key in _COLUMN_KEYS[:2])
        rename = self._texts(columns, "rename", place)
        add = self._texts(columns, "add", place)
        for name in add:
            self._expression(add, name, f"{place}.add")
        types = {
            name: schema
            for name, text in self._texts(columns, "types", place).items()
            if (schema := self._type(text, f"{place}.types.{name}")) is not None
        }
        for name in types.keys() & rename.keys() - set(rename.values()):
            fix = f"Use its name in the table, {rename[name]}."
            problem = f"{name} is renamed, and the keys of types are column names."
            self._fail(f"{place}.types.{name}", problem, fix)
        for name in rename.keys() & set(exclude):
            problem = f"{name} is excluded and cannot be renamed."
            self._fail(f"{place}.rename.{name}", problem, "Remove it from exclude or rename.")
        for name in rename.keys() - set(include) if "include" in columns else ():
            problem = f"{name} is renamed but not included."
            self._fail(f"{place}.rename.{name}", problem, f"Add {name} to include.")
        twice = [name for name, n in Counter([*rename.values(), *add]).items() if n > 1]
        for name in twice:
            problem = f"Two columns would have the name {name}."
            self._fail(f"{place}", problem, "Choose another name for one of them.")
        return ColumnRules(
            include=tuple(include) if "include" in columns else None,
            exclude=frozenset(exclude),
            rename=rename,
            types=types,
            add=add,
        )

    def _known(self, found: Mapping[str, object], keys: Sequence[str], place: str) -> None:
        for key in found:
            if key not in keys:
                close = get_close_matches(str(key), keys, n=1)
                known = f"Known keys: {', '.join(keys)}."
                fix = f"Did you mean {close[0]}?" if close else known
                self._fail(f"{place}.{key}", "Unknown key.", fix)

    def _names(self, found: Mapping[str, Any], key: str, place: str) -> list[str]:
        """Return the names under a key: a list or a comma-separated string."""
        value = found.get(key, [])
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",")]
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str | int) and str(name) for name in names):
            self._fail(f"{place}.{key}", "Expected a name or a list of names.", "Use strings.")
            return []
        if key in found and not names:
            self._fail(f"{place}.{key}", "Expected at least one name.", "Name one.")
        return [str(name) for name in names]

    def _texts(self, found: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
        value = found.get(key, {})
        if isinstance(value, dict) and all(
            isinstance(text, str | int | float) and str(text).strip() for text in value.values()
        ):
            return {str(name): str(text) for name, text in value.items()}
        problem = "Expected a map of names to strings."
        self._fail(f"{place}.{key}", problem, "Write entries of the form name: text.")
        return {}

    def _expression(self, found: Mapping[str, Any], key: str, place: str) -> str | None:
        if found.get(key) is None:
            return None
        where = f"{place}.{key}"
        self.errors += check_expression({where: str(found[key])}, where)
        return str(found[key])

    def _pattern(self, text: str, place: str) -> NamePattern | None:
        return self._tried(lambda: NamePattern.of(text, field=place))

    def _type(self, text: str, place: str) -> Schema | None:
        found = self._tried(lambda: parse_ddl(f"c {text}", field=place))
        if found is not None and len(found.fields) > 1:
            self._fail(place, f"{text!r} is more than one type.", "Write one, such as INT.")
        return None if found is None else found.fields[0].schema

    def _skipped(self, ids: object, place: str) -> SkippedIds | None:
        if ids is None:
            return None
        text = ",".join(map(str, ids)) if isinstance(ids, list) else str(ids)
        return self._tried(lambda: SkippedIds.of(text, field=place))

    def _tried(self, read: Callable[[], _Read]) -> _Read | None:
        try:
            return read()
        except ConfigError as error:
            self.errors.append(error)
            return None

    def _fail(self, place: str, problem: str, fix: str) -> None:
        self.errors.append(ConfigError(problem, field=place, fix=fix))


_AS_LIST = (
    'Write a list of rules in YAML, or as JSON, such as [{"from": "shop_*", "to": "shop"}].'
)
