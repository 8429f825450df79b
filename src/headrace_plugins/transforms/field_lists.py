"""Lists of fields as values of configuration keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk.config import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NonEmptyList", "hash_order"]

_BUCKETS = 16
_LOAD = 0.75


@dataclass(frozen=True, slots=True)
class NonEmptyList:
    """A list of one text at least."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigError if there is no list, or nothing in it."""
        if not value:
            shown = "null" if value is None else "[]"
            raise invalid(name, shown, "Empty list", fix="Name a field.")

    @override
    def __str__(self) -> str:
        return "non-empty list"


def hash_order(names: Iterable[str]) -> list[str]:
    """Give names, each once, in the order in which Java's HashMap and HashSet give them.

    Kafka Connect goes through fields without schema so, and the first fault it meets is the
    record's error.
    """
    each = list(dict.fromkeys(names))
    buckets = _BUCKETS
    while len(each) > buckets * _LOAD:
        buckets *= 2
    return sorted(each, key=lambda name: _hash(name) % buckets)


def _hash(name: str) -> int:
    number = 0
    encoded = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        number = (31 * number + (high << 8) + low) % 2**32
    return number ^ number >> 16
