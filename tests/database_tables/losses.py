"""What the mapping of types between databases loses: one list for the tests and the page."""

import math
from collections.abc import Callable
from dataclasses import dataclass

REFUSED = "a dead letter, or an error where none is tolerated"


@dataclass(frozen=True)
class Loss:
    """Values that a target does not hold as they are.

    Args:
        target: The kind of database, as the page calls it.
        values: Which they are, in words.
        becomes: What is there instead.
        concerns: Whether a value is one of them.
    """

    target: str
    values: str
    becomes: str
    concerns: Callable[[object], bool]


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _is_no_number(value: object) -> bool:
    return (number := _number(value)) is not None and math.isnan(number)


def _is_infinite(value: object) -> bool:
    return (number := _number(value)) is not None and math.isinf(number)


def _is_minus_zero(value: object) -> bool:
    return value == 0.0 and (n := _number(value)) is not None and math.copysign(1, n) < 0


def _has_odd_number(value: object) -> bool:
    return isinstance(value, list) and any(_is_no_number(x) or _is_infinite(x) for x in value)


def _has_bytes(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(x, bytes) for x in value)


LOSSES = (
    Loss(
        "PostgreSQL",
        "texts with the sign NUL",
        REFUSED,
        lambda v: "\0" in str(v) * (type(v) is str),
    ),
    Loss(
        "MariaDB",
        "the floats NaN, Infinity and -Infinity",
        REFUSED,
        lambda v: _is_no_number(v) or _is_infinite(v),
    ),
    Loss("SQLite", "the float NaN", REFUSED, _is_no_number),
    *(
        Loss(target, "the float -0.0", "0.0, which verify takes for equal", _is_minus_zero)
        for target in ("MariaDB", "SQLite")
    ),
    *(
        loss
        for target in ("PostgreSQL", "MariaDB", "SQLite")
        for loss in (
            Loss(
                target,
                "NaN and infinite floats within lists, maps and structs",
                "the texts NaN, Infinity and -Infinity, as JSON has no such numbers",
                _has_odd_number,
            ),
            Loss(
                target,
                "bytes within lists, maps and structs",
                "texts in Base64, as JSON has no bytes",
                _has_bytes,
            ),
        )
    ),
)
"""Beside values that the source's type in a record has nothing for, see `Unfit`."""


def losses(target: str, value: object) -> list[Loss]:
    """Return what is lost of a value in a target."""
    return [each for each in LOSSES if each.target == target and each.concerns(value)]
