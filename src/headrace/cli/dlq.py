"""``headrace dlq`` and ``headrace connector dlq``: rejected records, here and on a server.

The commands are written once, over the operations of ``DeadLetters``: those of a home folder
of this machine, or those of a server's client.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, get_type_hints

import typer

from headrace.cli.formats import count, time_of
from headrace.cli.inputs import read_lines
from headrace.cli.invocation import Invocation, invocation_of
from headrace.cli.options import Json, JsonLines, Name, Since, known_names

if TYPE_CHECKING:
    from headrace.client import LetterChoice
    from headrace.dataplane import DeadLetterFilter
    from headrace.runtime.app import Runtime

local = typer.Typer(help="Look at rejected records, repair, replay or discard them.")
remote = typer.Typer(
    help="Look at a server's rejected records, repair, replay or discard them; headrace dlq "
    "does the same in a home folder of this machine."
)

Topic = Annotated[str, typer.Argument(help="The dead-letter topic.")]
_CONNECTOR = "Only those that it rejected."
Connector = Annotated[str | None, typer.Option("--connector", help=_CONNECTOR)]
ServedConnector = Annotated[
    str | None, typer.Option("--connector", help=_CONNECTOR, autocompletion=known_names)
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; repeatable.")]
_FILTERS: dict[str, Any] = {
    "stage": Annotated[str | None, typer.Option("--stage", help="Only those of this stage.")],
    "exception": Annotated[
        str | None, typer.Option("--exception", help="Only those with an error of this class.")
    ],
    "since": Since,
    "until": Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only of batches that began before."),
    ],
}
_COLUMNS = ("topic", "connector", "stage", "class", "exception", "letters", "first", "last")


class DeadLetters(Protocol):
    """Where rejected records are; ``headrace.client.Client`` is the one on a server."""

    def letter_groups(
        self, chosen: LetterChoice, topic: str | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return how many letters are open, by topic, connector and cause."""

    def letters(
        self, topic: str, chosen: LetterChoice, *, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return the open letters of a topic, the oldest first."""

    def discard_letters(self, topic: str, chosen: LetterChoice, *, every: bool) -> int:
        """Close letters, all of them only with ``every``; return how many."""


class LocalDeadLetters:
    """The rejected records of a home folder."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def letter_groups(self, chosen: LetterChoice, topic: str | None) -> list[dict[str, Any]]:
        every = self._runtime.topics.list()
        dead = [each.name for each in every if each.schema().field("cause") is not None]
        return [
            {"topic": name, **group}
            for name in ([topic] if topic else dead)
            for group in self._runtime.dead_letter_queue(name).groups(_filter(chosen))
        ]

    def letters(self, topic: str, chosen: LetterChoice, *, limit: int) -> list[dict[str, Any]]:
        return self._runtime.dead_letter_queue(topic).lines(_filter(chosen), limit)

    def discard_letters(self, topic: str, chosen: LetterChoice, *, every: bool) -> int:
        return self._runtime.dead_letter_queue(topic).discard(_filter(chosen))


def _filter(chosen: LetterChoice) -> DeadLetterFilter:
    from headrace.dataplane import DeadLetterFilter

    return DeadLetterFilter(**asdict(chosen))


def filtered(**more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that choose letters, as its parameter ``chosen``.

    Typer takes options from a signature only, and these are the same for many commands.

    Args:
        more: Further options by name: ``connector`` and ``ids``.
    """
    options = {**more, **_FILTERS}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        names = {"LetterChoice": Any}  # imported when a command runs
        hints = get_type_hints(command, localns=names, include_extras=True)
        own = [
            each.replace(annotation=hints[name])
            for name, each in signature(command).parameters.items()
            if name != "chosen"
        ]
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in options.items()
        ]

        @wraps(command)
        def run(*args: Any, **values: Any) -> Any:
            from headrace.client import LetterChoice

            filters = {name: values.pop(name) for name in options}
            for bound in ("since", "until"):
                if filters[bound] is not None:
                    filters[bound] = time_of(filters[bound], f"--{bound}")
            filters["stage"] = filters["stage"] and filters["stage"].upper()
            filters["ids"] = tuple(filters.get("ids") or ())
            return command(*args, chosen=LetterChoice(**filters), **values)

        run.__signature__ = Signature([*own, *added])  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return run

    return decorate


def _add_commands(
    app: typer.Typer,
    opened: Callable[[Invocation], AbstractContextManager[DeadLetters]],
    connector: Any,
) -> None:
    """Add the commands that are the same in a home folder and on a server."""

    @app.command("list")
    @filtered(connector=connector)
    def list_letters(
        context: typer.Context,
        *,
        chosen: LetterChoice,
        topic: Annotated[str | None, typer.Argument(help="The topic; else all.")] = None,
        as_json: Json = False,
    ) -> None:
        """Count open letters by topic, connector and cause, with the first and last time."""
        invocation = invocation_of(context)
        with opened(invocation) as dead:
            found = dead.letter_groups(chosen, topic)
        invocation.terminal.show_rows(
            _COLUMNS,
            (
                [
                    count(c) if isinstance(c, int) else str(c or "")
                    for c in map(group.get, _COLUMNS)
                ]
                for group in found
            ),
            json=found,
            right=("letters",),
            empty="no open letters",
        )

    @app.command()
    @filtered(connector=connector, ids=Ids)
    def show(
        context: typer.Context,
        topic: Topic,
        *,
        chosen: LetterChoice,
        rows: Annotated[int, typer.Option(min=1, max=1000, help="How many letters.")] = 20,
        as_json: JsonLines = False,
    ) -> None:
        """Show open letters: the records with their headers and causes, the oldest first."""
        from rich.pretty import Pretty

        invocation = invocation_of(context)
        with opened(invocation) as dead:
            found = dead.letters(topic, chosen, limit=rows)
        for letter in found:
            invocation.terminal.show(letter, Pretty(letter, expand_all=True))
        if not found:
            invocation.terminal.note("no open letters")

    @app.command()
    @filtered(connector=connector, ids=Ids)
    def discard(
        context: typer.Context,
        topic: Topic,
        *,
        chosen: LetterChoice,
        every: Annotated[
            bool, typer.Option("--all", help="Needed where no filter is.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Close letters that are not worth a replay. The topic keeps them."""
        from headrace.sdk import ConfigError

        if chosen == type(chosen)() and not every:
            problem, fix = "This would discard all letters.", "Pass a filter, or --all."
            raise ConfigError(problem, field="--all", fix=fix)
        invocation = invocation_of(context)
        with opened(invocation) as dead:
            closed = dead.discard_letters(topic, chosen, every=every)
        invocation.terminal.show({"discarded": closed}, f"{topic}: discarded {count(closed)}")


@contextmanager
def _at_home(invocation: Invocation) -> Iterator[DeadLetters]:
    with invocation.runtime(short_lived=True) as runtime:
        yield LocalDeadLetters(runtime)


_add_commands(local, _at_home, Connector)
_add_commands(remote, Invocation.client, ServedConnector)


@local.command()
@filtered(connector=Connector)
def export(
    context: typer.Context,
    *,
    chosen: LetterChoice,
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="The file to write JSON lines to.")],
    as_json: Json = False,
) -> None:
    """Write open letters as JSON lines. Repair them by hand, then replay the file."""
    invocation = invocation_of(context)
    with invocation.runtime(short_lived=True) as runtime:
        queue = runtime.dead_letter_queue(topic)
        written = queue.export(_filter(chosen), file.absolute())
    shown = {"letters": written, "file": str(file)}
    invocation.terminal.show(shown, f"letters {count(written)}, file {file}")


