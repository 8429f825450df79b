"""Java's `SimpleDateFormat` as SQL: formats timestamps in UTC as text, and parses texts.

The results are those of Java's class with a US locale, which Kafka Connect uses. There is one
difference: days before 1582-10-15 use the Gregorian calendar, as in Spark, Parquet and
databases, and not the Julian calendar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.sdk.errors import ConfigError
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS = frozenset("GyMdkHmsSEDFwWahKzZYuXL")
_TOKEN = re.compile(
    r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<letter>[a-zA-Z])(?P=letter)*"
    r"|(?P<quote>')|(?P<text>[^'a-zA-Z]+)"
)
_MAX_ISO_ZONE = 3


@dataclass(frozen=True, slots=True)
class DateField:
    """A field of a pattern: one letter, repeated ``count`` times."""

    letter: str
    count: int


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A parsed pattern; created by `DatePattern.of`."""

    text: str
    parts: tuple[DateField | str, ...]
    """The fields, and the literal texts between them, unquoted."""

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> DatePattern:
        """Parse a pattern. Raises ConfigError with Java's message."""
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
    """Return the parts with adjacent texts joined."""
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


# Letters with the same output in Spark's own patterns, and the counts for which this is true.
_NATIVE: Mapping[str, range] = {
    "y": range(2, 7),
    "M": range(1, 5),
    "d": range(1, 3),
    "H": range(1, 3),
    "k": range(1, 3),
    "K": range(1, 3),
    "h": range(1, 3),
    "m": range(1, 3),
    "s": range(1, 3),
    "S": range(3, 4),
    "D": range(1, 4),
}
# Fields with only a short and a long form.
_NAMES = {"M": ("MMM", "MMMM"), "E": ("EEE", "EEEE"), "a": ("a", "a"), "G": ("G", "G")}
_LONG = 4
_SATURDAY = "date_add({0}, 7 - dayofweek({0}))"  # US weeks begin on Sunday
_NUMBERS: Mapping[str, str] = {
    "y": "CAST(date_format({0}, 'y') AS INT)",
    "d": "day({0})",
    "H": "hour({0})",
    "k": "pmod(hour({0}) - 1, 24) + 1",
    "K": "hour({0}) % 12",
    "h": "pmod(hour({0}) - 1, 12) + 1",
    "m": "minute({0})",
    "s": "CAST(second({0}) AS INT)",
    "S": "CAST(pmod(unix_millis({0}), 1000) AS INT)",
    "D": "dayofyear({0})",
    "u": "weekday({0}) + 1",
    "F": "(day({0}) - 1) div 7 + 1",
    "W": "(day({0}) + dayofweek(trunc({0}, 'MM')) - 2) div 7 + 1",
    "w": f"(dayofyear({_SATURDAY}) - 1) div 7 + 1",
    "Y": f"year({_SATURDAY})",
}
_YEAR = frozenset("yY")
_TWO_DIGITS = 2
_ZONES: Mapping[str, Callable[[int], str]] = {
    "z": lambda count: "Coordinated Universal Time" if count >= _LONG else "UTC",
    "Z": lambda _: "+0000",
    "X": lambda _: "Z",
}


def write_sql(pattern: DatePattern, timestamp: str) -> str:
    """Return SQL that formats a timestamp; null for null. Repeats the timestamp's SQL."""
    pieces: list[str] = []
    native = ""
    # All times are UTC, so zones are constant texts.
    zoned = (
        _ZONES[part.letter](part.count)
        if isinstance(part, DateField) and part.letter in _ZONES
        else part
        for part in pattern.parts
    )
    for part in merged(zoned):
        text = spark_text(part)
        if text is not None:
            native += text
            continue
        assert isinstance(part, DateField)
        pieces += [_native(native, timestamp), _number(part, timestamp)]
        native = ""
    pieces.append(_native(native, timestamp))
    pieces = [piece for piece in pieces if piece]
    if len(pieces) == 1 and native:
        return pieces[0]
    return f"IF({timestamp} IS NULL, NULL, concat({', '.join(pieces) or literal('')}))"


def spark_text(part: DateField | str) -> str | None:
    """Return the equivalent Spark pattern; None if Spark's output differs."""
    if isinstance(part, str):
        return f"'{part.replace(chr(39), chr(39) * 2)}'"
    if part.letter in _NAMES and (part.letter != "M" or part.count > _TWO_DIGITS):
        short, long = _NAMES[part.letter]
        return long if part.count >= _LONG else short
    if part.count in _NATIVE.get(part.letter, ()):
        return part.letter * part.count
    return None


def _native(pattern: str, timestamp: str) -> str:
    return f"date_format({timestamp}, {literal(pattern)})" if pattern else ""


