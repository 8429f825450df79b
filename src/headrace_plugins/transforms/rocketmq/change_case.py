"""Changes the case of field names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform
from headrace.sdk.config import Importance, Settings, ValidString, setting
from headrace.sdk.sqltext import FieldPath
from headrace_plugins.transforms.rocketmq.structs import require_struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.sdk import RecordExpr


def _lower(word: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in word)


def _upper(word: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in word)


def _title(word: str) -> str:
    return _upper(word[:1]) + _lower(word[1:])


@dataclass(frozen=True)
class _Case:
    """A way to write names of several words.

    Args:
        separator: What is between words.
        ends: A pattern of what begins the next word.
        first, word: How the first word and the others are written.
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
    """Which case becomes which."""

    old: str = setting(
        "The format that the names have.",
        key="from",
        validator=ValidString(*_CASES),
        importance=Importance.HIGH,
    )
    new: str = setting(
        "The format that they get.",
        key="to",
        validator=ValidString(*_CASES),
        importance=Importance.HIGH,
    )


class ChangeCase(Transform):
    """Changes the names of all fields at the top from one case to another.

    As in RocketMQ Connect, by the rules of Guava's CaseFormat.
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
        # The separator changes, and the case of all letters where it has to.
        joined = name.replace(source.separator, target.separator)
        return joined if source.word is target.word else target.word(joined)
    words = re.split(source.ends, name)
    if len(words) > 1 and not source.separator and not words[0]:
        words = words[1:]
    first, *others = words
    return target.separator.join([target.first(first), *map(target.word, others)])
