"""``headrace backup``: copies of a server's store, made while it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.figures import moment
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(
    help="Copy a server's store while it works: connectors, positions, counts, events and "
    "registered schemas, but not the data of topics."
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(context: typer.Context, as_json: Json = False) -> None:
    """Copy the store to a file in the server's home folder."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        made = client.back_up()
    if as_json:
        invocation.terminal.print_json(made)
    else:
        invocation.terminal.out.print(f"{made['file']}: {_size(made)}", soft_wrap=True)


@app.command("list")
def list_backups(context: typer.Context, as_json: Json = False) -> None:
    """List the copies, the newest first."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.backups()
    if as_json:
        invocation.terminal.print_json(found)
        return
    if not found:
        invocation.terminal.note("no backups")
        return
    for each in found:
        at = moment(each["at"])
        # Not a table, which would cut a path that somebody wants to copy.
        line = f"{at}  {_size(each):>8}  {each['file']}"
        invocation.terminal.out.print(line, soft_wrap=True)


def _size(made: Mapping[str, Any]) -> str:
    from headrace.cli.figures import size

    return size(made["size_bytes"])
