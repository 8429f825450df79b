"""Creates, changes and validates connectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.options import Files, Json, Name, Seconds, Set, Wait, pairs
from headrace.cli.connector.selection import (
    Action,
    Outcome,
    carry_out,
    tell,
    waited,
    waiting_for,
)
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.cli.invocation import Invocation
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
    str | None, typer.Option("--name", help="The name, of a connector that --set describes.")
]


def create(
    context: typer.Context,
    *,
    files: MaybeFiles = None,
    name: OneName = None,
    sets: Set = None,
    paused: Annotated[bool, typer.Option("--paused", help="Begin paused.")] = False,
    stopped: Annotated[bool, typer.Option("--stopped", help="Begin stopped.")] = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Create connectors from files, or one from --name and --set. Fails if one is there."""
    from headrace.client import Goal

    state = "STOPPED" if stopped else "PAUSED" if paused else None
    goals = {None: Goal.RUNNING, "PAUSED": Goal.PAUSED, "STOPPED": Goal.STOPPED}

    def run(client: Client, wanted: Served) -> str:
        begin = state or wanted.state or wanted.initial_state
        client.create(wanted.name, wanted.config, state=begin)
        return "created"

    goal = goals[state] if wait else None
    invocation = invocation_of(context)
    _define(invocation, _wanted(files, name, sets), run, goal, timeout)


def apply(
    context: typer.Context,
    files: Files,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Make connectors as files describe them: create, change or leave each as it is."""
    from headrace.cli.connector.definition_files import read_files
    from headrace.client import Goal

    invocation = invocation_of(context)
    with invocation.client() as client:
        there = client.infos()

    def run(client: Client, wanted: Served) -> str:
        known = there.get(wanted.name)
        if known is not None and wanted.config == dict(known.config):
            return "unchanged"
        if known is None:
            client.create(
                wanted.name, wanted.config, state=wanted.state or wanted.initial_state
            )
            return "created"
        client.configure(wanted.name, wanted.config)
        return "changed"

    _define(invocation, read_files(files), run, Goal.RUNNING if wait else None, timeout)


def config(
    context: typer.Context,
    name: Name,
    *,
    sets: Set = None,
    unsets: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a key.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Print that of this version.")
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
        problem, fix = "What it was cannot be changed.", "Leave it out; rollback goes back."
        raise ConfigError(problem, field="--version", fix=fix)
    with invocation.client() as client:
        if not changes:
            found = client.version(name, version) if version else client.config(name)
            if as_json:
                invocation.terminal.print_json(found)
                return
            invocation.terminal.print(*(f"{key}={found[key]}" for key in sorted(found)))
            return
        goal = Goal.RUNNING if wait else None

        def run(client: Client, name: str) -> None:
            client.change(name, changes)

        action = Action(asked="changed", done="running", run=run, goal=goal, seconds=timeout)
        carry_out(client, [name], action, invocation.terminal)


def validate(context: typer.Context, files: Files, as_json: Json = False) -> None:
    """Let the server check the connectors of files. Nothing is stored."""
    from headrace.cli.connector.definition_files import read_files
    from headrace.cli.failures import errors_json, show
    from headrace.sdk import ConfigErrors

    invocation = invocation_of(context)
    wanted = read_files(files)
    with invocation.client() as client:
        found = {each.name: client.validate(each.config).errors for each in wanted}
    if as_json:
        invocation.terminal.print_json(
            [
                {"name": name, "valid": not errors, "errors": errors_json(errors)}
                for name, errors in found.items()
            ]
        )
    else:
        for name, errors in found.items():
            if errors:
                show([ConfigErrors(errors)], invocation.terminal, where=name)
            else:
                invocation.terminal.print(f"{name}: valid")
    if any(found.values()):
        raise typer.Exit(2)


def _wanted(
    files: Sequence[Path] | None, name: str | None, sets: list[str] | None
) -> list[Served]:
    from headrace.cli.connector.definition_files import read_files, with_keys
    from headrace.control import Served
    from headrace.sdk import ConfigError

    if bool(files) == (name is not None):
        problem = "Connectors come from files, or one from --name and --set."
        fix = "Add a FILE, or --name NAME --set connector.class=CLASS."
        raise ConfigError(problem, field="FILE", fix=fix)
    if files:
        return [with_keys(each, pairs(sets, "--set")) for each in read_files(files)]
    assert name is not None
    return [Served(name=name, config={**pairs(sets, "--set"), "name": name})]


def _define(
    invocation: Invocation,
    wanted: Sequence[Served],
    run: Callable[[Client, Served], str],
    goal: object,
    seconds: float,
) -> None:
    """Create or change each connector, wait if asked to, and say what became of it."""
    from headrace.client import Goal, ServerUnreachableError
    from headrace.sdk import HeadraceError

    terminal, outcome = invocation.terminal, Outcome()
    assert goal is None or isinstance(goal, Goal)
    state = "" if goal is None else goal.value.lower()
    action = Action(
        asked="", done=state, run=lambda _client, _name: None, goal=goal, seconds=seconds
    )
    names = [each.name for each in wanted]
    with invocation.client() as client:
        waiting = None if goal is None else waiting_for(client, action, terminal)
        if waiting is not None:
            waiting.started(names)
        for each in wanted:
            try:
                done = run(client, each)
            except ServerUnreachableError:
                raise
            except HeadraceError as error:
                outcome.errors[each.name] = error
            else:
                outcome.told[each.name] = {"name": each.name, "asked": done}
                tell(terminal, [each.name], done)
        if waiting is not None:
            waited(waiting, outcome, action, terminal)
    outcome.finish(terminal)
