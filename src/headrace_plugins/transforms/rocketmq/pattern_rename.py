"""Renames fields by a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import (
    Importance,
    Regex,
    Settings,
    ValidList,
    setting,
)
from headrace.sdk.sqltext import FieldPath
from headrace_plugins.kafka.java_regex import JavaRegex, java_replacement
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr

_PATTERN, _FLAGS, _REPLACEMENT = "field.pattern", "field.pattern.flags", "field.replacement"
# Java's flags as the letters that stand for them in a pattern.
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
        problem=f"Names cannot be found by {pattern}: it has parts that only Java knows.",
        fix="Write it without classes like \\p{L}, intersections and inline flags.",
        field=field,
    )


def _check_pattern(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    pattern, replacement = props.get(_PATTERN), props.get(_REPLACEMENT)
    flags = [flag.strip() for flag in str(props.get(_FLAGS) or "").split(",") if flag.strip()]
    if pattern is None or not set(flags) <= {*_LETTERS, _LITERAL}:
        return
    regex = _regex(str(pattern), flags)
    if regex.python is None:
        yield _unknown(str(pattern), _PATTERN)
        return
    try:
        java_replacement(regex, str(replacement or ""), key=_REPLACEMENT)
    except ConfigError as error:
        yield error


class PatternRenameSettings(Settings):
    """The settings of ``PatternRename``."""

    field_pattern: str = setting(
        "The regular expression of Java to find in a name.",
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
        "What stands for each match; $1 is the first group.", importance=Importance.HIGH
    )

    rules = (_check_pattern,)


class PatternRename(Transform):
    """Replaces what matches a pattern in the names of all fields at the top."""

    aliases = ("org.apache.rocketmq.connect.transforms.PatternRename",)

    settings: PatternRenameSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = require_struct(self.part(shape))
        regex = _regex(self.settings.field_pattern, self.settings.field_pattern_flags)
        text = self.settings.field_replacement
        replacement = java_replacement(regex, text, key=_REPLACEMENT)
        names: dict[FieldPath, str] = {}
        for name in part.columns():
            renamed = regex.replaced_all(name, replacement)
            if renamed is None:
                raise _unknown(regex.pattern, f"transforms.{self.alias}.{_PATTERN}")
            names[FieldPath((name,), name)] = renamed
        return self.with_part(shape, part.renamed(names) if names else part)
