"""Validation of offset fields that users may set manually."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sdk import ConfigError

MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OffsetField:
    """A field of an offset.

    Args:
        name: The name of the field.
        expected: The description of valid values, for errors.
        is_valid: Whether a JSON value is valid.
        required: Whether the field is required.
    """

    name: str
    expected: str
    is_valid: Callable[[Any], bool]
    required: bool = False

    @classmethod
    def integer(
        cls, name: str, at_least: int, at_most: int = MOST, *, required: bool = False
    ) -> OffsetField:
        """Return a field with an integer in a range."""
        expected = f"an integer from {at_least} to {at_most}"
        return cls(
            name, expected, lambda v: type(v) is int and at_least <= v <= at_most, required
        )

    @classmethod
    def text(cls, name: str) -> OffsetField:
        """Return a field with a non-empty string."""
        return cls(name, "a string", lambda v: isinstance(v, str) and v != "")

    @classmethod
    def mark(cls, name: str) -> OffsetField:
        """Return a field that is true or missing."""
        return cls(name, "true, or omitted", lambda v: v is True)


def check_fields(
    what: str, offset: object, fields: Sequence[OffsetField], example: str
) -> Mapping[str, Any]:
    """Return an offset after validating that it is an object of these fields.

    Raises ConfigError with the invalid field, its value, and the expected values.

    Args:
        what: The kind of offset, such as ``position of a table``.
        offset: The value that a user has set.
        fields: The allowed fields.
        example: An example as JSON.
    """
    wrong, expected = "", ""
    if not isinstance(offset, Mapping):
        wrong, expected = "it is not an object", "Expected an object."
        offset = {"": offset}
    else:
        for each in fields:
            if each.name not in offset and each.required:
                wrong = f"{each.name} is missing"
            elif each.name in offset and not each.is_valid(offset[each.name]):
                wrong = f"{each.name} is {offset[each.name]!r}"
            if wrong:
                expected = f"{each.name} must be {each.expected}."
                break
        unknown = sorted(set(offset) - {each.name for each in fields})
        if not wrong and unknown:
            wrong = f"{unknown[0]} is unknown"
            expected = f"Known fields: {', '.join(each.name for each in fields)}."
    if wrong:
        shown = offset[""] if list(offset) == [""] else dict(offset)
        raise ConfigError(
            problem=f"Invalid {what} {shown}: {wrong}.",
            fix=f"{expected} Write {example}.",
            field="offsets",
        )
    return offset
