"""The arguments and options that several job commands share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.formats import time_of
from headrace.cli.options import known_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

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
