"""Texts of timestamps by a pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.sdk.simpledate.pattern import DateField, DatePattern, merged
from headrace.sdk.sqltext import literal

__all__ = ["spark_text", "write_sql"]

# Letters that Spark's own patterns write in the same way, with how many of them it takes.
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
# Of these the count says little: short or long.
_NAMES = {"M": ("MMM", "MMMM"), "E": ("EEE", "EEEE"), "a": ("a", "a"), "G": ("G", "G")}
_LONG = 4
_SATURDAY = "date_add({0}, 7 - dayofweek({0}))"  # weeks of America begin on Sunday
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
    """Give the SQL of a timestamp's text. Null gives null.

    Args:
        pattern: The pattern.
        timestamp: SQL of a TIMESTAMP. It may be used more than once, so it should be short.
    """
    pieces: list[str] = []
    native = ""
    for part in merged(_constant(part) for part in pattern.parts):
        text = spark_text(part)
        if text is not None:
            native += text
            continue
        assert isinstance(part, DateField)
        pieces += [_native(native, timestamp), _number(part, timestamp)]
        native = ""
    pieces.append(_native(native, timestamp))
    given = [piece for piece in pieces if piece]
    if len(given) == 1 and native:
        return given[0]
    return f"IF({timestamp} IS NULL, NULL, concat({', '.join(given) or literal('')}))"


def _constant(part: DateField | str) -> DateField | str:
    """Give the text of a zone: all is UTC."""
    if isinstance(part, str) or part.letter not in _ZONES:
        return part
    return _ZONES[part.letter](part.count)


def spark_text(part: DateField | str) -> str | None:
    """Give the same in a pattern of Spark; None if Spark writes it otherwise."""
    if isinstance(part, str):
        return _quoted(part)
    if part.letter in _NAMES and (part.letter != "M" or part.count > _TWO_DIGITS):
        short, long = _NAMES[part.letter]
        return long if part.count >= _LONG else short
    if part.count in _NATIVE.get(part.letter, ()):
        return part.letter * part.count
    return None


def _quoted(text: str) -> str:
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def _native(pattern: str, timestamp: str) -> str:
    return f"date_format({timestamp}, {literal(pattern)})" if pattern else ""


def _number(part: DateField, timestamp: str) -> str:
    number = _NUMBERS[part.letter].format(timestamp)
    if part.letter in _YEAR and part.count == _TWO_DIGITS:
        number = f"({number}) % 100"
    return f"format_string('%0{part.count}d', {number})"
