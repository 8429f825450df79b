"""What the commands for rejected records share, here and on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.cli.times import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.cli.terminal import Terminal

Topic = Annotated[str, typer.Argument(help="The dead-letter topic.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only those of this stage.")]
Exception_ = Annotated[
    str | None, typer.Option("--exception", help="Only those with an error of this class.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only those of batches that began then or later, as 2026-11-21T10:00; in this "
        "machine's time zone unless it names one.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those of batches that began before."),
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; repeatable.")]
Every = Annotated[bool, typer.Option("--all", help="Needed where no filter is.")]

_T = TypeVar("_T")
_COLUMNS = ("topic", "connector", "stage", "class", "exception", "letters", "first", "last")


def choice(
    kind: Callable[..., _T],
    *,
    connector: str | None = None,
    stage: str | None,
    exception: str | None,
    since: str | None,
    until: str | None,
    letters: Sequence[str] | None = None,
) -> _T:
    """Return which letters are meant, as a ``kind``: a LetterFilter or a LetterChoice."""
    return kind(
        connector=connector,
        stage=stage and stage.upper(),
        exception=exception,
        since=None if since is None else time_of(since, "--since"),
        until=None if until is None else time_of(until, "--until"),
        ids=tuple(letters or ()),
    )


def show_groups(
    terminal: Terminal, groups: Sequence[Mapping[str, Any]], *, as_json: bool
) -> None:
    """Print how many letters are open, by topic, connector and cause."""
    from headrace.cli.figures import count
    from headrace.cli.terminal import table

    if as_json:
        terminal.print_json(groups)
        return
    if not groups:
        terminal.note("no open letters")
        return
    shown = table(*_COLUMNS, right=("letters",))
    for group in groups:
        cells = [group[column] for column in _COLUMNS]
        shown.add_row(*(count(c) if isinstance(c, int) else str(c or "") for c in cells))
    terminal.print(shown)


def show_letters(
    terminal: Terminal, letters: Sequence[Mapping[str, Any]], *, as_json: bool
) -> None:
    """Print open letters, each with all that is known of it."""
    from rich.pretty import Pretty

    for letter in letters:
        if as_json:
            terminal.print_json(letter)
        else:
            terminal.print(Pretty(letter, expand_all=True))
    if not letters:
        terminal.note("no open letters")


def check_chosen(chosen: _T, all_of_them: _T, *, every: bool) -> None:
    """Raise ConfigError where all letters would go and nobody has said so."""
    from headrace.sdk import ConfigError

    if chosen == all_of_them and not every:
        problem, fix = "This would discard all letters.", "Give a filter, or --all."
        raise ConfigError(problem, field="--all", fix=fix)
