"""Field paths: which field, at which depth, a configuration means.

The syntax is that of Kafka Connect's KIP-821, and every field transform takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk.config import (
    CaseInsensitiveValidString,
    Importance,
    Settings,
    setting,
)
from headrace.sdk.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = ["FieldPath", "FieldSyntax"]

_DOC = (
    "How fields are named. V1: the whole text is the name of one field at the top. V2: the "
    "names on the way to a field are separated by dots; a name that holds dots goes in "
    "back-ticks, as in `foo.bar`.baz."
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The names on the way to a field, from the outside in; at least one.

    Args:
        steps: The names.
        text: As the user wrote it, for messages.
    """

    steps: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, text: str, version: str = "V1") -> FieldPath:
        """Read a path.

        In V2 a back-tick within back-ticks ends the name where a dot or the text's end
        follows, unless a backslash is before it.

        Raises:
            ConfigError: A back-tick is not closed.
        """
        if version.upper() == "V1":
            return cls((text,), text)
        return cls(tuple(_steps(text)) or ("",), text)

    @property
    def name(self) -> str:
        """The name of the field itself."""
        return self.steps[-1]

    @property
    def parent(self) -> FieldPath | None:
        """The path to the struct that holds the field; None at the top."""
        return FieldPath(self.steps[:-1], self.text) if len(self.steps) > 1 else None


class FieldSyntax(Settings):
    """The setting by which transforms of fields choose the syntax of paths."""

    field_syntax_version: str = setting(
        _DOC,
        default="V1",
        validator=CaseInsensitiveValidString("V1", "V2"),
        importance=Importance.HIGH,
    )

    def field_path(self, text: str) -> FieldPath:
        """Read a path in the syntax that was chosen."""
        return FieldPath.parse(text, self.field_syntax_version)

    def field_paths(self, texts: Iterable[str]) -> list[FieldPath]:
        """Read paths in the syntax that was chosen."""
        return [self.field_path(text) for text in texts]


def _steps(text: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            name, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            name, at = text[at:end], end + 1
        steps.append(name)
    # A dot at the end is followed by one more name, the empty one.
    return [*steps, ""] if text.endswith(".") else steps


def _quoted(text: str, opening: int) -> tuple[str, int]:
    """Give the name between back-ticks, and where the next name begins."""
    name: list[str] = []
    start = at = opening + 1
    while (at := text.find("`", at)) >= 0:
        escaped = text[at - 1] == "\\"
        last = at == len(text) - 1
        if last and escaped:
            break
        if last or (text[at + 1] == "." and not escaped):
            return "".join([*name, text[start:at]]), at + 2
        if text[at + 1] == ".":
            name += [text[start : at - 1], "`"]
            start = at + 1
        at += 1
    raise ConfigError(
        problem=f"Incomplete backtick pair in path: [{text}], consider adding a backslash "
        f"before backtick at position {opening} to escape it",
        fix="Close the back-tick, or put a backslash before it.",
    )
