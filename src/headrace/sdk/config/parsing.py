"""From the text of a value to the value, and back, as Kafka's ConfigDef does it."""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

from headrace.sdk.config.values import Password
from headrace.sdk.errors import ConfigError

__all__ = ["ConfigType", "invalid", "missing", "parse_value", "shown", "to_text"]

# What Java's String.trim() takes away: all up to the space.
_BLANK = "".join(map(chr, range(0x21)))
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
# Between these, Java writes a double without an exponent, and as Python does.
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
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type, no secret


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def invalid(name: str, value: object, reason: str, *, fix: str = "") -> ConfigError:
    """Give the error for a value, with the text that Kafka's clients know."""
    return ConfigError(
        problem=f"Invalid value {shown(value)} for configuration {name}: {reason}",
        fix=fix,
        field=name,
    )


def missing(name: str) -> ConfigError:
    """Give the error for a required key that has no value."""
    return ConfigError(
        problem=f'Missing required configuration "{name}" which has no default value.',
        fix=f"Set {name}.",
        field=name,
    )


def parse_value(name: str, value: object, kind: ConfigType) -> Any:
    """Give the value of a type from its text, or from the value itself.

    Texts are trimmed. BOOLEAN takes true and false in any case; LIST is split at commas, and
    blank is the empty list; CLASS stays a name, which the plugins resolve.

    Raises:
        ConfigError: It is no such value.
    """
    if value is None:
        return None
    trimmed = value.strip(_BLANK) if isinstance(value, str) else value
    return _PARSERS[kind](name, value, trimmed, kind)


def to_text(value: object, kind: ConfigType) -> str | None:
    """Give the text of a parsed value as REST shows it; `[hidden]` for a password."""
    if value is None:
        return None
    if kind is ConfigType.LIST and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return shown(value)


def shown(value: object) -> str:
    """Write a value as Java does, so that messages match Kafka's."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return _java_double(value)
        case list() | tuple():
            return f"[{', '.join(shown(item) for item in value)}]"
        case Mapping():
            pairs = (f"{shown(key)}={shown(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            return str(value)


def _java_double(value: float) -> str:
    text = repr(value)
    if not math.isfinite(value):
        return text.replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or _JAVA_PLAIN[0] <= abs(value) < _JAVA_PLAIN[1]:
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
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
        fix="Write it in quotes.",
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
    raise invalid(name, value, reason, fix=f"Write a whole number of at most {bits} bits.")


def _double(name: str, value: object, trimmed: object, kind: ConfigType) -> float:
    number = math.nan
    if isinstance(trimmed, str) and _REAL.fullmatch(trimmed):
        named = trimmed.removeprefix("+").removeprefix("-") in {"NaN", "Infinity"}
        number = float(trimmed if named else trimmed.rstrip("fFdD"))
    elif isinstance(trimmed, int | float) and not isinstance(trimmed, bool):
        number = float(trimmed)
    if math.isfinite(number):  # Kafka takes NaN and Infinity, with which no key works
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
        fix="Write the items with commas between them.",
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
    # The value itself must not show, whatever it is.
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
