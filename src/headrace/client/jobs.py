"""The part of the client for offline jobs, including waits for their runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.client.http import RefusedError, RunFailedError, TooLateError
from headrace.sdk.errors import ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from headrace.client.http import Http

_EVERY = timedelta(milliseconds=500)
"""The poll interval."""


@dataclass(frozen=True)
class JobsApi:
    """The jobs of a server: ``Client.jobs``.

    Results are JSON objects as described by the API under /v1/jobs. An unknown job or run
    raises NotThereError; one whose state does not allow the request raises ConflictError.
    """

    http: Http

    def all(self) -> list[dict[str, Any]]:
        """Return all jobs, by name."""
        return list(self.http.send("GET", "/v1/jobs"))

    def names(self) -> list[str]:
        """Return the names of all jobs, sorted."""
        return [each["name"] for each in self.all()]

    def get(self, name: str) -> dict[str, Any]:
        """Return a job with its document."""
        return self._send(name, "GET")

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create a job as a draft.

        Raises ConflictError if the name exists, and ConfigErrors with all errors of the
        document.
        """
        return self._written("POST", "/v1/jobs", document)

    def edit(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the document of a job. Raises ConfigErrors as ``create`` does."""
        return self._written("PUT", _place(name), document)

    def delete(self, name: str) -> list[str]:
        """Delete a job with its runs; written data is kept.

        Returns what it leaves at its source, such as a replication slot, and how to drop that.
        """
        return list(self._send(name, "DELETE")["left"])

    def submit(self, name: str) -> dict[str, Any]:
        """Submit a draft for approval; a job without approvers is approved at once."""
        return self._send(name, "POST", "/submit")

    def approve(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Approve a submitted job; with ``version``, only if that is its version."""
        query = {} if version is None else {"version": str(version)}
        return self._send(name, "POST", "/approve", query=query)

    def reject(self, name: str, why: str) -> dict[str, Any]:
        """Reject a submitted job."""
        return self._send(name, "POST", "/reject", {"why": why})

    def suspend(self, name: str) -> dict[str, Any]:
        """Start no more runs of a job; active runs finish."""
        return self._send(name, "POST", "/suspend")

    def resume(self, name: str) -> dict[str, Any]:
        """Resume a job that was suspended or has failed."""
        return self._send(name, "POST", "/resume")

    def fires(self, name: str, count: int = 10) -> list[str]:
        """Return when the next windows of a job's schedule are due."""
        return list(self._send(name, "GET", "/fires", query={"count": str(count)})["fires"])

    def trigger(
        self, name: str, lower: str | None = None, upper: str | None = None
    ) -> dict[str, Any]:
        """Run a window now; return its run, which may already have existed.

        Without bounds, run the newest past window of the schedule.
        """
        bounds = {"lower": lower, "upper": upper}
        body = {key: value for key, value in bounds.items() if value is not None}
        return self._send(name, "POST", "/trigger", body)

    def runs(
        self,
        name: str,
        *,
        states: Collection[str] = (),
        backfill: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return runs of a job, newest first, and the ``before`` for the next page."""
        query: dict[str, str | list[str]] = {"limit": str(limit), "state": list(states)}
        if backfill is not None:
            query["backfill"] = backfill
        if before is not None:
            query["before"] = str(before)
        page = self._send(name, "GET", "/runs", query=query)
        return list(page["items"]), page["next"]

    def run(self, name: str, number: int) -> dict[str, Any]:
        """Return a run of a job."""
        return self._send(name, "GET", f"/runs/{number}")

    def stop_run(self, name: str, number: int) -> dict[str, Any]:
        """Stop a run after its batch; a retry continues from there."""
        return self._send(name, "POST", f"/runs/{number}/stop")

    def retry(self, name: str, number: int) -> dict[str, Any]:
        """Continue a failed or stopped run where it ended."""
        return self._send(name, "POST", f"/runs/{number}/retry")

    def rerun(self, name: str, number: int) -> dict[str, Any]:
        """Read a run's window from the beginning and write it again."""
        return self._send(name, "POST", f"/runs/{number}/rerun")

    def give_up(
        self,
        name: str,
        number: int,
        *,
        task: int | None = None,
        skip: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Give up the unfinished batch of a run that is not active.

        A retry reads its records again, as far as they still exist; with ``skip`` it continues
        after the batch. Without ``force``, rejected if a target contains the batch or cannot be
        reached. Returns what was done, or with ``dry_run`` would be done.
        """
        body = {"task": task, "skip": skip, "force": force, "dry_run": dry_run}
        return self._send(name, "POST", f"/runs/{number}/give-up", body)

    def backfill(
        self, name: str, lower: datetime, upper: datetime, *, chunk: int = 1
    ) -> dict[str, Any]:
        """Run all past windows of a range that have no run, ``chunk`` windows per run.

        ``lower`` and ``upper`` must be aware.
        """
        times = {"lower": lower.isoformat(), "upper": upper.isoformat()}
        return self._send(name, "POST", "/backfills", {**times, "chunk": chunk})

    def backfill_of(self, name: str, backfill: str) -> dict[str, Any]:
        """Return the progress of a backfill."""
        return self._send(name, "GET", f"/backfills/{quote(backfill, safe='')}")

    def stop_backfill(self, name: str, backfill: str) -> dict[str, Any]:
        """Stop the runs of a backfill that have not ended."""
        return self._send(name, "POST", f"/backfills/{quote(backfill, safe='')}/stop")

    def pause_backfill(self, name: str, backfill: str) -> dict[str, Any]:
        """Start no more runs of a backfill; active runs finish."""
        return self._send(name, "POST", f"/backfills/{quote(backfill, safe='')}/pause")

    def resume_backfill(self, name: str, backfill: str) -> dict[str, Any]:
        """Resume a paused backfill."""
        return self._send(name, "POST", f"/backfills/{quote(backfill, safe='')}/resume")

    def alerts(
        self, job: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return alerts, newest first, and the ``before`` for the next page.

        Args:
            job: Only alerts about this job, which may be deleted; None for all jobs.
            before: Only alerts before this number.
            limit: The maximum number of alerts.
        """
        query: dict[str, str | list[str]] = {"limit": str(limit)}
        if job is not None:
            query["job"] = job
        if before is not None:
            query["before"] = str(before)
        page = dict(self.http.send("GET", "/v1/alerts", query=query))
        return list(page["items"]), page["next"]

    def test_alerts(self) -> list[dict[str, Any]]:
        """Send a test alert by each channel of the server; return the results.

        Takes as long as the slowest channel, up to 25 seconds.
        """
        return list(self.http.send("POST", "/v1/alerts/test"))

    def await_run(
        self,
        name: str,
        number: int,
        *,
        within: timedelta | None = None,
        on_look: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Wait until a run has succeeded; return it.

        Args:
            name: The job.
            number: The run.
            within: The timeout; None for no limit.
            on_look: Called with the run after each poll.

        Raises:
            RunFailedError: It failed, or was stopped or skipped.
            TooLateError: The timeout has passed.
        """
        what = f"Run {number} of {name}"
        found = _awaited(
            lambda: self.run(name, number),
            lambda run: run["state"] not in {"queued", "running"},
            within,
            on_look,
            (what, f"headrace job show-run {name} {number}"),
        )
        if found["state"] != "succeeded":
            line = str(found["error"] or "").strip().partition("\n")[0]
            problem = f"{what} is {found['state']}{f': {line}' if line else ''}"
            fix = f"See headrace job show-run {name} {number}; then headrace job retry."
            raise RunFailedError(problem.rstrip(".") + ".", fix=fix, field=name)
        return found

    def await_backfill(
        self,
        name: str,
        backfill: str,
        *,
        within: timedelta | None = None,
        on_look: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Wait until all runs of a backfill have succeeded, as ``await_run`` does.

        This includes waiting while the backfill is paused, which ``on_look`` can see.
        """
        found = _awaited(
            lambda: self.backfill_of(name, backfill),
            lambda found: bool(found["done"]),
            within,
            on_look,
            (f"Backfill {backfill}", f"headrace job show-backfill {name} {backfill}"),
        )
        if found["runs"].get("succeeded", 0) < found["total"]:
            shown = ", ".join(f"{count} {state}" for state, count in found["runs"].items())
            fix = (
                f"See headrace job runs {name} --backfill {backfill}; retry those that failed."
            )
            problem = f"Not all runs of backfill {backfill} have succeeded: {shown}."
            raise RunFailedError(problem, fix=fix, field=name)
        return found

    def _send(
        self,
        name: str,
        method: str,
        path: str = "",
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> dict[str, Any]:
        return dict(self.http.send(method, _place(name) + path, body=body, query=query))

    def _written(self, method: str, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(self.http.send(method, path, body=dict(document)))
        except RefusedError as error:
            if not error.faults:
                raise
            raise ConfigErrors(error.faults) from None


def _place(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _awaited(
    look: Callable[[], dict[str, Any]],
    is_over: Callable[[Mapping[str, Any]], bool],
    within: timedelta | None,
    on_look: Callable[[Mapping[str, Any]], None],
    told: tuple[str, str],
) -> dict[str, Any]:
    begun = time.monotonic()
    while True:
        found = look()
        on_look(found)
        if is_over(found):
            return found
        if within is not None and time.monotonic() - begun > within.total_seconds():
            what, command = told
            problem = f"{what} has not ended within {within.total_seconds():g} s."
            fix = f"It continues: see {command}, or wait longer with --timeout."
            raise TooLateError(problem, fix=fix)
        time.sleep(_EVERY.total_seconds())
