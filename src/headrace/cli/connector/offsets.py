"""``headrace connector offsets`` and ``headrace offsets``: on a server, and locally."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.selection import selected, waiting_for
from headrace.cli.formats import moment, time_of
from headrace.cli.inputs import json_pairs, read_text
from headrace.cli.invocation import invocation_of
from headrace.cli.options import (
    DryRun,
    Force,
    Json,
    Name,
    Names,
    OneConnector,
    Seconds,
    Skip,
    Yes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.client import Client, OffsetInfo
    from headrace.control import GivenUp
    from headrace.sdk import Position


app = typer.Typer(
    help="Show and change the offsets of connectors. A change requires a stopped connector."
)
local = typer.Typer(
    help="Change the offsets of connectors of headrace run; headrace connector offsets does "
    "the same on a server."
)

_NOT_STOPPED = "must be in the STOPPED state"
"""Part of the error of Headrace's and Kafka Connect's servers, which names their REST calls."""

Stop = Annotated[
    bool,
    typer.Option("--stop", help="Stop it for the change; afterwards restore its state."),
]


TaskNumber = Annotated[
    int | None,
    typer.Option("--task", min=-1, help="The number of the task; -1 is the letter replay."),
]


@app.command()
def view(context: typer.Context, names: Names, as_json: Json = False) -> None:
    """Show the offsets of connectors, one line for each partition."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = {name: client.offsets(name) for name in selected(client, names)}
    rows = [
        (name, as_text(each.partition), as_text(each.offset))
        for name, offsets in found.items()
        for each in offsets
    ]
    shown = {name: [each.to_json() for each in offsets] for name, offsets in found.items()}
    if rows or as_json:
        headings = ("connector", "partition", "offset")
        invocation.terminal.show_rows(headings, rows, json=shown)
    for name, offsets in found.items():
        if not offsets:
            invocation.terminal.note(f"{name} is at the beginning")


@app.command("set")
def set_offsets(
    context: typer.Context,
    name: Name,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A JSON file as printed by view --json; - is the standard input.",
            allow_dash=True,
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The partition; optional if there is only one."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The offset to continue from."),
    ] = None,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Set offsets of a stopped connector; other partitions keep theirs."""
    from headrace.sdk import ConfigError

    if (file is None) == (not offset):
        problem = "Either FILE or --offset is required, but not both."
        raise ConfigError(problem, field="--offset", fix="Add --offset KEY=VALUE, or a FILE.")
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        before = client.offsets(name)
        if file is not None:
            target = _read(file, name)
        else:
            target = [_target(before, partition, json_pairs(offset, "--offset"))]
        with stopped(client, terminal, name, timeout, stop=stop):
            client.set_offsets(name, target)
            after = client.offsets(name)
    _show_change(terminal, name, before, after)


@app.command()
def reset(
    context: typer.Context,
    name: Name,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Reset a stopped connector to the beginning."""
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        before = client.offsets(name)
        with stopped(client, terminal, name, timeout, stop=stop):
            client.reset_offsets(name)
            after = client.offsets(name)
    _show_change(terminal, name, before, after)


@contextmanager
def stopped(
    client: Client, terminal: Terminal, name: str, seconds: float, *, stop: bool
) -> Iterator[None]:
    """With ``stop``, stop a connector during the body and restore its state at the end."""
    from headrace.client import ConflictError, Goal, RefusedError

    state = client.status(name).state if stop else "STOPPED"
    if state != "STOPPED":
        waiting = waiting_for(client, terminal, Goal.STOPPED, seconds)
        client.stop(name)
        waiting.until([name])
    try:
        yield
    except (ConflictError, RefusedError) as error:
        if _NOT_STOPPED not in error.problem:
            raise
        problem = f"{name} must be stopped before its offsets are changed."
        fix = f"Add --stop, or stop it first: headrace connector stop {name} --wait."
        raise RefusedError(problem, field="NAME", fix=fix) from None
    finally:
        if state in {"RUNNING", "FAILED", "UNASSIGNED", "RESTARTING"}:
            client.resume(name)
        elif state == "PAUSED":
            client.pause(name)


def _target(
    before: Sequence[OffsetInfo], partition: list[str] | None, offset: dict[str, Any]
) -> OffsetInfo:
    from headrace.client import OffsetInfo
    from headrace.sdk import ConfigError

    if partition:
        return OffsetInfo(json_pairs(partition, "--partition"), offset)
    if len(before) == 1:
        return OffsetInfo(before[0].partition, offset)
    if before:
        known = "; ".join(as_text(each.partition) for each in before)
        problem = f"Which partition? There are {len(before)}: {known}."
    else:
        problem = "Which partition? All of them are at the beginning."
    fix = (
        "Add --partition KEY=VALUE for each key of the partition; a sink's partition has two: "
        "--partition kafka_topic=TOPIC --partition kafka_partition=0."
    )
    raise ConfigError(problem, field="--partition", fix=fix)


