"""``headrace backup``: copies of a server's store, made while the server runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.formats import moment, size
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

app = typer.Typer(
    help="Back up a server's store while it runs: connectors, positions, counts, events and "
    "registered schemas, but not the data of topics."
)


@app.command()
def create(context: typer.Context, as_json: Json = False) -> None:
    """Copy the store to a file in the server's home folder."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        made = client.back_up()
    line = f"{made['file']}: {size(made['size_bytes'])}"
    invocation.terminal.show(made, line)


@app.command("list")
def list_backups(context: typer.Context, as_json: Json = False) -> None:
    """List the copies, the newest first."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.backups()
    # Not a table: a table would truncate paths that users want to copy.
    lines = (f"{moment(b['at'])}  {size(b['size_bytes']):>8}  {b['file']}" for b in found)
    invocation.terminal.show(found, *lines, empty="no backups")


@app.command()
def restore(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="A backup, or another copy of a store.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Start with an empty store.")] = False,
) -> None:
    """Replace the store in the home folder with a backup, while no server runs.

    The replaced store is kept in a folder beside it. Records copied since the backup are copied
    again, independently by each source, topic and sink.
    """
    from headrace.runtime.server import at_rest
    from headrace.sdk import ConfigError
    from headrace.store import BackupNotSupportedError, put_back, start_empty

    if (file is None) is not empty:
        problem = "Either a file or --empty is needed."
        fix = "Name a backup; `headrace backup list` shows those of a server."
        raise ConfigError(problem, field="FILE", fix=fix)
    invocation = invocation_of(context)
    settings = invocation.settings
    if settings.store_url is not None:
        problem = "The store is in PostgreSQL, which restores its own backups."
        fix = "Use pg_restore; the next start detects the restore."
        raise BackupNotSupportedError(problem, fix=fix)
    place = settings.store_file
    with at_rest(settings):
        replaced = start_empty(place) if file is None else put_back(place, file)
    if replaced is not None:
        invocation.terminal.note(f"the replaced store is in {replaced}")
    invocation.terminal.note(f"{place} is {'empty' if file is None else f'a copy of {file}'}")


@app.command()
def adopt(context: typer.Context) -> None:
    """Mark the store as restored by other means, such as a snapshot of the machine.

    Tasks continue with epochs and batch ids that no target has seen. Not needed after `headrace
    backup restore` or `pg_restore`, or for a promoted standby.
    """
    from headrace.runtime.server import at_rest
    from headrace.store import go_on_from_earlier

    invocation = invocation_of(context)
    with at_rest(invocation.settings):
        go_on_from_earlier(invocation.settings.store_place)
    invocation.terminal.note("tasks continue with epochs and batch ids that no target has seen")
