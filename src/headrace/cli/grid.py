"""Records as a table: one line each, as many columns as the screen has room for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

CELL_WIDTH = 40
_GAP = 3


def grid(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int | None = None,
    title: str | None = None,
    styles: Sequence[str] = (),
    kept: int = 0,
) -> RenderableType:
    """Return a table whose cells are cut, and whose last columns are left out, to fit.

    Args:
        headings: A heading a column, of one or more lines.
        rows: The values, as JSON values.
        width: The columns of the screen; None for a file, where nothing is left out.
        title: What stands above it.
        styles: A style a row.
        kept: How many columns at the end must not be left out.
    """
    from rich.console import Group
    from rich.text import Text

    from headrace.cli.terminal import table

    texts = [[_cut(text(value)) for value in row] for row in rows]
    chosen = _fitting(headings, texts, width, kept)
    shown = table(*(headings[n] for n in chosen), title=title, wrap=False)
    for number, row in enumerate(texts):
        style = styles[number] if styles else ""
        shown.add_row(*(Text(row[n]) for n in chosen), style=style)
    hidden = len(headings) - len(chosen)
    if not hidden:
        return shown
    return Group(shown, Text(f"and {hidden} more columns; --json shows all", style="dim"))


def text(value: object) -> str:
    """Return a JSON value as a cell's text, in one line."""
    if isinstance(value, str):
        return value.replace("\n", "\\n").replace("\r", "\\r")
    return json.dumps(value, ensure_ascii=False)


def _cut(cell: str) -> str:
    return cell if len(cell) <= CELL_WIDTH else f"{cell[: CELL_WIDTH - 1]}…"


def _fitting(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, kept: int
) -> list[int]:
    """Return the columns to show: the first ones that fit, and those that are kept."""
    every = list(range(len(headings)))
    if width is None:
        return every
    widths = [
        _GAP + max(len(line) for line in (*heading.split("\n"), *(row[n] for row in rows)))
        for n, heading in enumerate(headings)
    ]
    last = every[len(every) - kept :]
    left = width + _GAP - sum(widths[n] for n in last)
    chosen: list[int] = []
    for n in every[: len(every) - kept]:
        left -= widths[n]
        if left < 0 and chosen:
            break
        chosen.append(n)
    return [*chosen, *last]
