"""What a server has and is: its plugins and its loggers."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.connector.options import Json
from headrace.cli.invocation import invocation_of

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
_OTHER_LEVELS = ("WARNING", "CRITICAL")
"""Python's names of WARN and FATAL."""


def plugins(
    context: typer.Context,
    plugin: Annotated[
        str | None, typer.Argument(metavar="[CLASS]", help="Show the keys of this one.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Transforms, predicates and converters too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the plugins that the server has, or the keys of one."""
    invocation = invocation_of(context)
    if plugin is not None:
        _keys(context, plugin)
        return
    with invocation.client() as client:
        found = client.plugins(only_connectors=not every)
    invocation.terminal.show_rows(
        ("type", "class", "version"),
        ((each.kind, each.class_name, each.version) for each in found),
        json=[each.to_json() for each in found],
        as_json=as_json,
    )


def _keys(context: typer.Context, plugin: str) -> None:
    from headrace.cli.failures import unknown
    from headrace.client import NotThereError

    invocation = invocation_of(context)
    with invocation.client() as client:
        try:
            found = client.plugin_keys(plugin)
        except NotThereError:
            known = [each.class_name for each in client.plugins(only_connectors=False)]
            raise unknown(plugin, known, noun="plugin", field="CLASS") from None
    defaults = {
        key["name"]: "required" if key["required"] else str(key["default_value"] or "")
        for key in found
    }
    invocation.terminal.show_rows(
        ("key", "type", "default", "what it does"),
        (
            (key["name"], key["type"].lower(), defaults[key["name"]], key["documentation"])
            for key in found
        ),
        json=found,
        as_json=invocation.terminal.as_json,
    )


def loggers(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[LOGGER]", help="This one; all by default.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help=f"Set it, and those below it: {', '.join(_LEVELS)}."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or set how much the server's loggers tell, until it ends."""
    from headrace.cli.failures import unknown
    from headrace.sdk import ConfigError

    if level is not None and name is None:
        problem = "--level needs the name of a logger."
        raise ConfigError(problem, field="LOGGER", fix="Name one; root is all of them.")
    if level is not None and level.upper() not in {*_LEVELS, *_OTHER_LEVELS}:
        problem = f"Invalid level {level!r}."
        fix = f"Use one of: {', '.join(_LEVELS)}."
        raise ConfigError(problem, field="--level", fix=fix)
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
        as_json=as_json,
    )
