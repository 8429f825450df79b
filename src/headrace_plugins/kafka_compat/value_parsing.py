"""Parses values from text, as Kafka Connect's `Values.parseString` does."""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from headrace.sdk import schema as logical
from headrace.sdk.connectjson import to_float32, to_string, type_name
from headrace.sdk.errors import RecordError
from headrace.sdk.frozen import freeze
from headrace.sdk.schema import Schema, Type

_TOKEN = re.compile(r'(?:\\(?:[\s\S]|\Z)|[^:,{}\[\]"\\])+|[:,{}\[\]"]')
# The characters that Java's trim() removes.
_SPACES = "".join(map(chr, range(0x21)))

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,10})?")
# Numbers with larger exponents fit neither an integer nor a float.
_MAX_EXPONENT = 400
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1

# SimpleDateFormat accepts any number of digits, and ignores text after the last field.
_DATE = re.compile(r"(\d+)-[ \t]*(\d+)-[ \t]*(\d+)")
_TIME = re.compile(r"(\d+):[ \t]*(\d+):[ \t]*(\d+)\.[ \t]*(\d+)Z")
_MIDNIGHT = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_LENGTH, _TIME_LENGTH, _TIMESTAMP_LENGTH = 10, 13, 24

# From the narrowest to the widest: a number fits all later types.
_NUMERIC = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value parsed from text, and its schema: None for arrays of different member types.

    The kind is the header type, which is set even without a schema. All three are None for the
    text `null`.
    """

    value: Any
    schema: Schema | None = None
    kind: str | None = None

    @property
    def text(self) -> str | None:
        """The value's text in its normal form, such as `5` for `+5`."""
        return to_string(self.value, float32=not _has_doubles(self.schema))


def parse_string(text: str | None) -> Parsed:
    """Parse a text to a value and its type.

    Never fails: any other text is a STRING. Numbers get the narrowest type that they fit, dates
    and times in ISO 8601 format become logical types, `[...]` and `{...}` arrays and maps.
    Reproduces Kafka Connect's traps: text after the first value is ignored, so `1,2` is the
    number 1.
    """
    if text is None:
        return _NULL
    if not text:
        return _string(text)
    return _Parser(text).parse(embedded=False)


def _has_doubles(schema: Schema | None) -> bool:
    if schema is None:
        return False
    members = (schema.key_schema, schema.value_schema)
    return schema.type is Type.FLOAT64 or any(map(_has_doubles, members))


def _typed(value: object, schema: Schema) -> Parsed:
    return Parsed(value, schema, type_name(schema))


def _string(text: str) -> Parsed:
    return _typed(text, Schema.string())


_NULL = Parsed(None)
_LITERALS = {
    "null": _NULL,
    "true": _typed(True, Schema.boolean()),  # noqa: FBT003 - the value itself
    "false": _typed(False, Schema.boolean()),  # noqa: FBT003 - the value itself
}


