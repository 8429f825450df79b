"""``headrace offsets``: the offsets of connectors run by ``headrace run`` on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.offsets import TaskNumber, show_abandoned
from headrace.cli.invocation import invocation_of
from headrace.cli.options import DryRun, Force, Json, OneConnector, Skip, Yes

if TYPE_CHECKING:
    from headrace.control import GivenUp
    from headrace.sdk import Position

app = typer.Typer(
    help="Change the offsets of connectors of headrace run; headrace connector offsets does "
    "the same on a server."
)


@app.command("give-up")
def give_up(
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
        found = batches.give_up(task, skip=skip, force=force, dry_run=True)
        if not as_json:
            show_abandoned(terminal, name, _shown(found))
        if not dry_run:
            if not yes:
                problem = f"Batch {found.batch.id} was not given up."
                terminal.confirm("Give it up?", problem, "Add --yes to do it.")
            number = found.batch.task.number
            found = batches.give_up(number, skip=skip, force=force, dry_run=False)
    done = f"{name}: batch {found.batch.id} of task {found.batch.task.number} is given up"
    terminal.show({"name": name, **_shown(found)}, *([done] if found.done else []))
    return 0


@app.command()
def reset(
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
