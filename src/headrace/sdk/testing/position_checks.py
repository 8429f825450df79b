"""Checks of what a replayable source says about where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk.errors import HeadraceError
from headrace.sdk.position import Position, ReadLimit
from headrace.sdk.sources import ReplayableSource, SourceConnector
from headrace.sdk.testing.promise import BrokenPromiseError
from headrace.sdk.testing.rows import differences
from headrace.sdk.testing.source_checks import CHUNKS, append_chunks, append_more, drain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sdk.testing.driver import SourceDriver
    from headrace.sdk.testing.harness import OpenSource, SourceBench
    from headrace.sdk.testing.rows import Row

_LIMITS = (None, 1, 2, 1_000)


def check_until(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that ``latest`` never passes ``limit.until``, and gets there."""
    append_chunks(driver)
    opened = bench.open()
    start = opened.position()
    until = opened.latest(start, ReadLimit(rows=3))
    bound = _rows(opened, driver, start, until)
    append_more(driver, first=sum(CHUNKS))
    for rows in _LIMITS:
        limit = ReadLimit(rows=rows, until=until)
        end = start
        for _ in range(20):
            there = opened.latest(end, limit)
            if there == end:
                break
            end = there
        found = differences(bound, _rows(opened, driver, start, end))
        if found or end != until:
            raise BrokenPromiseError(
                promise="latest never passes limit.until, and comes to it.",
                seen=f"With {limit}, from {start} it came to {end}: {found}",
                read=ReplayableSource.latest,
            )
    opened.close()


def check_idle(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that ``latest`` gives its start when nothing is new, in old and new objects."""
    append_chunks(driver)
    opened = bench.open()
    drain(opened)
    end = opened.position()
    again = opened.latest(end, ReadLimit())
    opened.close()
    anew = bench.open()
    found_anew = anew.latest(end, ReadLimit())
    anew.close()
    for found in (again, found_anew):
        if found != end:
            raise BrokenPromiseError(
                promise="latest is equal to start when nothing new is there.",
                seen=f"At {end} it gave {found}.",
                read=ReplayableSource.latest,
            )


def check_no_limit(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that ``latest`` without a limit is the end of all that is there."""
    append_chunks(driver)
    opened = bench.open()
    end = opened.latest(opened.position(), ReadLimit())
    further = opened.latest(end, ReadLimit())
    opened.close()
    if further != end:
        raise BrokenPromiseError(
            promise="latest without a limit is the end of all that is there now: an offline "
            "run reads as far as that.",
            seen=f"After {end} came {further}.",
            read=ReplayableSource.latest,
        )


def check_limit(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that a limit of rows makes several batches of what came in several parts."""
    append_chunks(driver)
    opened = bench.open(rows=1)
    batches = drain(opened)
    opened.close()
    if len(batches) < 2:  # noqa: PLR2004 - more than one
        raise BrokenPromiseError(
            promise="latest stays near limit.rows, which is the admission control.",
            seen=f"A limit of 1 row gave batches of {[moved.rows for moved in batches]} rows.",
            read=ReplayableSource.latest,
        )


def check_positions(bench: SourceBench, driver: SourceDriver) -> None:
    """Check that positions survive storing, and that people may give them back."""
    append_chunks(driver)
    opened = bench.open(rows=3)
    batches = drain(opened)
    opened.close()
    connector = driver.connector
    config = connector.config_def().parse(driver.config())
    for moved in batches:
        stored = Position.from_json(moved.end.to_json())
        if stored != moved.end or not len(stored):
            raise BrokenPromiseError(
                promise="A position is JSON, and the same after it was stored and read.",
                seen=f"{moved.end} became {stored}.",
                read=Position,
            )
        try:
            connector.alter_offsets(config, moved.end)
        except HeadraceError as error:
            raise BrokenPromiseError(
                promise="alter_offsets takes the positions that the source itself gave.",
                seen=f"It refused {moved.end}: {error}",
                read=SourceConnector.alter_offsets,
            ) from error


def _rows(
    opened: OpenSource, driver: SourceDriver, start: Position, end: Position
) -> Sequence[Row]:
    if start == end:
        return []
    return [driver.seen(record) for record in opened.read(start, end)]
