"""Patterns of names of streams: wildcards, ranges of numbers, dates and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.sdk import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
"""What may stand between the parts of a date, the same everywhere in it."""
_FIX = (
    "Write a name, a pattern with * and ?, a range such as [0-31] or [0000-0031], a date such "
    "as ${yyyyMM}, or a regular expression as /…/."
)


@dataclass(frozen=True, slots=True)
class NamePattern:
    """What names a rule is about.

    Args:
        text: As it was written.
        groups: How many parts of a name it captures: those in brackets of a regular
            expression, else each wildcard, range and date.
    """

    text: str
    groups: int
    _regex: str

    @classmethod
    def of(cls, text: str, *, field: str) -> NamePattern:
        """Read a pattern.

        - ``/…/`` is a regular expression of RE2, which matches in linear time.
        - ``*`` stands for any characters, ``?`` for one.
        - ``[0-31]`` is a whole number from the one to the other without zeros before it;
          ``[0000-0031]`` has as many digits as are written.
        - ``${yyyy}``, ``${yyyyMM}`` and ``${yyyyMMdd}`` are dates, also with ``-``, ``/`` or
          ``.`` between their parts.
        - Everything else stands for itself.

        Raises ConfigError: it cannot be read; ``field`` is the key that has it.
        """
        if not text:
            raise _wrong(problem="Expected a name or a pattern, got nothing.", field=field)
        if len(text) > 1 and text[0] == text[-1] == "/":
            regex = text[1:-1]
            return cls(text, _matcher(regex, field).groups, regex)
        parts = [_part(found, text, field) for found in _PART.finditer(text)]
        pattern = cls(text, sum(part.startswith("(") for part in parts), "".join(parts))
        _matcher(pattern._regex, field)  # RE2 has no room for a pattern without end
        return pattern

    def match(self, name: str) -> tuple[str, ...] | None:
        """Return what is captured of a name, which must match as a whole; None if it does not.

        A group of a regular expression that took no part is empty.
        """
        found = _matcher(self._regex, self.text).fullmatch(name)
        return None if found is None else tuple(group or "" for group in found.groups())


def _part(found: re.Match[str], text: str, field: str) -> str:
    """Return one part of a pattern as a regular expression, in brackets if it is captured."""
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
        fix = f"Write [{low.zfill(len(high))}-{high.zfill(len(low))}], or no zeros before them."
        raise _wrong(problem=problem, field=field, fix=fix)
    return _digits(low, high)


def _digits(low: str, high: str) -> str:
    """Return what matches the numbers between two of the same length."""
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
"""How many bytes a pattern may take; RE2's default is four times as many."""


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
            fix="Write it in the syntax of RE2, which is Java's without look-arounds, back "
            "references and possessive quantifiers.",
            field=field,
        ) from error


def _wrong(*, problem: str, field: str, fix: str = _FIX) -> ConfigError:
    return ConfigError(problem, field=field, fix=fix)


_DOT = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A dot that is not in quotes."""
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}|\$\{")


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """How a target's name is made of a stream's.

    Its placeholders are ``${topic}``, the whole name; ``${schema}`` and ``${table}``, its last
    two parts between dots, with the quotes of one that has a dot in it; and ``${1}``,
    ``${2}``, …, what the pattern has captured.
    """

    text: str

    @classmethod
    def of(cls, text: str, patterns: Sequence[NamePattern] = (), *, field: str) -> NameTemplate:
        """Read a template. Raises ConfigError: one of its placeholders does not exist."""
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
                    fix="Use ${topic}, ${schema}, ${table}, or ${1} and so on for what the "
                    "pattern captures.",
                    field=field,
                )
            for pattern in patterns:
                if int(name) > pattern.groups:
                    raise _no_group(found[0], pattern, field)
            if not patterns:
                raise ConfigError(
                    problem=f"There is no pattern that {found[0]} could be captured by.",
                    fix="Use ${topic}, ${schema} or ${table}, or write a rule in "
                    "table.mapping.",
                    field=field,
                )
        return cls(text)

    def filled(self, name: str, captured: Sequence[str] = (), *, field: str) -> str:
        """Return the target's name for a stream.

        Raises ConfigError: the template has ``${schema}``, and the stream's name has one part.
        """
        *before, table = _DOT.split(name)

        def value(found: re.Match[str]) -> str:
            if found[1] == "schema" and not before:
                raise ConfigError(
                    problem=f"{name!r} has no schema that ${{schema}} could stand for.",
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
