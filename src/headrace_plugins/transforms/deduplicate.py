"""Drops records whose key came a short while before."""

from __future__ import annotations

import re
import shutil
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from typing_extensions import override

from headrace.sdk import FrameTransform, UnfitRecordError, literal, quote
from headrace.sdk.config import ConfigDef, ConfigType, Importance, Range
from headrace.sdk.fieldpath import FieldPath

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import TransformBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATE = "id BINARY, at BIGINT"
_MERGE_FROM = 16
"""So many batches leave a file each before they are merged into one."""
_NAME = re.compile(r"(upto|batch)-(\d+)")


class Deduplicate(FrameTransform):
    """Drops a record when another with its key came within a window of time before it.

    Times are the records' own, so what is a duplicate does not depend on how records fall
    into batches, nor on when they are read; a record without a time has that of its batch.
    Each record of a key counts, also one that is dropped. One that comes late is compared with
    the newest of its key, and is known as a duplicate for as long as the window again.
    Records with a null in their key pass.

    The state is 40 bytes or so for each key within two windows, in files by batch id, which
    survive restarts: a batch that runs again sees exactly what the batches before it left.
    The state is read for each batch, and the batch is sorted by key.
    """

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define(
                "key.fields",
                ConfigType.LIST,
                "",
                importance=Importance.HIGH,
                doc="The fields of the value that tell records apart; dots lead into structs. "
                "The record's key if empty.",
            )
            .define(
                "window.ms",
                ConfigType.LONG,
                86_400_000,
                validator=Range(at_least=1),
                importance=Importance.HIGH,
                doc="How long after a record another with its key is a duplicate.",
            )
        )

    @override
    def frame(self, records: DataFrame, batch: TransformBatch) -> DataFrame:
        begun = (batch.begun - _EPOCH) // _MICROSECOND
        keys = self._keys(records)
        there = " AND ".join(f"{sql} IS NOT NULL" for sql in keys)
        parts = ", ".join(f"{sql} AS k{number}" for number, sql in enumerate(keys))
        digest = f"unhex(sha2(to_json(struct({parts})), 256))"
        keyed = records.selectExpr(
            "*",
            f"IF(applies AND {there}, {digest}, NULL) AS __id",
            f"coalesce(unix_micros(timestamp), {begun}L) AS __at",
            # Equal times need an order that is the same when the batch runs again.
            "xxhash64(to_json(struct(value))) AS __tie",
        )
        folder = self.context.state / f"stream-{url_quote(batch.stream, safe='')}"
        state = State(folder, records.sparkSession, self.config.get_int("window.ms") * 1000)
        state.put(batch.id, keyed)
        return self._dropping(keyed, state.before(batch.id), records.columns)

    def _dropping(
        self, keyed: DataFrame, seen: DataFrame | None, names: list[str]
    ) -> DataFrame:
        window = self.config.get_int("window.ms") * 1000
        # Rows without a key are spread by their content, or they would all be sorted in one.
        spread = "PARTITION BY __id, IF(__id IS NULL, __tie, 0L) ORDER BY __at, __tie"
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
        fields = self.config.get_list("key.fields")
        if fields:
            paths = [FieldPath.parse(text, "V2").steps for text in fields]
            return [".".join(["value", *map(quote, steps)]) for steps in paths]
        if "key" not in records.columns:
            raise UnfitRecordError(message="Records have no key to find duplicates by.")
        return ["key"]


class State:
    """When each key was seen last, in Parquet files by batch id.

    ``batch-n`` holds the keys of batch n, ``upto-n`` those of all batches up to n.
    """

    def __init__(self, folder: Path, spark: SparkSession, window: int) -> None:
        """Keep the state of one stream in ``folder``; ``window`` is in microseconds."""
        self._folder = folder
        self._spark = spark
        self._window = window

    def before(self, batch: int) -> DataFrame | None:
        """Return ``__seen`` and ``__last`` of the batches before one; None for none."""
        self._merge(batch)
        found = self._files(batch)
        if not found:
            return None
        return self._last(found).selectExpr("id AS __seen", "at AS __last")

    def put(self, batch: int, keyed: DataFrame) -> None:
        """Write the keys of a batch, in place of what an earlier attempt wrote."""
        keys = keyed.where("__id IS NOT NULL").groupBy("__id").agg({"__at": "max"})
        self._write(keys.toDF("id", "at"), f"batch-{batch}")

    def _files(self, batch: int) -> list[Path]:
        """Return the newest merged file and the batches after it, but before ``batch``."""
        found: dict[tuple[str, int], Path] = {}
        for path in self._folder.glob("*-*"):
            if name := _NAME.fullmatch(path.name):
                found[name[1], int(name[2])] = path
        merged = max((n for kind, n in found if kind == "upto" and n < batch), default=-1)
        files = [found["upto", merged]] if merged >= 0 else []
        numbers = sorted(n for kind, n in found if kind == "batch" and merged < n < batch)
        return files + [found["batch", n] for n in numbers]

    def _merge(self, batch: int) -> None:
        """Make one file of many. Those of batches before this one will not change any more."""
        files = self._files(batch)
        if len(files) < _MERGE_FROM:
            return
        last = self._last(files)
        newest = last.agg({"at": "max"}).collect()[0][0]
        # A record that is late by a window may be a duplicate of one a window before.
        kept = last if newest is None else last.where(f"at >= {newest - 2 * self._window}L")
        self._write(kept, f"upto-{_number(files[-1])}")
        for path in files:
            shutil.rmtree(path, ignore_errors=True)

    def _last(self, files: list[Path]) -> DataFrame:
        rows = self._spark.read.schema(_STATE).parquet(*map(str, files))
        return (
            rows if len(files) == 1 else rows.groupBy("id").agg({"at": "max"}).toDF("id", "at")
        )

    def _write(self, rows: DataFrame, name: str) -> None:
        staged = self._folder / f".{name}.{uuid.uuid4().hex}"
        try:
            rows.write.parquet(str(staged))
            # Guarantee 2: a whole file or none; a crash before this leaves no state at all,
            # and the batch, which was not finished, writes it again.
            shutil.rmtree(self._folder / name, ignore_errors=True)
            staged.rename(self._folder / name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[2])
