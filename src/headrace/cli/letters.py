"""What the commands for rejected records share, here and on a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from headrace.cli.formats import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True, slots=True)
class Filters:
    """The options that choose letters, as they were given."""

    connector: str | None = None
    stage: str | None = None
    exception: str | None = None
    since: str | None = None
    until: str | None = None
    letter: Sequence[str] | None = None

    def choice(self, kind: Callable[..., _T]) -> _T:
        """Return a ``kind``, DeadLetterFilter or LetterChoice. Raises ConfigError."""
        return kind(
            connector=self.connector,
            stage=self.stage and self.stage.upper(),
            exception=self.exception,
            since=None if self.since is None else time_of(self.since, "--since"),
            until=None if self.until is None else time_of(self.until, "--until"),
            ids=tuple(self.letter or ()),
        )


def filtered(**more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that choose letters, as its parameter ``filters``.

    Typer takes options from a signature only, and these are the same for many commands.

    Args:
        more: Further options by name: a connector's, and a letter's.
    """
    options = {**more, "stage": Stage, "exception": Exception_, "since": Since, "until": Until}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        hints = get_type_hints(command, include_extras=True)
        taken = [
            each.replace(annotation=hints[name])
            for name, each in signature(command).parameters.items()
            if name != "filters"
        ]
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in options.items()
        ]

        @wraps(command)
        def run(*args: Any, **given: Any) -> Any:
            filters = Filters(**{name: given.pop(name) for name in options})
            return command(*args, filters=filters, **given)

        run.__signature__ = Signature([*taken, *added])  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {each.name: each.annotation for each in (*taken, *added)}
        return run

    return decorate


def show_groups(
    terminal: Terminal, groups: Sequence[Mapping[str, Any]], *, as_json: bool
) -> None:
    """Print how many letters are open, by topic, connector and cause."""
    from headrace.cli.formats import count

    cells = [[group[column] for column in _COLUMNS] for group in groups]
    terminal.show_rows(
        _COLUMNS,
        [[count(c) if isinstance(c, int) else str(c or "") for c in row] for row in cells],
        json=groups,
        as_json=as_json,
        right=("letters",),
        empty="no open letters",
    )


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
        problem, fix = "This would discard all letters.", "Pass a filter, or --all."
        raise ConfigError(problem, field="--all", fix=fix)
