"""Commands that show a server's health, loggers, log and events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import moment
from headrace.cli.inputs import check_one_of
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


_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
_PYTHON_LEVELS = ("WARNING", "CRITICAL")
"""Python's names for WARN and FATAL."""


def health(context: typer.Context, as_json: Json = False) -> None:
    """Check the health of a server. Exit codes: 0 healthy, 1 unhealthy, 3 no response."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        about, found = client.about(), client.health()
        url = client.http.address.url
    line = f"{url} (version {about['version']}) is {found['status']}"
    invocation.terminal.show({"server": url, **about, **found}, line)
    invocation.terminal.note(found["message"])


def loggers(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[LOGGER]", help="The logger; all by default.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help=f"Set this level, also for child loggers: {', '.join(_LEVELS)}."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the levels of the server's loggers, or set them until the server ends."""
    from headrace.cli.failures import unknown
    from headrace.sdk import ConfigError

    if level is not None and name is None:
        problem = "--level needs the name of a logger."
        raise ConfigError(problem, field="LOGGER", fix="Name a logger; root is all.")
    if level is not None and level.upper() not in {*_LEVELS, *_PYTHON_LEVELS}:
        check_one_of(level, _LEVELS, "level", "--level")
    invocation = invocation_of(context)
    with invocation.client() as client:
        changed = {name} if name is not None else None
        if level is not None and name is not None:
            changed = set(client.set_logger(name, level))
        known = client.loggers()
    found = [each for each in known if changed is None or each.name in changed]
    if not found and name is not None:
        raise unknown(name, [each.name for each in known], noun="logger", field="LOGGER")
    invocation.terminal.show_rows(
        ("logger", "level"),
        ((each.name, each.level) for each in found),
        json=[each.to_json() for each in found],
    )
