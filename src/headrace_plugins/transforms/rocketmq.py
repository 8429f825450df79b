"""Transforms of RocketMQ Connect that Kafka Connect does not have."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, UnfitRecordError, ValueExpr
from headrace.sdk.config import (
    Importance,
    Range,
    Regex,
    Settings,
    ValidList,
    ValidString,
    setting,
)
from headrace.sdk.schema import (
    DECIMAL,
    LOGICAL_BASES,
    MAX_PRECISION,
    PRECISION,
    precision_of,
    scale_of,
)
from headrace.sdk.sqltext import FieldPath, FieldSyntax, literal, sql_null, sql_type
from headrace_plugins.kafka_compat.java_regex import JavaRegex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Change


def require_struct(part: ValueExpr) -> ValueExpr:
    """Return the part if it has fields or is null; raise UnfitRecordError for other types."""
    schema = part.schema
    if schema is None or part.is_struct:
        return part
    name = str(schema.name) if schema.is_logical else ""
    kind = name.rpartition(".")[2] if name in LOGICAL_BASES else schema.type.value
    raise UnfitRecordError(
        message=f"{kind} is not a supported type.",
        exception="java.lang.UnsupportedOperationException",
        where=f"NOT {part.is_null()}",
    )


class PatternFilterSettings(FieldSyntax):
    """The settings of ``PatternFilter``."""

    pattern: str = setting(
        "The Java regular expression; a record with a matching field is dropped.",
        validator=Regex(),
        importance=Importance.HIGH,
    )
    fields: tuple[str, ...] = setting(
        "The fields to match.", default=(), importance=Importance.HIGH
    )


class PatternFilter(Transform):
    """Drops records in which a pattern matches the whole text of one of the given fields.

    Fields that are missing or not strings do not match, nor do values without fields.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.PatternFilter",)

    settings: PatternFilterSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        regex = literal(JavaRegex.of(self.settings.pattern).whole)
        part = self.part(shape)
        texts = self._texts(replace(part, schemaless=True))
        matches = [f"coalesce({sql} RLIKE {regex}, false)" for sql in texts]
        if not matches:
            return shape
        found = " OR ".join(matches)
        return shape.dropping(f"NOT {part.is_null()} AND ({found})", self.alias)

    def _texts(self, part: ValueExpr) -> Iterable[str]:
        if not (part.is_struct or part.is_map):
            return
        for path in self.settings.field_paths(self.settings.fields):
            with suppress(UnfitRecordError):  # a value on the path has no fields
                column = part.find(path)
                if column and column[1].type is Type.STRING and not column[1].is_logical:
                    yield column[0]


class ExtractNestedFieldSettings(FieldSyntax):
    """The settings of ``ExtractNestedField``."""

    input_outer_field_name: str = setting(
        "The field that contains the struct: address for address.state.",
        importance=Importance.HIGH,
    )
    input_inner_field_name: str = setting(
        "The field of that struct to extract: state for address.state.",
        importance=Importance.HIGH,
    )
    output_field_name: str | None = setting(
        "The name of the new field; by default the name of the inner field.",
        default=None,
        importance=Importance.MEDIUM,
    )


class ExtractNestedField(Transform):
    """Copies a field of a nested struct to a new field of the key or the value."""

    aliases = ("org.apache.rocketmq.connect.transforms.ExtractNestedField",)

    settings: ExtractNestedFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        if part.schema is None:
            return shape
        settings = self.settings
        outer, inner = settings.input_outer_field_name, settings.input_inner_field_name
        steps = (*settings.field_path(outer).steps, *settings.field_path(inner).steps)
        path = FieldPath(steps, f"{outer}.{inner}")
        column = part.find(path)
        if column is None:
            raise UnfitRecordError(
                message=f"Field does not exist: {path.text}", where=f"NOT {part.is_null()}"
            )
        output = settings.output_field_name
        new = settings.field_path(output) if output else FieldPath((path.name,), path.name)
        return self.with_part(shape, part.inserted(new, *column))


_UNUSED = "Accepted for compatibility with RocketMQ Connect; not used."


