"""Deduplicate: drops records whose key was seen before, and stores the keys as its state."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

import pyarrow.parquet as pq
from typing_extensions import override

from headrace.sdk import FrameTransform, UnfitRecordError
from headrace.sdk.config import ConfigType, Importance, Range, Settings, setting
from headrace.sdk.durability import flush
from headrace.sdk.sqltext import FieldPath, literal, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import TransformBatch


_STATE = "id BINARY, at BIGINT"
MERGE_FROM = 16
"""How many runs of the same level are merged into one run of the next level."""
_ROWS_OF_FILE = 20_000
"""The approximate number of keys in each file of a run; files are split by id range."""
_KEYS_LOOKED_UP = 100_000
"""A batch with more keys than this has some in nearly every file, so all files are read."""
_NAME = re.compile(r"batch-(\d+)(?:-(\d+))?|run-(\d+)-(\d+)-(\d+)")
_LAST_PART = sys.maxsize
"""Greater than every part number: stands for all parts of a batch."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """The row count, id range and time range (in microseconds) from a file's footer."""

    rows: int
    ids: tuple[bytes, bytes]
    times: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Run:
    """The files with the keys of consecutive batches."""

    path: Path
    """The folder of the files."""
    level: int
    """How many times the keys were merged; 0 for a single batch."""
    first: tuple[int, int]
    """The first batch and its part."""
    last: tuple[int, int]

    def extents(self) -> list[tuple[str, _Extent]]:
        """Return the files that are not empty."""
        found = ((str(file), _extent(str(file))) for file in self.path.glob("*.parquet"))
        return [(file, extent) for file, extent in found if extent is not None]


