"""``headrace job run``: a job without a server, as cron or systemd starts it."""

from __future__ import annotations

import time
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.invocation import Invocation, invocation_of
from headrace.cli.job.arguments import Lower, Upper
from headrace.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.model import Run


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

    from headrace.cli.job.runs import show_runs
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

    with invocation.runtime(short_lived=True) as runtime:
        document: Mapping[str, Any] = read_config(file)
        name = read_job(document).definition.name
        scores = Scoreboard(time.monotonic)
        with (
            Interrupts(began=lambda: bool(scores.scores()), stop=runtime.stop),
            runtime.local_runs(name, scores) as local,
        ):
            return local.run(document, getuser(), lower, upper)
