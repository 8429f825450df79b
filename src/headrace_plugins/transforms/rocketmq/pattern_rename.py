"""Renames fields by a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import ConfigDef, ConfigType, Importance, Regex, ValidList
from headrace.sdk.fieldpath import FieldPath
from headrace_plugins.kafka.java_regex import JavaRegex, java_replacement
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Shape

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


class PatternRename(Transform):
    """Replaces what matches a pattern in the names of all fields at the top."""

    aliases = ("org.apache.rocketmq.connect.transforms.PatternRename",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                _PATTERN,
                ConfigType.STRING,
                validator=Regex(),
                importance=Importance.HIGH,
                doc="The regular expression of Java to find in a name.",
            )
            .define(
                _FLAGS,
                ConfigType.LIST,
                "",
                validator=ValidList(*_LETTERS, _LITERAL),
                importance=Importance.LOW,
                doc="Flags of Java's Pattern.",
            )
            .define(
                _REPLACEMENT,
                ConfigType.STRING,
                importance=Importance.HIGH,
                doc="What stands for each match; $1 is the first group.",
            )
            .rule(_check_pattern)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        part = require_struct(self.part(shape))
        regex = _regex(self.config.get_str(_PATTERN), self.config.get_list(_FLAGS))
        text = self.config.get_str(_REPLACEMENT)
        replacement = java_replacement(regex, text, key=_REPLACEMENT)
        names: dict[FieldPath, str] = {}
        for name in part.columns():
            renamed = regex.replaced_all(name, replacement)
            if renamed is None:
                raise _unknown(regex.pattern, f"transforms.{self.alias}.{_PATTERN}")
            names[FieldPath((name,), name)] = renamed
        return self.with_part(shape, part.renamed(names) if names else part)


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
