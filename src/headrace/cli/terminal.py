"""Terminal output: results to stdout, everything else to stderr; and tables."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console, RenderableType
    from rich.table import Table

    Json = Mapping[str, object] | Sequence[object]

WIDTH_OF_FILES = 10_000
"""The line width if the output is not a terminal, where nothing is truncated."""
PROSE_WIDTH = 80
"""The maximum width of a text column."""
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, and that JSON does not escape."""
_UNSEEN = {"Cc", "Cf"}
"""Unicode categories of control characters and of invisible or bidirectional formatting."""
_JOINERS = "\u00ad\u200c\u200d"
"""Invisible characters that words and emoji consist of."""


def visible(text: str) -> str:
    """Return the text with control characters escaped: external names may contain any.

    Continuation lines are indented, so that they cannot imitate a line of the command.
    """
    return escaped(text).replace("\n", "\n    ")


def escaped(text: str) -> str:
    """Return the text with control characters escaped, but not its line ends."""
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    return "".join(
        repr(sign)[1:-1]
        if unicodedata.category(sign) in _UNSEEN and sign not in _JOINERS
        else sign
        for sign in text
    )


@dataclass(frozen=True)
class Terminal:
    """The two streams of a command.

    With ``as_json`` stdout contains only JSON. The variable NO_COLOR disables colours even if
    ``color`` is true.
    """

    as_json: bool = False
    quiet: bool = False
    color: bool = True

    @cached_property
    def out(self) -> Console:
        """Stdout, for results."""
        return self._console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Stderr, for errors, progress and notes."""
        return self._console(stderr=True)

    @property
    def interactive(self) -> bool:
        """Whether stderr is a terminal on which lines can be redrawn."""
        return self.err.is_terminal and not self.err.is_dumb_terminal

    @property
    def width(self) -> int | None:
        """The terminal's number of columns; None if stdout is not a terminal."""
        return self.out.width if self.out.is_terminal else None

    def print(self, *shown: RenderableType) -> None:
        """Print results, one per line."""
        for each in shown:
            self.out.print(each, soft_wrap=isinstance(each, str))

    def print_json(self, value: Mapping[str, object] | Sequence[object]) -> None:
        """Print a value as one line of JSON."""
        text = json.dumps(value, ensure_ascii=False)
        text = _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def show(self, value: Json, *lines: RenderableType, empty: str = "") -> None:
        """Print a result: as JSON with --json, else as lines.

        Args:
            value: The JSON value.
            lines: The lines to print without --json.
            empty: The note to print if there are no lines.
        """
        if self.as_json:
            self.print_json(value)
        elif empty and not lines:
            self.note(empty)
        else:
            self.print(*lines)

    def show_rows(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]] | None = None,
        *,
        json: Json,
        right: Sequence[str] = (),
        empty: str = "",
    ) -> None:
        """Print a result: as JSON with --json, else as a table.

        Args:
            headings: The column headings.
            rows: The cells of each row; not read with --json. By default each object of the
                JSON value is a row, and the headings are the keys of its cells.
            json: The JSON value.
            right: The headings of right-aligned columns, for numbers.
            empty: The note to print if there are no rows; "" prints an empty table.
        """
        if self.as_json:
            self.print_json(json)
            return
        shown = table(*headings, right=right)
        if rows is None:
            rows = ([record[heading] for heading in headings] for record in json)  # type: ignore[index]  # objects
        for row in rows:
            shown.add_row(*map(_cell, row))
        if empty and not shown.row_count:
            self.note(empty)
        else:
            self.print(shown)

    def note(self, text: str) -> None:
        """Print a progress message on stderr, except with --quiet or --json."""
        if not self.quiet and not self.as_json:
            self.err.print(text, style="dim", soft_wrap=True)

    def status(self, text: str) -> AbstractContextManager[object]:
        """Show a spinner with the text while the body runs, if stderr is a terminal."""
        if self.quiet or self.as_json or not self.interactive:
            return nullcontext()
        return self.err.status(text)

    def confirm(self, question: str, problem: str, fix: str) -> None:
        """Ask the user; without a terminal raise ConfigError for the field --yes."""
        import typer

        from headrace.sdk import ConfigError

        if self.as_json or not sys.stdin.isatty():
            raise ConfigError(problem, field="--yes", fix=fix)
        typer.confirm(question, abort=True, err=True)

    def _console(self, *, stderr: bool) -> Console:
        from rich.console import Console, ConsoleOptions
        from rich.segment import Segment

        class Escaping(Console):
            """Escapes the control characters of everything that is printed, but not its own."""

            @override
            def render(
                self, renderable: RenderableType, options: ConsoleOptions | None = None
            ) -> Iterable[Segment]:
                for segment in super().render(renderable, options):
                    if segment.control or segment.text.isprintable():
                        yield segment
                    else:
                        yield Segment(escaped(segment.text), segment.style)

        # Texts contain field names such as sinks[0], which must not be parsed as markup.
        console = Escaping(
            stderr=stderr,
            color_system="auto" if self.color else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        if not console.is_terminal:
            console.width = max(console.width, WIDTH_OF_FILES)
        return console


def _cell(value: object) -> RenderableType:
    """Return a cell, escaped before it is laid out: what becomes longer then would be cut."""
    if isinstance(value, str):
        return escaped(value)
    return str(value) if isinstance(value, int) else value  # type: ignore[return-value]  # or a rich text


def table(
    *columns: str, right: Sequence[str] = (), title: str | None = None, wrap: bool = True
) -> Table:
    """Return an empty table in the style of the command line.

    The columns named in ``right`` are right-aligned, for numbers; with ``wrap`` a long text
    continues on further lines.
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
    pinned: int = 0,
) -> RenderableType:
    """Return a table that fits: long cells are truncated and the last columns omitted.

    Args:
        headings: One per column, each of one or more lines.
        rows: JSON values.
        width: The terminal's number of columns; None for a file, where no column is omitted.
        title: The line above the table.
        styles: One per row.
        pinned: How many columns at the end are never omitted.
    """
    from rich.console import Group
    from rich.text import Text

    whole = [[text(value) for value in row] for row in rows]
    texts = [
        [t if len(t) <= CELL_WIDTH else f"{t[: CELL_WIDTH - 1]}…" for t in row] for row in whole
    ]
    headings = [escaped(heading) for heading in headings]
    chosen = _fitting(headings, texts, width, pinned)
    shown = table(*(headings[n] for n in chosen), title=title, wrap=False)
    for number, row in enumerate(texts):
        style = styles[number] if styles else ""
        shown.add_row(*(Text(row[n]) for n in chosen), style=style)
    hidden = len(headings) - len(chosen)
    if not hidden:
        return shown
    columns = "column" if hidden == 1 else "columns"
    return Group(shown, Text(f"and {hidden} more {columns}; --json shows all", style="dim"))


def text(value: object) -> str:
    """Return a JSON value as a cell text of one line."""
    return _escaped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _fitting(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, pinned: int
) -> list[int]:
    """Return the indexes of the columns to show: the first that fit, and the pinned ones."""
    every = list(range(len(headings)))
    if width is None:
        return every
    widths = [
        _GAP + max(len(line) for line in (*heading.split("\n"), *(row[n] for row in rows)))
        for n, heading in enumerate(headings)
    ]
    last = every[len(every) - pinned :]
    left = width + _GAP - sum(widths[n] for n in last)
    chosen: list[int] = []
    for n in every[: len(every) - pinned]:
        left -= widths[n]
        if left < 0 and chosen:
            break
        chosen.append(n)
    return [*chosen, *last]
