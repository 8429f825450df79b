"""``headrace job``: manages the offline jobs of a server.

In it: a module for each kind of command, and runs without a server (`runs.py`). Never: rules
about jobs, which are in `control`, where the API uses them too.
"""

from __future__ import annotations

import typer

from headrace.cli.job import backfills, lifecycle, runs, show

__all__ = ["app"]

app = typer.Typer(
    help="Manage the offline jobs of a server: copies that run over windows, by a schedule or "
    "manually. The server is located as for `headrace connector`. Times are in UTC; times "
    "given without a zone are in the time zone of the job's schedule."
)
app.command("list")(show.list_jobs)
app.command("create")(lifecycle.create)
app.command("edit")(lifecycle.edit)
app.command("show")(show.show)
app.command("next")(show.fires)
app.command("submit")(lifecycle.submit)
app.command("approve")(lifecycle.approve)
app.command("reject")(lifecycle.reject)
app.command("suspend")(lifecycle.suspend)
app.command("resume")(lifecycle.resume)
app.command("delete")(lifecycle.delete)
app.command("run")(runs.run)
app.command("trigger")(runs.trigger)
app.command("runs")(runs.list_runs)
app.command("show-run")(runs.show_run)
app.command("stop-run")(runs.stop_run)
app.command("retry")(runs.retry)
app.command("rerun")(runs.rerun)
app.command("give-up")(runs.give_up)
app.command("alerts")(show.list_alerts)
app.command("test-alerts")(show.try_channels)
app.command("backfill")(backfills.backfill)
app.command("show-backfill")(backfills.show_backfill)
app.command("stop-backfill")(backfills.stop_backfill)
app.command("pause-backfill")(backfills.pause_backfill)
app.command("resume-backfill")(backfills.resume_backfill)
