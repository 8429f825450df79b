"""Creates, changes and validates connectors, and shows and restores their versions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.selection import carry_out, for_each
from headrace.cli.formats import diff_lines, moment
from headrace.cli.inputs import pairs, read_files
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Files, Json, Name, Seconds, Set, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.terminal import Terminal
    from headrace.client import Client
    from headrace.control import Served


MaybeFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE...]",
        help="JSON or YAML files; - is the standard input.",
        allow_dash=True,
    ),
]
OneName = Annotated[
    str | None, typer.Option("--name", help="The name of a connector defined by --set.")
]


def create(
    context: typer.Context,
    *,
    files: MaybeFiles = None,
    name: OneName = None,
    sets: Set = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create as PAUSED.")] = False,
    stopped: Annotated[bool, typer.Option("--stopped", help="Create as STOPPED.")] = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Create connectors from files, or one from --name and --set. Fails if one exists."""
    from headrace.client import Goal

    state = "STOPPED" if stopped else "PAUSED" if paused else None
    described = _described(files, name, sets)
    invocation = invocation_of(context)
    with invocation.client() as client:

        def make(each: Served) -> str:
            begin = state or each.state or each.initial_state
            client.create(each.name, each.config, state=begin)
            _warn(client, invocation.terminal, each)
            return "created"

        work = {each.name: partial(make, each) for each in described}
        goal = Goal(state or "RUNNING") if wait else None
        carry_out(client, invocation.terminal, work, goal, timeout, key="asked")


def apply(
    context: typer.Context,
    files: Files,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Create or change connectors to match files; connectors that match are left unchanged."""
    from headrace.client import Goal

    described = read_files(files)
    invocation = invocation_of(context)
    with invocation.client() as client:
        there = client.infos()

        def make(each: Served) -> str:
            known = there.get(each.name)
            if known is None:
                client.create(each.name, each.config, state=each.state or each.initial_state)
                _warn(client, invocation.terminal, each)
                return "created"
            if each.config == dict(known.config):
                return "unchanged"
            client.configure(each.name, each.config)
            _warn(client, invocation.terminal, each)
            return "changed"

        work = {each.name: partial(make, each) for each in described}
        goal = Goal.RUNNING if wait else None
        carry_out(client, invocation.terminal, work, goal, timeout, key="asked")


def config(
    context: typer.Context,
    name: Name,
    *,
    sets: Set = None,
    unsets: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a key.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Print this version.")
    ] = None,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Print a connector's configuration as lines of KEY=VALUE, or change some of its keys."""
    from headrace.client import Goal
    from headrace.sdk import ConfigError

    invocation = invocation_of(context)
    changes = {**pairs(sets, "--set"), **dict.fromkeys(unsets or ())}
    if changes and version is not None:
        problem, fix = "Earlier versions cannot be changed.", "Remove --version; see rollback."
        raise ConfigError(problem, field="--version", fix=fix)
    with invocation.client() as client:
        if not changes:
            found = client.version(name, version) if version else client.config(name)
            invocation.terminal.show(found, *(f"{key}={found[key]}" for key in sorted(found)))
            return
        work = for_each([name], "changed", lambda name: client.change(name, changes))
        carry_out(client, invocation.terminal, work, Goal.RUNNING if wait else None, timeout)


def validate(context: typer.Context, files: Files, as_json: Json = False) -> None:
    """Validate the connectors of files on the server. Nothing is stored."""
    from headrace.cli.failures import errors_json, show

    terminal = invocation_of(context).terminal
    described = read_files(files)
    with invocation_of(context).client() as client:
        checked = {each.name: client.validate(each.config) for each in described}
    found = {name: each.errors for name, each in checked.items()}
    for name, errors in found.items():
        if not as_json:
            show(checked[name].warnings, terminal, kind="warning", where=name)
            show(errors, terminal, where=name)
        if not as_json and not errors:
            terminal.print(f"{name}: valid")
    if as_json:
        terminal.print_json(
            [
                {
                    "name": name,
                    "valid": not errors,
                    "errors": errors_json(errors),
                    "warnings": errors_json(checked[name].warnings),
                }
                for name, errors in found.items()
            ]
        )
    if any(found.values()):
        raise typer.Exit(2)


def _warn(client: Client, terminal: Terminal, described: Served) -> None:
    """Show the warnings for a stored configuration, such as unknown keys."""
    from headrace.cli.failures import show

    if not terminal.as_json and not terminal.quiet:
        found = client.validate(described.config)
        show(found.warnings, terminal, kind="warning", where=described.name)


def _described(
    files: Sequence[Path] | None, name: str | None, sets: list[str] | None
) -> list[Served]:
    from headrace.control import Served
    from headrace.sdk import ConfigError

    keys = pairs(sets, "--set")
    if bool(files) == (name is not None):
        problem = "Either files or --name with --set is required."
        fix = "Add a FILE, or --name NAME --set connector.class=CLASS."
        raise ConfigError(problem, field="FILE", fix=fix)
    if name is not None:
        return [Served(name=name, config={**keys, "name": name})]
    found = read_files(files or ())
    return [replace(each, config={**each.config, **keys}) for each in found]


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
