"""``headrace connector dlq``: rejected records of a server, wherever it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import letters
from headrace.cli.connector.options import Json, Name, known_names
from headrace.cli.invocation import invocation_of
from headrace.cli.letters import Every, Filters, Ids, Topic, filtered

app = typer.Typer(
    help="Look at a server's rejected records, repair, replay or discard them; headrace dlq "
    "does the same in a home folder of this machine."
)
Connector = Annotated[
    str | None,
    typer.Option(
        "--connector", help="Only those that it rejected.", autocompletion=known_names
    ),
]


@app.command("list")
@filtered(connector=Connector)
def list_letters(
    context: typer.Context,
    *,
    filters: Filters,
    as_json: Json = False,
) -> None:
    """Count open letters by topic, connector and cause, with the first and last time."""
    from headrace.client import LetterChoice

    invocation = invocation_of(context)
    chosen = filters.choice(LetterChoice)
    with invocation.client() as client:
        found = client.letter_groups(chosen)
    letters.show_groups(invocation.terminal, found, as_json=as_json)


@app.command()
@filtered(connector=Connector, letter=Ids)
def show(
    context: typer.Context,
    topic: Topic,
    *,
    filters: Filters,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many letters.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a letter, for replay --records.")
    ] = False,
) -> None:
    """Show open letters: the records with their headers and causes, the oldest first."""
    from headrace.client import LetterChoice

    invocation = invocation_of(context)
    chosen = filters.choice(LetterChoice)
    with invocation.client() as client:
        found = client.letters(topic, chosen, limit=rows)
    # What is null here would be taken for a repair, where it is sent back.
    lines = [{key: v for key, v in each.items() if v is not None} for each in found]
    letters.show_letters(invocation.terminal, lines, as_json=as_json)


@app.command()
@filtered(connector=Connector, letter=Ids)
def discard(
    context: typer.Context,
    topic: Topic,
    *,
    filters: Filters,
    every: Every = False,
    as_json: Json = False,
) -> None:
    """Close letters that are not worth a replay. The topic keeps them."""
    from headrace.client import LetterChoice

    chosen = filters.choice(LetterChoice)
    letters.check_chosen(chosen, LetterChoice(), every=every)
    invocation = invocation_of(context)
    with invocation.client() as client:
        closed = client.discard_letters(topic, chosen, every=every)
    if as_json:
        invocation.terminal.print_json({"discarded": closed})
    else:
        invocation.terminal.print(f"{topic}: discarded {closed}")


@app.command()
@filtered(letter=Ids)
def replay(
    context: typer.Context,
    name: Name,
    *,
    filters: Filters,
    records: Annotated[
        Path | None,
        typer.Option(
            help="Letters as show --json prints them, repaired: only these go; - is the "
            "standard input.",
            allow_dash=True,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")
    ] = 300,
    as_json: Json = False,
) -> None:
    """Send letters through their connector's own chain to its sinks again, each once.

    A record that fails again becomes a new letter. A replay that was cut off is finished by
    the next one.
    """
    from headrace.client import LetterChoice, ServerError

    chosen = filters.choice(LetterChoice)
    repaired = None if records is None else _read(records)
    invocation = invocation_of(context)
    with invocation.client(timedelta(seconds=timeout)) as client:
        told = client.replay_letters(name, chosen, repaired)
    error = told["error"]
    if as_json:
        invocation.terminal.print_json({"name": name, **told})
    else:
        figures = (f"{part} {told[part]}" for part in ("records", "unrepaired", "unknown"))
        invocation.terminal.print(f"{name}: {', '.join(figures)}")
    if error is not None and as_json:
        raise typer.Exit(1)
    if error is not None:
        raise ServerError(error["problem"], field=error["field"] or name, fix=error["fix"])


def _read(file: Path) -> list[dict[str, Any]]:
    """Read a letter a line."""
    import json
    import sys

    from headrace.sdk import ConfigError

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
        raise ConfigError(problem, field="--records", fix="Check the path.") from error
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            letter = json.loads(line)
            found.append({**letter, "id": letter["id"] + ""})  # a text, or TypeError
        except (ValueError, KeyError, TypeError) as error:
            problem = f"Line {number} of {file} is not a dead letter."
            fix = "Keep the lines of dlq show --json, and the id of each."
            raise ConfigError(problem, field="--records", fix=fix) from error
    return found
