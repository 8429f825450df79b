"""A set of files, each read once and as a whole."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from typing_extensions import override

from headrace.sdk import DataLostError, FrameSource, Position, Schema, StateError
from headrace_plugins.connectors.file.columns import Columns
from headrace_plugins.connectors.file.formats import Format
from headrace_plugins.connectors.file.groups import NumberedFile
from headrace_plugins.connectors.file.inference import TEXT, VARIANT
from headrace_plugins.connectors.file.listing import FoundFile
from headrace_plugins.connectors.file.records import (
    group_records,
    no_records,
    text_records,
    variant_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import ReadLimit, TaskContext
    from headrace_plugins.connectors.file.settings import SourceSettings

__all__ = ["FileSet"]


class FileSet(FrameSource):
    """Reads the files of a folder or a pattern, by the time at which they appeared.

    What is found is written into the ledger before it is read, so a range of it is the same
    files for ever. The position is how many files of the ledger are read. A file that is
    changed after it was read is not read again.

    Args:
        settings: What to read.
        clock_ns: Gives the time, in nanoseconds since 1970.
    """

    def __init__(
        self, settings: SourceSettings, *, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._files: list[FoundFile] = []
        self._known: set[str] = set()

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        items = context.ledger.slice(0, len(context.ledger))
        self._files = [FoundFile.from_item(item) for item in items]
        self._known = {file.path for file in self._files}

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        self._discover()
        begin = self._place(start)
        # Without a limit the end of all that is there is asked for, not of a batch.
        unlimited = limit.rows is None and limit.size_bytes is None
        most = len(self._files) if unlimited else begin + self._settings.max_files
        end = min(len(self._files), most)
        if limit.until is not None:
            end = min(end, self._place(limit.until))
        rows = size = 0
        for number in range(begin, end):
            file = self._files[number]
            size += file.size_bytes
            rows += self._rows(file) if limit.rows is not None else 0
            over = limit.size_bytes is not None and size > limit.size_bytes
            over = over or (limit.rows is not None and rows > limit.rows)
            if over and number > begin:
                end = number
                break
        if end <= begin:
            return start
        return Position.of(self._partition(), {"files": end})

    @override
    def size_bytes(self, start: Position, end: Position) -> int:
        begin, stop = self._place(start), self._place(end)
        return sum(file.size_bytes for file in self._files[begin:stop])

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        return self._read(spark, start, end, strict=False)

    @override
    def read_strict(
        self, spark: SparkSession, start: Position, end: Position
    ) -> DataFrame | None:
        settings = self._settings
        whole = settings.schema is not None and settings.schema.is_logical
        if whole or settings.format not in {Format.CSV, Format.JSON}:
            return None
        return self._read(spark, start, end, strict=True)

    def _read(
        self, spark: SparkSession, start: Position, end: Position, *, strict: bool
    ) -> DataFrame:
        settings = self._settings
        files = self._range(start, end)
        if settings.format is Format.TEXT:
            if not files:
                return no_records(spark, Schema.string())
            return text_records(spark, files, settings.dialect)
        if settings.schema is not None and settings.schema.is_logical:
            if not files:
                return no_records(spark, settings.schema)
            return variant_records(spark, files, settings.dialect)
        columns = Columns(
            format=settings.format,
            dialect=settings.dialect,
            declared=settings.schema,
            stream=settings.path,
            memory=self.context.schemas,
            sample_rows=settings.sample_rows,
            conflict=VARIANT if settings.variants else TEXT,
        )
        if not files:
            return no_records(spark, columns.known())
        schema, groups = columns.groups(spark, files)
        frames = [
            group_records(
                spark,
                group,
                schema,
                fmt=settings.format,
                dialect=settings.dialect,
                strict=strict,
            )
            for group in groups
        ]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _discover(self) -> None:
        settle = self._settings.settle
        before = self._clock_ns() - settle // timedelta(microseconds=1) * 1000
        new = self._settings.listing.new(
            self._known,
            share=self._settings.share,
            settled_ns=before if settle else None,
        )
        if new:
            self.context.ledger.append([file.to_item() for file in new])
            self._files += new
            self._known |= {file.path for file in new}

    def _range(self, start: Position, end: Position) -> list[NumberedFile]:
        """Return the files of a range, which must be as they were when they were found."""
        begin, stop = self._place(start), self._place(end)
        if stop > len(self._files):
            raise StateError(
                problem=f"{stop} files were recorded of {self._settings.path}, "
                f"but the ledger holds {len(self._files)}.",
                fix="Restore the store, or reset the connector's offsets.",
            )
        files = [NumberedFile(n, self._files[n]) for n in range(begin, stop)]
        for file in files:
            _require_same(file.file)
        # An earlier division among tasks may have left files here that another task reads.
        share = self._settings.share
        return [file for file in files if file.file.size_bytes and share.has(file.path)]

    def _rows(self, file: FoundFile) -> int:
        """Return how many rows the file holds, 0 if only reading it could tell."""
        if self._settings.format is not Format.PARQUET:
            return 0
        try:
            return int(pq.read_metadata(file.path).num_rows)
        except (OSError, ValueError):
            # Reading the file tells what is wrong with it.
            return 0

    def _partition(self) -> Mapping[str, str]:
        share = self._settings.share
        path = {"path": self._settings.path}
        return path if share.of == 1 else {**path, "share": str(share)}

    def _place(self, position: Position) -> int:
        offset = position.offset(self._partition())
        return 0 if offset is None else int(offset["files"])


def _require_same(file: FoundFile) -> None:
    now = file.now()
    if now == file:
        return
    if now is None:
        problem = f"{file.path} was found and is gone before it was read."
        raise DataLostError(
            problem=problem, fix="Put it back, with its old time of change (cp -p)."
        )
    problem = (
        f"{file.path} has changed since it was found: it has {now.size_bytes} bytes "
        f"and had {file.size_bytes}."
    )
    raise DataLostError(
        problem=problem,
        fix="Put the old file back, and give the new one another name; write files under a "
        "name that begins with _ or . and rename them when they are complete, or set "
        "settle.ms.",
    )
