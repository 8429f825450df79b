"""``headrace export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.connector.selection import selected
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, MaybeNames


def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Made if it is not there.")],
    names: MaybeNames = None,
    *,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove files of connectors that are not on the server."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a server's connectors to a folder, a YAML file each, for `headrace apply`.

    References such as ${env:NAME} and hidden values stay as the server shows them. A connector
    that another file of the folder describes is left to that file.
    """
    from headrace.cli.definition_files import read_placed
    from headrace.cli.gitops.folder import described_on, file_name, files_below, yaml_text

    invocation = invocation_of(context)
    with invocation.client() as client:
        there = described_on(client)
        selection = set(selected(client, names)) if names else set(there)
    folder.mkdir(parents=True, exist_ok=True)
    known = {
        name: (file, each) for (file, name), each in read_placed(files_below([folder])).items()
    }
    done: list[tuple[str, str, Path]] = []
    for name, each in there.items():
        if name not in selection:
            continue
        own = folder / file_name(name)
        file, before = known.get(name, (own, None))
        same = before and (dict(before.config), before.state) == (dict(each.config), each.state)
        if same:
            done.append((name, "unchanged", file))
        elif file != own:
            # It may hold more than this one, in a form of somebody's own.
            done.append((name, "differs", file))
        else:
            own.write_text(yaml_text(each), encoding="utf-8")
            done.append((name, "written" if before is None else "changed", own))
    for name in () if names else sorted(known.keys() - there.keys()):
        file, _ = known[name]
        if prune and file == folder / file_name(name):
            file.unlink()
            done.append((name, "removed", file))
        else:
            done.append((name, "not on the server", file))
    invocation.terminal.show(
        [{"name": name, "done": what, "file": str(file)} for name, what, file in done],
        *(f"{file}: {what}" for _, what, file in done),
        empty="no connectors",
    )
