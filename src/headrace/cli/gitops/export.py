"""``headrace export``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.options import Json, MaybeNames
from headrace.cli.connector.selection import chosen
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.control import Served


@dataclass
class _Exported:
    """What became of each connector and file."""

    folder: Path
    known: Mapping[str, tuple[Path, Served]]
    """What the folder describes, by name, with the file."""
    prune: bool
    done: list[tuple[str, str, str]] = field(default_factory=list)

    def write(self, described: Served) -> None:
        """Write the file of a connector, unless the folder describes it as it is."""
        from headrace.cli.gitops.folder import file_name, yaml_text

        own = self.folder / file_name(described.name)
        file, before = self.known.get(described.name, (own, None))
        if before is not None and (dict(before.config), before.state) == (
            dict(described.config),
            described.state,
        ):
            self.done.append((described.name, "unchanged", str(file)))
        elif file != own:
            # It may hold more than this one, in a form of somebody's own.
            self.done.append((described.name, "differs", str(file)))
        else:
            own.write_text(yaml_text(described), encoding="utf-8")
            told = "written" if before is None else "changed"
            self.done.append((described.name, told, str(own)))

    def forget(self, name: str) -> None:
        """Remove the file of a connector that the server does not have, if asked to."""
        from headrace.cli.gitops.folder import file_name

        file, _ = self.known[name]
        if self.prune and file == self.folder / file_name(name):
            file.unlink()
            self.done.append((name, "removed", str(file)))
        else:
            self.done.append((name, "not on the server", str(file)))


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
    from headrace.cli.connector.definition_files import read_placed
    from headrace.cli.gitops.folder import described_on, files_below

    invocation = invocation_of(context)
    with invocation.client() as client:
        there = described_on(client)
        wanted = set(chosen(client, names)) if names else set(there)
    folder.mkdir(parents=True, exist_ok=True)
    known = {
        name: (file, each) for (file, name), each in read_placed(files_below([folder])).items()
    }
    exported = _Exported(folder, known, prune)
    for name, each in there.items():
        if name in wanted:
            exported.write(each)
    if not names:
        for name in sorted(known.keys() - there.keys()):
            exported.forget(name)
    if as_json:
        invocation.terminal.print_json(
            [{"name": name, "done": done, "file": file} for name, done, file in exported.done]
        )
        return
    invocation.terminal.print(*(f"{file}: {done}" for _, done, file in exported.done))
    if not exported.done:
        invocation.terminal.note("no connectors")
