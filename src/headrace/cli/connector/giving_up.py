"""The way out of a batch that was begun and cannot run any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.counting import place_text
from headrace.cli.connector.offsets import Stop, stopped
from headrace.cli.connector.options import Json, Name, Seconds
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.cli.terminal import Terminal
    from headrace.client import Client


def give_up(
    context: typer.Context,
    name: Name,
    *,
    task: Annotated[
        int | None, typer.Option(min=-1, help="The task of this number; -1 replays letters.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="The batch of this id, to be sure which.")
    ] = None,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="Leave its records out; else they are read once more."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Do it although a target holds it, or does not answer."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Give up a batch of a stopped connector that was begun and cannot run any more."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        number, found = _unfinished(client, name, task, batch)
        with stopped(client, invocation, name, timeout, stop=stop):
            shown = client.give_up(name, number, found, skip=skip, dry_run=True)
            if not as_json:
                _show(terminal, name, shown)
            if not dry_run:
                if not yes:
                    _confirm(shown, as_json=as_json)
                shown = client.give_up(name, number, found, skip=skip, force=force)
    if as_json:
        terminal.print_json({"name": name, **shown})
    elif shown["done"]:
        terminal.print(f"{name}: batch {found} of task {number} is given up")


def _unfinished(
    client: Client, name: str, task: int | None, batch: int | None
) -> tuple[int, int]:
    """Return the task and the id of the connector's one unfinished batch that is meant."""
    from headrace.sdk import ConfigError

    if task is not None and batch is not None:
        return task, batch
    tasks = [each["task"] for each in client.counts(name)["tasks"]] if task is None else [task]
    newest = {number: client.batches(name, number, limit=1) for number in tasks}
    found = [
        (number, int(each["id"]))
        for number, batches in newest.items()
        for each in batches
        if each["finished"] is None and batch in {None, each["id"]}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        problem = f"{name} has no such unfinished batch."
        fix = f"headrace connector batches {name} --task N lists those of a task."
        raise ConfigError(problem, field="--batch", fix=fix)
    told = "; ".join(f"--task {number} --batch {each}" for number, each in found)
    problem = f"{name} has several unfinished batches: {told}."
    raise ConfigError(problem, field="--task", fix="Name one of them.")


def _show(terminal: Terminal, name: str, shown: Mapping[str, Any]) -> None:
    batch = shown["batch"]
    start, end = (place_text(batch[each]) or "the beginning" for each in ("start", "end"))
    terminal.print(f"{name}: batch {batch['id']} of task {shown['task']}: {start} -> {end}")
    holds = {
        "yes": "holds it",
        "part": "holds a part of it",
        "no": "does not hold it",
        "unknown": "may hold it",
    }
    for each in shown["targets"]:
        why = f": {each['why']}" if each["why"] else ""
        terminal.print(f"{name}: {each['name']} {holds[each['holds']]}{why}")
    terminal.note(shown["meaning"])


def _confirm(shown: Mapping[str, Any], *, as_json: bool) -> None:
    """Ask whether to do it; where there is nobody to ask, it is not done."""
    import sys

    from headrace.sdk import ConfigError

    if as_json or not sys.stdin.isatty():
        problem = f"Batch {shown['batch']['id']} was not given up."
        raise ConfigError(problem, field="--yes", fix="Add --yes to do it.")
    typer.confirm("Give it up?", abort=True, err=True)
