"""Shows connectors with their states, tasks, topics, schemas, counts and batches."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.offsets import place_text
from headrace.cli.connector.selection import selected
from headrace.cli.formats import FIGURES, count, moment, span, state_text, time_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, MaybeNames, Name, Names, Since, known_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.client import ConnectorStatus, TaskHealth


_NEXT = ("Restart ", "It is ")
"""The beginnings of the trace line that says what happens after a failure."""


def list_connectors(
    context: typer.Context,
    names: MaybeNames = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only connectors that are, or have a task, in this state."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only source or sink.")] = None,
    as_json: Json = False,
) -> None:
    """List connectors with their states."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        every = client.overview()
        named = set(selected(client, names)) if names else set(every)
    shown = []
    for name, (info, status) in every.items():
        states = {status.state, *(task.state for task in status.tasks)}
        fits = (state is None or state.upper() in states) and kind in {None, status.kind}
        if fits and name in named:
            shown.append((info, status, info.config.get("connector.class", "")))
    invocation.terminal.show_rows(
        ("name", "type", "state", "tasks", "class"),
        (
            (
                info.name,
                status.kind,
                state_text(status.state),
                status.task_states.lower() or "none",
                plugin.rpartition(".")[2],
            )
            for info, status, plugin in shown
        ),
        json=[
            {
                "name": info.name,
                "type": status.kind,
                "state": status.state,
                "class": plugin,
                "tasks": [{"id": task.number, "state": task.state} for task in status.tasks],
            }
            for info, status, plugin in shown
        ],
        empty="no connectors" if not every else "no connector matches",
    )


