"""The fields of offsets that a person may set by hand, and what each has to be."""

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
        name: Its name.
        expected: What it has to be, as a text.
        is_valid: Whether a value of JSON is that.
        required: Whether an offset without it is refused.
    """

    name: str
    expected: str
    is_valid: Callable[[Any], bool]
    required: bool = False

    @classmethod
    def integer(
        cls, name: str, at_least: int, at_most: int = MOST, *, required: bool = False
    ) -> OffsetField:
        """Return a field that is a whole number between two others."""
        expected = f"an integer from {at_least} to {at_most}"
        return cls(
            name, expected, lambda v: type(v) is int and at_least <= v <= at_most, required
        )

    @classmethod
    def text(cls, name: str) -> OffsetField:
        """Return a field that is a text."""
        return cls(name, "a text", lambda v: isinstance(v, str) and v != "")

    @classmethod
    def mark(cls, name: str) -> OffsetField:
        """Return a field that is true, or not there."""
        return cls(name, "true, or left out", lambda v: v is True)


def check_fields(
    what: str, offset: object, fields: Sequence[OffsetField], example: str
) -> Mapping[str, Any]:
    """Return an offset that is an object of these fields.

    Raises ConfigError with the field that is wrong, what it is, and what is expected.

    Args:
        what: What the offset is, such as ``position of a table``.
        offset: What a person has set.
        fields: What it may have.
        example: What to write, as JSON.
    """
    wrong, expected = "", ""
    if not isinstance(offset, Mapping):
        wrong, expected = "it is not an object", "An object is expected."
        offset = {"": offset}
    else:
        for each in fields:
            if each.name not in offset and each.required:
                wrong = f"{each.name} is missing"
            elif each.name in offset and not each.is_valid(offset[each.name]):
                wrong = f"{each.name} is {offset[each.name]!r}"
            if wrong:
                expected = f"{each.name} has to be {each.expected}."
                break
        unknown = sorted(set(offset) - {each.name for each in fields})
        if not wrong and unknown:
            wrong = f"{unknown[0]} is unknown"
            expected = f"Known are {', '.join(each.name for each in fields)}."
    if wrong:
        shown = offset[""] if list(offset) == [""] else dict(offset)
        raise ConfigError(
            problem=f"Invalid {what} {shown}: {wrong}.",
            fix=f"{expected} Write {example}.",
            field="offsets",
        )
    return offset
