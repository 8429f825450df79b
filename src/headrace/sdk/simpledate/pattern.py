"""Patterns of `SimpleDateFormat`, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DateField", "DatePattern", "merged"]

_LETTERS = frozenset("GyMdkHmsSEDFwWahKzZYuXL")
_TOKEN = re.compile(
    r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<letter>[a-zA-Z])(?P=letter)*"
    r"|(?P<quote>')|(?P<text>[^'a-zA-Z]+)"
)
_MAX_ISO_ZONE = 3


@dataclass(frozen=True, slots=True)
class DateField:
    """A run of one letter."""

    letter: str
    count: int


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A pattern as its fields and the texts between them; `DatePattern.of` makes one.

    Args:
        text: As it was written.
        parts: Fields, and texts as they stand in what is written and read.
    """

    text: str
    parts: tuple[DateField | str, ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> DatePattern:
        """Take a pattern apart.

        Raises:
            ConfigError: It is none; the problem is in Java's words.
        """
        parts: list[DateField | str] = []
        for found in _TOKEN.finditer(text):
            if found["quote"]:
                raise _wrong(problem="Unterminated quote")
            parts.append(_part(found))
        return DatePattern(text, merged(parts))

    @property
    def letters(self) -> set[str]:
        """The letters of its fields."""
        return {part.letter for part in self.parts if isinstance(part, DateField)}


def merged(parts: Iterable[DateField | str]) -> tuple[DateField | str, ...]:
    """Give the same parts with no two texts side by side."""
    whole: list[DateField | str] = []
    for part in parts:
        if isinstance(part, str) and whole and isinstance(whole[-1], str):
            whole[-1] += part
        else:
            whole.append(part)
    return tuple(whole)


def _part(found: re.Match[str]) -> DateField | str:
    letter = found["letter"]
    if letter is None:
        quoted = found["quoted"]
        return str(found["text"] or (quoted.replace("''", "'") if quoted else "'"))
    count = len(found[0])
    if letter not in _LETTERS:
        raise _wrong(problem=f"Illegal pattern character '{letter}'")
    if letter == "X" and count > _MAX_ISO_ZONE:
        raise _wrong(problem=f"invalid ISO 8601 format: length={count}")
    return DateField("M" if letter == "L" else letter, count)


def _wrong(*, problem: str) -> ConfigError:
    fix = "Write a pattern of Java's SimpleDateFormat, such as yyyy-MM-dd HH:mm:ss."
    return ConfigError(problem=problem, fix=fix)
