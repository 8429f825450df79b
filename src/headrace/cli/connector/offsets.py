"""``headrace connector offsets``: shows and changes where connectors stand."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.choosing import Action, chosen, waiting_for
from headrace.cli.connector.options import Json, Name, Names, Seconds, json_pairs
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.cli.invocation import Invocation
    from headrace.client import Client, OffsetInfo

app = typer.Typer(
    help="Show and change where connectors stand. Changing asks for a stop first."
)

_NOT_STOPPED = "must be in the STOPPED state"
"""What servers say of it, Kafka Connect's too: their users have requests to send."""

Stop = Annotated[
    bool,
    typer.Option("--stop", help="Stop it for that, and let it run again if it ran before."),
]


@app.command()
def view(context: typer.Context, names: Names, as_json: Json = False) -> None:
    """Show where connectors stand, a line for each partition of what they read."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = {name: client.offsets(name) for name in chosen(client, names)}
    if as_json:
        told = {name: [each.to_json() for each in offsets] for name, offsets in found.items()}
        invocation.terminal.print_json(told)
        return
    _show(invocation, found)


@app.command("set")
def set_offsets(
    context: typer.Context,
    name: Name,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A JSON file of what view --json gives; - is the standard input.",
            allow_dash=True,
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The partition; without one, the only one."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="The offset to go on from."),
    ] = None,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Let a stopped connector go on from elsewhere; partitions that are not named stay."""
    from headrace.sdk import ConfigError

    if (file is None) == (not offset):
        problem = "Offsets come from a file or from --offset, and from one of them."
        raise ConfigError(problem, field="--offset", fix="Add --offset KEY=VALUE, or a FILE.")
    invocation = invocation_of(context)
    with invocation.client() as client:
        before = client.offsets(name)
        if file is not None:
            wanted = _read(file, name)
        else:
            wanted = [_given(before, partition, json_pairs(offset, "--offset"))]
        with stopped(client, invocation, name, timeout, stop=stop):
            client.set_offsets(name, wanted)
            after = client.offsets(name)
    _changed(invocation, name, before, after, as_json=as_json)


@app.command()
def reset(
    context: typer.Context,
    name: Name,
    stop: Stop = False,
    timeout: Seconds = 60,
    as_json: Json = False,
) -> None:
    """Let a stopped connector begin anew."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        before = client.offsets(name)
        with stopped(client, invocation, name, timeout, stop=stop):
            client.reset_offsets(name)
            after = client.offsets(name)
    _changed(invocation, name, before, after, as_json=as_json)


@contextmanager
def stopped(
    client: Client, invocation: Invocation, name: str, seconds: float, *, stop: bool
) -> Iterator[None]:
    """Keep a connector stopped for a while, if asked to; it runs again whatever happens."""
    from headrace.client import ConflictError, Goal, RefusedError

    state = client.status(name).state if stop else "STOPPED"
    if state != "STOPPED":
        action = Action(
            asked="stopping",
            done="stopped",
            run=type(client).stop,
            goal=Goal.STOPPED,
            seconds=seconds,
        )
        waiting = waiting_for(client, action, invocation.terminal)
        client.stop(name)
        waiting.until([name])
    try:
        yield
    except (ConflictError, RefusedError) as error:
        if _NOT_STOPPED not in error.problem:
            raise
        problem = f"{name} is not stopped, and offsets are changed while a connector is."
        fix = f"Add --stop, or stop it first: headrace connector stop {name} --wait."
        raise RefusedError(problem, field="NAME", fix=fix) from None
    finally:
        if state in {"RUNNING", "FAILED", "UNASSIGNED", "RESTARTING"}:
            client.resume(name)
        elif state == "PAUSED":
            client.pause(name)


def _given(
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
        problem = f"Which partition? It stands in {len(before)}: {known}."
    else:
        problem = "Which partition? It stands at the beginning of all of them."
    fix = (
        "Add --partition KEY=VALUE for each key of the partition; a sink's has two: "
        "--partition kafka_topic=TOPIC --partition kafka_partition=0."
    )
    raise ConfigError(problem, field="--partition", fix=fix)


def _read(file: Path, name: str) -> list[OffsetInfo]:
    """Read ``{"offsets": [...]}``, what ``view --json`` gives, or the list alone."""
    import sys

    from headrace.client import OffsetInfo
    from headrace.sdk import ConfigError

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        value = json.loads(text)
        if isinstance(value, dict):
            value = value[name] if name in value else value["offsets"]
        return [OffsetInfo(dict(each["partition"]), each["offset"]) for each in value]
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
        raise ConfigError(problem, field="FILE", fix="Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{file} holds no offsets."
        fix = 'Write {"offsets": [{"partition": {...}, "offset": {...}}]}.'
        raise ConfigError(problem, field="FILE", fix=fix) from error


def _changed(
    invocation: Invocation,
    name: str,
    before: Sequence[OffsetInfo],
    after: Sequence[OffsetInfo],
    *,
    as_json: bool,
) -> None:
    if as_json:
        told = {"before": before, "after": after}
        shown = {key: [each.to_json() for each in offsets] for key, offsets in told.items()}
        invocation.terminal.print_json({"name": name, **shown})
        return
    old = {as_text(each.partition): as_text(each.offset) for each in before}
    new = {as_text(each.partition): as_text(each.offset) for each in after}
    for partition in dict.fromkeys([*old, *new]):
        was, now = old.get(partition, "the beginning"), new.get(partition, "the beginning")
        if was != now:
            invocation.terminal.print(f"{name}: {partition}: {was} -> {now}")
    if old == new:
        invocation.terminal.print(f"{name}: its offsets are as they were")


def _show(invocation: Invocation, found: dict[str, list[OffsetInfo]]) -> None:
    from headrace.cli.terminal import table

    shown = table("connector", "partition", "offset")
    for name, offsets in found.items():
        for each in offsets:
            shown.add_row(name, as_text(each.partition), as_text(each.offset))
    if shown.row_count:
        invocation.terminal.print(shown)
    for name, offsets in found.items():
        if not offsets:
            invocation.terminal.note(f"{name} stands at the beginning")


def as_text(value: Any) -> str:
    """Return a partition or an offset as ``key=value`` texts."""
    if value is None:
        return "the beginning"
    texts = (
        f"{key}={each if isinstance(each, str) else json.dumps(each)}"
        for key, each in value.items()
    )
    return " ".join(texts)
