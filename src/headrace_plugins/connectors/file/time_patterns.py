"""Parses dates and times in Spark's datetime patterns with Arrow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+|')")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_OFFSET = r"Z|[+-]\d\d:?(?:\d\d)?"
_GROUPS = {
    "yyyy": ("year", r"\d{4}"),
    "yy": ("year", r"\d\d"),
    "MMMM": ("month", "(?i:" + "|".join(_MONTHS) + ")"),
    "MMM": ("month", "(?i:" + "|".join(month[:3] for month in _MONTHS) + ")"),
    "a": ("half", "(?i:[ap]m)"),
} | {
    letter * count: (name, r"\d\d" if count > 1 else r"\d\d?")
    for letter, name in (
        *(("M", "month"), ("d", "day"), ("H", "hour"), ("h", "half_hour")),
        *(("m", "minute"), ("s", "second")),
    )
    for count in (1, 2)
}
_FRACTION_DIGITS = 9
_GROUPS |= {"S" * n: ("fraction", rf"\d{{1,{n}}}") for n in range(1, _FRACTION_DIGITS + 1)}
_GROUPS |= {letter * n: ("zone", _OFFSET) for letter in "XxZ" for n in (1, 2, 3)}
_DEFAULTS = {"year": "1970", "month": "01", "day": "01", "minute": "00", "second": "00"}
_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A datetime pattern.

    Arrow's own `strptime` parses February 30 as March 2, so texts are split into parts and
    joined again as ISO 8601, of which Arrow checks every part.

    Args:
        text: The pattern in Spark's syntax.
        regex: Matches the texts, with a named group for each part.
    """

    text: str
    regex: str

    @classmethod
    def of(cls, text: str) -> TimePattern | None:
        """Parse a Spark pattern; return None if it is invalid or not supported."""
        return _parsed(text)

    def read(self, texts: pa.Array | pa.ChunkedArray, *, truncates: bool = False) -> Any:
        """Return timestamps, in UTC if the pattern contains a zone.

        If ``truncates``, times are truncated to microseconds. Raises ArrowInvalid for a text
        that does not match the pattern.
        """
        parts = pc.extract_regex(texts, self.regex)
        unread = pc.and_(pc.is_null(parts), pc.is_valid(texts))
        if pc.any(unread).as_py():
            raise pa.ArrowInvalid(self.mismatch(pc.filter(texts, unread)[0].as_py()))
        names = list(re.compile(self.regex).groupindex)
        values = {name: pc.struct_field(parts, [name]) for name in names}
        date = [_year(values), _month(values), _two(values, "day")]
        time = [_hour(values), _two(values, "minute"), _two(values, "second")]
        iso = _joined([_joined(date, "-"), _joined(time, ":")], "T")
        if "fraction" in values:
            iso = _joined([iso, _micros(values["fraction"], truncates=truncates)], ".")
        if "zone" not in values:
            return pc.cast(iso, _NAIVE)
        return pc.cast(_joined([iso, values["zone"]], ""), _UTC)

    def mismatch(self, text: str) -> str:
        """Return the problem of a text that does not match the pattern."""
        return f"{text!r} does not match the pattern {self.text}"


_LONGEST = 200


@lru_cache(maxsize=64)
def _parsed(text: str) -> TimePattern | None:
    if not text.strip() or len(text) > _LONGEST or text.replace("''", "").count("'") % 2:
        return None
    regex: list[str] = []
    seen: set[str] = set()
    for found in _TOKEN.finditer(text):
        literal, letter, other = found.groups()
        if letter is None:
            # '' is an apostrophe, and text in brackets is optional.
            sign = re.escape((literal.replace("''", "'") or "'") if other is None else other)
            brackets = sign.replace(r"\[", "(?:").replace(r"\]", ")?")
            regex.append(sign if other is None else brackets)
            continue
        name, form = _GROUPS.get(found.group(0), (None, ""))
        if name is None or name in seen:
            return None
        seen.add(name)
        regex.append(f"(?P<{name}>{form})")
    if {"hour", "half_hour"} <= seen or ("half_hour" in seen) != ("half" in seen):
        return None
    try:
        return TimePattern(text, re.compile("^" + "".join(regex) + "$").pattern)
    except (re.error, RecursionError):
        return None


def _joined(parts: list[Any], sign: str) -> Any:
    return pc.binary_join_element_wise(*parts, sign)


def _filled(values: Any, default: str) -> Any:
    """Return the texts of a part, with a default where an optional part is missing."""
    return pc.if_else(pc.equal(values, ""), default, values)


def _two(values: dict[str, Any], name: str) -> Any:
    if name not in values:
        return pa.scalar(_DEFAULTS[name])
    return pc.utf8_lpad(_filled(values[name], _DEFAULTS[name]), 2, "0")


def _year(values: dict[str, Any]) -> Any:
    if "year" not in values:
        return pa.scalar(_DEFAULTS["year"])
    years = _filled(values["year"], _DEFAULTS["year"])
    # Two-digit years are in 2000-2099, as in Spark and unlike POSIX.
    short = pc.binary_join_element_wise("20", years, "")
    return pc.if_else(pc.equal(pc.utf8_length(years), 2), short, years)


def _month(values: dict[str, Any]) -> Any:
    if "month" not in values:
        return pa.scalar(_DEFAULTS["month"])
    numbers = pa.array([f"{number:02}" for number in range(1, 13)])
    names = pa.array([month[:3] for month in _MONTHS])
    texts = _filled(values["month"], _DEFAULTS["month"])
    found = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(texts), 0, 3), names)
    return pc.coalesce(pc.take(numbers, found), pc.utf8_lpad(texts, 2, "0"))


def _hour(values: dict[str, Any]) -> Any:
    if "half_hour" not in values:
        hours = values.get("hour", pa.scalar("00"))
        return pc.utf8_lpad(_filled(hours, "00"), 2, "0")
    hours = pc.cast(values["half_hour"], pa.int8())
    if pc.any(pc.or_(pc.greater(hours, 12), pc.less(hours, 1))).as_py():
        message = "A 12-hour clock's hour is not from 1 to 12"
        raise pa.ArrowInvalid(message)
    from_noon = pc.if_else(pc.equal(pc.utf8_lower(values["half"]), "pm"), 12, 0)
    hours = pc.add(pc.if_else(pc.equal(hours, 12), 0, hours), from_noon)
    return pc.utf8_lpad(pc.cast(hours, pa.string()), 2, "0")


def _micros(digits: Any, *, truncates: bool) -> Any:
    """Return the fraction of a second as six digits."""
    more = pc.utf8_slice_codeunits(digits, 6)
    if not truncates and pc.any(pc.match_substring_regex(more, "[1-9]")).as_py():
        message = "A time has more than microsecond precision"
        raise pa.ArrowInvalid(message)
    return pc.utf8_rpad(pc.utf8_slice_codeunits(digits, 0, 6), 6, "0")
