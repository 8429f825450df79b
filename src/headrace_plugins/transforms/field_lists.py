"""Lists of fields as values of configuration keys."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from headrace.sdk.config import invalid

__all__ = ["NonEmptyList"]


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
