"""The health of a server and the levels of its loggers."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.inputs import check_one_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json

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
