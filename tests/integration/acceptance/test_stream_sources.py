"""A source of many streams whose schemas are known passes the kit."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.acceptance.test_broken_sources import (
    CHECKS,
    FILE,
    Journal,
    Reader,
    line_of,
    run,
)

from headrace.acceptance.harness import Harness
from headrace.sdk import (
    ArrowParts,
    Position,
    ReadLimit,
    Schema,
    StreamFrameSource,
    StreamRows,
    check_range,
)
from headrace.sdk.arrow import to_batch
from headrace.sdk.config import Config
from headrace.sdk.sqltext import rows

ROWS = Schema.struct({"id": Schema.int64(), "text": Schema.string()})


def read(lines: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Sequence[tuple[str, str]]]]:
    yield to_batch([json.loads(line) for line in lines], ROWS), ()


class Streams(StreamFrameSource):
    """Gives the lines of even numbers as Arrow, and those of odd ones as a frame."""

    def __init__(self, config: Config) -> None:
        self.reader = Reader(config)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return self.reader.latest(start, limit)

    def streams(self, spark, start, end):
        check_range(start, end, [FILE])
        lines = self.reader.lines()[line_of(start) : line_of(end)]
        even = [line for line in lines if json.loads(line)["id"] % 2 == 0]
        odd = [line for line in lines if line not in even]
        found = []
        if odd:
            values = [(row["id"], row["text"]) for row in map(json.loads, odd)]
            frame = spark.createDataFrame(values, "id BIGINT, text STRING").coalesce(1)
            found.append(StreamRows("odd", rows(frame), len(odd)))
        parts = [even[n : n + 2] for n in range(0, len(even), 2)]
        return [*found, StreamRows("even", ArrowParts(ROWS, parts, read, "even"))]


class StreamJournal(Journal):
    """Reads a file of JSON lines as two streams."""

    @classmethod
    def task_class(cls, config: Config) -> type[Streams]:
        return Streams


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("check", CHECKS)
def test_a_good_source_of_streams_passes(
    headrace_harness: Harness, check: str, tmp_path: Path
) -> None:
    run(headrace_harness, StreamJournal, check, tmp_path)
