"""Timestamps read from texts by a pattern, as leniently as Java reads them.

Fields may have more or fewer digits than letters, months and days count on beyond their ends,
and what comes after the last field does not matter. Spark's own parser, which is strict and
fast, goes first where it cannot see a text otherwise than Java does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk.simpledate.pattern import DateField, DatePattern
from headrace.sdk.simpledate.writing import spark_text
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_sql", "reading_fault", "unreadable_sql"]

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ABBREVIATED = 3
# The names of zones that are read besides GMT, UTC and numbers, by their hours from UTC.
_ZONES = {
    "EDT": -4,
    "EST": -5,
    "CDT": -5,
    "CST": -6,
    "MDT": -6,
    "MST": -7,
    "PDT": -7,
    "PST": -8,
}
_HOURS, _MINUTES = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_UNREADABLE = {
    "G": "eras",
    "Y": "week years",
    "w": "weeks",
    "W": "weeks",
    "F": "weeks",
}
_NUMBERS = frozenset("yMdHkKhmsSDu")
# Spark sees a field of these as Java does, so its parser may go first.
_STRICT: Mapping[str, frozenset[int]] = {
    "y": frozenset({4}),
    "M": frozenset({1, 2, 3}),
    "S": frozenset({3}),
    **{letter: frozenset({1, 2}) for letter in "dHms"},
}
# With no more digits than these, counting on cannot leave what Spark's timestamps hold.
_DIGITS: Mapping[str, int] = {"y": 5, "M": 4, "d": 7, "D": 7, "m": 9, "s": 9, "S": 9}
_MORE_DIGITS = 8
_MILLIS = {"H": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}
_DAY_MILLIS = 86_400_000


def reading_fault(pattern: DatePattern) -> str | None:
    """Say why texts cannot be read by a pattern; None if they can."""
    letters = pattern.letters
    for letter, what in _UNREADABLE.items():
        if letter in letters:
            return f"{what} ({letter}) can be written but not read"
    if letters & {"E", "u"} and not letters & {"d", "D"}:
        return "a day of the week (E, u) can be read only beside a day"
    if "D" in letters and letters & {"M", "d"}:
        return "a day of the year (D) cannot be read beside a month or a day"
    hours = letters & {"H", "k", "K", "h"}
    if len(hours) > 1:
        return f"two forms of the hour ({', '.join(sorted(hours))}) cannot be read together"
    return None


def read_sql(pattern: DatePattern, text: str) -> str:
    """Give the SQL of the TIMESTAMP that a text stands for; null if it stands for none.

    Args:
        pattern: A pattern without a `reading_fault`.
        text: SQL of a STRING. It is used more than once, so it should be short.
    """
    lenient = _Lenient.of(pattern, text).sql()
    strict = _strict(pattern, text)
    return lenient if strict is None else f"coalesce({strict}, {lenient})"


def _strict(pattern: DatePattern, text: str) -> str | None:
    """Give the SQL of what Spark's parser reads; None if Java might read it otherwise."""
    spark = _spark_pattern(pattern)
    if spark is None:
        return None
    read = f"try_to_timestamp({text}, {literal(spark)})"
    if "S" not in pattern.letters:
        return read
    # Spark takes digits after a point as a fraction, Java as a number of milliseconds: that
    # is the same for three of them, and the length tells that there are.
    length = sum(p.count if isinstance(p, DateField) else len(p) for p in pattern.parts)
    fixed = all(_is_fixed(part) for part in pattern.parts)
    return f"IF(length({text}) = {length}, {read}, NULL)" if fixed else None


def unreadable_sql(pattern: DatePattern, text: str) -> str:
    """Give the SQL condition, never null, that a text is there but stands for no timestamp.

    It costs less than to read the text and see: Spark evaluates it by itself.
    """
    unfit = f"NOT coalesce({_Lenient.of(pattern, text).found()}, true)"
    strict = _strict(pattern, text)
    return unfit if strict is None else f"({strict}) IS NULL AND {unfit}"


def _is_fixed(part: DateField | str) -> bool:
    if isinstance(part, str):
        return True
    return part.count == {"y": 4, "S": 3}.get(part.letter, 2)


def _spark_pattern(pattern: DatePattern) -> str | None:
    for part in pattern.parts:
        if isinstance(part, DateField) and part.count not in _STRICT.get(part.letter, ()):
            return None
    if "y" not in pattern.letters:
        return None
    return "".join(spark_text(part) or "" for part in pattern.parts)


