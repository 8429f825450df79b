"""``headrace connector dlq``: rejected records of a server, wherever it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.options import Json, Name, known_names, time_of
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.client import LetterChoice

app = typer.Typer(
    help="Look at a server's rejected records, repair, replay or discard them; headrace dlq "
    "does the same in a home folder of this machine."
)
Topic = Annotated[str, typer.Argument(help="The dead-letter topic.")]
Connector = Annotated[
    str | None,
    typer.Option(
        "--connector", help="Only those that it rejected.", autocompletion=known_names
    ),
]
Stage = Annotated[str | None, typer.Option("--stage", help="Only those of this stage.")]
Exception_ = Annotated[
    str | None, typer.Option("--exception", help="Only those with an error of this class.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only those of batches that began then or later, as 2026-11-21T10:00; in this "
        "machine's time zone unless it names one.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those of batches that began before."),
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; repeatable.")]
COLUMNS = ("topic", "connector", "stage", "class", "exception", "letters", "first", "last")


@app.command("list")
def list_letters(
    context: typer.Context,
    *,
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Count open letters by topic, connector and cause, with the first and last time."""
    from headrace.cli.figures import count
    from headrace.cli.terminal import table

    invocation = invocation_of(context)
    chosen = _chosen(stage, exception, since, until, connector=connector)
    with invocation.client() as client:
        found = client.letter_groups(chosen)
    if as_json:
        invocation.terminal.print_json(found)
        return
    if not found:
        invocation.terminal.note("no open letters")
        return
    shown = table(*COLUMNS, right=("letters",))
    for group in found:
        cells = [group[column] for column in COLUMNS]
        shown.add_row(*(count(c) if isinstance(c, int) else str(c or "") for c in cells))
    invocation.terminal.print(shown)


@app.command()
def show(
    context: typer.Context,
    topic: Topic,
    *,
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    letter: Ids = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many letters.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a letter, for replay --records.")
    ] = False,
) -> None:
    """Show open letters: the records with their headers and causes, the oldest first."""
    from rich.pretty import Pretty

    invocation = invocation_of(context)
    chosen = _chosen(stage, exception, since, until, connector=connector, letters=letter)
    with invocation.client() as client:
        found = client.letters(topic, chosen, limit=rows)
    for each in found:
        # What is null here would be taken for a repair, where it is sent back.
        line = {key: value for key, value in each.items() if value is not None}
        if as_json:
            invocation.terminal.print_json(line)
        else:
            invocation.terminal.print(Pretty(line, expand_all=True))
    if not found:
        invocation.terminal.note("no open letters")


@app.command()
def discard(
    context: typer.Context,
    topic: Topic,
    *,
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    letter: Ids = None,
    every: Annotated[bool, typer.Option("--all", help="Needed where no filter is.")] = False,
    as_json: Json = False,
) -> None:
    """Close letters that are not worth a replay. The topic keeps them."""
    from headrace.client import LetterChoice
    from headrace.sdk import ConfigError

    chosen = _chosen(stage, exception, since, until, connector=connector, letters=letter)
    if chosen == LetterChoice() and not every:
        problem, fix = "This would discard all letters.", "Give a filter, or --all."
        raise ConfigError(problem, field="--all", fix=fix)
    invocation = invocation_of(context)
    with invocation.client() as client:
        closed = client.discard_letters(topic, chosen, every=every)
    if as_json:
        invocation.terminal.print_json({"discarded": closed})
    else:
        invocation.terminal.print(f"{topic}: discarded {closed}")


@app.command()
def replay(
    context: typer.Context,
    name: Name,
    *,
    records: Annotated[
        Path | None,
        typer.Option(
            help="Letters as show --json prints them, repaired: only these go; - is the "
            "standard input.",
            allow_dash=True,
        ),
    ] = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    letter: Ids = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")
    ] = 300,
    as_json: Json = False,
) -> None:
    """Send letters through their connector's own chain to its sinks again, each once.

    A record that fails again becomes a new letter. A replay that was cut off is finished by
    the next one.
    """
    from headrace.client import ServerError

    chosen = _chosen(stage, exception, since, until, letters=letter)
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


def _chosen(
    stage: str | None,
    exception: str | None,
    since: str | None,
    until: str | None,
    *,
    connector: str | None = None,
    letters: list[str] | None = None,
) -> LetterChoice:
    from headrace.client import LetterChoice

    return LetterChoice(
        connector=connector,
        stage=stage,
        exception=exception,
        since=None if since is None else time_of(since, "--since"),
        until=None if until is None else time_of(until, "--until"),
        ids=tuple(letters or ()),
    )


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
            problem = f"Line {number} of {file} is no letter."
            fix = "Keep the lines of dlq show --json, and the id of each."
            raise ConfigError(problem, field="--records", fix=fix) from error
    return found
