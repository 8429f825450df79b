"""``headrace apply``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.options import Json, Seconds, Wait
from headrace.cli.connector.selection import Action, Outcome, waited, waiting_for
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.gitops.plan import Change, Plan
    from headrace.cli.terminal import Terminal
    from headrace.client import Client


TO_CHANGE = 4
"""The exit code of a dry run that found something to change."""


def apply(
    context: typer.Context,
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Folders of files that describe connectors, or files; - is the input.",
            allow_dash=True,
        ),
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that no file describes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Leave connectors of other names alone."),
    ] = None,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Make a server's connectors as files describe them: show a plan, ask, then do it.

    The server checks everything first, and nothing is done while anything is wrong. Exit codes:
    0 done or nothing to do, 4 a dry run found something to change, 1 something failed, 2 the
    files are wrong, 3 no server answers.
    """
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        found = _planned(client, places, only, prune=prune)
        if not as_json:
            terminal.print(*found.lines())
            terminal.print(found.summary())
        if dry_run or not found.changes:
            if as_json:
                told = {"applied": False, "plan": found.to_json(), "unchanged": found.unchanged}
                terminal.print_json(told)
            raise typer.Exit(TO_CHANGE if found.changes else 0)
        if not yes:
            _ask(found, as_json=as_json)
        goal_seconds = timeout if wait else None
        _carry_out(client, found, goal_seconds, terminal)


def _planned(
    client: Client, places: Sequence[Path], only: list[str] | None, *, prune: bool
) -> Plan:
    """Plan, and let the server check it. Raises ConfigErrors with all that is wrong."""
    from fnmatch import fnmatchcase

    from headrace.cli.connector.definition_files import read_files
    from headrace.cli.gitops.folder import files_below, there_on
    from headrace.cli.gitops.plan import plan

    def chosen(name: str) -> bool:
        return not only or any(fnmatchcase(name, each) for each in only)

    wanted = [each for each in read_files(files_below(places)) if chosen(each.name)]
    there = {name: each for name, each in there_on(client).items() if chosen(name)}
    found = plan(wanted, there, prune=prune)
    return replace(found, secrets=_checked(client, found.changes))


def _checked(client: Client, changes: Sequence[Change]) -> dict[str, frozenset[str]]:
    """Let the server check what is to be; return the keys that are secret, by connector."""
    from headrace.sdk import ConfigError, ConfigErrors, HeadraceError

    errors: list[ConfigError] = []
    secrets: dict[str, frozenset[str]] = {}
    for change in changes:
        if change.wanted is None or not change.configures:
            continue
        try:
            validation = client.validate(change.wanted.config)
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


def _ask(plan: Plan, *, as_json: bool) -> None:
    """Ask whether to go on; where there is nobody to ask, the answer is no."""
    from headrace.sdk import ConfigError

    if as_json or not sys.stdin.isatty():
        problem = f"Changes need confirmation ({plan.summary()}), but there is no terminal."
        raise ConfigError(problem, field="--yes", fix="Add --yes to do it, or --dry-run.")
    typer.confirm("Do it?", abort=True, err=True)


def _carry_out(
    client: Client, plan: Plan, wait_seconds: float | None, terminal: Terminal
) -> None:
    """Do all of it, deletions last; an error with one leaves the others alone."""
    from headrace.client import Goal, ServerUnreachableError
    from headrace.sdk import HeadraceError

    outcome = Outcome()
    action = Action(
        asked="",
        done="running",
        run=lambda _client, _name: None,
        goal=Goal.RUNNING,
        seconds=wait_seconds or 0,
    )
    waiting = None if wait_seconds is None else waiting_for(client, action, terminal)
    if waiting is not None:
        waiting.started([change.name for change in plan.changes])
    for change in plan.changes:
        try:
            done = _do(client, change)
        except ServerUnreachableError:
            raise
        except HeadraceError as error:
            outcome.errors[change.name] = error
        else:
            outcome.told[change.name] = {"name": change.name, "done": done}
            if not terminal.as_json:
                terminal.print(f"{change.name}: {done}")
    if waiting is not None:
        running = _Part(outcome, plan)
        waited(waiting, running.outcome, action, terminal)
        running.merge()
    outcome.finish(terminal)


class _Part:
    """The connectors of a plan that are to run when it is done."""

    def __init__(self, outcome: Outcome, plan: Plan) -> None:
        """Pick those that were created or changed and are not to be paused or stopped."""
        self._whole = outcome
        ends = {
            change.name
            for change in plan.changes
            if change.wanted is None or (change.wanted.state or _before(change)) != "RUNNING"
        }
        told = {name: each for name, each in outcome.told.items() if name not in ends}
        self.outcome = Outcome(told)

    def merge(self) -> None:
        """Put what became of them into the whole."""
        self._whole.errors |= self.outcome.errors


def _before(change: Change) -> str:
    return "RUNNING" if change.there is None else change.there.state


def _do(client: Client, change: Change) -> str:
    done: dict[str | None, Any] = {
        "RUNNING": client.resume,
        "PAUSED": client.pause,
        "STOPPED": client.stop,
    }
    if change.wanted is None:
        client.delete(change.name)
        return "deleted"
    if change.there is None:
        first = change.wanted.state or change.wanted.initial_state
        client.create(change.name, change.wanted.config, state=first)
        return "created"
    if change.configures:
        client.configure(change.name, change.wanted.config)
    if change.state is not None:
        done[change.state](change.name)
    return "changed"
