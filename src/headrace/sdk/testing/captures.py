"""The tests for captures, as a pytest class to subclass."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from headrace.sdk.arrow import from_arrow
from headrace.sdk.position import Position
from headrace.sdk.sources import CapturedBatch, CaptureSource, SourceTask
from headrace.sdk.testing.driver import (
    Arrived,
    BrokenPromiseError,
    Row,
    SourceDriver,
    differences,
    fitted,
)
from headrace.sdk.testing.sources import GRACE_SECONDS, append_chunks, append_more
from headrace.sdk.testing.suite import ConnectorAcceptance, check_leaks, skip_if

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.acceptance.harness import CaptureBench, Harness
    from headrace.sdk.record import Record


_POLL_SECONDS = 1.0
_MARGIN_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
"""How long a capture may need to notice appended rows."""


@dataclass
class _Pump:
    """Polls like the runtime; the records it keeps are durable together with the position."""

    bench: CaptureBench
    arrived: list[Arrived] = field(default_factory=list)

    def start(self) -> CaptureSource:
        task = self.bench.start()
        if not isinstance(task, CaptureSource):
            message = f"{type(task).__name__} is not a capture; use SourceAcceptance."
            raise TypeError(message)
        return task

    def keep(self, polled: _Polled) -> None:
        self.arrived += polled.records
        self.bench.advance(polled.position)


@dataclass(frozen=True)
class _Polled:
    """The result of one poll."""

    raw: Sequence[Record] | CapturedBatch
    records: Sequence[Arrived]
    position: Position

    def committed(self, task: CaptureSource) -> None:
        if not isinstance(self.raw, CapturedBatch):
            for record in self.raw:
                task.commit_record(record)
        task.commit(self.position)


def _capture(pump: _Pump, expected: int, at_most: int = 1_000) -> list[_Polled]:
    """Capture the available records, with a new task for each poll."""
    captured: list[_Polled] = []
    while len(captured) < at_most and (polled := _next(pump, expected)):
        task, batch = polled
        pump.keep(batch)
        batch.committed(task)
        task.stop()
        captured.append(batch)
    return captured


def _next(pump: _Pump, expected: int) -> tuple[CaptureSource, _Polled] | None:
    """Start a new capture and return its first records; None if no more are expected.

    After all records have arrived, poll once more to detect repeated records.
    """
    task = pump.start()
    timeout = 0.0 if len(pump.arrived) >= expected else _PATIENCE_SECONDS
    deadline = time.monotonic() + timeout
    while (polled := _poll(task, pump.bench)) is None and time.monotonic() < deadline:
        pass
    if polled is None or len(pump.arrived) > 2 * expected:
        task.stop()
        return None
    return task, polled


def _poll(task: CaptureSource, bench: CaptureBench) -> _Polled | None:
    raw = task.poll()
    if isinstance(raw, CapturedBatch):
        if not raw.values.num_rows and not raw.rejected:
            return None
        return _Polled(raw, _of_batch(raw), bench.position().merged(raw.position))
    if not raw:
        return None
    position = bench.position()
    for record in raw:
        if record.source_partition is not None and record.source_offset is not None:
            position = position.moved(record.source_partition, record.source_offset)
    arrived = [
        Arrived(
            fitted(r.value_schema, r.value) if r.value_schema else r.value,
            r.key,
            r.topic,
            (0, 0),
        )
        for r in raw
    ]
    return _Polled(raw, arrived, position)


def _of_batch(batch: CapturedBatch) -> list[Arrived]:
    schema = from_arrow(batch.values.schema)
    rows = [fitted(schema, row) for row in batch.values.to_pylist()]
    values = [next(iter(row.values())) for row in rows] if batch.scalar else rows
    return [Arrived(value, None, batch.topic or "", (0, 0)) for value in values]


def _require(pump: _Pump, driver: SourceDriver, rows: Sequence[Row], promise: str) -> None:
    found = differences(rows, map(driver.seen, pump.arrived))
    if found:
        raise BrokenPromiseError(promise=promise, seen=found, read=CaptureSource)


class CaptureAcceptance(ConnectorAcceptance):
    """The tests for captures; see ``SourceAcceptance`` for the usage."""

    cannot_redeliver: ClassVar[str] = ""
    """Why records that were polled but never became durable are not delivered again."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return a driver for an empty external system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SourceDriver, tmp_path: Path
    ) -> Iterator[CaptureBench]:
        home = tmp_path / "headrace"
        with headrace_harness.capture(made.connector, made.config, home) as bench:
            yield bench

    def test_an_empty_system_gives_nothing_soon(self, bench: CaptureBench) -> None:
        task = _Pump(bench).start()
        began = time.monotonic()
        polled = _poll(task, bench)
        took = time.monotonic() - began
        task.stop()
        if polled is not None or took > _POLL_SECONDS + _MARGIN_SECONDS:
            count = 0 if polled is None else len(polled.records)
            raise BrokenPromiseError(
                promise="poll may block for a second, and returns nothing if nothing is new.",
                seen=f"It returned {count} records after {took:.1f} s.",
                read=CaptureSource.poll,
            )

    def test_a_restart_after_every_poll_neither_loses_nor_repeats(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        pump = _Pump(bench)
        rows = append_chunks(made)
        _capture(pump, len(rows))
        rows += append_more(made, first=len(rows))
        _capture(pump, len(rows))
        promise = "A restart after every poll neither loses nor repeats records."
        _require(pump, made, rows, promise)

    def test_a_kill_before_commit_repeats_nothing_that_is_durable(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        pump = _Pump(bench)
        rows = append_chunks(made)
        abandoned = []
        while polled := _next(pump, len(rows)):
            task, batch = polled
            pump.keep(batch)
            abandoned.append(task)
        for task in abandoned:
            task.stop()
        promise = "Durable records are not captured again, even if commit was never called."
        _require(pump, made, rows, promise)

    def test_a_kill_before_the_append_loses_nothing(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        skip_if(self.cannot_redeliver)
        pump = _Pump(bench)
        rows = append_chunks(made)
        while lost := _next(pump, len(rows)):
            lost[0].stop()
            if not _capture(pump, len(rows), at_most=1):
                break
        promise = (
            "Records that were polled but are not durable are delivered again: the capture "
            "discards nothing before commit."
        )
        _require(pump, made, rows, promise)

    def test_every_poll_says_where_it_stands(
        self, bench: CaptureBench, made: SourceDriver
    ) -> None:
        pump = _Pump(bench)
        rows = append_chunks(made)
        for batch in _capture(pump, len(rows)):
            stored = Position.from_json(batch.position.to_json())
            if not len(batch.position) or stored != batch.position:
                raise BrokenPromiseError(
                    promise="Each poll returns the position after it: records in "
                    "source_partition and source_offset, a CapturedBatch in position.",
                    seen=f"It was {batch.position}.",
                    read=CapturedBatch,
                )

    def test_it_stops_in_time(self, bench: CaptureBench) -> None:
        task = _Pump(bench).start()
        stopping = threading.Event()
        errors: list[Exception] = []

        def run() -> None:
            while not stopping.is_set():
                try:
                    task.poll()
                except Exception as error:  # noqa: BLE001 - shown by the check
                    errors.append(error)
                    return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(0.2)
        stopping.set()
        thread.join(GRACE_SECONDS)
        late = thread.is_alive()
        task.stop()
        if late or errors:
            seen = f"It raised {errors[0]!r}." if errors else "It still polled after 5 s."
            raise BrokenPromiseError(
                promise="An idle capture raises no error, and its poll returns soon.",
                seen=seen,
                read=SourceTask.stop,
            )

    def test_nothing_is_left_after_stop(self, bench: CaptureBench, made: SourceDriver) -> None:
        pump = _Pump(bench)
        numbers = iter(range(1_000))

        def cycle() -> None:
            number = next(numbers)
            made.append([made.row(number)])
            _capture(pump, number + 1, at_most=1)

        check_leaks(cycle)
