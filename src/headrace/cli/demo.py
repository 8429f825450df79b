"""``headrace demo``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.invocation import invocation_of


def demo(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder for everything the demo makes.")
    ] = Path("headrace-demo"),
    seconds: Annotated[
        int, typer.Option(min=1, help="How long the file of the real-time part grows.")
    ] = 30,
) -> int:
    """Move public flight data, offline and in real time, and check every row.

    Takes about a minute and 100 MB. The folder holds all of it: data, definitions,
    tables and state. A second run empties it first.
    """
    invocation = invocation_of(context)
    terminal, settings = invocation.terminal, invocation.settings
    from headrace.cli.interrupts import Interrupts
    from headrace.demo import run

    try:
        finished = run(
            settings,
            terminal.out,
            folder,
            interrupts=Interrupts,
            growth=timedelta(seconds=seconds),
        )
    except KeyboardInterrupt:
        finished = False
    if not finished:
        terminal.note("stopped; the next run starts over")
    return 0 if finished else 1