@dataclass(frozen=True)
class _Lenient:
    """A regular expression with one group a field, and what the groups are.

    Args:
        text: SQL of the text.
        regex: The expression.
        groups: For each letter, the number of its group and its field.
    """

    text: str
    regex: str
    groups: Mapping[str, tuple[int, DateField]]

    @classmethod
    def of(cls, pattern: DatePattern, text: str) -> _Lenient:
        regex, groups = r"\A", {}
        number = 0
        for part, after in zip(pattern.parts, [*pattern.parts[1:], ""], strict=True):
            if isinstance(part, str):
                regex += _exact(part)
                continue
            number += 1
            groups[part.letter] = (number, part)
            # Numbers side by side: the first takes as many digits as it has letters.
            most = _DIGITS.get(part.letter, _MORE_DIGITS)
            if part.letter in {"d", "D"} and "y" not in pattern.letters:
                most = _MORE_DIGITS  # as there is no year to count from
            regex += _field(part, most, fixed=_is_number(after))
        return cls(text, regex, groups)

    def sql(self) -> str:
        months = f"CAST(({self._year()} - 1970) * 12 + {self._month()} - 1 AS INT)"
        day = self._number("d", 1) if "D" not in self.groups else self._number("D", 1)
        days = f"unix_date(add_months(DATE'1970-01-01', {months})) + {day} - 1"
        clock = [f"{self._hour()} * {_MILLIS['H']}"]
        clock += [f"{self._number(x, 0)} * {_MILLIS[x]}" for x in "msS" if x in self.groups]
        millis = f"({days}) * {_DAY_MILLIS} + {' + '.join(clock)} - {self._offset()}"
        return f"CASE WHEN {self.found()} THEN timestamp_millis({millis}) END"

    def found(self) -> str:
        return f"{self.text} RLIKE {literal(self.regex)}"

    def _taken(self, letter: str) -> str:
        return f"regexp_extract({self.text}, {literal(self.regex)}, {self.groups[letter][0]})"

    def _number(self, letter: str, default: int) -> str:
        if letter not in self.groups:
            return f"{default}L"
        return f"CAST({self._digits(letter)} AS BIGINT)"

    def _digits(self, letter: str) -> str:
        return f"btrim({self._taken(letter)}, ' \\t')"

    def _year(self) -> str:
        year = self._number("y", 1970)
        if "y" not in self.groups or self.groups["y"][1].count > 2:  # noqa: PLR2004 - yy
            return year
        # Two digits are the year from 80 years ago to 20 years ahead that ends in them.
        first = "(year(current_date()) - 80)"
        recent = f"{first} + pmod({year} - {first}, 100)"
        # Of the first of these years only the days from today's on.
        today = "struct(month(current_date()), day(current_date()))"
        early = f"struct(CAST({self._month()} AS INT), CAST({self._number('d', 1)} AS INT))"
        recent += f" + IF({recent} = {first} AND {early} < {today}, 100, 0)"
        two = f"{self._digits('y')} RLIKE '\\\\A[0-9]{{2}}\\\\z'"
        return f"IF({two}, {recent}, {year})"

    def _month(self) -> str:
        if "M" not in self.groups or self.groups["M"][1].count < _ABBREVIATED:
            return self._number("M", 1)
        names = "".join(name[:_ABBREVIATED] for name in _MONTHS).lower()
        short = f"lower(left({self._taken('M')}, {_ABBREVIATED}))"
        return f"((locate({short}, '{names}') + 2) div {_ABBREVIATED})"

    def _hour(self) -> str:
        if "H" in self.groups:
            return self._number("H", 0)
        if "k" in self.groups:
            hour = self._number("k", 0)
            return f"IF({hour} = 24, 0L, {hour})"
        hour = self._number("h" if "h" in self.groups else "K", 0)
        if "h" in self.groups:
            hour = f"IF({hour} = 12, 0L, {hour})"
        if "a" not in self.groups:
            return hour
        return f"({hour} + IF(lower({self._taken('a')}) = 'pm', 12, 0))"

    def _offset(self) -> str:
        """Give the SQL of the milliseconds that the text is ahead of UTC."""
        zone = next((letter for letter in "XZz" if letter in self.groups), None)
        if zone is None:
            return "0"
        taken = self._taken(zone)
        sign, hours, minutes = (
            f"regexp_extract({taken}, '([+-])([0-9]{{1,2}}):?([0-9]{{2}})?', {group})"
            for group in (1, 2, 3)
        )
        sign = f"IF({sign} = '-', -1, 1)"
        hours = f"coalesce(try_cast({hours} AS BIGINT), 0)"
        minutes = f"coalesce(try_cast({minutes} AS BIGINT), 0)"
        numeric = f"{sign} * ({hours} * 60 + {minutes}) * {_MILLIS['m']}"
        if zone == "X":
            return f"({numeric})"
        named = " ".join(
            f"WHEN '{name}' THEN {hours * _MILLIS['H']}" for name, hours in _ZONES.items()
        )
        return f"(CASE upper({taken}) {named} ELSE {numeric} END)"


def _is_number(part: DateField | str) -> bool:
    if isinstance(part, str) or part.letter not in _NUMBERS:
        return False
    return part.letter != "M" or part.count < _ABBREVIATED


def _exact(text: str) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in text)


def _field(part: DateField, digits: int, *, fixed: bool) -> str:
    """Give the group of one field. It takes what it can and gives nothing back, as in Java."""
    letter, count = part.letter, part.count
    if letter == "E":
        return f"((?>(?i:{_either(_DAYS)})))"
    if letter == "M" and count >= _ABBREVIATED:
        return f"((?>(?i:{_either(_MONTHS)})))"
    if letter == "a":
        return "((?i:AM|PM))"
    if letter == "X":
        minutes = ("", _MINUTES, f":{_MINUTES}")[count - 1]
        return f"([ \\t]*+(?:Z|[+-]{_HOURS}{minutes}))"
    if letter in {"z", "Z"}:
        offset = f"GMT[+-](?:{_HOURS}|[0-9]):{_MINUTES}|GMT|UTC|[+-]{_HOURS}{_MINUTES}"
        return f"([ \\t]*+(?i:{offset}|{'|'.join(_ZONES)}))"
    if not fixed:
        return f"([ \\t]*+-?[0-9]{{1,{digits}}}+(?![0-9]))"
    digits = min(count, digits)
    shorter = f"[ \\t-][0-9]{{1,{count - 1}}}+|" if count > 1 else ""
    return f"(?=[\\s\\S]{{{count}}})((?>{shorter}[0-9]{{1,{digits}}}+))"


def _either(names: tuple[str, ...]) -> str:
    # The long name first, or the short one would leave its rest behind.
    return "|".join([*names, *(name[:_ABBREVIATED] for name in names)])
