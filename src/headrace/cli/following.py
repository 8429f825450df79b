"""``headrace logs`` and ``headrace events``: print once, or follow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import moment
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, known_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.cli.terminal import Terminal
    from headrace.client import Client

LOOK_SECONDS = 0.5
"""The poll interval of ``--follow``."""
_MOST = 1000
_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red"}

MaybeName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="Only of this connector.", autocompletion=known_names
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")
]
Lines = Annotated[
    int, typer.Option("--lines", "-n", min=0, max=_MOST, help="How many of the newest lines.")
]


def logs(
    context: typer.Context,
    name: MaybeName = None,
    *,
    task: Annotated[
        int | None, typer.Option(min=0, help="Only of the task with this number.")
    ] = None,
    level: Annotated[
        str, typer.Option(help="The lowest level to show: debug, info, warning, error.")
    ] = "info",
    lines: Lines = 50,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Show the server's log, all of it or one connector's; tracebacks with --verbose."""
    invocation = invocation_of(context)
    chosen: dict[str, Any] = {"connector": name, "task": task, "level": level.lower()}
    with invocation.client() as client:
        if name is not None:
            client.info(name)  # raises NotThereError for an unknown connector
        found, place = client.logs(limit=max(1, lines), **chosen)
        _print_lines(invocation.terminal, found[-lines:] if lines else [], invocation.verbose)
        while follow:
            if not found:
                time.sleep(LOOK_SECONDS)
            found, place = client.logs(after=place, **chosen)
            _print_lines(invocation.terminal, found, invocation.verbose)


def events(
    context: typer.Context,
    name: MaybeName = None,
    *,
    changes: Annotated[
        bool, typer.Option("--changes", help="Only changes by callers, not state changes.")
    ] = False,
    lines: Lines = 50,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Show the events of connectors and jobs: changes by callers and state changes."""
    invocation = invocation_of(context)
    chosen: dict[str, Any] = {"connector": name, "changes": changes}
    with invocation.client() as client:
        found, newest = _newest(client, chosen, lines)
        if name is not None and not found:
            client.info(name)  # raises NotThereError; a deleted connector still has events
        _print_events(invocation.terminal, found)
        while follow:
            if not found:
                time.sleep(LOOK_SECONDS)
            found, newest = client.events(after=newest, **chosen)
            _print_events(invocation.terminal, found)


def _newest(
    client: Client, chosen: Mapping[str, Any], lines: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the newest events, and the ``after`` for the next request."""
    newest = 0
    last: list[dict[str, Any]] = []
    while True:
        found, newest = client.events(after=newest, limit=_MOST, **chosen)
        last = [*last, *found][-lines:] if lines else []
        if len(found) < _MOST:
            return last, newest


def _print_lines(terminal: Terminal, found: list[dict[str, Any]], verbose: bool) -> None:
    from rich.text import Text

    for each in found:
        if terminal.as_json:
            terminal.print_json(each)
            continue
        level = each["level"]
        parts = [moment(each["at"]), f"{level:7}", _of(each), each["text"]]
        line = Text(" ".join(part for part in parts if part), style=_STYLES.get(level, ""))
        if each["detail"]:
            line.append(f" ({_pairs(each['detail'])})")
        terminal.out.print(line, soft_wrap=True)
        if verbose and each["trace"]:
            terminal.out.print(each["trace"], soft_wrap=True)


def _print_events(terminal: Terminal, found: list[dict[str, Any]]) -> None:
    for each in found:
        if terminal.as_json:
            terminal.print_json(each)
            continue
        at = moment(each["at"])
        head = " ".join(part for part in (at, _of(each), each["kind"]) if part)
        detail = f" {_pairs(each['detail'])}" if each["detail"] else ""
        terminal.out.print(f"{head}{detail}, by {each['by']}", soft_wrap=True)


def _of(each: Mapping[str, Any]) -> str:
    """Return the connector or task that a line or event is about."""
    if not each["connector"]:
        return ""
    return each["connector"] if each["task"] is None else f"{each['connector']}-{each['task']}"


def _pairs(detail: Mapping[str, Any]) -> str:
    """Return the details as ``key=value`` in one line, without nulls."""
    texts = {
        key: str(value).partition("\n")[0] for key, value in detail.items() if value is not None
    }
    return ", ".join(f"{key}={text}" for key, text in texts.items())
