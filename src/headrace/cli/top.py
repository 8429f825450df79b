"""``headrace top``: what the tasks of a server do, drawn again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connector.options import Json, MaybeNames
from headrace.cli.invocation import invocation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from headrace.cli.terminal import Terminal
    from headrace.client import Client, TaskFigures

_AROUND = 4
"""Lines of the screen that are not tasks."""
SORTS = ("name", "rate", "lag", "errors")


@dataclass(frozen=True, slots=True)
class Moving:
    """A task with how fast it was between two looks."""

    now: TaskFigures
    rows_per_second: float
    bytes_per_second: float
    batch_seconds: float | None

    @classmethod
    def of(cls, now: TaskFigures, before: TaskFigures | None, seconds: float) -> Moving:
        """Compare two looks; a task that was started anew counts from nothing."""
        same = before is not None and before.batches <= now.batches and before.read <= now.read
        old = before if same and before is not None else None
        rows = now.read - (old.read if old else 0)
        size = now.size_bytes - (old.size_bytes if old else 0)
        batches = now.batches - (old.batches if old else 0)
        took = now.batch_seconds - (old.batch_seconds if old else 0)
        if not batches and now.batches:
            batches, took = now.batches, now.batch_seconds
        first = before is None
        return cls(
            now,
            0.0 if first else rows / seconds,
            0.0 if first else size / seconds,
            took / batches if batches else None,
        )

    @property
    def errors(self) -> float:
        """Return how much has gone wrong: records, steps and whole tasks."""
        return self.now.rejected + self.now.retries + self.now.failures

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
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


def top(
    context: typer.Context,
    names: MaybeNames = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look.")
    ] = 2,
    sort: Annotated[str, typer.Option(help="By name, rate, lag or errors.")] = "name",
    as_json: Json = False,
) -> None:
    """Show what the tasks of a server do: states, rates, lag, batches, errors; until Ctrl-C.

    Counts are since the server began. Lag is what waited when the newest batch began.
    """
    from headrace.sdk import ConfigError

    if sort not in SORTS:
        problem = f"Invalid sort key {sort!r}."
        raise ConfigError(problem, field="--sort", fix=f"Use one of: {', '.join(SORTS)}.")
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.client() as client:
        looks = _looks(client, names or [], interval, sort)
        if as_json:
            for look in looks:
                terminal.print_json([each.to_json() for each in look])
                if once:
                    return
        elif once or terminal.width is None:
            for look in looks:
                terminal.print(picture(look))
                if once:
                    return
        else:
            _live(looks, terminal)


def _looks(
    client: Client, patterns: Sequence[str], seconds: float, sort: str
) -> Iterator[list[Moving]]:
    """Yield what is seen each time, after a first look that only rates need."""
    before, then = _by_name(client.figures(), patterns), time.monotonic()
    while True:
        time.sleep(seconds)
        seen, now = _by_name(client.figures(), patterns), time.monotonic()
        yield _sorted(
            (Moving.of(each, before.get(n), now - then) for n, each in seen.items()), sort
        )
        before, then = seen, now


def _by_name(figures: Iterable[TaskFigures], patterns: Sequence[str]) -> dict[str, TaskFigures]:
    from fnmatch import fnmatchcase

    return {
        each.name: each
        for each in figures
        if not patterns or any(fnmatchcase(each.connector, one) for one in patterns)
    }


def _sorted(found: Iterable[Moving], sort: str) -> list[Moving]:
    keys: Mapping[str, Callable[[Moving], float]] = {
        "name": lambda _: 0,
        "rate": lambda each: -each.rows_per_second,
        "lag": lambda each: -(each.now.lag_records or each.now.lag_bytes or 0),
        "errors": lambda each: -each.errors,
    }
    return sorted(found, key=keys[sort])


def _live(looks: Iterator[list[Moving]], terminal: Terminal) -> None:
    from rich.live import Live

    console = terminal.out
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for look in looks:
            live.update(picture(look, height=console.height), refresh=True)


def picture(look: Sequence[Moving], *, height: int | None = None) -> RenderableType:
    """Return the table, with as many tasks as the screen has lines for."""
    from headrace.cli.connector.show import state_text
    from headrace.cli.formats import count, size
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
            _lag(now),
            "" if each.batch_seconds is None else f"{each.batch_seconds:.2f} s",
            count(int(now.batch_records)),
            count(int(each.errors)),
        )
    if len(look) > room:
        shown.caption = f"and {len(look) - room} more"
    return shown


def _lag(now: TaskFigures) -> str:
    from headrace.cli.formats import count, size

    if now.lag_records is not None:
        return count(int(now.lag_records))
    return "" if now.lag_bytes is None else size(now.lag_bytes)
