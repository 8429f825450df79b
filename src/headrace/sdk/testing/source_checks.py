"""Checks that a replayable source reads everything once, in batches, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.errors import HeadraceError
from headrace.sdk.position import Position, ReadLimit
from headrace.sdk.sources import FrameSource, ReplayableSource, SourceConnector, SplitSource
from headrace.sdk.testing.harness import Killed, Point
from headrace.sdk.testing.leaks import check_leaks
from headrace.sdk.testing.promise import BrokenPromiseError
from headrace.sdk.testing.rows import differences, same_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.sdk.testing.driver import SourceDriver
    from headrace.sdk.testing.harness import Moved, OpenSource, SourceBench
    from headrace.sdk.testing.rows import Row

CHUNKS = (1, 3, 4)
"""How many rows each append has; a source that reads whole appends still gives batches."""


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
    """Append so many rows at once; return them."""
    rows = [driver.row(number) for number in range(count)]
    driver.append(rows)
    return rows


def seen_rows(bench: SourceBench, driver: SourceDriver) -> list[Row]:
    """Return the rows in the target, as they were appended."""
    return [driver.seen(record) for record in bench.arrived()]


def require_once(
    bench: SourceBench, driver: SourceDriver, rows: Sequence[Row], promise: str, read: object
) -> None:
    """Raise unless the target holds each of the rows once."""
    found = differences(rows, seen_rows(bench, driver))
    if found:
        raise BrokenPromiseError(promise=promise, seen=str(found), read=read)


def drain(opened: OpenSource, at_most: int = 30) -> list[Moved]:
    """Run batches until nothing new is there."""
    done = []
    while (moved := opened.step()) is not None:
        done.append(moved)
        if len(done) > at_most:
            raise BrokenPromiseError(
                promise="latest returns start when nothing new is there, so that a task rests.",
                seen=f"After {at_most} batches it still went on, last to {moved.end}.",
                read=ReplayableSource.latest,
            )
    return done


def check_empty(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that an empty system gives no batch and no error."""
    opened = bench.open()
    moved = opened.step()
    opened.close()
    if moved is not None:
        raise BrokenPromiseError(
            promise="A source with nothing to read gives no batch.",
            seen=f"It gave a batch of {moved.rows} records, from {moved.start} to {moved.end}.",
            read=ReplayableSource.latest,
        )
    require_once(bench, driver, [], "An empty system has no rows.", ReplayableSource.latest)


def check_everything_once(bench: SourceBench, driver: SourceDriver, *, ordered: bool) -> None:
    """Check that all rows are read, once, and in order where the source has one."""
    rows = append_chunks(driver)
    opened = bench.open()
    drain(opened)
    rows += append_more(driver, first=len(rows))
    drain(opened)
    opened.close()
    promise = "Everything that is appended is read, once."
    require_once(bench, driver, rows, promise, ReplayableSource.latest)
    found = seen_rows(bench, driver)
    if ordered and not same_order(rows, found):
        raise BrokenPromiseError(
            promise="Records arrive in the order in which they were appended.",
            seen=f"They arrived as {found[:12]}. If the source has no order, set `unordered`.",
            read=SplitSource.splits,
        )


def check_resume(bench: SourceBench, driver: SourceDriver, rows_limit: int) -> None:
    """Check that a new process after every batch goes on where the last one stood."""
    rows = append_chunks(driver)
    for _ in range(10 * len(rows)):
        opened = bench.open(rows=rows_limit)
        moved = opened.step()
        opened.close()
        if moved is None:
            break
    promise = (
        f"A restart after every batch (of about {rows_limit} rows) neither loses nor repeats."
    )
    require_once(bench, driver, rows, promise, ReplayableSource.latest)


def check_killed(bench: SourceBench, driver: SourceDriver, at: Point) -> None:
    """Check that every batch can be killed at a point and run again by a new process."""
    rows = append_chunks(driver)
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
    require_once(bench, driver, rows, promise, FrameSource.read)


def check_replay(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that a range of positions kept from a run gives the same rows again, twice."""
    append_chunks(driver)
    opened = bench.open(rows=2)
    batches: list[tuple[Moved, list[Row]]] = []
    seen = 0
    while (moved := opened.step()) is not None:
        arrived = seen_rows(bench, driver)
        batches.append((moved, arrived[seen:]))
        seen = len(arrived)
    append_more(driver, first=seen)  # what comes later belongs to no earlier range
    _read_again(opened, driver, batches)
    opened.close()
    anew = bench.open(rows=2)
    _read_again(anew, driver, batches)
    anew.close()


def _read_again(
    opened: OpenSource, driver: SourceDriver, batches: Sequence[tuple[Moved, list[Row]]]
) -> None:
    for moved, rows in batches:
        start, end = _stored(moved.start), _stored(moved.end)
        again = [driver.seen(record) for record in opened.read(start, end)]
        found = differences(rows, again)
        if found:
            raise BrokenPromiseError(
                promise="The same range gives the same rows again.",
                seen=f"Between {moved.start} and {moved.end}: {found}",
                read=FrameSource.read,
            )


def _stored(position: Position) -> Position:
    """Return a position as it is after it was kept in a store."""
    return Position.from_json(position.to_json())


def check_foreign_range(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that a range of a partition that the task does not read is an error.

    Such a batch was begun under another configuration: an empty range would finish it.
    """
    append_once(driver, 3)
    opened = bench.open()
    start = opened.position()
    end = opened.latest(start, ReadLimit())
    other = Position(({**partition, "other": 1}, offset) for partition, offset in end.items())
    try:
        read = opened.read(start, other)
    except HeadraceError:
        return
    finally:
        opened.close()
    raise BrokenPromiseError(
        promise="A range of partitions that the task does not read is refused: check_range.",
        seen=f"Between {start} and {other} it read {len(read)} records.",
        read=FrameSource.read,
    )


def check_tasks(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that several tasks share the work: all rows arrive, each by one task."""
    rows = append_chunks(driver)
    count = bench.tasks(2)
    if not 1 <= count <= 2:  # noqa: PLR2004 - the two that were asked for
        raise BrokenPromiseError(
            promise="The work is divided into one task or more, up to as many as allowed.",
            seen=f"It was 2, and {count} came.",
            read=SourceConnector.task_configs,
        )
    opened = [bench.open(task=number) for number in range(count)]
    while any([task.step() is not None for task in opened]):  # noqa: C419 - all must step
        pass
    for task in opened:
        task.close()
    promise = f"The {count} tasks of a connector share its rows: each is read by one of them."
    require_once(bench, driver, rows, promise, SourceConnector.task_configs)


def check_source_leaks(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that nothing is left of a task after it has stopped."""
    numbers = iter(range(1_000))

    def cycle() -> None:
        driver.append([driver.row(next(numbers))])
        opened = bench.open()
        opened.step()
        opened.close()

    check_leaks(cycle)


def killer(at: Point) -> Callable[[Point], None]:
    """Return a hook that kills at a point."""

    def kill(point: Point) -> None:
        if point is at:
            raise Killed

    return kill
