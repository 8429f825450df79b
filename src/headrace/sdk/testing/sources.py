"""The tests for sources, as pytest classes to subclass."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from headrace.sdk.errors import HeadraceError
from headrace.sdk.position import Position, ReadLimit
from headrace.sdk.sources import (
    FrameSource,
    ReplayableSource,
    SourceConnector,
    SourceTask,
    SplitSource,
)
from headrace.sdk.testing.driver import (
    BrokenPromiseError,
    Killed,
    Moved,
    Point,
    Row,
    SourceDriver,
    differences,
    killer,
    same_order,
    same_value,
)
from headrace.sdk.testing.suite import ConnectorAcceptance, check_leaks, skip_if

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.acceptance.harness import Harness, OpenedTask, RunningRuntime, SourceBench


CHUNKS = (1, 3, 4)
"""The number of rows of each append; sources that read whole appends still have batches."""


def append_chunks(driver: SourceDriver, *, first: int = 0) -> list[Row]:
    """Append the chunks one by one; return their rows."""
    rows: list[Row] = []
    for size in CHUNKS:
        chunk = [driver.row(first + len(rows) + number) for number in range(size)]
        driver.append(chunk)
        rows += chunk
    return rows


def append_more(driver: SourceDriver, *, first: int) -> list[Row]:
    """Append chunks while a task is open, if the system can."""
    return [] if driver.fixed else append_chunks(driver, first=first)


def append_once(driver: SourceDriver, count: int) -> list[Row]:
    """Append that many rows at once; return them."""
    rows = [driver.row(number) for number in range(count)]
    driver.append(rows)
    return rows


def seen_rows(bench: SourceBench, driver: SourceDriver) -> list[Row]:
    """Return the rows in the target, in their appended form."""
    return [driver.seen(record) for record in bench.arrived()]


def require_once(
    bench: SourceBench, driver: SourceDriver, rows: Sequence[Row], promise: str, read: object
) -> None:
    """Raise unless the target holds each of the rows once."""
    found = differences(rows, seen_rows(bench, driver))
    if found:
        raise BrokenPromiseError(promise=promise, seen=found, read=read)


def drain(opened: OpenedTask, at_most: int = 30) -> list[Moved]:
    """Run batches until there are no new records."""
    done = []
    while (moved := opened.step()) is not None:
        done.append(moved)
        if len(done) > at_most:
            raise BrokenPromiseError(
                promise="latest returns start if there are no new records, so the task idles.",
                seen=f"After {at_most} batches it still continued, last to {moved.end}.",
                read=ReplayableSource.latest,
            )
    return done


_LIMITS = (None, 1, 2, 1_000)


def _rows(
    opened: OpenedTask, driver: SourceDriver, start: Position, end: Position
) -> Sequence[Row]:
    if start == end:
        return []
    return [driver.seen(record) for record in opened.read(start, end)]


GRACE_SECONDS = 5.0
"""The grace period of a worker, after which it cancels running work."""
_MARGIN_SECONDS = 2.0
"""Extra time for a busy machine."""
_PATIENCE_SECONDS = 30.0


def stop(running: RunningRuntime, grace: float = GRACE_SECONDS) -> None:
    """Stop a runtime, and check that it stops in time and without errors."""
    took = running.stop(_PATIENCE_SECONDS)
    if took is None or took > grace + _MARGIN_SECONDS:
        after = "never" if took is None else f"after {took:.1f} s"
        raise BrokenPromiseError(
            promise=f"A task stops within the grace period of {grace:.0f} s.",
            seen=f"It stopped {after}. Check stopping() in long work, and block only briefly.",
            read=SourceTask.stop,
        )
    if (error := running.error()) is not None:
        raise BrokenPromiseError(
            promise="A source reads the rows that the driver appends without an error.",
            seen=f"The task failed: {error!r}",
            read=ReplayableSource,
        ) from error


def wait_for(
    bench: SourceBench, running: RunningRuntime, count: int, timeout: float = _PATIENCE_SECONDS
) -> None:
    """Wait until that many records have arrived, or until the timeout: the check then fails."""
    deadline = time.monotonic() + timeout
    while len(bench.arrived()) < count and time.monotonic() < deadline:
        if running.error() is not None:
            return
        time.sleep(0.02)


class SourceAcceptance(ConnectorAcceptance):
    """The tests for replayable sources, with one stream or many.

    Subclass it with a name that pytest collects, and return a driver. Set an attribute that
    begins with ``cannot`` or ``un`` to the reason why a promise does not apply; the reason is
    shown for each test skipped because of it.
    """

    unordered: ClassVar[str] = ""
    """Why records of a stream do not arrive in the order in which they were appended."""
    unlimited: ClassVar[str] = ""
    """Why a row limit does not divide the rows of several appends."""
    cannot_replay: ClassVar[str] = ""
    """Why acknowledged records cannot be read again."""
    patience_seconds: ClassVar[float] = _PATIENCE_SECONDS
    """How long a running source may need to notice appended rows."""
    grace_seconds: ClassVar[float] = GRACE_SECONDS
    """How long an idle source may need to stop."""

    @override
    @abstractmethod
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return a driver for an empty external system; ``tmp_path`` is its own folder."""

    @pytest.fixture
    def bench(
        self, headrace_harness: Harness, made: SourceDriver, tmp_path: Path
    ) -> Iterator[SourceBench]:
        home = tmp_path / "headrace"
        with headrace_harness.source(made.connector, made.config, home) as bench:
            yield bench

    def test_an_empty_system_gives_no_batch_and_no_error(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        opened = bench.open()
        moved = opened.step()
        opened.close()
        if moved is not None:
            raise BrokenPromiseError(
                promise="A source with nothing to read plans no batch.",
                seen=f"It planned a batch of {moved.rows} records, "
                f"from {moved.start} to {moved.end}.",
                read=ReplayableSource.latest,
            )
        require_once(bench, made, [], "An empty system has no rows.", ReplayableSource.latest)

    def test_everything_is_read_once_and_in_order(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        rows = append_chunks(made)
        opened = bench.open()
        drain(opened)
        rows += append_more(made, first=len(rows))
        drain(opened)
        opened.close()
        promise = "Every appended row is read once."
        require_once(bench, made, rows, promise, ReplayableSource.latest)
        for stream in {record.topic for record in bench.arrived()}:
            found = [made.seen(each) for each in bench.arrived() if each.topic == stream]
            own = [row for row in rows if any(same_value(row, each) for each in found)]
            if not self.unordered and not same_order(own, found):
                raise BrokenPromiseError(
                    promise="Records of a stream arrive in the order in which they were "
                    "appended.",
                    seen=f"They arrived as {found[:12]}. "
                    "If the source has no order, set `unordered`.",
                    read=SplitSource.splits,
                )

    @pytest.mark.parametrize("limit", [1, 2, 7])
    def test_a_restart_after_every_batch_neither_loses_nor_repeats(
        self, bench: SourceBench, made: SourceDriver, limit: int
    ) -> None:
        rows = append_chunks(made)
        for _ in range(10 * len(rows)):
            opened = bench.open(rows=limit)
            moved = opened.step()
            opened.close()
            if moved is None:
                break
        promise = (
            f"A restart after every batch (of about {limit} rows) neither loses nor repeats "
            "rows."
        )
        require_once(bench, made, rows, promise, ReplayableSource.latest)

    @pytest.mark.parametrize("at", list(Point))
    def test_a_killed_batch_runs_again_with_the_same_rows(
        self, bench: SourceBench, made: SourceDriver, at: Point
    ) -> None:
        rows = append_chunks(made)
        for _ in range(10 * len(rows)):
            try:
                moved = bench.open(rows=3, hook=killer(at)).step()
            except Killed:
                opened = bench.open(rows=3)
                opened.step()
                opened.close()
            else:
                if moved is None:
                    break
        promise = f"A batch that was killed {at.value} runs again with the same rows."
        require_once(bench, made, rows, promise, FrameSource.read)

    def test_the_same_range_gives_the_same_rows_again(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        skip_if(self.cannot_replay)
        append_chunks(made)
        opened = bench.open(rows=2)
        batches: list[tuple[Moved, list[Row]]] = []
        seen = 0
        while (moved := opened.step()) is not None:
            arrived = seen_rows(bench, made)
            batches.append((moved, arrived[seen:]))
            seen = len(arrived)
        append_more(made, first=seen)  # later rows do not belong to an earlier range
        for task in (opened, bench.open(rows=2)):
            for moved, rows in batches:
                # As restored from the store.
                start, end = (Position.from_json(p.to_json()) for p in (moved.start, moved.end))
                found = differences(rows, _rows(task, made, start, end))
                if found:
                    raise BrokenPromiseError(
                        promise="The same range gives the same rows again.",
                        seen=f"Between {start} and {end}: {found}",
                        read=FrameSource.read,
                    )
            task.close()

    def test_a_range_of_another_configuration_is_refused(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        """Check that a range of a partition that the task does not read is an error.

        Such a batch was planned with another configuration: reading it as an empty range would
        finish it.
        """
        append_once(made, 3)
        opened = bench.open()
        start = opened.position()
        end = opened.latest(start, ReadLimit())
        other = Position(
            ({**partition, "other": 1}, offset) for partition, offset in end.items()
        )
        try:
            read = opened.read(start, other)
        except HeadraceError:
            return
        finally:
            opened.close()
        raise BrokenPromiseError(
            promise="A range of partitions that the task does not read is rejected.",
            seen=f"Between {start} and {other} it read {len(read)} records.",
            read=FrameSource.read,
        )

    def test_tasks_share_the_rows(self, bench: SourceBench, made: SourceDriver) -> None:
        rows = append_chunks(made)
        count = bench.tasks(2)
        if not 1 <= count <= 2:  # noqa: PLR2004 - the two that were asked for
            raise BrokenPromiseError(
                promise="The work is divided into at least one task and at most max_tasks.",
                seen=f"max_tasks was 2, but there were {count} tasks.",
                read=SourceConnector.task_configs,
            )
        opened = [bench.open(task=number) for number in range(count)]
        while any([task.step() is not None for task in opened]):  # noqa: C419 - all must step
            pass
        for task in opened:
            task.close()
        promise = (
            f"The {count} tasks of a connector share its rows: each row is read by one task."
        )
        require_once(bench, made, rows, promise, SourceConnector.task_configs)

    def test_latest_never_passes_until(self, bench: SourceBench, made: SourceDriver) -> None:
        append_chunks(made)
        opened = bench.open()
        start = opened.position()
        until = opened.latest(start, ReadLimit(rows=3))
        bound = _rows(opened, made, start, until)
        append_more(made, first=sum(CHUNKS))
        for rows in _LIMITS:
            limit = ReadLimit(rows=rows, until=until)
            end = start
            for _ in range(20):
                there = opened.latest(end, limit)
                if there == end:
                    break
                end = there
            found = differences(bound, _rows(opened, made, start, end))
            if found or end != until:
                raise BrokenPromiseError(
                    promise="latest never passes limit.until, and reaches it.",
                    seen=f"With {limit}, from {start} it reached {end}: {found}",
                    read=ReplayableSource.latest,
                )
        opened.close()

    def test_latest_is_start_while_idle(self, bench: SourceBench, made: SourceDriver) -> None:
        append_chunks(made)
        opened = bench.open()
        drain(opened)
        end = opened.position()
        again = opened.latest(end, ReadLimit())
        opened.close()
        reopened = bench.open()
        found_anew = reopened.latest(end, ReadLimit())
        reopened.close()
        for found in (again, found_anew):
            if found != end:
                raise BrokenPromiseError(
                    promise="latest is equal to start if there are no new records.",
                    seen=f"At {end} it returned {found}.",
                    read=ReplayableSource.latest,
                )

    def test_latest_without_limit_is_the_end_of_all_that_is_there(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        append_chunks(made)
        opened = bench.open()
        end = opened.latest(opened.position(), ReadLimit())
        further = opened.latest(end, ReadLimit())
        opened.close()
        if further != end:
            raise BrokenPromiseError(
                promise="latest without a limit is the end of all available records: an "
                "offline run reads up to that position.",
                seen=f"After {end} it returned {further}.",
                read=ReplayableSource.latest,
            )

    def test_a_limit_of_rows_divides_the_work(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        skip_if(self.unlimited)
        append_chunks(made)
        opened = bench.open(rows=1)
        sizes = [moved.rows for moved in drain(opened)]
        opened.close()
        if len(sizes) < 2:  # noqa: PLR2004 - more than one
            raise BrokenPromiseError(
                promise="latest stays near limit.rows, which limits the size of a batch.",
                seen=f"A limit of 1 row led to batches of {sizes} rows.",
                read=ReplayableSource.latest,
            )

    def test_positions_survive_storing_and_may_be_set_again(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        append_chunks(made)
        opened = bench.open(rows=3)
        batches = drain(opened)
        opened.close()
        connector = made.connector
        config = connector.config_def().parse({**made.config(), "name": bench.name})
        for moved in batches:
            stored = Position.from_json(moved.end.to_json())
            if stored != moved.end or not len(stored):
                raise BrokenPromiseError(
                    promise="A position is JSON, and unchanged after it is stored and loaded.",
                    seen=f"{moved.end} became {stored}.",
                    read=Position,
                )
            try:
                connector.alter_offsets(config, moved.end)
            except HeadraceError as error:
                raise BrokenPromiseError(
                    promise="alter_offsets accepts the positions that the source returned.",
                    seen=f"It rejected {moved.end}: {error}",
                    read=SourceConnector.alter_offsets,
                ) from error

    def test_offline_reads_what_is_there_and_ends(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        rows = append_chunks(made)
        bench.run()
        promise = "Offline, every available row is read once (the same as in real time)."
        require_once(bench, made, rows, promise, ReplayableSource.latest)
        bench.run()
        promise = "A second offline run with nothing new adds nothing."
        require_once(bench, made, rows, promise, ReplayableSource.latest)

    def test_real_time_reads_what_is_appended_meanwhile(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        skip_if(made.fixed)
        rows: list[Row] = []
        running = bench.start()
        for _ in range(2):
            rows += append_chunks(made, first=len(rows))
            wait_for(bench, running, len(rows), self.patience_seconds)
        stop(running)
        promise = "In real time, every appended row is read once (the same as offline)."
        require_once(bench, made, rows, promise, ReplayableSource.latest)

    def test_it_stops_in_time_while_idle(self, bench: SourceBench, made: SourceDriver) -> None:
        made.append([made.row(0)])
        running = bench.start()
        wait_for(bench, running, 1)
        stop(running, self.grace_seconds)

    def test_it_stops_in_time_while_reading_and_loses_nothing(
        self, bench: SourceBench, made: SourceDriver
    ) -> None:
        rows = append_once(made, 100)
        for _ in range(5):
            more = made.row(len(rows))
            made.append([more])
            rows.append(more)
        running = bench.start(rows=1)
        wait_for(bench, running, 1)
        stop(running)
        bench.run()
        promise = "A stop in the middle of reading neither loses nor repeats rows."
        require_once(bench, made, rows, promise, SourceTask.stop)

    def test_nothing_is_left_after_stop(self, bench: SourceBench, made: SourceDriver) -> None:
        numbers = iter(range(1_000))

        def cycle() -> None:
            made.append([made.row(next(numbers))])
            opened = bench.open()
            opened.step()
            opened.close()

        check_leaks(cycle)
