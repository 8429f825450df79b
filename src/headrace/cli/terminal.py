"""Where output goes: results to stdout, everything else to stderr; and tables."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table


WIDTH_OF_FILES = 10_000
"""How wide a line may be where there is no screen: nothing is cut there."""
PROSE_WIDTH = 80
"""How wide a column of texts may be."""


@dataclass(frozen=True)
class Terminal:
    """The two streams of a command.

    Args:
        as_json: Whether stdout carries JSON and nothing else.
        quiet: Whether notes are left out.
        color: Whether colours may be used; the variable NO_COLOR forbids them too.
    """

    as_json: bool = False
    quiet: bool = False
    color: bool = True

    @cached_property
    def out(self) -> Console:
        """Return stdout, for what was asked for."""
        return self._console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Return stderr, for errors, progress and notes."""
        return self._console(stderr=True)

    @property
    def interactive(self) -> bool:
        """Return whether stderr is a screen on which lines can be drawn again."""
        return self.err.is_terminal and not self.err.is_dumb_terminal

    @property
    def width(self) -> int | None:
        """Return the columns of the screen; None if stdout is none."""
        return self.out.width if self.out.is_terminal else None

    def print(self, *shown: RenderableType) -> None:
        """Print results, one below the other."""
        for each in shown:
            self.out.print(each)

    def print_json(self, value: Mapping[str, object] | Sequence[object]) -> None:
        """Print a value as one line of JSON."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def show_rows(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        json: Mapping[str, object] | Sequence[object],
        as_json: bool,
        right: Sequence[str] = (),
        empty: str = "",
    ) -> None:
        """Print what a command found, as a table or as JSON.

        Args:
            headings: Those of the table's columns.
            rows: A cell a column; not looked at where JSON is wanted.
            json: The same as a JSON value.
            as_json: Whether that is wanted.
            right: The headings whose cells are figures.
            empty: What is noted where there are no rows; an empty table if it is empty.
        """
        if as_json:
            self.print_json(json)
            return
        shown = table(*headings, right=right)
        for row in rows:
            shown.add_row(*(str(cell) if isinstance(cell, int) else cell for cell in row))  # type: ignore[arg-type]  # texts, plain or rich
        if empty and not shown.row_count:
            self.note(empty)
        else:
            self.print(shown)

    def note(self, text: str) -> None:
        """Tell what goes on, unless the user asked for quiet or for JSON."""
        if not self.quiet and not self.as_json:
            self.err.print(text, style="dim", soft_wrap=True)

    def _console(self, *, stderr: bool) -> Console:
        from rich.console import Console

        # Texts hold field names such as sinks[0], which must not be taken for markup.
        plain = {"markup": False, "highlight": False, "emoji": False}
        console = Console(stderr=stderr, color_system="auto" if self.color else None, **plain)  # type: ignore[arg-type]  # a plain dict of flags
        if not console.is_terminal:
            console.width = max(console.width, WIDTH_OF_FILES)
        return console


def table(
    *columns: str, right: Sequence[str] = (), title: str | None = None, wrap: bool = True
) -> Table:
    """Return an empty table in the command line's one style.

    Args:
        columns: The headings.
        right: Those of them whose cells are figures.
        title: What stands above it.
        wrap: Whether a text may take several lines.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False
    )
    for column in columns:
        figure = column in right
        made.add_column(
            column,
            justify="right" if figure else "left",
            no_wrap=figure or not wrap,
            overflow="fold" if wrap else "ellipsis",
            max_width=PROSE_WIDTH if wrap else None,
        )
    return made


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
