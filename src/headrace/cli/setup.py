"""``headrace setup``."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.invocation import invocation_of


def setup(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prepare this machine: find Java, fetch Spark's jars, make the class archive.

    What is done already is not done again, and later runs need no network.
    """
    invocation = invocation_of(context)
    terminal, settings = invocation.terminal, invocation.settings
    from headrace.spark.class_archive import prepare

    steps: list[str] = []

    def tell(step: str) -> None:
        steps.append(step)
        terminal.note(step)

    prepare(settings, report=tell)
    if as_json:
        terminal.print_json({"ready": True, "steps": steps, "cache": str(settings.cache)})
    elif not invocation.quiet:
        terminal.print("ready")
