"""``headrace apply``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.selection import carry_out
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, Seconds, Wait, Yes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.gitops.plan import Change, Plan
    from headrace.client import Client


TO_CHANGE = 4
"""The exit code of a dry run that found changes."""


def apply(
    context: typer.Context,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Definition files, or folders of them; - is the standard input.",
            allow_dash=True,
        ),
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan without changing anything.")
    ] = False,
    yes: Yes = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that no file defines.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only connectors whose names match."),
    ] = None,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Change a server's connectors to match files: show a plan, ask, then apply it.

    The server validates everything first; nothing is changed if there is any error. Exit codes:
    0 applied or nothing to do, 4 a dry run found changes, 1 an action failed, 2 the files are
    invalid, 3 no server responds.
    """
    from headrace.client import Goal

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        plan = _checked_plan(client, places, only, prune=prune)
        if not as_json:
            terminal.print(*plan.lines(), plan.summary())
        if dry_run or not plan.changes:
            if as_json:
                shown = {"applied": False, "plan": plan.to_json(), "unchanged": plan.unchanged}
                terminal.print_json(shown)
            raise typer.Exit(TO_CHANGE if plan.changes else 0)
        if not yes:
            problem = f"Changes need confirmation ({plan.summary()}), but there is no terminal."
            terminal.confirm("Do it?", problem, "Add --yes to do it, or --dry-run.")
        to_run = set()
        for change in plan.changes:
            before = "RUNNING" if change.there is None else change.there.state
            if change.target is not None and (change.target.state or before) == "RUNNING":
                to_run.add(change.name)
        carry_out(
            client,
            terminal,
            {change.name: partial(_do, client, change) for change in plan.changes},
            Goal.RUNNING if wait else None,
            timeout,
            is_awaited=to_run.__contains__,
            key="done",
        )


def _checked_plan(
    client: Client, places: Sequence[Path], only: list[str] | None, *, prune: bool
) -> Plan:
    """Return the plan, validated by the server. Raises ConfigErrors with all errors."""
    from fnmatch import fnmatchcase

    from headrace.cli.definition_files import read_files
    from headrace.cli.gitops.folder import files_below, there_on
    from headrace.cli.gitops.plan import plan

    def matches(name: str) -> bool:
        return not only or any(fnmatchcase(name, each) for each in only)

    described = [each for each in read_files(files_below(places)) if matches(each.name)]
    there = {name: each for name, each in there_on(client).items() if matches(name)}
    found = plan(described, there, prune=prune)
    return replace(found, secrets=_secrets(client, found.changes))


def _secrets(client: Client, changes: Sequence[Change]) -> dict[str, frozenset[str]]:
    """Validate new configurations on the server; return the secret keys by connector."""
    from headrace.sdk import ConfigError, ConfigErrors, HeadraceError

    errors: list[ConfigError] = []
    secrets: dict[str, frozenset[str]] = {}
    for change in changes:
        if change.target is None or not change.configures:
            continue
        try:
            validation = client.validate(change.target.config)
        except HeadraceError as error:
            errors.append(ConfigError(error.problem, fix=error.fix, field=change.name))
            continue
        secrets[change.name] = validation.secrets
        errors += (
            ConfigError(each.problem, fix=each.fix, field=f"{change.name}: {each.field}")
            for each in validation.errors
        )
    if errors:
        raise ConfigErrors(errors)
    return secrets


def _do(client: Client, change: Change) -> str:
    if change.target is None:
        client.delete(change.name)
        return "deleted"
    if change.there is None:
        first = change.target.state or change.target.initial_state
        client.create(change.name, change.target.config, state=first)
        return "created"
    if change.configures:
        client.configure(change.name, change.target.config)
    steps = {"RUNNING": client.resume, "PAUSED": client.pause, "STOPPED": client.stop}
    if change.state is not None:
        steps[change.state](change.name)
    return "changed"