def _number(part: DateField, timestamp: str) -> str:
    number = _NUMBERS[part.letter].format(timestamp)
    if part.letter in _YEAR and part.count == _TWO_DIGITS:
        number = f"({number}) % 100"
    return f"format_string('%0{part.count}d', {number})"


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ABBREVIATED = 3
# The zone names that can be parsed besides GMT, UTC and offsets, with their offset in hours.
_ZONE_HOURS = {
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
_UNREADABLE = {"G": "eras", "Y": "week years", "w": "weeks", "W": "weeks", "F": "weeks"}
_READ_NUMBERS = frozenset("yMdHkKhmsSDu")
# Spark parses these fields, with these counts, as Java does, so its parser is tried first.
_STRICT: Mapping[str, frozenset[int]] = {
    "y": frozenset({4}),
    "M": frozenset({1, 2, 3}),
    "S": frozenset({3}),
    **{letter: frozenset({1, 2}) for letter in "dHms"},
}
# With at most this many digits, overflowing fields stay in the range of Spark's timestamps.
_DIGITS: Mapping[str, int] = {"y": 5, "M": 4, "d": 7, "D": 7, "m": 9, "s": 9, "S": 9}
_MORE_DIGITS = 8
_MILLIS = {"H": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}
_DAY_MILLIS = 86_400_000


def reading_fault(pattern: DatePattern) -> str | None:
    """Return why texts cannot be parsed with a pattern; None if they can."""
    letters = pattern.letters
    for letter, what in _UNREADABLE.items():
        if letter in letters:
            return f"{what} ({letter}) can be formatted but not parsed"
    if letters & {"E", "u"} and not letters & {"d", "D"}:
        return "a day of the week (E, u) can only be parsed together with a day"
    if "D" in letters and letters & {"M", "d"}:
        return "a day of the year (D) cannot be parsed together with a month or a day"
    hours = letters & {"H", "k", "K", "h"}
    if len(hours) > 1:
        return f"several hour fields ({', '.join(sorted(hours))}) cannot be parsed together"
    return None


def read_sql(pattern: DatePattern, text: str) -> str:
    """Return SQL that parses a text to a TIMESTAMP; null if it does not match the pattern.

    The pattern must have no `reading_fault`. Repeats the SQL of the text.
    """
    lenient = _Lenient.of(pattern, text).sql()
    strict = _strict(pattern, text)
    return lenient if strict is None else f"coalesce({strict}, {lenient})"


def _strict(pattern: DatePattern, text: str) -> str | None:
    """Return SQL that uses Spark's parser; None if Java could parse a text differently."""
    fields = [part for part in pattern.parts if isinstance(part, DateField)]
    alike = all(part.count in _STRICT.get(part.letter, ()) for part in fields)
    if not alike or "y" not in pattern.letters:
        return None
    spark = "".join(spark_text(part) or "" for part in pattern.parts)
    read = f"try_to_timestamp({text}, {literal(spark)})"
    if "S" not in pattern.letters:
        return read
    # Spark parses digits after a point as a fraction, Java as a number of milliseconds. Both
    # are equal for three digits, which the length check guarantees.
    length = sum(p.count if isinstance(p, DateField) else len(p) for p in pattern.parts)
    fixed = all(part.count == {"y": 4, "S": 3}.get(part.letter, 2) for part in fields)
    return f"IF(length({text}) = {length}, {read}, NULL)" if fixed else None


def unreadable_sql(pattern: DatePattern, text: str) -> str:
    """Return the SQL condition, never null, for a text that is not null but cannot be parsed.

    Spark evaluates this condition separately, so it is cheaper than parsing the text.
    """
    unfit = f"NOT coalesce({_Lenient.of(pattern, text).found()}, true)"
    strict = _strict(pattern, text)
    return unfit if strict is None else f"({strict}) IS NULL AND {unfit}"


@dataclass(frozen=True)
class _Lenient:
    """A regular expression with a group for each field."""

    text: str
    """SQL of the text."""
    regex: str
    groups: Mapping[str, tuple[int, DateField]]
    """The group number and the field of each letter."""

    @classmethod
    def of(cls, pattern: DatePattern, text: str) -> _Lenient:
        regex, groups = r"\A", {}
        number = 0
        for part, after in zip(pattern.parts, [*pattern.parts[1:], ""], strict=True):
            if isinstance(part, str):
                regex += "".join(f"\\x{{{ord(char):x}}}" for char in part)
                continue
            number += 1
            groups[part.letter] = (number, part)
            # Of two adjacent numbers, the first gets as many digits as it has letters.
            most = _DIGITS.get(part.letter, _MORE_DIGITS)
            if part.letter in {"d", "D"} and "y" not in pattern.letters:
                most = _MORE_DIGITS  # allowed, as the year is always 1970
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
        # Two digits mean the year with this ending between 80 years ago and 20 years ahead.
        first = "(year(current_date()) - 80)"
        recent = f"{first} + pmod({year} - {first}, 100)"
        # The first of these years only counts from today's month and day on.
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
        """Return SQL of the text's offset from UTC in milliseconds."""
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
            f"WHEN '{name}' THEN {hours * _MILLIS['H']}" for name, hours in _ZONE_HOURS.items()
        )
        return f"(CASE upper({taken}) {named} ELSE {numeric} END)"


def _is_number(part: DateField | str) -> bool:
    if isinstance(part, str) or part.letter not in _READ_NUMBERS:
        return False
    return part.letter != "M" or part.count < _ABBREVIATED


def _field(part: DateField, digits: int, *, fixed: bool) -> str:
    """Return the regex group of a field: possessive (without backtracking), as in Java."""
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
        return f"([ \\t]*+(?i:{offset}|{'|'.join(_ZONE_HOURS)}))"
    if not fixed:
        return f"([ \\t]*+-?[0-9]{{1,{digits}}}+(?![0-9]))"
    digits = min(count, digits)
    shorter = f"[ \\t-][0-9]{{1,{count - 1}}}+|" if count > 1 else ""
    return f"(?=[\\s\\S]{{{count}}})((?>{shorter}[0-9]{{1,{digits}}}+))"


def _either(names: tuple[str, ...]) -> str:
    # Long names first, or the short name would match and leave the rest.
    return "|".join([*names, *(name[:_ABBREVIATED] for name in names)])