class SetNullSettings(Settings):
    """The settings of RocketMQ Connect's ``SetNull``; none of them is used."""

    field_pattern: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)
    field_pattern_flags: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)
    field_replacement: str | None = setting(_UNUSED, default=None, importance=Importance.LOW)


class SetNull(Transform):
    """Sets the key or the value of each record to null.

    A null value is a tombstone. Unlike this transform, RocketMQ Connect's keeps the value, and
    loses the record's topic and headers.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.SetNull",)

    settings: SetNullSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.part(shape)
        if self.of_key or part.schema is None:
            return self.with_part(shape, ValueExpr(None))
        schema = part.schema.replaced(optional=True)
        if part.is_struct:
            return self.with_part(shape, replace(part, schema=schema, missing="true"))
        null = replace(part, schema=schema, whole=sql_null(schema), missing=None)
        return self.with_part(shape, null)


# The assumed precision of a decimal without one.
_UNLIMITED = 64


class SetMaximumPrecisionSettings(Settings):
    """The settings of ``SetMaximumPrecision``."""

    precision_max: int = setting(
        "The maximum precision allowed.",
        validator=Range(1, _UNLIMITED),
        importance=Importance.HIGH,
    )


class SetMaximumPrecision(Transform):
    """Limits the precision of top-level decimal fields that have a larger or no precision.

    A record with a number that has more digits than the limit is rejected.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.SetMaximumPrecision",)

    settings: SetMaximumPrecisionSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        most = self.settings.precision_max
        long = {name: col for name, col in part.columns().items() if _digits(col[1]) > most}
        changes: dict[FieldPath, Change] = {}
        for name, (sql, schema) in long.items():
            limited = self._limited(schema, min(most, MAX_PRECISION))
            cast = f"try_cast({sql} AS {sql_type(limited)})"
            message = f"concat('The number ', CAST({sql} AS STRING), ' has too many digits')"
            shape = self.rejecting(shape, f"{sql} IS NOT NULL AND {cast} IS NULL", message)
            # Bind the values as defaults: the function runs after the loop has ended.
            changes[FieldPath((name,), name)] = lambda *_, new=(cast, limited): new
        return self.with_part(shape, part.changed(changes) if changes else part)

    def _limited(self, schema: Schema, most: int) -> Schema:
        scale = scale_of(schema.parameters) or 0
        if scale > most:
            raise UnfitRecordError(
                message=f"A decimal with {scale} digits after the point does not fit a "
                f"precision of {most}"
            )
        parameters = {**schema.parameters, PRECISION: str(most)}
        return schema.replaced(parameters=parameters, default=None)


def _digits(schema: Schema) -> int:
    if not schema.is_logical or schema.name != DECIMAL:
        return 0
    return precision_of(schema.parameters) or _UNLIMITED


def _lower(word: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in word)


def _upper(word: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in word)


def _title(word: str) -> str:
    return _upper(word[:1]) + _lower(word[1:])


@dataclass(frozen=True)
class _Case:
    """A case format of names of several words.

    Args:
        separator: The text between words.
        ends: The pattern at which a name is split into words.
        first, word: Convert the first word, and the other words, to this case.
    """

    separator: str
    ends: str
    first: Callable[[str], str]
    word: Callable[[str], str]


_CAPITAL = "(?=[A-Z])"
_CASES: Mapping[str, _Case] = {
    "LOWER_HYPHEN": _Case("-", "-", _lower, _lower),
    "LOWER_UNDERSCORE": _Case("_", "_", _lower, _lower),
    "LOWER_CAMEL": _Case("", _CAPITAL, _lower, _title),
    "UPPER_CAMEL": _Case("", _CAPITAL, _title, _title),
    "UPPER_UNDERSCORE": _Case("_", "_", _upper, _upper),
}


class ChangeCaseSettings(Settings):
    """The settings of ``ChangeCase``."""

    old: str = setting(
        "The current format of the names.",
        key="from",
        validator=ValidString(*_CASES),
        importance=Importance.HIGH,
    )
    new: str = setting(
        "The new format of the names.",
        key="to",
        validator=ValidString(*_CASES),
        importance=Importance.HIGH,
    )


