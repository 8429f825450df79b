"""Shows jobs with their states and next windows, and the alerts about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import moment, state_text
from headrace.cli.invocation import invocation_of
from headrace.cli.options import JobName, Json, known_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping


def states_text(runs: Mapping[str, int]) -> str:
    """Return the number of runs per state: ``3 succeeded, 1 failed``."""
    return ", ".join(f"{count} {state}" for state, count in runs.items() if count)


def window_text(boundaries: Mapping[str, Any]) -> str:
    """Return bounds in one line; times are printed without their zone, which is UTC."""
    lower, upper = boundaries["lower"], boundaries["upper"]
    if boundaries["kind"] == "time":
        lower, upper = (each and moment(each.removesuffix("+00:00")) for each in (lower, upper))
    return f"{lower or 'the beginning'} to {upper or 'the end'}"


def run_text(run: Mapping[str, Any] | None) -> str:
    """Return a run in short form: its number, state and window."""
    return (
        "" if run is None else f"{run['id']} {run['state']}, {window_text(run['boundaries'])}"
    )


def schedule_text(job: Mapping[str, Any]) -> str:
    """Return the schedule of a job: ``every 1 hour, Europe/Zurich``."""
    if job["mode"] == "realtime":
        return "real time"
    section: Mapping[str, Any] = job["schedule"] or {}
    for key in ("every", "cron", "after"):
        if section.get(key):
            zone = job["zone"]
            return f"{key} {section[key]}" + ("" if zone in {None, "UTC"} else f", {zone}")
    return "once" if section.get("once") else "by hand"


def engine_text(job: Mapping[str, Any]) -> str:
    """Return the job's external scheduler and registration; empty for Headrace's scheduler."""
    if job["engine"] is None:
        return ""
    found = job["registration"]
    state = "registered" if found["active"] else "registered, paused"
    if not found["registered"]:
        state = "not registered yet"
    return f"{job['engine']}, {state}" + (f": {found['error']}" if found["error"] else "")


def list_jobs(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state, such as running.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List jobs with their states, schedules, runs and next windows."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        every = client.jobs.all()
    shown = [job for job in every if state is None or job["state"] == state.lower()]
    invocation.terminal.show_rows(
        ("name", "state", "schedule", "next", "runs", "newest run"),
        (
            (
                job["name"],
                state_text(job["state"]),
                schedule_text(job),
                moment(job["fires"][0]) if job["fires"] else "",
                states_text(job["runs"]),
                run_text(job["newest"]),
            )
            for job in shown
        ),
        json=shown,
        empty="no jobs" if not every else "no job matches",
    )


def show(
    context: typer.Context,
    name: JobName,
    *,
    document: Annotated[
        bool, typer.Option("--document", help="Print its document, for editing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a job: its state, schedule, runs and next windows."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        job = client.jobs.get(name)
    if document:
        text = json.dumps(job["document"], indent=2, ensure_ascii=False)
        invocation.terminal.show(job["document"], text)
        return
    why = f": {job['why']}" if job["why"] else ""
    facts = {
        "name": job["name"],
        "state": f"{job['state']}{why}",
        "version": job["version"],
        "changed": f"{moment(job['changed'])} by {job['by']}",
        "schedule": schedule_text(job),
        "scheduler": engine_text(job),
        "boundaries": job["boundaries"] or "",
        "approvers": ", ".join(job["approvers"]) or "none",
        "runs": states_text(job["runs"]) or "none",
        "newest run": run_text(job["newest"]),
        "next": ", ".join(moment(each) for each in job["fires"][:3]),
    }
    lines = (f"{label:<12} {text}" for label, text in facts.items() if text)
    invocation.terminal.show(job, *lines)


def fires(
    context: typer.Context,
    name: JobName,
    *,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many windows.")] = 10,
    as_json: Json = False,
) -> None:
    """Show when the next windows of a job's schedule are due, regardless of its state."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.jobs.fires(name, count)
    lines = map(moment, found)
    invocation.terminal.show(found, *lines, empty=f"{name} has no future windows")


def list_alerts(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Only alerts about this job.", autocompletion=known_jobs
        ),
    ] = None,
    *,
    before: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Only alerts before this one.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, help="How many alerts to list.")
    ] = 20,
    text: Annotated[bool, typer.Option("--text", help="Print the full texts.")] = False,
    as_json: Json = False,
) -> None:
    """List alerts about jobs, newest first, and whether they were sent.

    Includes alerts about deleted jobs. Alerts are retained for 90 days.
    """
    invocation = invocation_of(context)
    with invocation.client() as client:
        found, following = client.jobs.alerts(name, before=before, limit=lines)
    terminal, empty = invocation.terminal, "no alerts"
    if text:
        texts = [f"{moment(each['at'])} {each['text']}" for each in found]
        terminal.show(found, *texts, empty=empty)
    else:
        terminal.show_rows(
            ("number", "at", "kind", "alert", "channels"),
            (
                (
                    each["number"],
                    moment(each["at"]),
                    each["kind"],
                    each["subject"],
                    ", ".join(_delivery(way) for way in each["deliveries"]),
                )
                for each in found
            ),
            json=found,
            right=("number",),
            empty=empty,
        )
    if following is not None:
        terminal.note(f"There are more: --before {following}, or --lines.")


def _delivery(way: Mapping[str, Any]) -> str:
    """Return the delivery to a channel: ``ops sent``, ``ops waiting (2 attempts)``."""
    state = str(way["state"]).replace("_", " ")
    tried = f" ({way['attempts']} attempts)" if way["error"] else ""
    return f"{way['channel']} {state}{tried}"


def try_channels(context: typer.Context, as_json: Json = False) -> int:
    """Send a test alert by each channel of the server. Exits with 1 if a channel failed."""
    invocation = invocation_of(context)
    with invocation.client() as client:
        found = client.jobs.test_alerts()
    results = (
        f"{each['channel']} ({each['type']}): {each['error'] or 'sent'}" for each in found
    )
    invocation.terminal.show(found, *results)
    return 1 if any(each["error"] for each in found) else 0
