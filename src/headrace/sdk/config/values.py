"""Parsed configuration values, and secrets that are hidden when printed."""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar, final

from typing_extensions import override

from headrace.sdk.errors import ConfigError
from headrace.sdk.frozen import FrozenMap, freeze

HIDDEN = "[hidden]"

T = TypeVar("T")


@final
class Password:
    """A secret string that prints as `[hidden]`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """The secret in plain text."""
        return self._value

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Password):
            return NotImplemented
        return self._value == other.value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @override
    def __repr__(self) -> str:
        return HIDDEN


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Config(Mapping[str, Any]):
    """The parsed values of a configuration by key, with defaults; immutable.

    The getters are typed. Its `repr` shows only the parsed values, and no passwords.

    Args:
        originals: The unparsed strings, including undefined keys.
    """

    _values: Mapping[str, Any]
    originals: Mapping[str, str] = FrozenMap()

    def __post_init__(self) -> None:
        frozen = FrozenMap({key: freeze(value) for key, value in self._values.items()})
        object.__setattr__(self, "_values", frozen)
        object.__setattr__(self, "originals", FrozenMap(self.originals))

    def get_str(self, key: str) -> str:
        """Return a STRING or CLASS value; raises ConfigError if null, KeyError if unknown."""
        value = self.find(key, str)
        if value is None:
            raise ConfigError(problem="A value is required.", fix=f"Set {key}.", field=key)
        return value

    def find_str(self, key: str) -> str | None:
        """Return a STRING or CLASS value, or None. Raises KeyError if the key is unknown."""
        return self.find(key, str)

    def find(self, key: str, kind: type[T]) -> T | None:
        """Return the value, which must have that Python type, or None if it is null.

        Raises KeyError: the key is not defined. Raises TypeError: the key is defined with
        another type, which is a bug in the plugin.
        """
        value = self._values[key]
        if value is not None and type(value) is not kind:
            message = f"{key} is defined with another type than {kind.__name__}."
            raise TypeError(message)
        return value

    @override
    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __hash__(self) -> int:
        return hash(self._values)

    @override
    def __repr__(self) -> str:
        return f"Config({self._values!r})"


# The characters that Java's String.trim() removes: all up to the space.
_BLANK = "".join(map(chr, range(0x21)))
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
# Between these values, Java formats a float without an exponent.
_JAVA_PLAIN = (1e-3, 1e7)
_COMMA = re.compile(r"\s*,\s*")


class ConfigType(StrEnum):
    """The types of configuration values, by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type, not a secret


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def invalid(name: str, value: object, reason: str, *, fix: str = "") -> ConfigError:
    """Return the error for an invalid value, with Kafka's message."""
    return ConfigError(
        problem=f"Invalid value {shown(value)} for configuration {name}: {reason}",
        fix=fix,
        field=name,
    )


def missing(name: str) -> ConfigError:
    """Return the error for a required key that has no value."""
    return ConfigError(
        problem=f'Missing required configuration "{name}" which has no default value.',
        fix=f"Set {name}.",
        field=name,
    )


def parse_value(name: str, value: object, kind: ConfigType) -> Any:
    """Parse a value of a type from a string, or check a value that is already parsed.

    Strings are trimmed. BOOLEAN accepts true and false in any case. LIST is split at commas; a
    blank string is the empty list. CLASS stays a name, which plugins resolve. Raises
    ConfigError: the value does not have the type.
    """
    if value is None:
        return None
    trimmed = value.strip(_BLANK) if isinstance(value, str) else value
    return _PARSERS[kind](name, value, trimmed, kind)


def to_text(value: object, kind: ConfigType) -> str | None:
    """Return a parsed value as a string in the form of the REST API; passwords are hidden."""
    if value is None:
        return None
    if kind is ConfigType.LIST and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return shown(value)


def shown(value: object) -> str:
    """Format a value as Java does, so that messages match Kafka's."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return java_double(value)
        case list() | tuple():
            return f"[{', '.join(shown(item) for item in value)}]"
        case Mapping():
            pairs = (f"{shown(key)}={shown(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            return str(value)


def java_double(value: float, digits: str = "") -> str:
    """Format a float like Java's `toString`: with E for an exponent.

    `digits` are its decimal digits, by default the shortest that parse to the same float.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    number = Decimal(digits or repr(value))
    if value == 0 or _JAVA_PLAIN[0] <= abs(value) < _JAVA_PLAIN[1]:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    sign, figures, exponent = number.as_tuple()
    written = "".join(map(str, figures)).rstrip("0")
    power = len(figures) - 1 + int(exponent)
    return f"{'-' if sign else ''}{written[0]}.{written[1:] or '0'}E{power}"