def _read(file: Path, name: str) -> list[OffsetInfo]:
    """Read ``{"offsets": [...]}``, the output of ``view --json``, or the list alone."""
    from headrace.client import OffsetInfo
    from headrace.sdk import ConfigError

    text = read_text(file, "FILE")
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            value = value[name] if name in value else value["offsets"]
        return [OffsetInfo(dict(each["partition"]), each["offset"]) for each in value]
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{file} contains no valid offsets."
        fix = 'Write {"offsets": [{"partition": {...}, "offset": {...}}]}.'
        raise ConfigError(problem, field="FILE", fix=fix) from error


def _show_change(
    terminal: Terminal, name: str, before: Sequence[OffsetInfo], after: Sequence[OffsetInfo]
) -> None:
    old = {as_text(each.partition): as_text(each.offset) for each in before}
    new = {as_text(each.partition): as_text(each.offset) for each in after}
    changes = (
        (partition, old.get(partition, _BEGINNING), new.get(partition, _BEGINNING))
        for partition in dict.fromkeys([*old, *new])
    )
    lines = [f"{name}: {where}: {was} -> {now}" for where, was, now in changes if was != now]
    shown = {
        "name": name,
        "before": [each.to_json() for each in before],
        "after": [each.to_json() for each in after],
    }
    terminal.show(shown, *(lines or [f"{name}: offsets unchanged"]))


_BEGINNING = "the beginning"


def as_text(value: Any) -> str:
    """Return a partition or an offset as ``key=value`` texts."""
    if value is None:
        return _BEGINNING
    texts = (
        f"{key}={each if isinstance(each, str) else json.dumps(each)}"
        for key, each in value.items()
    )
    return " ".join(texts)


def place_text(position: list[dict[str, Any]]) -> str:
    """Return a position in one line: each partition with its offset."""
    texts = (f"{as_text(each['partition'])}: {as_text(each['offset'])}" for each in position)
    return "; ".join(texts)


@app.command()
def rewind(
    context: typer.Context,
    name: Name,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TIME",
            help="Such as 2026-11-21T10:00; in this machine's time zone by default.",
        ),
    ],
    *,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Rewind a stopped connector to a time: records from then on are read again."""
    when = time_of(to, "TIME")
    _go_back(
        context, name, lambda client: client.rewind_offsets(name, when), timeout, stop=stop
    )


@app.command()
def undo(
    context: typer.Context,
    name: Name,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Undo even if data was copied since the change.")
    ] = False,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Undo the last change of a stopped connector's offsets; an undo can be undone."""
    _go_back(
        context,
        name,
        lambda client: client.undo_offsets(name, force=force),
        timeout,
        stop=stop,
    )


def _go_back(
    context: typer.Context,
    name: str,
    back: Callable[[Client], Sequence[Mapping[str, Any]]],
    seconds: float,
    *,
    stop: bool,
) -> None:
    """Change the offsets of a stopped connector and print the changes."""
    terminal = invocation_of(context).terminal
    with (
        invocation_of(context).client() as client,
        stopped(client, terminal, name, seconds, stop=stop),
    ):
        changes = back(client)
    if terminal.as_json:
        terminal.print_json({"name": name, "changes": list(changes)})
        return
    for each in changes:
        partition, before, after = _texts(each)
        terminal.print(f"{name}: {partition}: {before} -> {after}")
        terminal.note(each["meaning"])
    if not changes:
        terminal.print(f"{name}: offsets unchanged")


