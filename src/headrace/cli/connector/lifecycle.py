"""Pauses, resumes, stops, restarts and deletes connectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from headrace.cli.connector.selection import carry_out, confirm_patterns, for_each, selected
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, Names, Seconds, Wait, YesAll


def _command(about: str, asked: str, goal: str) -> Callable[..., None]:
    """Return a command that calls a client method for each connector.

    Args:
        about: The help text.
        asked: The printed action; also selects the client method.
        goal: The state that --wait waits for.
    """

    def command(
        context: typer.Context,
        names: Names,
        wait: Wait = False,
        timeout: Seconds = 60,
        as_json: Json = False,
    ) -> None:
        from headrace.client import Goal

        invocation = invocation_of(context)
        with invocation.client() as client:
            do = {"pausing": client.pause, "resuming": client.resume, "stopping": client.stop}
            work = for_each(selected(client, names), asked, do[asked])
            carry_out(client, invocation.terminal, work, Goal(goal) if wait else None, timeout)

    command.__doc__ = about
    return command


pause = _command(
    "Pause the tasks of connectors. They keep their offsets; see resume.",
    "pausing",
    "PAUSED",
)
resume = _command("Resume paused or stopped connectors.", "resuming", "RUNNING")
stop = _command(
    "Stop the tasks of connectors, so that their offsets can be changed; see resume.",
    "stopping",
    "STOPPED",
)


def restart(
    context: typer.Context,
    names: Names,
    *,
    task: Annotated[
        int | None, typer.Option("--task", min=0, help="Only the task with this number.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed parts.")] = False,
    only_connector: Annotated[
        bool, typer.Option("--only-connector", help="Only plan tasks again, without restarts.")
    ] = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Restart connectors with their tasks, or only some of these parts."""
    from headrace.client import Goal

    invocation = invocation_of(context)
    with invocation.client() as client:

        def restart_one(name: str) -> None:
            if task is not None:
                client.restart_task(name, task)
            else:
                client.restart(name, tasks=not only_connector, only_failed=failed)

        work = for_each(selected(client, names), "restarting", restart_one)
        carry_out(client, invocation.terminal, work, Goal.RUNNING if wait else None, timeout)


def delete(
    context: typer.Context,
    names: Names,
    *,
    yes: YesAll = False,
    wait: Wait = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Delete connectors. Written data and topics are kept."""
    from headrace.client import Goal

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        found = selected(client, names)
        confirm_patterns(terminal, names, found, yes=yes)
        left: dict[str, list[str]] = {}

        def delete_one(name: str) -> None:
            left[name] = client.delete(name)
            for each in left[name] if not as_json else ():
                terminal.print(f"{name}: {each}")

        work = for_each(found, "deleted", delete_one)
        goal = Goal.GONE if wait else None
        more = lambda name: {"left": left[name]} if left.get(name) else {}  # noqa: E731
        carry_out(client, terminal, work, goal, timeout, reached="deleted", more=more)
