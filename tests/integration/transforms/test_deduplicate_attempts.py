"""Deduplicate: batches that were dropped, and streams that come in parts, lose no record."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.dataplane.flow_doubles import TASK, Kept, batch, flow, place, row_of
from tests.integration.dataplane.test_packed_evolution import Streams
from tests.integration.dataplane.test_routing import to_topic
from tests.integration.transforms.test_deduplicate import Events, step
from tests.task_doubles import Schemas
from typing_extensions import override

from headrace.dataplane import FrameReader, StreamReader
from headrace.evolution import Evolution
from headrace.model import SparkMemoryError
from headrace.sdk import Lag, Position, ReadLimit, RetriableError
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling
from headrace.store import Store
from headrace.worker import BatchLoop
from headrace.worker.batch_loop import AdaptiveBatchSize

pytestmark = pytest.mark.spark

ROWS = 8


@dataclass
class Failing(Kept):
    """Fails once, before it has anything."""

    error: Exception | None = None

    @override
    def write(self, frame, batch):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().write(frame, batch)


class Reader:
    """So many rows, and then no more."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(min(ROWS, row_of(start) + (limit.rows or ROWS)))

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag(rows=ROWS - row_of(start))

    def ended(self, position: Position) -> bool:
        return True

    def acknowledge(self, position: Position) -> None:
        pass


@pytest.mark.parametrize("case", ["whole", "routed", "too large"])
def test_the_rows_of_a_batch_that_was_dropped_are_no_duplicates(
    spark, tmp_path: Path, case: str
) -> None:
    sink, steps, more = Failing(), [step(tmp_path, 1000)], {}
    size = AdaptiveBatchSize()
    if case == "routed":
        steps.append(to_topic("concat('t', n % 2)"))
        more["chain"] = "c1"
        sink.error = RetriableError("The target is down.")
    elif case == "too large":
        sink.error = SparkMemoryError("Java heap")
    source = FrameReader(Events(*((n, f"k{n}") for n in range(ROWS))))
    store = Store()

    def now() -> datetime:
        return datetime.now(UTC)

    loop = BatchLoop(
        store=store,
        lease=store.lease(TASK, "w", now(), timedelta(minutes=5)),
        reader=Reader(),
        flow=flow(spark, [sink], *steps, source=source, staging=tmp_path / "staged", **more),
        limit=ReadLimit(rows=100),
        clock=now,
    )
    size.begin(loop)
    for _ in range(12):
        try:
            if loop.step() is None:
                break
        except RetriableError as error:
            size.failed(loop, error)
    assert sorted(row["value"]["n"] for row in sink.rows) == list(range(ROWS))
    assert row_of(store.position(TASK)) == ROWS


def rows(keys: list[str], values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": pa.array(keys), "n": values})


PARTS = (
    rows(["a", "b"], pa.array([1, 2], pa.int32())),
    rows(["c", "a"], pa.array(["x", "y"])),  # another type, which is always kept apart
    rows(["a", "b", "c"], pa.array(["p", "q", "r"])),
)


@pytest.mark.parametrize("bounds", [[1, 2, 3], [2, 3], [3]], ids=str)
def test_it_does_not_matter_how_the_parts_of_a_stream_fall_into_batches(
    spark, tmp_path: Path, bounds: list[int]
) -> None:
    sink = Kept()
    policy = Evolution(policies=[EvolutionPolicy(Handling.EVOLVE)], memory=Schemas())
    source = StreamReader(Streams({"s": PARTS}))
    copy = replace(flow(spark, [sink], step(tmp_path, 10**6), source=source), evolution=policy)
    begun = 0
    for number, end in enumerate(bounds, 1):
        copy.run(replace(batch(number, begun, end), after=number - 1))
        begun = end
    assert sorted(row["value"]["key"] for row in sink.rows) == ["a", "b", "c"]
