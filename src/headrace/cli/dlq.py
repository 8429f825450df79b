"""``headrace dlq``: looks at rejected records, and sends them on their way again."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.figures import count
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from headrace.bootstrap import Runtime
    from headrace.dataplane import LetterFilter

app = typer.Typer(help="Look at rejected records, repair, replay or discard them.")

Topic = Annotated[str, typer.Argument(help="The dead-letter topic.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Connector = Annotated[str | None, typer.Option(help="Only those that it rejected.")]
Stage = Annotated[str | None, typer.Option(help="Only those of this stage.")]
Exception_ = Annotated[
    str | None, typer.Option("--exception", help="Only those with an error of this class.")
]
Since = Annotated[str | None, typer.Option(help="Only those rejected at this time or later.")]
Until = Annotated[str | None, typer.Option(help="Only those rejected before this time.")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; repeatable.")]


@app.command("list")
def list_letters(
    context: typer.Context,
    *,
    topic: Annotated[str | None, typer.Argument(help="The topic; else all.")] = None,
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Count open letters by connector and cause, with the first and last time."""
    from headrace.cli.terminal import table

    invocation = invocation_of(context)
    terminal = invocation.terminal
    chosen = _chosen(
        connector=connector, stage=stage, exception=exception, since=since, until=until
    )
    with invocation.runtime(short_lived=True) as runtime:
        names = [topic] if topic else _with_letters(runtime)
        found = [
            {"topic": name, **group}
            for name in names
            for group in runtime.letterbox(name).groups(chosen)
        ]
    if as_json:
        terminal.print_json(found)
        return
    if not found:
        terminal.note("no open letters")
        return
    columns = ("topic", "connector", "stage", "class", "exception", "letters", "first", "last")
    shown = table(*columns, right=("letters",))
    for group in found:
        cells = [group[column] for column in columns]
        shown.add_row(*(count(c) if isinstance(c, int) else str(c or "") for c in cells))
    terminal.print(shown)


@app.command()
def show(
    context: typer.Context,
    *,
    topic: Topic,
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    letter: Ids = None,
    rows: Annotated[int, typer.Option(min=1, help="How many letters.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a letter.")
    ] = False,
) -> None:
    """Show open letters: the records with their headers and causes, the oldest first."""
    from rich.pretty import Pretty

    invocation = invocation_of(context)
    terminal = invocation.terminal
    chosen = _chosen(
        connector=connector,
        stage=stage,
        exception=exception,
        since=since,
        until=until,
        letters=letter,
    )
    with invocation.runtime(short_lived=True) as runtime:
        found = runtime.letterbox(topic).lines(chosen, rows)
    for line in found:
        if as_json:
            terminal.print_json(line)
        else:
            terminal.print(Pretty(line, expand_all=True))
    if not found:
        terminal.note("no open letters")


@app.command()
def export(
    context: typer.Context,
    *,
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="The file to write JSON lines to.")],
    connector: Connector = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Write open letters as JSON lines. Repair them by hand, then replay the file."""
    invocation = invocation_of(context)
    chosen = _chosen(
        connector=connector, stage=stage, exception=exception, since=since, until=until
    )
    with invocation.runtime(short_lived=True) as runtime:
        written = runtime.letterbox(topic).export(chosen, file.absolute())
    _told(context, {"letters": written, "file": str(file)}, as_json=as_json)


@app.command()
def discard(
    context: typer.Context,
    *,
    topic: Topic,
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
    from headrace.cli.failures import UsageError
    from headrace.dataplane import LetterFilter

    chosen = _chosen(
        connector=connector,
        stage=stage,
        exception=exception,
        since=since,
        until=until,
        letters=letter,
    )
    if chosen == LetterFilter() and not every:
        problem = "This would discard all letters."
        raise UsageError(problem, fix="Give a filter, or --all.")
    with invocation_of(context).runtime(short_lived=True) as runtime:
        closed = runtime.letterbox(topic).discard(chosen)
    _told(context, {"discarded": closed}, as_json=as_json)


@app.command()
def replay(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="The connector's JSON or YAML file.")],
    records: Annotated[
        Path | None, typer.Option(help="Exported letters, repaired: only these go.")
    ] = None,
    stage: Stage = None,
    exception: Exception_ = None,
    since: Since = None,
    until: Until = None,
    letter: Ids = None,
    as_json: Json = False,
) -> int:
    """Send letters through their connector's own chain to its sinks again, each once.

    A record that fails again becomes a new letter. A replay that was killed is finished
    by the next one.
    """
    from headrace.cli.checked import check_files
    from headrace.cli.failures import exit_code
    from headrace.cli.scoreboard import Scoreboard
    from headrace.cli.summary import Summary

    invocation = invocation_of(context)
    chosen = _chosen(stage=stage, exception=exception, since=since, until=until, letters=letter)
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
            raise UsageError(problem, fix="Give a file with the one whose letters are meant.")
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


def _chosen(
    *,
    connector: str | None = None,
    stage: str | None,
    exception: str | None,
    since: str | None,
    until: str | None,
    letters: list[str] | None = None,
) -> LetterFilter:
    from headrace.dataplane import LetterFilter

    return LetterFilter(
        connector=connector,
        stage=stage.upper() if stage else None,
        exception=exception,
        since=_time(since, "--since"),
        until=_time(until, "--until"),
        ids=tuple(letters or ()),
    )


def _time(text: str | None, field: str) -> datetime | None:
    from headrace.cli.failures import UsageError

    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        problem, fix = f"{text!r} is not a time.", "Write it as 2026-01-31T00:00:00Z."
        raise UsageError(problem, field=field, fix=fix) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


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
