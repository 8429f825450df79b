"""Pauses, resumes, stops, restarts and deletes connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.connector.options import Json, Names, Seconds, Wait
from headrace.cli.connector.selection import Action, act, carry_out, chosen, is_pattern
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.client import Client


def _steering(
    about: str, *, asked: str, done: str, run: Callable[[Client, str], object]
) -> Callable[..., None]:
    """Return a command that does something with connectors until they are as ``done`` says."""

    def command(
        context: typer.Context,
        names: Names,
        wait: Wait = False,
        timeout: Seconds = 60,
        as_json: Json = False,
    ) -> None:
        from headrace.client import Goal

        goal = Goal(done.upper()) if wait else None
        act(context, names, Action(asked=asked, done=done, run=run, goal=goal, seconds=timeout))

    command.__doc__ = about
    return command


pause = _steering(
    "End the tasks of connectors for now. They keep their places; see resume.",
    asked="pausing",
    done="paused",
    run=lambda client, name: client.pause(name),
)
resume = _steering(
    "Let connectors run that were paused or stopped.",
    asked="resuming",
    done="running",
    run=lambda client, name: client.resume(name),
)
stop = _steering(
    "End the tasks of connectors, so that their offsets may be changed; see resume.",
    asked="stopping",
    done="stopped",
    run=lambda client, name: client.stop(name),
)


def restart(
    context: typer.Context,
    names: Names,
    *,
    task: Annotated[
        int | None, typer.Option("--task", min=0, help="Only the task of this number.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what has failed.")] = False,
    only_connector: Annotated[
        bool, typer.Option("--only-connector", help="Plan again, without restarting tasks.")
    ] = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Restart connectors with their tasks, or some of that."""
    from headrace.client import Goal

    def run(client: Client, name: str) -> None:
        if task is not None:
            client.restart_task(name, task)
        else:
            client.restart(name, tasks=not only_connector, only_failed=failed)

    goal = Goal.RUNNING if wait else None
    action = Action(asked="restarting", done="running", run=run, goal=goal, seconds=timeout)
    act(context, names, action)


def delete(
    context: typer.Context,
    names: Names,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask about those that a pattern matches.")
    ] = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Delete connectors. What they have written stays; so do topics."""
    from headrace.client import Client, Goal

    goal = Goal.GONE if wait else None
    run = Client.delete
    action = Action(asked="deleted", done="deleted", run=run, goal=goal, seconds=timeout)
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = chosen(client, names)
        if any(map(is_pattern, names)) and not yes:
            _confirm(found, as_json=as_json)
        carry_out(client, found, action, invocation.terminal)


def _confirm(names: Sequence[str], *, as_json: bool) -> None:
    """Ask whether all of them may go; where there is nobody to ask, nothing may."""
    import sys

    from headrace.sdk import ConfigError

    if as_json or not sys.stdin.isatty():
        problem = f"The pattern matches {len(names)}: {', '.join(names)}."
        raise ConfigError(problem, field="--yes", fix="Add --yes to delete all of them.")
    typer.echo("\n".join(names), err=True)
    typer.confirm(f"Delete these {len(names)}?", abort=True, err=True)
