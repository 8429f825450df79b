"""Deduplicate: windows, state that moves with the batch's mark, expiry."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    TargetDownError,
    batch,
    dead_letters,
    flow,
    row_of,
    transform,
)
from tests.integration.dataplane.flow_doubles import place as at_row
from tests.integration.dataplane.test_packed_evolution import Streams
from tests.task_doubles import Schemas

from headrace.dataplane import Flow, FrameReader, Step, StreamReader
from headrace.evolution import Evolution
from headrace.model import Counts
from headrace.sdk import FrameSource, Position, ReadLimit, TransformBatch, TransformContext
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.deduplicate import MERGE_FROM, Deduplicate, State

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


class Events(FrameSource):
    """Rows of (second, key), in the order of a list."""

    def __init__(self, *events: tuple[int, str | None]) -> None:
        self.events = events

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return at_row(len(self.events))

    def read(self, spark, start, end):
        rows = [
            (START + timedelta(seconds=second), (number, key))
            for number, (second, key) in enumerate(self.events)
        ][row_of(start) : row_of(end)]
        schema = "timestamp timestamp, value struct<n:int, key:string>"
        return spark.createDataFrame(rows, schema)


def step(folder: Path, window_s: int = 10, *, task: int = 0) -> Step:
    props = {"key.fields": "`key`", "window.ms": str(window_s * 1000)}
    made = Deduplicate("once", Deduplicate.config_def().parse(props))
    made.start(TransformContext("copy", task, folder / "state"))
    return Step(made)


def numbers(sink: Kept) -> list[int]:
    return sorted(row["value"]["n"] for row in sink.rows)


def test_a_key_within_the_window_is_dropped_in_a_batch_and_over_batches(
    spark, tmp_path: Path
) -> None:
    source = FrameReader(
        Events(
            (0, "a"), (5, "a"), (5, "b"), (16, "a"), (3, None), (3, None), (20, "a"), (16, "b")
        )
    )
    sink = Kept()
    copy = flow(spark, [sink], step(tmp_path), source=source)
    first = copy.run(batch(1, 0, 3))
    assert first == Counts(read=3, written=2, filtered=1, filters={"once": 1})
    second = copy.run(batch(2, 3, 8))
    assert (second.written, second.filtered) == (4, 1)
    assert numbers(sink) == [0, 2, 3, 4, 5, 7]


class Placed(Events):
    """The same, whose records know their places."""

    def read(self, spark, start, end):
        frame = super().read(spark, start, end)
        return frame.selectExpr("*", "array(CAST(value.n AS BIGINT)) AS position").orderBy(
            "value.n", ascending=False
        )


def test_of_records_of_one_time_the_first_is_kept(spark, tmp_path: Path) -> None:
    source = FrameReader(Placed(*((0, f"k{n % 4}") for n in range(12))))
    sink = Kept()
    counts = flow(spark, [sink], step(tmp_path), source=source).run(batch(1, 0, 12))
    assert (counts.written, counts.filtered) == (4, 8)
    assert numbers(sink) == [0, 1, 2, 3]


def test_a_batch_that_runs_again_is_no_duplicate_of_itself(spark, tmp_path: Path) -> None:
    source = FrameReader(Events((0, "a"), (1, "b"), (2, "a"), (3, "c")))
    sink = Kept(fail=True)
    with pytest.raises(TargetDownError):
        flow(spark, [sink], step(tmp_path), source=source).run(batch(1, 0, 3))
    # A new process: nothing is left of the first but the state in its folder.
    copy = flow(spark, [sink], step(tmp_path), source=source)
    counts = copy.run(batch(1, 0, 3, again=True))
    assert (counts.written, counts.filtered) == (2, 1)
    copy.run(batch(2, 3, 4))
    assert numbers(sink) == [0, 1, 3]


def test_what_has_expired_goes_without_being_read(spark, tmp_path: Path) -> None:
    events = [(100 * n, f"k{n}") for n in range(4)] + [(300, "k3")]
    sink = Kept()
    copy = flow(spark, [sink], step(tmp_path, 60), source=FrameReader(Events(*events)))
    for number in range(5):
        copy.run(batch(number + 1, number, number + 1))
    assert numbers(sink) == [0, 1, 2, 3]
    (folder,) = (tmp_path / "state").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["batch-3", "batch-4", "batch-5"]


def nth(number: int) -> TransformBatch:
    return TransformBatch(number, "s", START)


def keyed(spark, start: int, end: int, second: int = 0):
    digest = "unhex(sha2(CAST(id AS STRING), 256)) AS __id"
    return spark.range(start, end, 1, 1).selectExpr(digest, f"{second * 1_000_000}L AS __at")


def test_batches_are_merged_and_only_files_with_keys_of_the_batch_are_read(
    spark, tmp_path: Path
) -> None:
    state = State(tmp_path, spark, 60_000_000)
    state.put(nth(1), keyed(spark, 0, 70_000))
    for number in range(2, MERGE_FROM + 1):
        state.put(nth(number), keyed(spark, 70_000 + number, 70_001 + number, number))
    for _ in range(2):  # what is asked for again is there again
        state.put(nth(MERGE_FROM + 1), keyed(spark, 6, 7, 20))
        seen = state.before(nth(MERGE_FROM + 1))
        assert seen is not None
        assert [path.name for path in tmp_path.glob("run-*")] == [f"run-1-1-{MERGE_FROM}"]
        assert len(list(tmp_path.glob("run-*/*.parquet"))) == 3
        assert len(seen.inputFiles()) == 1
        key = keyed(spark, 6, 7).collect()[0]["__id"]
        assert [row["__last"] for row in seen.where(seen["__seen"] == key).collect()] == [0]
    whole = spark.read.parquet(str(tmp_path / f"run-1-1-{MERGE_FROM}"))
    assert whole.count() == 70_000 + MERGE_FROM - 1
    state.put(nth(MERGE_FROM + 2), keyed(spark, 6, 7, 70))
    assert state.before(nth(MERGE_FROM + 2)) is not None
    state.put(nth(MERGE_FROM + 3), keyed(spark, 6, 7, 300))
    assert state.before(nth(MERGE_FROM + 3)) is None


def packed(
    spark, sink: Kept, *steps: Step, folder: Path, **streams: tuple[pa.RecordBatch, ...]
) -> Flow:
    memory = Evolution(policies=[EvolutionPolicy(Handling.EVOLVE)], memory=Schemas())
    source = StreamReader(Streams(streams))
    letters = dead_letters(folder, None)
    made = flow(spark, [sink], *steps, source=source, staging=folder, dead_letters=letters)
    return replace(made, evolution=memory)


def rows(keys: list[str], numbers: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": keys, "n": numbers})


def test_a_dropped_batch_of_several_streams_is_forgotten_in_all_of_them(
    spark, tmp_path: Path
) -> None:
    once, sink = step(tmp_path), Kept(fail=True)
    a, b = rows(["a"], [0]), rows(["b"], [1])
    with pytest.raises(TargetDownError):
        packed(spark, sink, once, folder=tmp_path, s1=(a,), s2=(b,)).run(
            replace(batch(1, 0, 1), after=0)
        )
    first = packed(spark, sink, once, folder=tmp_path, s1=(a,))
    first.run(replace(batch(2, 0, 1), after=0))
    second = packed(spark, sink, once, folder=tmp_path, s2=(b,))
    second.run(replace(batch(3, 0, 1), after=2))
    assert numbers(sink) == [0, 1]


def test_dead_letters_of_one_part_of_a_stream_leave_the_state_that_the_next_part_reads(
    spark, tmp_path: Path
) -> None:
    cast, sink = Step(transform(Cast, "cast", spec="key:int32")), Kept()
    stream = (rows(["1", "two"], [1, 2]), rows(["3", "1"], ["x", "y"]))
    copy = packed(spark, sink, step(tmp_path), cast, folder=tmp_path, s=stream)
    counts = copy.run(replace(batch(1, 0, 2), after=0))
    assert (counts.written, counts.filtered, counts.rejected) == (2, 1, 1)


def test_replayed_letters_are_no_duplicates_of_themselves(spark, tmp_path: Path) -> None:
    source, sink = FrameReader(Events((0, "a"), (0, "a"))), Kept()
    copy = flow(spark, [sink], step(tmp_path, task=-1), source=source)
    copy.run(batch(1, 0, 1))
    copy.run(batch(2, 1, 2))
    assert numbers(sink) == [0, 1]
