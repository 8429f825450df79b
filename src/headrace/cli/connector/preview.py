"""``headrace connector preview``: what a configuration would do on the server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.options import Files as _Files
from headrace.cli.connector.options import Json
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def preview(
    context: typer.Context,
    files: _Files,
    *,
    connector: Annotated[
        str | None, typer.Option(help="Which connector, if the files describe several.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many records.")] = 20,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")
    ] = 120,
    as_json: Json = False,
) -> None:
    """Let the server show the first records of a source, also after each transform.

    Nothing is stored, and nothing is written.
    """
    from headrace.cli.connector.definition_files import read_files
    from headrace.cli.failures import unknown
    from headrace.cli.preview import Shown, tell

    described = {each.name: each for each in read_files(files)}
    name = connector or next(iter(described))
    if name not in described:
        raise unknown(name, list(described), noun="connector", field="--connector")
    invocation = invocation_of(context)
    with invocation.client(timedelta(seconds=timeout)) as client:
        found = client.preview(described[name].config, rows)
    stages = [
        Shown(each["name"], each["fields"], [*map(_told, each["records"])]) for each in found
    ]
    tell(invocation.terminal, name, stages)


def _told(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as it is shown: what did not happen to it is not there."""
    fates = ("dropped", "error")
    return {key: each for key, each in record.items() if key not in fates or each is not None}
