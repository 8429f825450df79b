"""Mapping rules: which tables the records of a stream go to, and as which columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.sdk import ConfigError, ConfigErrors
from headrace.sdk.config import Rule, Settings, setting
from headrace.sdk.mapped_tables import MappedColumn, MappedTable
from headrace.sdk.sparktypes import parse_ddl
from headrace.sdk.sqltext import sql_type
from headrace_plugins.name_patterns import NamePattern, NameTemplate
from headrace_plugins.target_table import ColumnRules, SkippedIds, TargetTable
from headrace_plugins.transforms.sql import check_expression

if TYPE_CHECKING:
    from typing import Self

    from headrace.sdk import Schema

_Read = TypeVar("_Read")

_RULES = "table.mapping"
_FORMAT = "table.name.format"


class Unmatched(Enum):
    """What becomes of a stream that no rule matches."""

    DEFAULT = "default"
    IGNORE = "ignore"
    FAIL = "fail"


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    reader, name_format = _Reader(), str(props.get(_FORMAT) or "${topic}")
    reader.template(name_format, (), _FORMAT)
    reader.rules(props.get(_RULES), name_format)
    return reader.errors


class TableSettings(Settings, group="Tables"):
    """Which tables a sink writes to: a base of the settings of sinks that have tables."""

    rules: ClassVar[tuple[Rule, ...]] = (_check,)

    table_name_format: str = setting(
        "The table of a stream: ${topic} stands for the stream's name, ${schema} and ${table} "
        "for the last two parts of one such as public.orders.",
        default="${topic}",
    )
    table_mapping: str | None = setting(
        "Rules for streams, as a list of maps in YAML or as its JSON. Each has `from` (names, "
        "patterns with * and ?, ranges such as offer[0000-0031], dates such as t_${yyyyMM}, "
        "regular expressions as /…/), and perhaps `to` (the table: ${topic}, ${schema}, "
        "${table}, ${1} and so on for what the pattern captures; by default "
        "table.name.format), `columns` with `include`, `exclude`, `rename`, `types` and `add`, "
        "`where`, `skip.ids`, `priority` and `key.fields`. All rules that match a stream "
        "count, so that one stream may go to several tables.",
        default=None,
    )
    table_mapping_unmatched: Unmatched = setting(
        "What becomes of streams that no rule of table.mapping matches: default writes them to "
        "the table that table.name.format names, ignore leaves their records out, fail stops "
        "the task.",
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
        """Its place in the configuration."""
        return f"{_RULES}[{self.number}]"

    @property
    def title(self) -> str:
        """What a person calls it."""
        return ", ".join(pattern.text for pattern in self.sources)

    def target(self, stream: str) -> TargetTable | None:
        """Return the table of a stream; None where the rule does not match it."""
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
    """All rules of a sink, and what becomes of streams that none matches."""

    rules: tuple[TableRule, ...]
    default: NameTemplate
    unmatched: Unmatched

    @classmethod
    def of(cls, settings: TableSettings) -> Self:
        """Return the rules of a sink's settings. Raises ConfigErrors for what is wrong."""
        reader, name_format = _Reader(), settings.table_name_format
        default = reader.template(name_format, (), _FORMAT)
        rules = reader.rules(settings.table_mapping, name_format)
        if reader.errors or default is None:
            raise ConfigErrors(reader.errors)
        return cls(rules, default, settings.table_mapping_unmatched)

    @property
    def titles(self) -> list[str]:
        """What a person calls each rule."""
        return [rule.title for rule in self.rules]

    def targets(self, stream: str) -> tuple[TargetTable, ...]:
        """Return the tables that the records of a stream go to, by their priority.

        All rules that match count; none are returned for a stream that is to be ignored.

        Raises ConfigError: two rules give one table, or no rule matches and one has to.
        """
        matching = [rule.target(stream) for rule in self.rules]
        found = [target for target in matching if target is not None]
        for number, target in enumerate(found):
            same = next((other for other in found[:number] if other.name == target.name), None)
            if same is not None:
                raise ConfigError(
                    problem=f"{stream} goes to {target.name} by {same.place} already.",
                    fix="Leave it out of one of the two rules, or give another table in to.",
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
        """Return what ``SinkConnector.mapped_tables`` does."""
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
    """Reads rules, and gathers all that is wrong with them."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []

    def rules(self, text: object, name_format: str = "${topic}") -> tuple[TableRule, ...]:
        if text is None or not str(text).strip():
            return ()
        try:
            found = json.loads(str(text))
        except ValueError as error:
            self._fail(_RULES, f"It is not JSON: {error}.", _AS_LIST)
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
            self._fail(place, "Expected a rule of keys.", "Write from: and to: in it.")
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
            return None  # of a bad pattern each group would be missing too
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
            self._fail(place, "Expected keys.", f"Known keys: {', '.join(_COLUMN_KEYS)}.")
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
            fix = f"Write it as {rename[name]}, as the table has it."
            problem = f"{name} is renamed, and types go by the names of columns."
            self._fail(f"{place}.types.{name}", problem, fix)
        for name in rename.keys() & set(exclude):
            problem = f"{name} is excluded, and cannot be renamed."
            self._fail(f"{place}.rename.{name}", problem, "Leave it out of one of the two.")
        for name in rename.keys() - set(include) if "include" in columns else ():
            problem = f"{name} is renamed, and is not included."
            self._fail(f"{place}.rename.{name}", problem, f"Add {name} to include.")
        twice = [name for name, n in Counter([*rename.values(), *add]).items() if n > 1]
        for name in twice:
            problem = f"Two columns would be called {name}."
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
        """Return the names under a key: a list, or a text with commas between them."""
        value = found.get(key, [])
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",")]
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str | int) and str(name) for name in names):
            self._fail(f"{place}.{key}", "Expected a name or a list of names.", "Write texts.")
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
        problem = "Expected a map of names and texts."
        self._fail(f"{place}.{key}", problem, "Write name: text in it.")
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
