"""``headrace dlq``: looks at rejected records, and sends them on their way again."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import letters
from headrace.cli.formats import count
from headrace.cli.invocation import invocation_of
from headrace.cli.letters import Every, Filters, Ids, Topic, filtered

if TYPE_CHECKING:
    from headrace.runtime.app import Runtime

app = typer.Typer(help="Look at rejected records, repair, replay or discard them.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Connector = Annotated[str | None, typer.Option(help="Only those that it rejected.")]


@app.command("list")
@filtered(connector=Connector)
def list_letters(
    context: typer.Context,
    *,
    filters: Filters,
    topic: Annotated[str | None, typer.Argument(help="The topic; else all.")] = None,
    as_json: Json = False,
) -> None:
    """Count open letters by connector and cause, with the first and last time."""
    from headrace.dataplane import DeadLetterFilter

    invocation = invocation_of(context)
    chosen = filters.choice(DeadLetterFilter)
    with invocation.runtime(short_lived=True) as runtime:
        names = [topic] if topic else _with_letters(runtime)
        found = [
            {"topic": name, **group}
            for name in names
            for group in runtime.dead_letter_queue(name).groups(chosen)
        ]
    letters.show_groups(invocation.terminal, found, as_json=as_json)


@app.command()
@filtered(connector=Connector, letter=Ids)
def show(
    context: typer.Context,
    *,
    filters: Filters,
    topic: Topic,
    rows: Annotated[int, typer.Option(min=1, help="How many letters.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a letter.")
    ] = False,
) -> None:
    """Show open letters: the records with their headers and causes, the oldest first."""
    from headrace.dataplane import DeadLetterFilter

    invocation = invocation_of(context)
    chosen = filters.choice(DeadLetterFilter)
    with invocation.runtime(short_lived=True) as runtime:
        found = runtime.dead_letter_queue(topic).lines(chosen, rows)
    letters.show_letters(invocation.terminal, found, as_json=as_json)


@app.command()
@filtered(connector=Connector)
def export(
    context: typer.Context,
    *,
    filters: Filters,
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="The file to write JSON lines to.")],
    as_json: Json = False,
) -> None:
    """Write open letters as JSON lines. Repair them by hand, then replay the file."""
    from headrace.dataplane import DeadLetterFilter

    invocation = invocation_of(context)
    chosen = filters.choice(DeadLetterFilter)
    with invocation.runtime(short_lived=True) as runtime:
        written = runtime.dead_letter_queue(topic).export(chosen, file.absolute())
    _told(context, {"letters": written, "file": str(file)}, as_json=as_json)


@app.command()
@filtered(connector=Connector, letter=Ids)
def discard(
    context: typer.Context,
    *,
    filters: Filters,
    topic: Topic,
    every: Every = False,
    as_json: Json = False,
) -> None:
    """Close letters that are not worth a replay. The topic keeps them."""
    from headrace.dataplane import DeadLetterFilter

    chosen = filters.choice(DeadLetterFilter)
    letters.check_chosen(chosen, DeadLetterFilter(), every=every)
    with invocation_of(context).runtime(short_lived=True) as runtime:
        closed = runtime.dead_letter_queue(topic).discard(chosen)
    _told(context, {"discarded": closed}, as_json=as_json)


@app.command()
@filtered(letter=Ids)
def replay(
    context: typer.Context,
    *,
    filters: Filters,
    file: Annotated[Path, typer.Argument(help="The connector's JSON or YAML file.")],
    records: Annotated[
        Path | None, typer.Option(help="Exported letters, repaired: only these go.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Send letters through their connector's own chain to its sinks again, each once.

    A record that fails again becomes a new letter. A replay that was killed is finished
    by the next one.
    """
    from headrace.cli.checked_files import check_files
    from headrace.cli.failures import exit_code
    from headrace.cli.progress import Scoreboard
    from headrace.cli.summary import Summary
    from headrace.dataplane import DeadLetterFilter

    invocation = invocation_of(context)
    chosen = filters.choice(DeadLetterFilter)
    board = Scoreboard(time.monotonic)
    with invocation.runtime(short_lived=True) as runtime:
        checked = check_files(runtime, [file])
        if checked.errors:
            checked.show(invocation.terminal, warnings=False)
            return checked.exit_code()
        (_, definition), *others = checked.definitions
        if others:
            from headrace.cli.failures import UsageError

            problem = f"{file} defines several connectors."
            raise UsageError(
                problem,
                fix="Pass a file that defines only the connector of these dead letters.",
            )
        claimed, outcome = runtime.replay(definition, chosen, records, board)
    summary = Summary(board.scores(), board.seconds(), stopped=False)
    if as_json:
        invocation.terminal.print_json({**summary.to_json(), "claimed": asdict(claimed)})
    else:
        invocation.terminal.print(summary.to_table())
        _told(context, asdict(claimed), as_json=False)
        from headrace.cli.failures import show as show_errors

        show_errors(outcome.errors.values(), invocation.terminal)
    return exit_code(outcome.errors.values())


def _with_letters(runtime: Runtime) -> list[str]:
    topics = runtime.topics.list()
    return [topic.name for topic in topics if topic.schema().field("cause") is not None]


def _told(context: typer.Context, figures: dict[str, Any], *, as_json: bool) -> None:
    terminal = invocation_of(context).terminal
    if as_json:
        terminal.print_json(figures)
        return
    terminal.print(
        ", ".join(
            f"{name} {count(n) if isinstance(n, int) else n}" for name, n in figures.items()
        )
    )
