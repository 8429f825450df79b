"""Checks of a source in a running worker: real time, offline, and stopping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.sdk.sources import ReplayableSource, SourceTask
from headrace.sdk.testing.promise import BrokenPromiseError
from headrace.sdk.testing.source_checks import (
    append_chunks,
    append_once,
    require_once,
)

if TYPE_CHECKING:
    from headrace.sdk.testing.driver import SourceDriver
    from headrace.sdk.testing.harness import Running, SourceBench
    from headrace.sdk.testing.rows import Row

GRACE_SECONDS = 5.0
"""The grace period of a worker, after which it cancels what is running."""
_MARGIN_SECONDS = 2.0
"""What a busy machine may add."""
_PATIENCE_SECONDS = 30.0


def check_offline(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that an offline run reads everything that is there, then ends."""
    rows = append_chunks(driver)
    bench.run()
    promise = "Offline, everything that is there is read, once (the same as in real time)."
    require_once(bench, driver, rows, promise, ReplayableSource.latest)
    bench.run()
    promise = "A second offline run with nothing new adds nothing."
    require_once(bench, driver, rows, promise, ReplayableSource.latest)


def check_real_time(
    bench: SourceBench, driver: SourceDriver, *, patience_seconds: float = _PATIENCE_SECONDS
) -> None:
    """Check that rows appended while the connector runs arrive, once."""
    rows: list[Row] = []
    running = bench.start()
    for _ in range(2):
        rows += append_chunks(driver, first=len(rows))
        _wait_for(bench, running, len(rows), patience_seconds)
    _stop(running)
    _raise_error(running)
    promise = "In real time, everything appended is read, once (the same as offline)."
    require_once(bench, driver, rows, promise, ReplayableSource.latest)


def check_stop_idle(
    bench: SourceBench, driver: SourceDriver, *, grace_seconds: float = GRACE_SECONDS
) -> None:
    """Check that a source with nothing to do stops within the grace period."""
    driver.append([driver.row(0)])
    running = bench.start()
    _wait_for(bench, running, 1)
    _stop(running, grace_seconds)
    _raise_error(running)


def check_stop_reading(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that a source stops while it reads, and loses nothing by it."""
    rows = append_once(driver, 100)
    for _ in range(5):
        more = driver.row(len(rows))
        driver.append([more])
        rows.append(more)
    running = bench.start(rows=1)
    _wait_for(bench, running, 1)
    _stop(running)
    _raise_error(running)
    bench.run()
    promise = "A stop in the middle loses and repeats nothing."
    require_once(bench, driver, rows, promise, SourceTask.stop)


def _stop(running: Running, grace: float = GRACE_SECONDS) -> None:
    took = running.stop(_PATIENCE_SECONDS)
    if took is None or took > grace + _MARGIN_SECONDS:
        after = "never" if took is None else f"after {took:.1f} s"
        raise BrokenPromiseError(
            promise=f"A task stops within the grace period of {grace:.0f} s.",
            seen=f"It stopped {after}. Look at stopping() in long work, and block briefly.",
            read=SourceTask.stop,
        )


def _wait_for(
    bench: SourceBench, running: Running, count: int, patience: float = _PATIENCE_SECONDS
) -> None:
    """Wait until so many records have arrived, or for long enough: the check then fails."""
    deadline = time.monotonic() + patience
    while len(bench.arrived()) < count and time.monotonic() < deadline:
        if running.error() is not None:
            return
        time.sleep(0.02)


def _raise_error(running: Running) -> None:
    error = running.error()
    if error is not None:
        raise BrokenPromiseError(
            promise="A source reads what the driver appends without an error.",
            seen=f"The task failed: {error!r}",
            read=ReplayableSource,
        ) from error