@local.command("replay")
@filtered(ids=Ids)
def replay_at_home(
    context: typer.Context,
    *,
    chosen: LetterChoice,
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
    from headrace.cli.failures import exit_code
    from headrace.cli.failures import show as show_errors
    from headrace.cli.progress import Scoreboard
    from headrace.cli.summary import Summary
    from headrace.cli.validate import check_files

    invocation = invocation_of(context)
    terminal = invocation.terminal
    board = Scoreboard(time.monotonic)
    with invocation.runtime(short_lived=True) as runtime:
        checked = check_files(runtime, [file])
        if code := checked.report(terminal):
            return code
        definition = checked.only(file)
        claimed, outcome = runtime.replay(definition, _filter(chosen), records, board)
    summary = Summary(board.scores(), board.seconds(), stopped=False)
    terminal.show(
        {**summary.to_json(), "claimed": asdict(claimed)},
        summary.to_table(),
        _claimed(asdict(claimed)),
    )
    if not as_json:
        show_errors(outcome.errors.values(), terminal)
    return exit_code(outcome.errors.values())


@remote.command()
@filtered(ids=Ids)
def replay(
    context: typer.Context,
    name: Name,
    *,
    chosen: LetterChoice,
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
    from headrace.client import ServerError

    repaired = None
    if records is not None:
        fix = "Keep the lines of dlq show --json, and the id of each."
        repaired = read_lines(records, "--records", "a dead letter", fix, _letter)
    invocation = invocation_of(context)
    with invocation.client(timedelta(seconds=timeout)) as client:
        done = client.replay_letters(name, chosen, repaired)
    invocation.terminal.show({"name": name, **done}, f"{name}: {_claimed(done)}")
    error = done["error"]
    if error is not None and as_json:
        raise typer.Exit(1)
    if error is not None:
        raise ServerError(error["problem"], field=error["field"] or name, fix=error["fix"])


def _claimed(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{part} {count(figures[part])}" for part in ("records", "unrepaired", "unknown")
    )


def _letter(line: str) -> dict[str, Any]:
    letter = json.loads(line)
    if not isinstance(letter, dict) or not isinstance(letter.get("id"), str):
        problem = "it has no id"
        raise ValueError(problem)  # noqa: TRY004 - what json.loads raises too
    return letter
