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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Created if missing.")],
    names: MaybeNames = None,
    *,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete files of connectors that are not on the server."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a server's connectors to a folder, one YAML file each, for `headrace apply`.

    References such as ${env:NAME} and hidden values are written as the server returns them. A
    connector that is already defined in another file of the folder is not written.
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
            # A file that a user wrote: it may define more connectors, in another form.
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
