"""The record counts of connectors, by task and by batch."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.offsets import place_text
from headrace.cli.connector.selection import selected
from headrace.cli.formats import count, moment, span, time_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, MaybeNames, Name, Since

if TYPE_CHECKING:
    from collections.abc import Mapping


_FIGURES = ("read", "written", "filtered", "rejected")


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
        ("task", *_FIGURES, "balanced"),
        shown,
        json=found,
        right=_FIGURES,
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
        ("batch", "begun", "took", *_FIGURES, "up to"),
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
        right=("batch", "took", *_FIGURES),
        empty=f"{name}-{task} has no batches yet",
    )


def _cells(counts: Mapping[str, Any] | None) -> list[str]:
    return ["" if counts is None else count(counts[figure]) for figure in _FIGURES]


def _took(batch: Mapping[str, Any]) -> str:
    if batch["finished"] is None:
        return "runs"
    begun, finished = map(datetime.fromisoformat, (batch["begun"], batch["finished"]))
    return span((finished - begun).total_seconds())