class _Parser:
    """Parses one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def parse(self, *, embedded: bool) -> Parsed:
        if not self._more:
            return _NULL
        if embedded and self._take('"'):
            return self._quoted()
        for literal, parsed in _LITERALS.items():
            if self._is_literal(literal, embedded=embedded):
                return parsed
        start = self._at
        try:
            if self._take("["):
                return self._array()
            if self._take("{"):
                return self._map()
        except RecordError:
            self._at = start
        token = self._next()
        stripped = token.strip(_SPACES)
        return self._scalar(stripped, embedded=embedded) if stripped else _string(token)

    @property
    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _next(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _take(self, expected: str) -> bool:
        """Consume the next token if it is the expected one; consume blank tokens before it."""
        if not self._more:
            return False
        last = len(self._tokens) - 1
        while self._at < last and not self._tokens[self._at].strip(_SPACES):
            self._at += 1
        found = bool(self._tokens[self._at].strip(_SPACES) == expected)
        self._at += found
        return found

    def _is_literal(self, literal: str, *, embedded: bool) -> bool:
        start = self._at
        if self._take(literal) and (embedded or not self._more):
            return True
        self._at = start
        return False

    def _scalar(self, token: str, *, embedded: bool) -> Parsed:
        digit = unicodedata.category(token[0]) == "Nd"
        if digit and (moment := self._moment(token)):
            return moment
        if (digit or token[0] in "+-") and _NUMBER.fullmatch(token):
            return _number(token)
        if embedded:
            raise RecordError(problem="Failed to parse embedded value")
        return _string(self._text)

    def _moment(self, token: str) -> Parsed | None:
        # A time contains two colons, each of which is a token.
        rest = self._tokens[self._at : self._at + 4]
        if len(rest) == 4 and (found := _moment(token + "".join(rest))):  # noqa: PLR2004
            self._at += 4
            return found
        return _moment(token)

    def _quoted(self) -> Parsed:
        content = ""
        while self._more and not self._take('"'):
            content += self._next()
        return _moment(content) or _string(content)

    def _array(self) -> Parsed:
        items: list[Parsed] = []
        while self._more:
            if self._take("]"):
                return _array(items)
            if self._take(","):
                raise RecordError(
                    problem=f"Unable to parse an empty array element: {self._text}"
                )
            items.append(self.parse(embedded=True))
            here = self._at
            if self._take("]"):
                self._at = here
            elif not self._take(","):
                raise RecordError(problem="Array elements missing ',' delimiter")
        raise RecordError(problem=f"Array is missing terminating ']': {self._text}")

    def _map(self) -> Parsed:
        entries: list[tuple[Parsed, Parsed]] = []
        while self._more:
            if self._take("}"):
                return _map(entries)
            if self._take(","):
                raise RecordError(
                    problem=f"Unable to parse a map entry with no key or value: {self._text}"
                )
            key = self.parse(embedded=True)
            if key.value is None:
                raise RecordError(problem=f"Map entry may not have a null key: {self._text}")
            if not self._take(":"):
                raise RecordError(problem=f"Map entry is missing ':' in {self._text}")
            entries.append((key, self.parse(embedded=True)))
            self._take(",")
        raise RecordError(problem=f"Map is missing terminating '}}': {self._text}")


def _array(items: list[Parsed]) -> Parsed:
    common = _common(items)
    values = [_fitted(item.value, common) for item in items]
    if common is None or common.schema is None:
        return Parsed(values, kind="array")
    return _typed(values, Schema.array(common.schema))


def _map(entries: list[tuple[Parsed, Parsed]]) -> Parsed:
    keys = _common([key for key, _ in entries])
    items = _common([item for _, item in entries]) if keys else None
    pairs = {freeze(key.value): item.value for key, item in entries}
    fitted = {freeze(_fitted(key, keys)): _fitted(item, items) for key, item in pairs.items()}
    if keys is None or keys.schema is None or items is None or items.schema is None:
        return Parsed(fitted, kind="map")
    return _typed(fitted, Schema.map(keys.schema, items.schema))


def _fitted(value: object, common: Parsed | None) -> Any:
    """Convert a member to the common type of all members, if there is one."""
    if common is None or (common.schema is None and value is not None):
        return value
    kind = common.schema or Schema.string()
    if isinstance(value, date | time) and not kind.is_logical:
        # Kafka Connect cannot convert a moment without its schema to a number.
        raise RecordError(problem=f"Unable to convert {value} to a number")
    if isinstance(value, date | time) and kind.name != logical.TIMESTAMP:
        return value  # a date among times stays one, as in Kafka Connect
    return _converted(kind, value)


def _converted(kind: Schema, value: object) -> Any:
    """Convert a member to the type of another member that is at least as wide."""
    match kind.name if kind.is_logical else kind.type:
        case _ if value is None:
            raise RecordError(problem="Unable to convert a null value: a value is required")
        case Type.FLOAT32 if isinstance(value, int | float):
            return to_float32(value)
        case Type.FLOAT64 if isinstance(value, int | float):
            return float(value)
        case logical.TIMESTAMP if isinstance(value, date) and not isinstance(value, datetime):
            return datetime.combine(value, time(), UTC)
        case logical.TIMESTAMP if isinstance(value, time):
            return datetime.combine(_MIDNIGHT, value, UTC)
        case (logical.DATE | logical.TIME | logical.TIMESTAMP) as name if isinstance(
            value, int
        ):
            return _moment_of(name, value)
        case _:
            return value


def _moment_of(name: str, number: int) -> date | time:
    """Convert a number to the value of a logical type."""
    unit = timedelta(days=1) if name == logical.DATE else timedelta(milliseconds=1)
    try:
        moment = _MIDNIGHT + number * unit
    except OverflowError as error:
        raise RecordError(problem=f"Unable to convert {number} to {name}") from error
    if name == logical.TIMESTAMP:
        return moment
    if name == logical.DATE:
        return moment.date()
    if moment.date() != _MIDNIGHT.date():
        raise RecordError(problem=f"Unable to convert {number} to {name}")
    return moment.time()


def _common(members: list[Parsed]) -> Parsed | None:
    """Return the member whose type fits all members; None if there is none, or no members.

    Nulls are ignored here, but `_converted` rejects them, so a list with a null stays a string.
    """
    common: Parsed | None = None
    for member in members:
        if member.kind is None:
            continue
        if common is None or _base(common) is _base(member):
            common = member
            continue
        if not (_base(common) in _NUMERIC and _base(member) in _NUMERIC):
            return None
        common = max(common, member, key=lambda one: _NUMERIC.index(_base(one)))
    return common


def _base(parsed: Parsed) -> Type:
    return parsed.schema.type if parsed.schema else Type(str(parsed.kind).upper())


def _number(token: str) -> Parsed:
    number = Decimal(token)
    exponent = int(number.as_tuple().exponent)
    huge = abs(number.adjusted()) > _MAX_EXPONENT
    if not huge and number == number.to_integral_value():
        whole = int(number)
        if _LONG_MIN <= whole <= _LONG_MAX:
            return _whole(whole)
    if exponent != 0:
        narrow = to_float32(float(number)) if not huge else _huge(number)
        if narrow not in {float("inf"), float("-inf")}:
            return _typed(narrow, Schema.float32())
        wide = float(number) if not huge else narrow
        if wide not in {float("inf"), float("-inf")}:
            return _typed(wide, Schema.float64())
    return _typed(number, Schema.decimal(-exponent))


def _huge(number: Decimal) -> float:
    if number.is_zero() or number.adjusted() < 0:
        return 0.0
    return float("inf") if number > 0 else float("-inf")


def _whole(number: int) -> Parsed:
    makers = (Schema.int8, Schema.int16, Schema.int32, Schema.int64)
    bits = next(bits for bits in (8, 16, 32, 64) if -(1 << bits - 1) <= number < 1 << bits - 1)
    return _typed(number, makers[(8, 16, 32, 64).index(bits)]())


def _moment(token: str) -> Parsed | None:
    """Parse a date, a time or a timestamp, distinguished by length as in Kafka Connect."""
    token = token.replace("\\:", ":")
    readers = {_DATE_LENGTH: _date, _TIME_LENGTH: _time, _TIMESTAMP_LENGTH: _timestamp}
    reader = readers.get(len(token))
    try:
        return reader(token) if reader else None
    except (OverflowError, ValueError):  # out of Python's range of dates
        return None


def _date(token: str) -> Parsed | None:
    found = _DATE.match(token)
    return _typed(_day(found), Schema.date()) if found else None


def _time(token: str) -> Parsed | None:
    found = _TIME.match(token)
    if found is None or _clock(found) >= timedelta(days=1):
        return None
    return _typed((_MIDNIGHT + _clock(found)).time(), Schema.time())


def _timestamp(token: str) -> Parsed | None:
    found = _DATE.match(token)
    if found is None or not token.startswith("T", found.end()):
        return None
    clock = _TIME.match(token, found.end() + 1)
    if clock is None:
        return None
    return _typed(
        datetime.combine(_day(found), time(), UTC) + _clock(clock), Schema.timestamp()
    )


def _day(found: re.Match[str]) -> date:
    year, month, day = map(int, found.groups())
    # Months and days that are too large carry over, as in SimpleDateFormat.
    months = year * 12 + month - 1
    return date(months // 12, months % 12 + 1, 1) + timedelta(days=day - 1)


def _clock(found: re.Match[str]) -> timedelta:
    hours, minutes, seconds, millis = map(int, found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=millis)