@app.command()
def history(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """List the changes of a connector's offsets, who made them and when, newest first."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.offset_history(name)
    rows: list[tuple[str, ...]] = []
    for each in found:
        act = (moment(each["at"]), each["by"], each["action"])
        rows += [(*act, *_texts(change)) for change in each["changes"]]
        if not each["changes"] and each["action"] == "give-up":
            rows.append((*act, "", "", ""))
    invocation.terminal.show_rows(
        ("at", "by", "action", "partition", "before", "after"),
        rows,
        json=found,
        empty=f"{name}: offsets were never changed manually",
    )


def _texts(change: Mapping[str, Any]) -> tuple[str, str, str]:
    return as_text(change["partition"]), as_text(change["before"]), as_text(change["after"])


@app.command("give-up")
def give_up(
    context: typer.Context,
    name: Name,
    *,
    task: TaskNumber = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="The batch id; default: the only unfinished one.")
    ] = None,
    skip: Skip = False,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Give up an unfinished batch of a stopped connector that can no longer complete."""
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        number, found = _unfinished(client, name, task, batch)
        give = partial(client.give_up, name, number, found, skip=skip, force=force)
        with stopped(client, terminal, name, timeout, stop=stop):
            ask_to_give_up(
                terminal,
                name,
                {"name": name},
                lambda _, dry: give(dry_run=dry),
                task=number,
                dry_run=dry_run,
                yes=yes,
            )


def _unfinished(
    client: Client, name: str, task: int | None, batch: int | None
) -> tuple[int, int]:
    """Return the task and id of the unfinished batch selected by ``task`` and ``batch``."""
    from headrace.sdk import ConfigError

    if task is not None and batch is not None:
        return task, batch
    tasks = [each["task"] for each in client.counts(name)["tasks"]] if task is None else [task]
    found = [
        (number, int(each["id"]))
        for number in tasks
        for each in client.batches(name, number, limit=1)
        if each["finished"] is None and batch in {None, each["id"]}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        problem = f"{name} has no such unfinished batch."
        fix = f"headrace connector batches {name} --task N lists the batches of a task."
        raise ConfigError(problem, field="--batch", fix=fix)
    known = "; ".join(f"--task {number} --batch {each}" for number, each in found)
    problem = f"{name} has several unfinished batches: {known}."
    raise ConfigError(problem, field="--task", fix="Select one.")


def ask_to_give_up(
    terminal: Terminal,
    title: str,
    about: Mapping[str, Any],
    give: Callable[[int | None, bool], Mapping[str, Any]],
    *,
    task: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Show the effect of giving up a batch, ask, then give it up.

    ``give`` is called with the task and whether to change nothing, and returns the server's
    answer, which names the task. It is printed with ``about`` as JSON.
    """
    shown = give(task, True)
    if not terminal.as_json:
        _show_abandoned(terminal, title, shown)
    number, batch = shown["task"], shown["batch"]["id"]
    if not dry_run:
        if not yes:
            problem = f"Batch {batch} was not given up."
            terminal.confirm("Give it up?", problem, "Add --yes to do it.")
        shown = give(number, False)
    done = [f"{title}: batch {batch} of task {number} is given up"] if shown["done"] else []
    terminal.show({**about, **shown}, *done)


def _show_abandoned(terminal: Terminal, name: str, shown: Mapping[str, Any]) -> None:
    """Print the effect of giving up a batch, from the server's answer."""
    batch = shown["batch"]
    start, end = (place_text(batch[each]) or _BEGINNING for each in ("start", "end"))
    terminal.print(f"{name}: batch {batch['id']} of task {shown['task']}: {start} -> {end}")
    holds = {
        "yes": "contains it",
        "part": "contains a part of it",
        "no": "does not contain it",
        "unknown": "may contain it",
    }
    for each in shown["targets"]:
        why = f": {each['why']}" if each["why"] else ""
        terminal.print(f"{name}: {each['name']} {holds[each['holds']]}{why}")
    terminal.note(shown["meaning"])


@local.command("give-up")
def give_up_locally(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The connector's JSON or YAML file.")],
    *,
    connector: OneConnector = None,
    task: TaskNumber = None,
    skip: Skip = False,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Give up an unfinished batch of headrace run that can no longer complete."""
    from headrace.cli.validate import accepted_files

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=True) as runtime:
        checked = accepted_files(runtime, [file], terminal)
        definition = checked.one(file, connector)
        batches, name = runtime.giving_up(definition), definition.name
        give = partial(batches.give_up, skip=skip, force=force)
        ask_to_give_up(
            terminal,
            name,
            {"name": name},
            lambda number, dry: _shown(give(number, dry_run=dry)),
            task=task,
            dry_run=dry_run,
            yes=yes,
        )
    return 0


@local.command("reset")
def reset_locally(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The connector's JSON or YAML file.")],
    *,
    connector: OneConnector = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Restart a connector of headrace run from the beginning: all records are copied again."""
    from headrace.cli.validate import accepted_files

    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=True) as runtime:
        checked = accepted_files(runtime, [file], terminal)
        definition = checked.one(file, connector)
        if not yes:
            problem = f"{definition.name} was not reset."
            terminal.confirm("Read all again?", problem, "Add --yes to do it.")
        stood = runtime.reset_offsets(definition)
    tasks = [{"task": t.number, "stood": _places(p)} for t, p in sorted(stood.items())]
    lines = [
        f"{definition.name}: task {each['task']} restarts from the beginning" for each in tasks
    ]
    nothing = [f"{definition.name} has no offsets yet"]
    terminal.show({"name": definition.name, "tasks": tasks}, *(lines or nothing))
    return 0


def _shown(found: GivenUp) -> dict[str, Any]:
    """Return the JSON, in the form of the server's answer."""
    batch = found.batch
    return {
        "task": batch.task.number,
        "batch": {
            "id": batch.id,
            "start": _places(batch.start),
            "end": _places(batch.end),
            "begun": batch.begun.isoformat(),
        },
        "skipped": found.skipped,
        "targets": [
            {"name": each.name, "holds": each.holds.value, "why": each.why}
            for each in found.targets
        ],
        "done": found.done,
        "meaning": found.meaning,
    }


def _places(position: Position) -> list[dict[str, Any]]:
    return [{"partition": dict(p), "offset": dict(o)} for p, o in position.items()]
