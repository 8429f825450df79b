"""The configuration versions of a connector: list, diff and rollback."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import typer

from headrace.cli.connector.selection import carry_out, for_each
from headrace.cli.formats import diff_lines, moment
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, Name, Seconds, Wait


def versions(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """List the configuration versions of a connector, newest first."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.versions(name)
    invocation.terminal.show_rows(
        ("version", "at", "by", "changed"),
        (
            (each["version"], moment(each["at"]), each["by"], ", ".join(each["changed"]))
            for each in found
        ),
        json=found,
        right=("version",),
    )


def diff(
    context: typer.Context,
    name: Name,
    before: Annotated[
        int | None,
        typer.Argument(
            metavar="[BEFORE]", min=1, help="A version; the one before AFTER by default."
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Argument(metavar="[AFTER]", min=1, help="A version; the current one by default."),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the differences between two configuration versions of a connector."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        newest = client.versions(name)[0]["version"]
        last = after or newest
        first = before or max(1, last - 1)
        found = client.differences(name, first, last)
    lines = (diff_lines(each["key"], each["before"], each["after"]) for each in found)
    invocation.terminal.show(
        {"before": first, "after": last, "changes": found},
        *chain.from_iterable(lines),
        empty=f"{name}: versions {first} and {last} are the same",
    )


def rollback(
    context: typer.Context,
    name: Name,
    version: Annotated[
        int | None,
        typer.Option("--to", min=1, help="The version; the previous one by default."),
    ] = None,
    *,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Restore an earlier configuration of a connector, as a new version."""
    from headrace.client import Goal
    from headrace.sdk import ConfigError

    invocation = invocation_of(context)
    with invocation.client() as client:
        known = [each["version"] for each in client.versions(name)]
        if version is None and len(known) == 1:
            problem = f"{name} has only one configuration version."
            fix = f"Change it with: headrace connector config {name} --set KEY=VALUE."
            raise ConfigError(problem, field="NAME", fix=fix)
        number = version or known[1]
        said = f"back to version {number}"
        work = for_each([name], said, lambda name: client.restore(name, number))
        goal = Goal.RUNNING if wait else None
        carry_out(client, invocation.terminal, work, goal, timeout, reached=said)
