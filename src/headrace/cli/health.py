"""``headrace health``."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.invocation import invocation_of


def health(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask a server how it is. Exit codes: 0 healthy, 1 not, 3 no server answers."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        about, found = client.about(), client.health()
        url = client.http.address.url
    if as_json:
        terminal.print_json({"server": url, **about, **found})
        return
    terminal.print(f"{url} (version {about['version']}) is {found['status']}")
    terminal.note(found["message"])
