"""Starts, shows, pauses, resumes and stops backfills of jobs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import invocation_of
from headrace.cli.job.show import states_text
from headrace.cli.options import AwaitRuns, JobName, Json, Timeout, bound_of, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.cli.terminal import Terminal

BackfillId = Annotated[
    str, typer.Argument(metavar="BACKFILL", help="The id that `headrace job backfill` printed.")
]
_OVER = ("succeeded", "failed", "stopped", "skipped")


def backfill(
    context: typer.Context,
    name: JobName,
    *,
    lower: Annotated[
        str, typer.Option(metavar="TIME", help="The start of the range, such as 2026-01-31.")
    ],
    upper: Annotated[str, typer.Option(metavar="TIME", help="The end of the range.")],
    chunk: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="How many consecutive windows one run reads."),
    ] = 1,
    wait: AwaitRuns = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Run all past windows of a range that have no run yet.

    Windows that the range covers partly run as a whole. The schedule's key parallel sets how
    many runs are concurrent.
    """
    terminal = invocation_of(context).terminal
    with invocation_of(context).client() as client:
        job = client.jobs.get(name)
        begin, end = bound_of(job, lower, "--lower"), bound_of(job, upper, "--upper")
        found = client.jobs.backfill(name, begin, end, chunk=chunk)
        if not found["total"]:
            start = (job["document"].get("schedule") or {}).get("start")
            terminal.note(
                "All past windows of that range have a run. The schedule begins at "
                f"{start}; list the runs: headrace job runs {name}"
            )
        elif wait:
            if not terminal.as_json:
                terminal.note(f"{name}: backfill {found['id']}, {found['total']} runs")
            with _progress(terminal, found) as show:
                found = client.jobs.await_backfill(
                    name, found["id"], within=within(timeout), on_look=show
                )
        _tell(context, found)


def show_backfill(
    context: typer.Context, name: JobName, backfill: BackfillId, as_json: Json = False
) -> None:
    """Show the progress of a backfill."""
    with invocation_of(context).client() as client:
        _tell(context, client.jobs.backfill_of(name, backfill))


def stop_backfill(
    context: typer.Context, name: JobName, backfill: BackfillId, as_json: Json = False
) -> None:
    """Stop the runs of a backfill that have not ended."""
    with invocation_of(context).client() as client:
        _tell(context, client.jobs.stop_backfill(name, backfill))


def pause_backfill(
    context: typer.Context, name: JobName, backfill: BackfillId, as_json: Json = False
) -> None:
    """Start no more runs of a backfill; active runs finish. See resume-backfill."""
    with invocation_of(context).client() as client:
        _tell(context, client.jobs.pause_backfill(name, backfill))


def resume_backfill(
    context: typer.Context, name: JobName, backfill: BackfillId, as_json: Json = False
) -> None:
    """Resume a paused backfill."""
    with invocation_of(context).client() as client:
        _tell(context, client.jobs.resume_backfill(name, backfill))


def _tell(context: typer.Context, found: Mapping[str, Any]) -> None:
    line = f"{found['job']}: backfill {found['id']}: {_states(found) or 'no runs'}"
    invocation_of(context).terminal.show(found, line)


def _states(found: Mapping[str, Any]) -> str:
    """Return the progress of a backfill: ``paused, 3 succeeded, 1 queued``."""
    states = states_text(found["runs"])
    # An older server sends no field ``paused``.
    return f"paused, {states}" if found.get("paused") else states


def _resuming(found: Mapping[str, Any]) -> str:
    return f"headrace job resume-backfill {found['job']} {found['id']}"


@contextmanager
def _progress(
    terminal: Terminal, begun: Mapping[str, Any]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the progress of a backfill: a bar on a terminal, else a line for each change."""
    if terminal.quiet or terminal.as_json or not terminal.interactive:
        seen: list[str] = []

        def note(found: Mapping[str, Any]) -> None:
            states = _states(found)
            if [states] != seen[-1:]:
                seen.append(states)
                terminal.note(f"{found['job']}: {states}")
                if found.get("paused") and not found["done"]:
                    terminal.note(f"To resume: {_resuming(found)}")

        yield note
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    shown = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    states = TextColumn("{task.fields[states]}")
    with Progress(BarColumn(), *shown, states, console=terminal.err, transient=True) as bar:
        task = bar.add_task("", total=begun["total"], states="")

        def draw(found: Mapping[str, Any]) -> None:
            done = sum(found["runs"].get(state, 0) for state in _OVER)
            hint = f"; see {_resuming(found)}" if found.get("paused") else ""
            bar.update(task, completed=done, states=_states(found) + hint)

        yield draw