class State:
    """The state of one stream: folders ``batch-n``, and ``run-l-m-n`` for the batches m to n.

    The second and later parts of a batch are ``batch-n-p``; ``l`` is the run's level.

    Each key is rewritten once per level, so the cost of a key grows with the logarithm of the
    state's size, and no batch rewrites the whole state.
    """

    def __init__(self, folder: Path, spark: SparkSession, window: int) -> None:
        """Store the state in ``folder``; ``window`` is in microseconds."""
        self._folder = folder
        self._spark = spark
        self._window = window

    def put(self, batch: TransformBatch, keyed: DataFrame) -> None:
        """Write the keys of a part of a batch, replacing the files of an earlier attempt."""
        keys = keyed.where("__id IS NOT NULL").groupBy("__id").agg({"__at": "max"})
        self._write(keys.toDF("id", "at"), _name(batch.id, batch.part))

    def before(self, batch: TransformBatch) -> DataFrame | None:
        """Return ``__seen`` (id) and ``__last`` (newest time) of the keys before a part.

        Call it after `put` for this part. Returns only files in whose id range the part has
        a key; None when there are none.
        """
        runs = self._current(batch.id)
        level = 0
        # Merge every level: a second call for this batch must find nothing to merge, as the
        # first one's plan names these files.
        while level <= max((run.level for run in runs), default=-1):
            alike = [run for run in runs if run.level == level]
            if len(alike) >= MERGE_FROM:
                self._merge(alike, self._newest(runs))
                runs = self._current(batch.id)
            level += 1
        files = self._touched(
            batch, [*runs, *map(partial(self._part, batch.id), range(batch.part))]
        )
        if not files:
            return None
        return self._last(files).selectExpr("id AS __seen", "at AS __last")

    def _part(self, batch: int, part: int) -> _Run:
        place = (batch, part)
        return _Run(self._folder / _name(batch, part), 0, place, place)

    def _touched(self, batch: TransformBatch, runs: Iterable[_Run]) -> list[str]:
        """Return the files that may contain a key of the part within the window before it.

        Files with later times are included: a late record is compared with the newest record
        of its key.
        """
        own = self._part(batch.id, batch.part).extents()
        if not own:
            return []
        since = min(extent.times[0] for _, extent in own) - self._window
        few = sum(extent.rows for _, extent in own) <= _KEYS_LOOKED_UP
        ids: list[bytes] | None = None
        if few:
            tables = (pq.read_table(file, columns=["id"], partitioning=None) for file, _ in own)
            ids = sorted(key for table in tables for key in table.column(0).to_pylist())
        return [
            file
            for run in runs
            for file, extent in run.extents()
            if extent.times[1] >= since and (ids is None or _has_any(ids, extent.ids))
        ]

    def _current(self, batch: int) -> list[_Run]:
        """Return the runs before a batch, oldest first, and delete the expired ones."""
        runs: list[_Run] = []
        found = _runs(self._folder, batch)
        for run in sorted(found, key=lambda run: (run.first, tuple(-n for n in run.last))):
            if runs and run.last <= runs[-1].last:
                # Already merged; a crash prevented its removal.
                shutil.rmtree(run.path, ignore_errors=True)
            else:
                runs.append(run)
        oldest = self._newest(runs) - 2 * self._window
        for run in runs.copy():
            if not any(extent.times[1] >= oldest for _, extent in run.extents()):
                runs.remove(run)
                shutil.rmtree(run.path, ignore_errors=True)
        return runs

    def _newest(self, runs: Iterable[_Run]) -> int:
        times = (extent.times[1] for run in runs for _, extent in run.extents())
        return max(times, default=0)

    def _merge(self, runs: list[_Run], newest: int) -> None:
        """Merge runs into one. Runs of batches before the current one no longer change."""
        files = [file for run in runs for file, _ in run.extents()]
        rows = sum(extent.rows for run in runs for _, extent in run.extents())
        # A record that is a window late may be a duplicate of one that is a window older.
        recent = self._last(files).where(f"at >= {newest - 2 * self._window}L")
        divided = recent.repartitionByRange(max(1, rows // _ROWS_OF_FILE), "id")
        name = f"run-{runs[0].level + 1}-{runs[0].first[0]}-{runs[-1].last[0]}"
        self._write(divided, name)
        for run in runs:
            shutil.rmtree(run.path, ignore_errors=True)

    def _last(self, files: list[str]) -> DataFrame:
        rows = self._spark.read.schema(_STATE).parquet(*files)
        return rows.groupBy("id").agg({"at": "max"}).toDF("id", "at")

    def _write(self, rows: DataFrame, name: str) -> None:
        staged = self._folder / f".{name}.{uuid.uuid4().hex}"
        try:
            rows.write.parquet(str(staged))
            flush(staged.iterdir())
            # Guarantee 2: the folder appears complete or not at all. After a crash before the
            # rename it is missing, and the unfinished batch writes it again.
            shutil.rmtree(self._folder / name, ignore_errors=True)
            staged.rename(self._folder / name)
            flush([self._folder])
        finally:
            shutil.rmtree(staged, ignore_errors=True)


@lru_cache(maxsize=4096)
def _extent(file: str) -> _Extent | None:
    """Return the extent of a file, None if it is empty. Rewritten files get new names."""
    footer = pq.read_metadata(file)
    if not footer.num_rows:
        return None
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    ids, times = ([group.column(n).statistics for group in groups] for n in (0, 1))
    return _Extent(
        footer.num_rows,
        (min(each.min for each in ids), max(each.max for each in ids)),
        (min(each.min for each in times), max(each.max for each in times)),
    )


def _name(batch: int, part: int) -> str:
    return f"batch-{batch}-{part}" if part else f"batch-{batch}"


def _runs(folder: Path, before: int) -> list[_Run]:
    """Return the runs in a stream's folder whose last batch is below ``before``."""
    found = []
    for path in folder.glob("*-*"):
        if (name := _NAME.fullmatch(path.name)) is None:
            continue
        if name[1] is not None:
            level = 0
            first = last = int(name[1]), int(name[2] or 0)
        else:
            level, first, last = int(name[3]), (int(name[4]), 0), (int(name[5]), _LAST_PART)
        if last[0] < before:
            found.append(_Run(path, level, first, last))
    return found


def _has_any(ids: list[bytes], extent: tuple[bytes, bytes]) -> bool:
    """Return whether any of the sorted ids is in an id range (inclusive)."""
    place = bisect_left(ids, extent[0])
    return place < len(ids) and ids[place] <= extent[1]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class DeduplicateSettings(Settings):
    """The settings of ``Deduplicate``."""

    key_fields: tuple[str, ...] = setting(
        "The fields of the value that identify a record; a dot separates the names of "
        "nested fields. If empty, the record's key.",
        default=(),
        importance=Importance.HIGH,
    )
    window_ms: int = setting(
        "How long after a record, in milliseconds, another record with the same key counts "
        "as a duplicate.",
        default=86_400_000,
        type=ConfigType.LONG,
        validator=Range(at_least=1),
        importance=Importance.HIGH,
    )


class Deduplicate(FrameTransform):
    """Drops a record if another record with the same key came within a time window before it.

    The times are the records' timestamps, not fields of their values, so the result does not
    depend on how records are split into batches or when they are read. A record without a
    timestamp gets the time of its batch. Of records with equal times the first is kept, if the
    source knows their order.
    Every record of a key extends the window, including dropped ones. A late record is compared
    with the newest record of its key, and is recognized as a duplicate if it is up to one
    window late. Records with a null in their key pass, and so do replayed dead letters: their
    keys may have been stored when they were rejected.

    The state takes about 40 bytes for each key within two windows, in files by batch id that
    survive restarts: a batch that is retried sees exactly the state that earlier batches left.
    A batch reads the few newest batches and, of the others, only the files in whose id range
    it has a key; expired files are removed without reading them. The batch is sorted by key.
    """

    ordered = True
    repeatable = True

    settings: DeduplicateSettings
    _put: set[TransformBatch] | None = None
    """The parts that the current attempt of a batch has written."""

    @override
    def begin(self, batch: int, after: int | None) -> None:
        self._put = set()
        if after is None or after == batch - 1:
            return
        # Guarantee 1: the records of an abandoned batch come again in this batch or a later
        # one. Its keys must go, or these records would be dropped as duplicates.
        for folder in self.context.state.glob("stream-*"):
            for run in _runs(folder, batch):
                if not run.level and run.first[0] > after:
                    shutil.rmtree(run.path)

    @override
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        if self.context.task < 0:
            # Guarantee 1: a dead letter that is rejected again would be a duplicate of itself
            # at the next replay.
            return records
        begun = (batch.begun - _EPOCH) // _MICROSECOND
        keys = self._keys(records)
        there = " AND ".join(f"{sql} IS NOT NULL" for sql in keys)
        parts = ", ".join(f"{sql} AS k{number}" for number, sql in enumerate(keys))
        digest = f"unhex(sha2(to_json(struct({parts})), 256))"
        keyed = records.selectExpr(
            "*",
            f"IF(applies AND {there}, {digest}, NULL) AS __id",
            f"coalesce(unix_micros(timestamp), {begun}L) AS __at",
            # Records with equal times need an order that is the same when the batch is
            # retried, also if their positions are unknown.
            "xxhash64(to_json(struct(value))) AS __tie",
        )
        folder = self.context.state / f"stream-{url_quote(batch.stream, safe='')}"
        state = State(folder, records.sparkSession, self.settings.window_ms * 1000)
        # The plans of later parts read these files, so the dead letter pass must not rewrite
        # them.
        put = set() if self._put is None else self._put
        if batch not in put:
            state.put(batch, keyed)
            put.add(batch)
        return self._dropping(keyed, state.before(batch), records.columns)

    def _dropping(
        self, keyed: DataFrame, seen: DataFrame | None, names: list[str]
    ) -> DataFrame:
        window = self.settings.window_ms * 1000
        # Spread rows without a key by their content, or one task would sort them all.
        order = ["__at", *(["position"] if "position" in names else []), "__tie"]
        spread = f"PARTITION BY __id, IF(__id IS NULL, __tie, 0L) ORDER BY {', '.join(order)}"
        marked = keyed.selectExpr(
            "*", f"__at - lag(__at) OVER ({spread}) <= {window}L AS __near"
        )
        again = "coalesce(__near, false)"
        if seen is not None:
            marked = marked.join(seen, marked["__id"] == seen["__seen"], "left")
            again += f" OR coalesce(abs(__at - __last) <= {window}L, false)"
        gone = f"IF(__id IS NOT NULL AND ({again}), {literal(self.alias)}, dropped) AS dropped"
        return marked.selectExpr(*(gone if n == "dropped" else quote(n) for n in names))

    def _keys(self, records: DataFrame) -> list[str]:
        fields = self.settings.key_fields
        if fields:
            paths = [FieldPath.parse(text, "V2").steps for text in fields]
            return [".".join(["value", *map(quote, steps)]) for steps in paths]
        if "key" not in records.columns:
            raise UnfitRecordError(message="Records have no key to deduplicate by.")
        return ["key"]
