"""Lists alerts about jobs and tests their channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import moment
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, known_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_alerts(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Only alerts about this job.", autocompletion=known_jobs
        ),
    ] = None,
    *,
    before: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Only alerts before this one.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, help="How many alerts to list.")
    ] = 20,
    text: Annotated[bool, typer.Option("--text", help="Print the full texts.")] = False,
    as_json: Json = False,
) -> None:
    """List alerts about jobs, newest first, and whether they were sent.

    Includes alerts about deleted jobs. Alerts are retained for 90 days.
    """
    invocation = invocation_of(context)
    with invocation.client() as client:
        found, following = client.jobs.alerts(name, before=before, limit=lines)
    terminal, empty = invocation.terminal, "no alerts"
    if text:
        texts = [f"{moment(each['at'])} {each['text']}" for each in found]
        terminal.show(found, *texts, empty=empty)
    else:
        terminal.show_rows(
            ("number", "at", "kind", "alert", "channels"),
            (
                (
                    each["number"],
                    moment(each["at"]),
                    each["kind"],
                    each["subject"],
                    ", ".join(_delivery(way) for way in each["deliveries"]),
                )
                for each in found
            ),
            json=found,
            right=("number",),
            empty=empty,
        )
    if following is not None:
        terminal.note(f"There are more: --before {following}, or --lines.")


def _delivery(way: Mapping[str, Any]) -> str:
    """Return the delivery to a channel: ``ops sent``, ``ops waiting (2 attempts)``."""
    state = str(way["state"]).replace("_", " ")
    tried = f" ({way['attempts']} attempts)" if way["error"] else ""
    return f"{way['channel']} {state}{tried}"


def try_channels(context: typer.Context, as_json: Json = False) -> int:
    """Send a test alert by each channel of the server. Exits with 1 if a channel failed."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.jobs.test_alerts()
    results = (
        f"{each['channel']} ({each['type']}): {each['error'] or 'sent'}" for each in found
    )
    invocation.terminal.show(found, *results)
    return 1 if any(each["error"] for each in found) else 0
