"""The ways back of a connector's offsets: to a time, and to what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.offsets import Stop, as_text, stopped
from headrace.cli.connector.options import Json, Name, Seconds
from headrace.cli.figures import moment
from headrace.cli.invocation import invocation_of
from headrace.cli.times import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.client import Client


def rewind(
    context: typer.Context,
    name: Name,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TIME",
            help="Such as 2026-11-21T10:00; in this machine's time zone unless it names one.",
        ),
    ],
    *,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Let a stopped connector read again what came at a time or later."""
    when = time_of(to, "TIME")

    def back(client: Client) -> Sequence[Mapping[str, Any]]:
        return client.rewind_offsets(name, when)

    _go_back(context, name, back, timeout, stop=stop, as_json=as_json)


def undo(
    context: typer.Context,
    name: Name,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Go back although data has moved since.")
    ] = False,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Undo the last change of a stopped connector's offsets; an undo can be undone."""

    def back(client: Client) -> Sequence[Mapping[str, Any]]:
        return client.undo_offsets(name, force=force)

    _go_back(context, name, back, timeout, stop=stop, as_json=as_json)


def history(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """List who changed a connector's offsets and when, the newest change first."""
    from headrace.cli.terminal import table

    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.offset_history(name)
    if as_json:
        invocation.terminal.print_json(found)
        return
    shown = table("at", "by", "action", "partition", "before", "after")
    for each in found:
        at = moment(each["at"])
        for change in each["changes"]:
            shown.add_row(at, each["by"], each["action"], *_texts(change))
        if not each["changes"] and each["action"] == "give-up":
            shown.add_row(at, each["by"], each["action"], "", "", "")
    if shown.row_count:
        invocation.terminal.print(shown)
    else:
        invocation.terminal.note(f"{name}: nobody has changed its offsets")


def _texts(change: Mapping[str, Any]) -> tuple[str, str, str]:
    return as_text(change["partition"]), as_text(change["before"]), as_text(change["after"])


def _go_back(
    context: typer.Context,
    name: str,
    back: Callable[[Client], Sequence[Mapping[str, Any]]],
    seconds: float,
    *,
    stop: bool,
    as_json: bool,
) -> None:
    """Change a connector's offsets while it is stopped, and say what changed."""
    invocation = invocation_of(context)
    with (
        invocation.client() as client,
        stopped(client, invocation, name, seconds, stop=stop),
    ):
        changes = back(client)
    if as_json:
        invocation.terminal.print_json({"name": name, "changes": list(changes)})
        return
    for each in changes:
        partition, before, after = _texts(each)
        invocation.terminal.print(f"{name}: {partition}: {before} -> {after}")
        invocation.terminal.note(each["meaning"])
    if not changes:
        invocation.terminal.print(f"{name}: its offsets are as they were")
