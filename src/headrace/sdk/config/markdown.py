"""The reference of configuration keys as Markdown."""

from collections.abc import Iterable
from itertools import groupby

from headrace.sdk.config.key import ConfigKey

__all__ = ["markdown"]

_HEAD = (
    "| Key | Type | Default | Valid values | Importance | Meaning |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


def markdown(keys: Iterable[ConfigKey]) -> str:
    """Give a table for each group of the keys, which must be sorted by group."""
    parts = []
    for group, members in groupby(keys, key=lambda key: key.group):
        title = "" if group is None else f"### {group}\n\n"
        parts.append(title + _HEAD + "".join(_row(key) for key in members))
    return "\n".join(parts)


def _row(key: ConfigKey) -> str:
    valid = "" if key.validator is None else str(key.validator)
    importance = key.importance.value.lower()
    cells = (f"`{key.name}`", key.type.value, _default(key), valid, importance, key.doc)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _default(key: ConfigKey) -> str:
    if key.alternative is not None:
        return key.alternative
    if key.required:
        return "**required**"
    text = key.default_text
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def _cell(text: str) -> str:
    # A bar would end the cell, a line break the row.
    return " ".join(text.replace("|", "\\|").split())
