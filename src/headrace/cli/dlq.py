"""``headrace dlq`` and ``headrace connector dlq``: dead letters, local and on a server.

Both share commands written against the protocol ``DeadLetters``, which a home folder of this
machine and a server's client implement.
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
from headrace.cli.options import Json, JsonLines, Name, OneConnector, Since, known_names

if TYPE_CHECKING:
    from headrace.client import LetterChoice
    from headrace.dataplane import DeadLetterFilter
    from headrace.runtime.app import Runtime

local = typer.Typer(help="Inspect, repair, replay or discard rejected records.")
remote = typer.Typer(
    help="Inspect, repair, replay or discard a server's rejected records; headrace dlq does "
    "the same for a home folder of this machine."
)

Topic = Annotated[str, typer.Argument(help="The dead-letter topic.")]
_CONNECTOR = "Only records rejected by this connector."
Connector = Annotated[str | None, typer.Option("--connector", help=_CONNECTOR)]
ServedConnector = Annotated[
    str | None, typer.Option("--connector", help=_CONNECTOR, autocompletion=known_names)
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; repeatable.")]
_FILTERS: dict[str, Any] = {
    "stage": Annotated[str | None, typer.Option("--stage", help="Only of this stage.")],
    "exception": Annotated[
        str | None, typer.Option("--exception", help="Only with an error of this class.")
    ],
    "since": Since,
    "until": Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only of batches begun before this time."),
    ],
}
_COLUMNS = ("topic", "connector", "stage", "class", "exception", "letters", "first", "last")


class DeadLetters(Protocol):
    """A place with rejected records; ``headrace.client.Client`` implements it for servers."""

    def letter_groups(
        self, chosen: LetterChoice, topic: str | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return the numbers of open letters by topic, connector and cause."""

    def letters(
        self, topic: str, chosen: LetterChoice, *, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        """Return the open letters of a topic, oldest first."""

    def discard_letters(self, topic: str, chosen: LetterChoice, *, every: bool) -> int:
        """Close letters and return how many; closing all letters requires ``every``."""


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
    """Add the options that select letters to a command, which gets them as ``chosen``.

    Typer reads options from the signature only, and many commands share these.

    Args:
        more: Further options by name: ``connector`` and ``ids``.
    """
    options = {**more, **_FILTERS}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        names = {"LetterChoice": Any}  # imported only when a command runs
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
    """Add the commands that a home folder and a server have in common."""

    @app.command("list")
    @filtered(connector=connector)
    def list_letters(
        context: typer.Context,
        *,
        chosen: LetterChoice,
        topic: Annotated[str | None, typer.Argument(help="The topic; all by default.")] = None,
        as_json: Json = False,
    ) -> None:
        """Count open letters by topic, connector and cause, with their first and last time."""
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
        """Show open letters: records with their headers and causes, oldest first."""
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
            bool, typer.Option("--all", help="Required when there is no filter.")
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Close letters that will not be replayed. They stay in the topic."""
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
        Path | None, typer.Option(help="Replay only these: exported letters, repaired.")
    ] = None,
    connector: OneConnector = None,
    as_json: Json = False,
) -> int:
    """Send letters through their connector's transforms to its sinks again, each once.

    A record that fails again becomes a new letter. The next replay finishes one that was
    killed.
    """
    from headrace.cli.failures import exit_code
    from headrace.cli.failures import show as show_errors
    from headrace.cli.progress import Scoreboard, Summary
    from headrace.cli.validate import accepted_files

    invocation = invocation_of(context)
    terminal = invocation.terminal
    board = Scoreboard(time.monotonic)
    with invocation.runtime(short_lived=True) as runtime:
        checked = accepted_files(runtime, [file], terminal)
        definition = checked.one(file, connector)
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
            help="Replay only these: letters as printed by show --json, repaired; - is the "
            "standard input.",
            allow_dash=True,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")
    ] = 300,
    as_json: Json = False,
) -> None:
    """Send letters through their connector's transforms to its sinks again, each once.

    A record that fails again becomes a new letter. The next replay finishes one that was
    interrupted.
    """
    from headrace.client import ServerError

    repaired = None
    if records is not None:
        fix = "Use the lines that dlq show --json prints, and keep the id of each."
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
    shown = {"records": "records", "unrepaired": "unrepaired", "unknown": "not open"}
    return ", ".join(f"{label} {count(figures[part])}" for part, label in shown.items())


def _letter(line: str) -> dict[str, Any]:
    letter = json.loads(line)
    if not isinstance(letter, dict) or not isinstance(letter.get("id"), str):
        problem = "it has no id"
        raise ValueError(problem)  # noqa: TRY004 - what json.loads raises too
    return letter