class ChangeCase(Transform):
    """Changes the names of all top-level fields from one case format to another.

    As in RocketMQ Connect, with the rules of Guava's CaseFormat.
    """

    aliases = ("org.apache.rocketmq.connect.transforms.ChangeCase",)

    settings: ChangeCaseSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        old, new = self.settings.old, self.settings.new
        names = {FieldPath((name,), name): _changed(name, old, new) for name in part.columns()}
        return self.with_part(shape, part.renamed(names) if names else part)


def _changed(name: str, old: str, new: str) -> str:
    if old == new:
        return name
    source, target = _CASES[old], _CASES[new]
    if source.separator and target.separator:
        # Change the separator and, if needed, the case of all letters.
        joined = name.replace(source.separator, target.separator)
        return joined if source.word is target.word else target.word(joined)
    words = re.split(source.ends, name)
    if len(words) > 1 and not source.separator and not words[0]:
        words = words[1:]
    first, *others = words
    return target.separator.join([target.first(first), *map(target.word, others)])


_PATTERN, _FLAGS, _REPLACEMENT = "field.pattern", "field.pattern.flags", "field.replacement"
# The letters of Java's flags in a pattern.
_LETTERS = {
    "CASE_INSENSITIVE": "i",
    "DOTALL": "s",
    "MULTILINE": "m",
    "COMMENTS": "x",
    "UNIX_LINES": "d",
    "UNICODE_CASE": "u",
    "UNICODE_CHARACTER_CLASS": "U",
}
_LITERAL = "LITERAL"


def _regex(pattern: str, flags: Iterable[str]) -> JavaRegex:
    if _LITERAL in flags:
        quoted = pattern.replace("\\E", "\\E\\\\E\\Q")
        pattern = f"\\Q{quoted}\\E"
    letters = "".join(_LETTERS[flag] for flag in flags if flag != _LITERAL)
    return JavaRegex.of(f"(?{letters}){pattern}" if letters else pattern)


def _unknown(pattern: str, field: str) -> ConfigError:
    return ConfigError(
        problem=f"Names cannot be matched by {pattern}: RE2 does not support it.",
        fix="Write it without look-arounds, back references, possessive quantifiers, "
        "classes like \\p{L}, intersections and inline flags.",
        field=field,
    )


def _check_pattern(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    pattern, replacement = props.get(_PATTERN), props.get(_REPLACEMENT)
    flags = [flag.strip() for flag in str(props.get(_FLAGS) or "").split(",") if flag.strip()]
    if pattern is None or not set(flags) <= {*_LETTERS, _LITERAL}:
        return
    regex = _regex(str(pattern), flags)
    if regex.re2 is None:
        yield _unknown(str(pattern), _PATTERN)
        return
    try:
        regex.replacement(str(replacement or ""), key=_REPLACEMENT)
    except ConfigError as error:
        yield error


class PatternRenameSettings(Settings):
    """The settings of ``PatternRename``."""

    field_pattern: str = setting(
        "The Java regular expression to find in a name.",
        validator=Regex(),
        importance=Importance.HIGH,
    )
    field_pattern_flags: tuple[str, ...] = setting(
        "Flags of Java's Pattern.",
        default=(),
        validator=ValidList(*_LETTERS, _LITERAL),
        importance=Importance.LOW,
    )
    field_replacement: str = setting(
        "The replacement of each match; $1 is the first group.", importance=Importance.HIGH
    )

    rules = (_check_pattern,)


class PatternRename(Transform):
    """Replaces all matches of a pattern in the names of top-level fields."""

    aliases = ("org.apache.rocketmq.connect.transforms.PatternRename",)

    settings: PatternRenameSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        regex = _regex(self.settings.field_pattern, self.settings.field_pattern_flags)
        expand = regex.replacement(self.settings.field_replacement, key=_REPLACEMENT)
        names: dict[FieldPath, str] = {}
        for name in part.columns():
            pattern = regex.re2_for(name)
            if pattern is None:
                raise _unknown(regex.pattern, f"transforms.{self.alias}.{_PATTERN}")
            names[FieldPath((name,), name)] = pattern.sub(expand, name)
        return self.with_part(shape, part.renamed(names) if names else part)
