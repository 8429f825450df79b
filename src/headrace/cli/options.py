"""The arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import Client

COMPLETION_SECONDS = 2.0


def known_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the connectors that a shell may offer; none where no server answers."""
    return _offered(context, incomplete, lambda client: client.names())


def known_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs that a shell may offer; none where no server answers."""
    return _offered(context, incomplete, lambda client: client.jobs.names())


def _offered(
    context: typer.Context, incomplete: str, names: Callable[[Client], list[str]]
) -> list[str]:
    from datetime import timedelta

    try:
        client = invocation_of(context).client(timedelta(seconds=COMPLETION_SECONDS))
        with client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell has no place for what went wrong
        return []


Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The connector.", autocompletion=known_names),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Connectors, or patterns of their names in quotes: 'orders-*'.",
        autocompletion=known_names,
    ),
]
MaybeNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME...]",
        help="Connectors, or patterns of their names in quotes; all by default.",
        autocompletion=known_names,
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="JSON or YAML files; - is the standard input.", allow_dash=True
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what it does.")]
Skip = Annotated[
    bool, typer.Option("--skip", help="Leave its records out; else they are read once more.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Force it, even if a target has the batch or does not respond."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
YesAll = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask about those that a pattern matches.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return when it is so, or has failed, with exit code 1.")
]
Seconds = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="The longest wait.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the configuration."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only of batches that began then or later, as 2026-11-21T10:00; in this machine's "
        "time zone unless it names one.",
    ),
]
