"""Triggers, shows, stops, retries and reruns runs of jobs, and runs a job without a server."""

from __future__ import annotations

import time
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import FIGURES, count, moment, span, state_text
from headrace.cli.invocation import Invocation, invocation_of
from headrace.cli.job.show import window_text
from headrace.cli.options import (
    AwaitRuns,
    DryRun,
    Force,
    JobName,
    Json,
    Lower,
    RunNumber,
    Skip,
    Timeout,
    Upper,
    Yes,
    bound_of,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.cli.terminal import Terminal
    from headrace.client import Client, JobsApi
    from headrace.model import Run


def trigger(
    context: typer.Context,
    name: JobName,
    *,
    lower: Lower = None,
    upper: Upper = None,
    wait: AwaitRuns = False,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Run a window of a job now: the newest past window, or the one between the bounds.

    Bounds are of the job's kind, such as times. If the window already has a run, that run is
    returned.
    """
    invocation = invocation_of(context)
    with invocation.client() as client:
        bounds = {"--lower": lower, "--upper": upper}
        if any(bounds.values()) and (job := client.jobs.get(name))["boundaries"] == "time":
            bounds = {
                option: text and bound_of(job, text, option).isoformat()
                for option, text in bounds.items()
            }
        run = client.jobs.trigger(name, *bounds.values())
        if run["state"] not in {"queued", "running"}:
            fix = f"headrace job rerun {name} {run['id']}"
            invocation.terminal.note(f"The window already has run {run['id']}; to rerun: {fix}")
        _tell(context, client, run, wait=wait, timeout=timeout)


def list_runs(
    context: typer.Context,
    name: JobName,
    *,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only runs in this state; repeatable."),
    ] = None,
    backfill: Annotated[str | None, typer.Option(help="Only runs of this backfill.")] = None,
    before: Annotated[
        int | None, typer.Option(min=1, metavar="RUN", help="Only runs before this one.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, help="How many runs to list.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """List the runs of a job with their record counts, newest first."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found, following = client.jobs.runs(
            name,
            states=[each.lower() for each in states or ()],
            backfill=backfill,
            before=before,
            limit=lines,
        )
    show_runs(invocation.terminal, found, empty=f"{name} has no such run")
    if following is not None:
        invocation.terminal.note(f"There are more: --before {following}, or --lines.")


def show_runs(terminal: Terminal, found: Sequence[dict[str, Any]], *, empty: str) -> None:
    """Print a table of runs with their record counts."""
    terminal.show_rows(
        ("run", "state", "window", "trigger", "attempt", *FIGURES, "began", "took"),
        (
            (
                run["id"],
                state_text(run["state"]),
                window_text(run["boundaries"]),
                run["trigger"],
                run["attempt"],
                *(count(run["counts"][figure]) for figure in FIGURES),
                moment(run["began"] or ""),
                "" if run["seconds"] is None else span(run["seconds"]),
            )
            for run in found
        ),
        json=found,
        right=("run", "attempt", *FIGURES, "took"),
        empty=empty,
    )


def show_run(
    context: typer.Context,
    name: JobName,
    run: Annotated[
        int | None, typer.Argument(metavar="[RUN]", min=1, help="The run; newest by default.")
    ] = None,
    *,
    trace: Annotated[bool, typer.Option("--trace", help="Show its error in full.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: its state, window, attempts, counts and error."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.jobs.run(name, run) if run else client.jobs.get(name)["newest"]
    if found is None:
        invocation.terminal.show({}, empty=f"{name} has no runs")
        return
    counts, error = found["counts"], (found["error"] or "").strip()
    figures = [f"{count(counts[figure])} {figure}" for figure in FIGURES]
    began, ended = (moment(found[key] or "") for key in ("began", "ended"))
    asked = ", stop requested" if found["stopping"] else ""
    asked = ", its backfill is paused" if found.get("paused") else asked
    facts = {
        "run": f"{found['id']} of {found['job']}",
        "state": f"{found['state']}{asked}",
        "window": window_text(found["boundaries"]),
        "trigger": f"{found['trigger']} by {found['by']}",
        "backfill": found["backfill"],
        "attempt": found["attempt"] or "",
        "due": moment(found["due"]) if found["state"] == "queued" else "",
        "began": began,
        "ended": ended,
        "took": "" if found["seconds"] is None else span(found["seconds"]),
        "records": ", ".join(figures) + ("" if counts["balanced"] else "; not balanced"),
        "worker": found["worker"],
        "application": found["application"],
        "error": error if trace else error.partition("\n")[0],
    }
    lines = (f"{label:<12} {text}" for label, text in facts.items() if text)
    invocation.terminal.show(found, *lines)


def _command(
    about: str, do: Callable[[JobsApi, str, int], dict[str, Any]]
) -> Callable[..., None]:
    """Return a command that starts a run again."""

    def command(
        context: typer.Context,
        name: JobName,
        run: RunNumber,
        *,
        wait: AwaitRuns = False,
        timeout: Timeout = None,
        as_json: Json = False,
    ) -> None:
        with invocation_of(context).client() as client:
            begun = do(client.jobs, name, run)
            _tell(context, client, begun, wait=wait, timeout=timeout)

    command.__doc__ = about
    return command


retry = _command(
    "Retry a failed or stopped run: continue it where it ended.",
    lambda jobs, name, run: jobs.retry(name, run),
)
rerun = _command(
    "Rerun a window: read it from the beginning and write it again. Rejected if a sink would "
    "then contain duplicate rows.",
    lambda jobs, name, run: jobs.rerun(name, run),
)


def stop_run(
    context: typer.Context, name: JobName, run: RunNumber, as_json: Json = False
) -> None:
    """Stop a run after its current batch. Written data stays; a retry continues from there."""
    with invocation_of(context).client() as client:
        _tell(context, client, client.jobs.stop_run(name, run))


def give_up(
    context: typer.Context,
    name: JobName,
    run: RunNumber,
    *,
    task: Annotated[
        int | None, typer.Option("--task", min=0, help="The number of the task.")
    ] = None,
    skip: Skip = False,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give up an unfinished batch of a run that can no longer complete; then retry the run."""
    from headrace.cli.connector.offsets import ask_to_give_up

    terminal, title = invocation_of(context).terminal, f"{name}: run {run}"
    with invocation_of(context).client() as client:
        give = partial(client.jobs.give_up, name, run, skip=skip, force=force)
        ask_to_give_up(
            terminal,
            title,
            {"name": name, "run": run},
            lambda number, dry: give(task=number, dry_run=dry),
            task=task,
            dry_run=dry_run,
            yes=yes,
        )


def _tell(
    context: typer.Context,
    client: Client,
    run: Mapping[str, Any],
    *,
    wait: bool = False,
    timeout: float | None = None,
) -> None:
    """Print a run; with ``wait`` once it has ended."""
    terminal = invocation_of(context).terminal
    seen = [""]

    def changed(run: Mapping[str, Any]) -> None:
        state = run["state"]
        if run.get("paused"):  # an older server does not send the field
            resuming = f"headrace job resume-backfill {run['job']} {run['backfill']}"
            state = f"{state} and paused; to resume: {resuming}"
        if state != seen[-1]:
            seen.append(state)
            terminal.note(f"{run['job']}: run {run['id']} is {state}")

    if wait:
        longest = within(timeout)
        run = client.jobs.await_run(run["job"], run["id"], within=longest, on_look=changed)
    state = "stopping" if run["stopping"] else run["state"]
    window = window_text(run["boundaries"])
    terminal.show(run, f"{run['job']}: run {run['id']} is {state}, {window}")


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The job, as JSON or YAML.", metavar="FILE")],
    *,
    lower: Lower = None,
    upper: Upper = None,
    as_json: Json = False,
) -> int:
    """Run the due windows of a job in this process, without a server, then exit.

    Runs all past windows of its schedule that have no run yet, or the window between the
    bounds. The job and its runs are in the store, so each window runs once, however often cron,
    a systemd timer or a user calls this. Exits with 1 if a run did not succeed.
    """
    invocation = invocation_of(context)
    ended = _run(invocation, file, lower, upper)

    from headrace.model import RunState
    from headrace.rest.v1.jobs import RunShown

    shown = [
        RunShown.of(each, each.ended or each.due).model_dump(mode="json") for each in ended
    ]
    show_runs(invocation.terminal, shown, empty="nothing was due")
    good = {RunState.SUCCEEDED, RunState.SKIPPED}
    return 0 if all(each.state in good for each in ended) else 1


def _run(
    invocation: Invocation, file: Path, lower: str | None, upper: str | None
) -> Sequence[Run]:
    from headrace.cli.interrupts import Interrupts
    from headrace.cli.progress import Scoreboard
    from headrace.control import read_config, read_job

    with invocation.runtime(short_lived=True, copies=True) as runtime:
        document: Mapping[str, Any] = read_config(file)
        name = read_job(document).definition.name
        scores = Scoreboard(time.monotonic)
        with (
            Interrupts(began=lambda: bool(scores.scores()), stop=runtime.stop),
            runtime.local_runs(name, scores) as local,
        ):
            return local.run(document, getuser(), lower, upper)
