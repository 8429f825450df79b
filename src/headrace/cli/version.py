"""``headrace version``."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.invocation import invocation_of


def version(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the version of Headrace and of what it runs on."""
    terminal = invocation_of(context).terminal
    parts = {"headrace": __version__, "python": platform.python_version()}
    parts |= {name: installed(name) for name in ("pyspark", "deltalake", "pyarrow")}
    if as_json:
        terminal.print_json(parts)
        return
    for name, number in parts.items():
        terminal.print(f"{name} {number}")
