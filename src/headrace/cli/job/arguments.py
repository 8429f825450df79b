"""The arguments and options that several commands of jobs have."""

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
    int, typer.Argument(metavar="RUN", min=1, help="The run, as `headrace job runs` shows it.")
]
Lower = Annotated[str | None, typer.Option(metavar="BOUND", help="The first that is read.")]
Upper = Annotated[str | None, typer.Option(metavar="BOUND", help="The first that is not read.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="The longest wait; none by default."
    ),
]
AwaitRuns = Annotated[
    bool,
    typer.Option(
        "--wait", help="Return once it has ended, with exit code 1 unless all has succeeded."
    ),
]


def within(seconds: float | None) -> timedelta | None:
    """Return the longest wait."""
    return None if seconds is None else timedelta(seconds=seconds)


def bound_of(job: Mapping[str, object], text: str, option: str) -> datetime:
    """Return a bound that is a time, in the zone of a job's schedule unless it names one."""
    from zoneinfo import ZoneInfo

    return time_of(text, option, ZoneInfo(str(job["zone"] or "UTC")))
