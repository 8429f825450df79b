"""``headrace top``: a live table of a server's tasks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.formats import count, lag, size
from headrace.cli.inputs import check_one_of
from headrace.cli.invocation import invocation_of
from headrace.cli.options import Json, MaybeNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from headrace.client import Client, TaskFigures

_AROUND = 4
"""Screen lines without tasks."""


@dataclass(frozen=True, slots=True)
class Moving:
    """A task with its rates between two polls."""

    now: TaskFigures
    rows_per_second: float
    bytes_per_second: float
    batch_seconds: float | None

    @classmethod
    def of(cls, now: TaskFigures, before: TaskFigures | None, seconds: float) -> Moving:
        """Compare two polls; the counts of a restarted task start from zero."""
        same = before is not None and before.batches <= now.batches and before.read <= now.read
        old = before if same and before is not None else type(now)(now.connector, now.number)
        batches, took = now.batches - old.batches, now.batch_seconds - old.batch_seconds
        if not batches:
            batches, took = now.batches, now.batch_seconds
        share = 0.0 if before is None else 1 / seconds
        return cls(
            now,
            (now.read - old.read) * share,
            (now.size_bytes - old.size_bytes) * share,
            took / batches if batches else None,
        )

    @property
    def errors(self) -> float:
        return self.now.rejected + self.now.retries + self.now.failures

    def to_json(self) -> dict[str, Any]:
        now = self.now
        return {
            "task": now.name,
            "connector": now.connector,
            "number": now.number,
            "state": now.state,
            "read": now.read,
            "written": now.written,
            "rows_per_second": round(self.rows_per_second, 3),
            "bytes_per_second": round(self.bytes_per_second, 3),
            "lag_rows": now.lag_records,
            "lag_bytes": now.lag_bytes,
            "batch_seconds": None
            if self.batch_seconds is None
            else round(self.batch_seconds, 4),
            "batch_rows": now.batch_records,
            "rejected": now.rejected,
            "retries": now.retries,
            "failures": now.failures,
        }


SORTS: Mapping[str, Callable[[Moving], float]] = {
    "name": lambda _: 0,
    "rate": lambda each: -each.rows_per_second,
    "lag": lambda each: -(each.now.lag_records or each.now.lag_bytes or 0),
    "errors": lambda each: -each.errors,
}


def top(
    context: typer.Context,
    names: MaybeNames = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The poll interval.")
    ] = 2,
    sort: Annotated[str, typer.Option(help="Sort by name, rate, lag or errors.")] = "name",
    as_json: Json = False,
) -> None:
    """Show the states, rates, lag, batches and errors of a server's tasks, until Ctrl-C.

    Counts are since the start of the server. Lag is as of the start of the newest batch.
    """
    check_one_of(sort, SORTS, "sort key", "--sort")
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        looks = _looks(client, names or [], interval, sort)
        if not as_json and not once and terminal.width is not None:
            from rich.live import Live

            console = terminal.out
            with Live(console=console, auto_refresh=False, screen=True) as live:
                for look in looks:
                    live.update(picture(look, height=console.height), refresh=True)
        for look in looks:
            if as_json:
                terminal.print_json([each.to_json() for each in look])
            else:
                terminal.print(picture(look))
            if once:
                return


def _looks(
    client: Client, patterns: Sequence[str], seconds: float, sort: str
) -> Iterator[list[Moving]]:
    """Yield the tasks of each poll, after a first poll that serves only to compute rates."""
    before, then = _by_name(client.figures(), patterns), time.monotonic()
    while True:
        time.sleep(seconds)
        seen, now = _by_name(client.figures(), patterns), time.monotonic()
        moving = [Moving.of(each, before.get(n), now - then) for n, each in seen.items()]
        yield sorted(moving, key=SORTS[sort])
        before, then = seen, now


def _by_name(figures: Iterable[TaskFigures], patterns: Sequence[str]) -> dict[str, TaskFigures]:
    from fnmatch import fnmatchcase

    return {
        each.name: each
        for each in figures
        if not patterns or any(fnmatchcase(each.connector, one) for one in patterns)
    }


def picture(look: Sequence[Moving], *, height: int | None = None) -> RenderableType:
    """Return the table, with as many tasks as fit on the screen."""
    from headrace.cli.formats import state_text
    from headrace.cli.terminal import table

    figures = ("rows", "rows/s", "bytes/s", "lag", "batch", "rows/batch", "errors")
    shown = table("task", "state", *figures, right=figures, wrap=False)
    room = len(look) if height is None else max(1, height - _AROUND)
    for each in look[:room]:
        now = each.now
        shown.add_row(
            now.name,
            state_text(now.state),
            count(int(now.read)),
            count(each.rows_per_second),
            size(each.bytes_per_second),
            lag(now.lag_records, now.lag_bytes),
            "" if each.batch_seconds is None else f"{each.batch_seconds:.2f} s",
            count(int(now.batch_records)),
            count(int(each.errors)),
        )
    if len(look) > room:
        shown.caption = f"and {len(look) - room} more"
    return shown
