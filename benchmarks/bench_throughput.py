"""Rows per second beside the hand-written Spark job that does the same.

Both run in one process and one session, in turn. Offline is one run over all rows that
ends by itself; real time is a stream that finds the same rows waiting and is stopped when
they are written. Its batches are as large as the default limits let them be. With
``--pieces`` each batch takes one of five parts, and so does the hand-written job, in a
loop: that shows what a batch costs beside its rows.

    python benchmarks/bench_throughput.py [--rows 5000000] [--only CSV] [--pieces]
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow.parquet as pq
from harness import HEADER, Bench, Memory, Pair, bench, compare, machine, remove, save
from pyspark.sql import DataFrame

from headrace.dataplane import FrameReader, SplitReader
from headrace.sdk import Position
from headrace_plugins.connectors.datagen.connector import (
    DatagenSource,
    FrameGenerator,
    SplitGenerator,
)

PIECES = 5
TABLE = "table"
SCHEMA = "id bigint, name string, amount decimal(12,2), score double, day date, at timestamp"


class Mode(StrEnum):
    """How the rows come."""

    OFFLINE = "offline"
    REAL_TIME = "real time"
    PIECES = "in five batches"


@dataclass(frozen=True)
class Cases:
    """The cases, each as Headrace runs it and as a user would write it by hand."""

    run: Bench
    rows: int
    mode: Mode
    only: str = ""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Return the rows of each batch."""
        count = PIECES if self.mode is Mode.PIECES else 1
        return [(n * self.rows // count, (n + 1) * self.rows // count) for n in range(count)]

    def compared(self, name: str, ours: Callable[[], None], theirs: Callable[[], None]) -> Pair:
        """Measure one case and print it."""
        return compare(f"{name}, {self.mode}", self.rows, ours, theirs)

    def all(self) -> list[Pair]:
        """Measure every case."""
        cases = {
            "datagen to noop": (self.noop, self.noop_by_hand),
            "split to Parquet": (self.split, self.split_by_hand),
            "CSV to Parquet": (self.csv, self.csv_by_hand),
            "JSON lines to Parquet": (self.json, self.json_by_hand),
            "Parquet to Delta": (self.delta, self.delta_by_hand),
            "Delta to Parquet": (self.table, self.table_by_hand),
        }
        return [self.compared(name, *both) for name, both in cases.items() if self.only in name]

    def packed(self) -> Pair:
        """Measure a topic of many streams beside a topic of one, to Parquet."""
        name = "split to topic to Parquet, ten streams beside one"
        return compare(name, self.rows, lambda: self._by_topic(streams=10), self._by_topic)

    def _by_topic(self, **more: object) -> None:
        source = self._generator() | {"connector": "datagen", "gear": "split"} | more
        target = self.run.target()
        topic = f"topic{self.run.runs}"
        sink = {"connector": "file", "path": f"{target}/${{topic}}", "format": "parquet"}
        self.run.run({"source": source, "topic": topic, "sinks": [sink]})
        self._check(target)
        self.run.runtime.topics.get(topic).location.delete_folder()

    def csv(self) -> None:
        """Copy CSV files to Parquet."""
        source = self._files("csv") | {"schema": SCHEMA, "header": True}
        self._to_parquet(source, {"bytes": 1})

    def csv_by_hand(self) -> None:
        """Do the same with Spark alone."""
        target = self.run.target()
        for group in self._groups("csv"):
            frame = self.run.runtime.spark.read.schema(SCHEMA).csv(group, header=True)
            frame.write.mode("append").parquet(str(target))
        remove(target)

    def json(self) -> None:
        """Copy files of JSON lines to Parquet."""
        self._to_parquet(self._files("json") | {"schema": SCHEMA}, {"bytes": 1})

    def json_by_hand(self) -> None:
        """Do the same with Spark alone."""
        target = self.run.target()
        for group in self._groups("json"):
            frame = self.run.runtime.spark.read.schema(SCHEMA).json(group)
            frame.write.mode("append").parquet(str(target))
        remove(target)

    def delta(self) -> None:
        """Copy Parquet files to Delta."""
        target = self.run.target()
        sink = {"connector": "delta", "path": str(target)}
        self._run({"source": self._files("parquet"), "sinks": [sink]}, {"bytes": 1})
        remove(target)

    def delta_by_hand(self) -> None:
        """Do the same with Spark alone."""
        target = self.run.target()
        for group in self._groups("parquet"):
            frame = self.run.runtime.spark.read.parquet(*group)
            frame.write.mode("append").format("delta").save(str(target))
        remove(target)

    def table(self) -> None:
        """Copy a Delta table to Parquet."""
        path = str(self.run.folder / TABLE)
        source: dict[str, object] = {"connector": "delta", "path": path}
        self._to_parquet(source, {"bytes": 1})

    def table_by_hand(self) -> None:
        """Do the same with a query of Structured Streaming, which keeps positions too."""
        target, spark = self.run.target(), self.run.runtime.spark
        files = 1 if self.mode is Mode.PIECES else 1000
        frame = spark.readStream.format("delta").option("maxFilesPerTrigger", files)
        writer = frame.load(str(self.run.folder / TABLE)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(target / "_checkpoint"))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        remove(target)

    def noop(self) -> None:
        """Generate rows and throw them away."""
        source = self._generator() | {"connector": "datagen"}
        limit = {"rows": self.rows // PIECES}
        self._run({"source": source, "sinks": [{"connector": "noop"}]}, limit)

    def noop_by_hand(self) -> None:
        """Do the same with Spark alone, from the same expressions."""
        for frame in self._generated("frame"):
            frame.write.mode("overwrite").format("noop").save()

    def split(self) -> None:
        """Copy Arrow splits made on executors to Parquet."""
        source = self._generator() | {"connector": "datagen", "gear": "split"}
        self._to_parquet(source, {"rows": self.rows // PIECES})

    def split_by_hand(self) -> None:
        """Do the same with Spark alone, from the same mapInArrow."""
        target = self.run.target()
        for frame in self._generated("split"):
            frame.write.mode("append").parquet(str(target))
        remove(target)

    def _to_parquet(self, source: dict[str, object], limit: dict[str, int]) -> None:
        target = self.run.target()
        sink = {"connector": "file", "path": str(target), "format": "parquet"}
        self._run({"source": source, "sinks": [sink]}, limit)
        self._check(target)

    def _check(self, target: Path) -> None:
        files = [path for path in target.rglob("*.parquet") if "_headrace" not in path.parts]
        rows = sum(pq.read_metadata(path).num_rows for path in files)
        if rows != self.rows:
            message = f"{rows} rows in the target, not {self.rows}"
            raise SystemExit(message)
        remove(target)

    def _run(self, definition: dict[str, object], piece: dict[str, int]) -> None:
        if self.mode is Mode.PIECES:
            definition |= {"batch": {"max": piece}}
        self.run.run(definition, until=self.rows if self.mode is Mode.REAL_TIME else None)

    def _files(self, kind: str) -> dict[str, object]:
        return {"connector": "file", "path": str(self.run.folder / kind), "format": kind}

    def _groups(self, kind: str) -> list[list[str]]:
        paths = [str(path) for path in sorted((self.run.folder / kind).iterdir())]
        return [[path] for path in paths] if self.mode is Mode.PIECES else [paths]

    def _generator(self) -> dict[str, object]:
        return {"rows": self.rows, "schema": SCHEMA}

    def _generated(self, gear: str) -> Sequence[DataFrame]:
        config = DatagenSource.config_def().parse(self._generator() | {"gear": gear})
        task = DatagenSource.task(config)
        assert isinstance(task, FrameGenerator | SplitGenerator)
        reader = FrameReader(task) if isinstance(task, FrameGenerator) else SplitReader(task)
        frames = []
        for first, last in self.bounds:
            start, end = (Position.of(task.partition, {"row": row}) for row in (first, last))
            frame = reader.read(self.run.runtime.spark, start, end).frame
            assert frame is not None
            frames.append(frame.select("value.*"))
        return frames


def write_inputs(run: Bench, rows: int) -> None:
    """Write the same rows as CSV, JSON lines, Parquet and a Delta table, in five files each."""
    for piece in range(PIECES):
        first, last = piece * rows // PIECES, (piece + 1) * rows // PIECES
        frame = run.runtime.spark.range(first, last, 1, 1).selectExpr(
            "id",
            "concat('name-', id % 10007) AS name",
            "CAST(id % 100000 * 1.25 AS DECIMAL(12,2)) AS amount",
            "rand(1) AS score",
            "date_add(DATE'2020-01-01', CAST(id % 1000 AS INT)) AS day",
            "timestamp_seconds(1700000000 + id % 100000) AS at",
        )
        for kind in ("csv", "json", "parquet"):
            staged, folder = run.folder / "staged", run.folder / kind
            folder.mkdir(exist_ok=True)
            frame.write.mode("overwrite").option("header", "true").format(kind).save(
                str(staged)
            )
            (part,) = staged.glob(f"part-*.{kind}")
            part.rename(folder / f"piece-{piece}.{kind}")
        frame.write.mode("append").format("delta").save(str(run.folder / TABLE))


def main(rows: int, only: str, modes: Sequence[Mode]) -> None:
    """Run everything and keep the figures."""
    memory = Memory()
    with bench() as run:
        write_inputs(run, rows)
        print(
            f"{rows:,} rows; {machine()}; a ratio below 1 means Headrace is faster\n\n{HEADER}"
        )
        pairs = [pair for mode in modes for pair in Cases(run, rows, mode, only).all()]
        if only in "packed":
            pairs.append(Cases(run, rows, Mode.OFFLINE).packed())
    peak = memory.stop()
    print(f"\nPeak memory of JVM and Python driver: {peak / 2**20:,.0f} MiB")
    save(
        "throughput", {"rows": rows, "peak_bytes": peak} | {p.name: p.figures() for p in pairs}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only", default="", help="the cases whose names hold this text")
    parser.add_argument("--pieces", action="store_true", help="also measure five batches")
    found = parser.parse_args()
    chosen = [mode for mode in Mode if mode is not Mode.PIECES or found.pieces]
    main(found.rows, found.only, chosen)
