"""``headrace run``."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.invocation import Invocation, invocation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cli.progress import Scoreboard, Summary
    from headrace.cli.terminal import Terminal
    from headrace.model import Definition
    from headrace.runtime.app import Runtime
    from headrace.worker import Events


def run(  # noqa: PLR0917 - its options
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON or YAML files.", metavar="FILE...")],
    once: Annotated[
        bool, typer.Option("--once", help="Copy the data that is available now, then exit.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Stop after this time as Ctrl-C does; the next run continues.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print events and the summary as JSON lines.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve metrics on this port of 127.0.0.1 during the run; 0 for any free port.",
        ),
    ] = None,
) -> int:
    """Run the connectors of definition files until they complete, or until Ctrl-C.

    Everything is validated first. With --once a task whose system is unreachable fails after
    ten minutes, unless errors.retry.timeout is set, and a run that is stopped before its end
    exits with 1. The first Ctrl-C finishes the running batches, the second exits at once;
    neither loses or duplicates records.
    """
    invocation = invocation_of(context)
    terminal = invocation.terminal
    with invocation.runtime(short_lived=once, copies=True) as runtime:
        from headrace.cli.failures import exit_code
        from headrace.cli.validate import accepted_files

        checked = accepted_files(runtime, files, terminal)
        definitions = [definition for _, definition in checked.definitions]
        with _scraped(runtime, metrics_port, terminal):
            summary = _watched(runtime, definitions, invocation, once=once, timeout=timeout)
        show_summary(summary, invocation)
        errors_of_tasks = [score.error for score in summary.scores if score.error is not None]
        return exit_code(errors_of_tasks) or (1 if once and summary.stopped else 0)


@contextmanager
def _scraped(runtime: Runtime, port: int | None, terminal: Terminal) -> Iterator[None]:
    """Serve the metrics while the body runs, if a port is given."""
    if port is None:
        yield
        return
    from headrace.rest import Listener, Serving, metrics_app

    listener = Listener(port=port)
    with Serving(metrics_app(runtime.measuring.exposition, listener), listener) as serving:
        serving.start()
        runtime.measuring.scraped = True
        terminal.note(f"metrics are at {serving.url}/metrics")
        yield


def _watched(
    runtime: Runtime,
    definitions: list[Definition],
    invocation: Invocation,
    *,
    once: bool,
    timeout: float | None,
) -> Summary:
    """Run the definitions and show the progress."""
    from headrace.cli.interrupts import Interrupts
    from headrace.cli.progress import Scoreboard, Summary

    scoreboard = Scoreboard(time.monotonic)
    terminal = invocation.terminal

    def stop() -> None:
        terminal.note("stopping: running batches are finished (Ctrl-C again exits at once)")
        runtime.stop()

    def time_out() -> None:
        interrupts.stopped = True
        terminal.note(f"stopping after {timeout:g} s: running batches are finished")
        runtime.stop()

    interrupts = Interrupts(began=lambda: bool(scoreboard.scores()), stop=stop)
    try:
        with interrupts, ExitStack() as watching:
            events = _watch(runtime, scoreboard, invocation, watching)
            if timeout is not None:
                timer = threading.Timer(timeout, time_out)
                timer.start()
                watching.callback(timer.cancel)
            runtime.spark  # noqa: B018 - starts Spark now
            interrupts.take_back()
            runtime.run(definitions, events, once=once)
    except KeyboardInterrupt:
        terminal.note("stopped before any task had started")
    return Summary(scoreboard.scores(), scoreboard.seconds(), interrupts.stopped)


def _watch(
    runtime: Runtime, scoreboard: Scoreboard, invocation: Invocation, watching: ExitStack
) -> Events:
    """Start the progress display for the settings; return the listener for events."""
    from headrace.cli.progress import JsonEvents, lines, live

    terminal = invocation.terminal
    if terminal.as_json:
        events = JsonEvents(scoreboard, terminal, unheard=runtime.stop)
        watching.enter_context(events.printing())
        return events
    if not invocation.quiet:
        mode = runtime.settings.progress
        if mode == "always" or (mode == "auto" and terminal.interactive):
            interval = runtime.settings.progress_interval
            shown = live(scoreboard, terminal, runtime.progress, interval)
        else:
            shown = lines(scoreboard, terminal)
        watching.enter_context(shown)
    return scoreboard


def show_summary(summary: Summary, invocation: Invocation) -> None:
    """Print the summary of a run and the errors of its tasks."""
    from headrace.cli.failures import show_of_task, show_traceback
    from headrace.cli.logs import log

    terminal = invocation.terminal
    failed = [(score.task, score.error) for score in summary.scores if score.error is not None]
    for task, error in failed:
        # For the log file only: the terminal skips this logger, and errors point to the log.
        log.error("task failed", task=str(task), exc_info=error)
        show_traceback(error, invocation)
    if terminal.as_json:
        terminal.print_json(summary.to_json())
        return
    if not invocation.quiet and (summary.scores or not summary.stopped):
        terminal.print(summary.to_table(), summary.last_line())
    for task, error in failed:
        show_of_task(error, invocation, str(task))