def _boolean(name: str, value: object, trimmed: object, _: ConfigType) -> bool:
    if isinstance(trimmed, bool):
        return trimmed
    if isinstance(trimmed, str) and trimmed.lower() in {"true", "false"}:
        return trimmed.lower() == "true"
    raise invalid(
        name,
        value,
        "Expected value to be either true or false",
        fix="Write true or false.",
    )


def _string(name: str, value: object, trimmed: object, _: ConfigType) -> str:
    if isinstance(trimmed, str):
        return trimmed
    raise invalid(
        name,
        value,
        f"Expected value to be a string, but it was a {type(value).__name__}",
        fix="Write the value in quotes.",
    )


def _whole(name: str, value: object, trimmed: object, kind: ConfigType) -> int:
    bits = _BITS[kind]
    number: int | None = None
    if isinstance(trimmed, str) and _WHOLE.fullmatch(trimmed):
        number = int(trimmed)
    elif isinstance(trimmed, int) and not isinstance(trimmed, bool):
        number = trimmed
    if number is not None and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        return number
    reason = (
        f"Not a number of type {kind.value}"
        if isinstance(value, str | int) and not isinstance(value, bool)
        else f"Expected value to be a {bits}-bit integer, but it was a {type(value).__name__}"
    )
    raise invalid(name, value, reason, fix=f"Write an integer of at most {bits} bits.")


def _double(name: str, value: object, trimmed: object, kind: ConfigType) -> float:
    number = math.nan
    if isinstance(trimmed, str) and _REAL.fullmatch(trimmed):
        number = float(trimmed.rstrip("fFdD"))
    elif isinstance(trimmed, int | float) and not isinstance(trimmed, bool):
        number = float(trimmed)
    if math.isfinite(number):  # unlike Kafka: no key works with NaN or Infinity
        return number
    reason = (
        f"Not a number of type {kind.value}"
        if isinstance(value, str)
        else f"Expected value to be a double, but it was a {type(value).__name__}"
    )
    raise invalid(name, value, reason, fix="Write a number, such as 1.5.")


def _list(name: str, value: object, trimmed: object, _: ConfigType) -> tuple[str, ...]:
    if isinstance(trimmed, str):
        return tuple(_COMMA.split(trimmed)) if trimmed else ()
    if isinstance(trimmed, list | tuple) and all(isinstance(item, str) for item in trimmed):
        return tuple(trimmed)
    raise invalid(
        name,
        value,
        "Expected a comma separated list.",
        fix="Separate the items with commas.",
    )


def _class(name: str, value: object, trimmed: object, kind: ConfigType) -> str:
    if isinstance(trimmed, type):
        return f"{trimmed.__module__}.{trimmed.__qualname__}"
    return _string(name, value, trimmed, kind)


def _password(name: str, value: object, trimmed: object, kind: ConfigType) -> Password:
    if isinstance(trimmed, Password):
        return trimmed
    if isinstance(trimmed, str):
        return Password(trimmed)
    # The error must not show the value, whatever it is.
    return Password(_string(name, Password(""), value, kind))


_PARSERS: Mapping[ConfigType, Callable[[str, object, object, ConfigType], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _whole,
    ConfigType.SHORT: _whole,
    ConfigType.LONG: _whole,
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.CLASS: _class,
    ConfigType.PASSWORD: _password,
}


# Java syntax that Python lacks, with its Python replacement. Character classes that Python
# lacks become the nearest available class, so the result is good enough to validate a pattern
# and to match names, but not exact.
_JAVA_ONLY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\[pP](\{\w+(=\w+)?\}|\w)"), r"\\w"),
    (re.compile(r"\\[hHRXeG]"), r"\\s"),
    (re.compile(r"\\z"), r"\\Z"),
    (re.compile(r"\\k<(\w+)>"), r"(?P=\1)"),
    (re.compile(r"\(\?<(?![=!])"), "(?P<"),
    (re.compile(r"\(\?[a-zA-Z]*-?[a-zA-Z]*\)"), ""),
)
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_PYTHON_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def java_regex(pattern: str) -> re.Pattern[str]:
    """Compile a Java regular expression, approximately.

    Raises re.error: the expression is not valid.
    """
    flags = re.NOFLAG
    if leading := _FLAGS.match(pattern):
        for letter in leading[1]:
            flags |= _PYTHON_FLAGS.get(letter, re.NOFLAG)
    python = _QUOTED.sub(lambda quoted: re.escape(quoted[1]), pattern)
    for java, form in _JAVA_ONLY:
        python = java.sub(form, python)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        # Python warns about && in a character class, which is an intersection in Java.
        return re.compile(python, flags)
