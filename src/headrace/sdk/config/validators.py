"""Validators of single values. `str()` of a validator describes the valid values."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from headrace.sdk.config.values import invalid, java_regex, shown
from headrace.sdk.errors import ConfigError


class Validator(Protocol):
    """Checks a parsed value. `str()` of the validator describes the valid values."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigError if the value, which may be None, is not valid for the key."""


class _Named:
    """A validator with a fixed description of the valid values."""

    __slots__ = ()
    text: str

    @override
    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Range:
    """A number within inclusive bounds; None is not valid."""

    at_least: float | None = None
    at_most: float | None = None

    def check(self, name: str, value: object) -> None:
        fix = f"Write a number in the range {self}."
        if not isinstance(value, int | float):
            raise invalid(name, value, "Value must be non-null", fix=fix)
        if self.at_least is not None and value < self.at_least:
            raise invalid(name, value, f"Value must be at least {self.at_least}", fix=fix)
        if self.at_most is not None and value > self.at_most:
            raise invalid(name, value, f"Value must be no more than {self.at_most}", fix=fix)

    @override
    def __str__(self) -> str:
        low = () if self.at_least is None else (shown(self.at_least),)
        high = () if self.at_most is None else (shown(self.at_most),)
        return f"[{','.join((*low, '...', *high))}]"


@dataclass(frozen=True, slots=True, init=False)
class ValidString:
    """One of these strings; case-insensitive with `any_case`."""

    valid: tuple[str, ...]
    any_case: bool

    def __init__(self, *valid: str, any_case: bool = False) -> None:
        texts = tuple(text.upper() for text in valid) if any_case else valid
        object.__setattr__(self, "valid", texts)
        object.__setattr__(self, "any_case", any_case)

    def check(self, name: str, value: object) -> None:
        text = value.upper() if self.any_case and isinstance(value, str) else value
        if text not in self.valid:
            names, how = ", ".join(self.valid), " (case insensitive)" if self.any_case else ""
            raise invalid(
                name, value, f"String must be one of{how}: {names}", fix=f"Use one of: {names}."
            )

    @override
    def __str__(self) -> str:
        texts = f"[{', '.join(self.valid)}]"
        return f"(case insensitive) {texts}" if self.any_case else texts


@dataclass(frozen=True, slots=True, init=False)
class ValidList:
    """A list of any of these strings, or of any strings if none are set.

    Args:
        unique: Whether each string may occur only once.
        allow_empty: Whether the list may be empty.
    """

    valid: tuple[str, ...]
    unique: bool
    allow_empty: bool

    def __init__(self, *valid: str, unique: bool = False, allow_empty: bool = True) -> None:
        object.__setattr__(self, "valid", valid)
        object.__setattr__(self, "unique", unique)
        object.__setattr__(self, "allow_empty", allow_empty)

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, list | tuple):
            raise self._wrong(name, "values must not be null.")
        if not value and not self.allow_empty:
            raise self._wrong(name, f"must not be empty. Valid values include: {self}")
        if self.unique and len(set(value)) < len(value):
            raise self._wrong(name, "values must not be duplicated.")
        for item in value:
            if item == "":
                raise self._wrong(name, "values must not be empty.")
            if self.valid:
                ValidString(*self.valid).check(name, item)

    def _wrong(self, name: str, problem: str) -> ConfigError:
        return ConfigError(
            problem=f"Configuration '{name}' {problem}",
            fix=f"Write a list of: {self}.",
            field=name,
        )

    @override
    def __str__(self) -> str:
        return f"[{', '.join(self.valid)}]" if self.valid else "any non-empty value"


@dataclass(frozen=True, slots=True)
class NonNull(_Named):
    """Any value except null."""

    text = "non-null string"

    def check(self, name: str, value: object) -> None:
        if value is None:
            raise invalid(name, value, "entry must be non null", fix=f"Set {name}.")


@dataclass(frozen=True, slots=True)
class NonEmptyString(_Named):
    """A non-empty string, or null."""

    text = "non-empty string"

    def check(self, name: str, value: object) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty", fix=f"Set {name}.")


@dataclass(frozen=True, slots=True)
class NonEmptyList(_Named):
    """A list of at least one string."""

    text = "non-empty list"

    def check(self, name: str, value: object) -> None:
        if not value:
            shown = "null" if value is None else "[]"
            raise invalid(name, shown, "Empty list", fix="Name at least one.")


# ISO control characters: C0, DEL and C1.
_CONTROL = frozenset((*range(0x20), *range(0x7F, 0xA0)))


@dataclass(frozen=True, slots=True)
class NonEmptyStringWithoutControlChars(_Named):
    """A non-empty string without control characters, or null."""

    text = "non-empty string without ISO control characters"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            return
        if not value:
            raise invalid(name, value, "String may not be empty", fix=f"Set {name}.")
        found = [ord(char) for char in value if ord(char) in _CONTROL]
        if found:
            raise invalid(
                name,
                value,
                "String may not contain control sequences but had the following ASCII chars: "
                + ", ".join(map(str, found)),
                fix="Remove the control characters.",
            )


@dataclass(frozen=True, slots=True)
class Regex(_Named):
    """A Java regular expression, because Java's engine runs it; or null."""

    text = "valid regex"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            return
        try:
            java_regex(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise invalid(
                name,
                value,
                f"Invalid regex: {error}",
                fix="Write a Java regular expression; escape special characters with a "
                "backslash.",
            ) from error


@dataclass(frozen=True, slots=True)
class Lambda(_Named):
    """A custom check.

    Args:
        function: Called with the key and the value; raises ConfigError if the value is not
            valid. `headrace.sdk.config.invalid` creates the error.
        text: Describes the valid values.
    """

    function: Callable[[str, object], None]
    text: str

    def check(self, name: str, value: object) -> None:
        self.function(name, value)


@dataclass(frozen=True, slots=True)
class NullOr:
    """Null, or a value that another validator accepts."""

    validator: Validator

    def check(self, name: str, value: object) -> None:
        if value is not None:
            self.validator.check(name, value)

    @override
    def __str__(self) -> str:
        return str(self.validator)


def unique(kind: str) -> Lambda:
    """Return a validator for a list of names without duplicates."""

    def check(name: str, value: object) -> None:
        NonNull().check(name, value)
        names = list(value) if isinstance(value, Iterable) else []
        if len(set(names)) < len(names):
            raise invalid(name, value, "Duplicate alias provided.", fix="Write each name once.")

    return Lambda(check, f"{NonNull()}, unique {kind}")
