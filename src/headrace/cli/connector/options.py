"""The arguments and options that commands about connectors share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    pass

COMPLETION_SECONDS = 2.0


def known_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the connectors that a shell may offer; none where no server answers."""
    from datetime import timedelta

    try:
        client = invocation_of(context).client(timedelta(seconds=COMPLETION_SECONDS))
        with client:
            return [name for name in client.names() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell has no place for what went wrong
        return []


Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The connector.", autocompletion=known_names),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Connectors, or patterns of their names in quotes: 'orders-*'.",
        autocompletion=known_names,
    ),
]
MaybeNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME...]",
        help="Connectors, or patterns of their names in quotes; all by default.",
        autocompletion=known_names,
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="JSON or YAML files; - is the standard input.", allow_dash=True
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return when it is so, or has failed, with exit code 1.")
]
Seconds = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long --wait waits.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the configuration."),
]


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return the keys and values of ``KEY=VALUE`` options. Raises ConfigError."""
    from headrace.sdk import ConfigError

    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            # Not the text itself: it may be a password.
            problem = f"{option} takes KEY=VALUE."
            raise ConfigError(problem, field=option, fix="Write both.")
        found[key.strip()] = value
    return found


def json_pairs(given: list[str] | None, option: str) -> dict[str, Any]:
    """Return the same with values that are JSON, where they can be read as that."""
    import json

    found: dict[str, Any] = {}
    for key, value in pairs(given, option).items():
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found