def get(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a connector: its type, state, tasks and configuration."""
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        info = client.info(name)
        if not as_json:
            status = client.status(name)
            tasks = status.task_states.lower() or "no tasks"
            terminal.print(f"{info.name} ({info.kind}) is {status.state}: {tasks}")
    terminal.show_rows(("key", "value"), sorted(info.config.items()), json=info.to_json())


def status(
    context: typer.Context,
    names: MaybeNames = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show errors in full.")] = False,
    as_json: Json = False,
) -> None:
    """Show the states of connectors and their tasks, with the reasons of failures."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = [client.status(name) for name in selected(client, names)]
    parts: list[tuple[str, ConnectorStatus | TaskHealth]] = []
    for each in found:
        parts.append((each.name, each))
        parts += [(f"{each.name}-{task.number}", task) for task in each.tasks]
    invocation.terminal.show_rows(
        ("part", "state", "worker", "why"),
        (
            (part, state_text(each.state), each.worker, _why(each.trace, whole=trace))
            for part, each in parts
        ),
        json=[each.to_json() for each in found],
        empty="no connectors",
    )


def _why(trace: str | None, *, whole: bool) -> str:
    first, *others = (trace or "").strip().split("\n")
    return "\n".join([first, *(each for each in others if whole or each.startswith(_NEXT))])


def tasks(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show the tasks of a connector with their configurations."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        configs = client.task_configs(name)
        states = {task.number: task for task in client.status(name).tasks}
    found = [(number, states.get(number), config) for number, config in sorted(configs.items())]
    invocation.terminal.show_rows(
        ("task", "state", "worker", "configuration"),
        (
            (
                number,
                state_text(task.state if task else ""),
                task.worker if task else "",
                "\n".join(f"{key}={value}" for key, value in sorted(config.items())),
            )
            for number, task, config in found
        ),
        json=[
            {
                "id": {"connector": name, "task": number},
                "state": task and task.state,
                "worker_id": task and task.worker,
                "config": config,
            }
            for number, task, config in found
        ],
        empty=f"{name} has no tasks now",
    )


def topics(
    context: typer.Context,
    names: Names,
    reset: Annotated[
        bool, typer.Option("--reset", help="Clear the list; the topics are kept.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the topics that connectors have used."""
    invocation = invocation_of(context)
    found: dict[str, list[str]] = {}
    with invocation.client() as client:
        for name in selected(client, names):
            if reset:
                client.reset_topics(name)
            found[name] = client.topics(name)
    if as_json:
        invocation.terminal.print_json(found)
        return
    several = len(found) > 1
    for name, used in found.items():
        invocation.terminal.print(*(f"{name}: {each}" if several else each for each in used))
        if not used:
            invocation.terminal.note(f"{name} has used no topic")


def schemas(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A source that stores schemas.", autocompletion=known_names
        ),
    ] = None,
    *,
    topic: Annotated[str | None, typer.Option(help="Show a topic's schemas instead.")] = None,
    as_json: Json = False,
) -> None:
    """Show all schemas of a connector's streams or of a topic, past and present."""
    from headrace.sdk import ConfigError

    if (name is None) == (topic is None):
        problem = "Either NAME or --topic is required."
        raise ConfigError(problem, field="NAME", fix="Name a connector, or add --topic TOPIC.")
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.topic_schemas(topic) if topic else client.stream_schemas(name or "")
    rows = [
        (
            each["stream"],
            version["version"],
            moment(str(version.get("at", ""))),
            version["value"],
        )
        for each in found
        for version in each.get("versions", (each,))
    ]
    invocation.terminal.show_rows(
        ("stream", "version", "at", "schema"),
        ((*row, _text(value)) for *row, value in rows),
        json=found,
        right=("version",),
        empty=f"{topic or name} has no schemas",
    )


def _text(field: Mapping[str, Any]) -> str:
    """Return a schema in short form: ``id long not null, name string``."""
    from headrace.cli.topic import fields_of

    if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
        fields = fields_of(field["type"])
    else:
        fields = fields_of({"fields": [{**field, "name": "value"}]})
    return ", ".join(
        f"{name} {kind}{'' if nullable else ' not null'}" for name, kind, nullable in fields
    )


def counts(
    context: typer.Context,
    names: MaybeNames = None,
    *,
    since: Since = None,
    as_json: Json = False,
) -> None:
    """Count the records that tasks read, wrote, filtered and rejected since their creation.

    In balance: read = written + filtered + rejected.
    """
    begin = None if since is None else time_of(since, "--since")
    invocation = invocation_of(context)
    with invocation.client() as client:
        if not names and begin is None:
            found = client.every_count()
        else:
            found = [client.counts(name, begin) for name in selected(client, names)]
    shown: list[tuple[str, ...]] = []
    for each in found:
        rows = {f"{each['name']}-{task['task']}": task["counts"] for task in each["tasks"]}
        if each["replays"]["read"]:
            rows[f"{each['name']} replays"] = each["replays"]
        shown += [
            (part, *_cells(counts), "yes" if counts["balanced"] else "no")
            for part, counts in rows.items()
        ]
    invocation.terminal.show_rows(
        ("task", *FIGURES, "balanced"),
        shown,
        json=found,
        right=FIGURES,
        empty="no task has ever run",
    )


def batches(
    context: typer.Context,
    name: Name,
    *,
    task: Annotated[int, typer.Option(min=0, help="The number of the task.")] = 0,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, help="How many batches to list.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """List the newest batches of a task, with their counts and end positions."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.batches(name, task, limit=lines)
    invocation.terminal.show_rows(
        ("batch", "begun", "took", *FIGURES, "up to"),
        (
            (
                each["id"],
                moment(each["begun"]),
                _took(each),
                *_cells(each["counts"]),
                place_text(each["end"]),
            )
            for each in found
        ),
        json=found,
        right=("batch", "took", *FIGURES),
        empty=f"{name}-{task} has no batches yet",
    )


def _cells(counts: Mapping[str, Any] | None) -> list[str]:
    return ["" if counts is None else count(counts[figure]) for figure in FIGURES]


def _took(batch: Mapping[str, Any]) -> str:
    if batch["finished"] is None:
        return "runs"
    begun, finished = map(datetime.fromisoformat, (batch["begun"], batch["finished"]))
    return span((finished - begun).total_seconds())
