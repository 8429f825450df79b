"""The arguments and options that several commands share."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.formats import time_of
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from headrace.client import Client


COMPLETION_SECONDS = 2.0


def known_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return connector names for shell completion; none if no server responds."""
    return _offered(context, incomplete, lambda client: client.names())


def known_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return job names for shell completion; none if no server responds."""
    return _offered(context, incomplete, lambda client: client.jobs.names())


def _offered(
    context: typer.Context, incomplete: str, names: Callable[[Client], list[str]]
) -> list[str]:
    try:
        client = invocation_of(context).client(timedelta(seconds=COMPLETION_SECONDS))
        with client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - completion cannot show errors
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
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
OneConnector = Annotated[
    str | None,
    typer.Option("--connector", help="Which connector, if the file defines several."),
]
Skip = Annotated[
    bool, typer.Option("--skip", help="Skip its records; without this they are read again.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Force it, even if a target has the batch or does not respond."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
YesAll = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before deleting pattern matches.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until it is done; exit code 1 if it failed.")
]
Seconds = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="The maximum wait.")
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
        help="Only of batches begun at or after this time, such as 2026-11-21T10:00; in this "
        "machine's time zone by default.",
    ),
]


JobName = Annotated[
    str, typer.Argument(metavar="NAME", help="The job.", autocompletion=known_jobs)
]
JobNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Jobs, or patterns of their names in quotes: 'orders-*'.",
        autocompletion=known_jobs,
    ),
]
RunNumber = Annotated[
    int, typer.Argument(metavar="RUN", min=1, help="The run number from `headrace job runs`.")
]
Lower = Annotated[str | None, typer.Option(metavar="BOUND", help="The inclusive lower bound.")]
Upper = Annotated[str | None, typer.Option(metavar="BOUND", help="The exclusive upper bound.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="The maximum wait; no limit by default."
    ),
]
AwaitRuns = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait until it has ended; exit code 1 unless everything succeeded."
    ),
]


def within(seconds: float | None) -> timedelta | None:
    """Return the maximum wait; None for no limit."""
    return None if seconds is None else timedelta(seconds=seconds)


def bound_of(job: Mapping[str, object], text: str, option: str) -> datetime:
    """Parse a time bound; without a UTC offset it is in the zone of the job's schedule."""
    from zoneinfo import ZoneInfo

    return time_of(text, option, ZoneInfo(str(job["zone"] or "UTC")))
