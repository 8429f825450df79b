"""``headrace version``, ``setup``, ``doctor`` and ``demo``: what this machine has and lacks."""

from __future__ import annotations

import platform
from datetime import timedelta
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace import __version__
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json
from headrace.cli.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.terminal import Terminal
    from headrace.runtime.doctor import Examined


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


_HEADINGS = ("connector", "part", "requirement", "verdict", "found", "fix")


def doctor(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A JSON or YAML file.")],
    as_json: Json = False,
) -> int:
    """Check everything that the connectors of a file require, and show how to fix problems.

    Connects to each source and target and checks privileges, tables, free space and settings,
    and this machine's Java and jars. Changes nothing and does not start Spark. Exits with 2 if
    a requirement failed.
    """
    from headrace.cli.failures import WRONG_CONFIG
    from headrace.runtime.doctor import examine_definition, examine_machine
    from headrace.sdk.connector import Verdict

    invocation = invocation_of(context)
    checker = invocation.checker()
    found: list[tuple[str, Examined]] = []
    with invocation.terminal.status("checking") as shown:
        report = getattr(shown, "update", lambda _: None)
        for each in checker.definitions([file]):
            report(f"checking {each.name}")
            examined = examine_definition(each, checker.registry)
            found += ((each.name, one) for one in examined)
        found += (("", one) for one in examine_machine(invocation.settings))
    _show(invocation.terminal, found)
    failed = any(one.finding.verdict is Verdict.FAILED for _, one in found)
    return WRONG_CONFIG if failed else 0


def _show(terminal: Terminal, found: Sequence[tuple[str, Examined]]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "connector": connector,
            "part": one.part,
            "requirement": one.finding.requirement,
            "verdict": one.finding.verdict.value,
            "found": one.finding.found,
            "fix": one.finding.fix,
        }
        for connector, one in found
    ]
    shown = ([visible(row[heading]) for heading in _HEADINGS] for row in rows)
    terminal.show_rows(_HEADINGS, shown, json=rows)
