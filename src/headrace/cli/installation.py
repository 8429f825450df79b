"""``headrace version``, ``headrace setup`` and ``headrace demo``."""

from __future__ import annotations

import platform
from datetime import timedelta
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json


def version(context: typer.Context, as_json: Json = False) -> None:
    """Show the versions of Headrace, Python and the main libraries."""
    parts = {"headrace": __version__, "python": platform.python_version()}
    parts |= {name: installed(name) for name in ("pyspark", "deltalake", "pyarrow")}
    lines = (f"{name} {number}" for name, number in parts.items())
    invocation_of(context).terminal.show(parts, *lines)


def setup(context: typer.Context, as_json: Json = False) -> None:
    """Prepare this machine: find Java, download Spark's jars, create the class archive.

    Completed steps are skipped, and later runs need no network.
    """
    invocation = invocation_of(context)
    terminal, settings = invocation.terminal, invocation.settings
    from headrace.spark.class_archive import prepare

    steps: list[str] = []

    def report(step: str) -> None:
        steps.append(step)
        terminal.note(step)

    prepare(settings, report=report)
    shown = {"ready": True, "steps": steps, "cache": str(settings.cache)}
    terminal.show(shown, *([] if invocation.quiet else ["ready"]))


def demo(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder for everything the demo creates.")
    ] = Path("headrace-demo"),
    seconds: Annotated[
        int, typer.Option(min=1, help="How long the file of the real-time part keeps growing.")
    ] = 30,
) -> int:
    """Copy public flight data, offline and in real time, and check every row.

    Takes about a minute and 100 MB. The folder contains everything: data, definitions, tables
    and state. Another run empties it first.
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
