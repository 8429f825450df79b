"""Changes in streams that travel packed do what the policy says, whatever the batches are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    dead_letters,
    flow,
    place,
    row_of,
    topic_writer,
)
from tests.integration.dataplane.test_evolution_paths import (
    AFTER,
    BEFORE,
    GONE,
    MORE,
    ROW,
    arrow,
)
from tests.task_doubles import Schemas

from headrace.dataplane import StreamReader
from headrace.evolution import Evolution
from headrace.model import Counts, SchemaChangeError, ToleranceExceededError
from headrace.sdk import Position, ReadLimit, Split, StateError, StreamSplitSource
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace.topics import TopicReader, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVOLVE, LENIENT, IGNORE = Handling.EVOLVE, Handling.LENIENT, Handling.IGNORE
WITHOUT_B = {name: value for name, value in ROW.items() if name != "b"}
# What the second row of each stream is; a packed row has only the fields that it has.
ROWS: dict[Handling, dict[ChangeKind, dict[str, Any]]] = {
    EVOLVE: {
        ChangeKind.ADD: MORE,
        ChangeKind.WIDEN: ROW | {"a": 6},
        ChangeKind.NARROW: ROW | {"a": 6},
        ChangeKind.RETYPE: ROW | {"a": "6"},
        ChangeKind.RENAME: WITHOUT_B | {"new": "y"},
        ChangeKind.DROP: {"id": 1, "b": "x", "s": {"n": 1}},
        ChangeKind.REORDER: ROW,
    },
    LENIENT: {
        ChangeKind.ADD: MORE,
        ChangeKind.WIDEN: ROW | {"a": 6},
        ChangeKind.NARROW: ROW | {"a": 6},
        ChangeKind.RETYPE: ROW | {"a": None, "a__string": "6"},
        ChangeKind.RENAME: ROW | {"b": "y", "new": "y"},
        ChangeKind.DROP: GONE,
        ChangeKind.REORDER: ROW,
    },
    IGNORE: {
        ChangeKind.ADD: ROW,
        ChangeKind.WIDEN: ROW | {"a": 6},
        ChangeKind.NARROW: ROW | {"a": 6},
        ChangeKind.RETYPE: ROW | {"a": 6},
        ChangeKind.RENAME: ROW | {"b": "y"},
        ChangeKind.DROP: GONE,
        ChangeKind.REORDER: ROW,
    },
}
TYPE_OF_A = {
    (EVOLVE, ChangeKind.WIDEN): "int64",
    (LENIENT, ChangeKind.WIDEN): "int64",
    (EVOLVE, ChangeKind.RETYPE): "string",
}


@dataclass
class Streams(StreamSplitSource):
    """Each position brings each stream's next batch."""

    batches: Mapping[str, Sequence[pa.RecordBatch]]

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(row_of(start) + 1)

    def splits(self, start: Position, end: Position) -> list[Split]:
        return [Split({"number": n}) for n in range(row_of(start), row_of(end))]

    def read(self, split: Split):
        for name, batches in self.batches.items():
            yield name, batches[int(str(split.payload["number"]))]


BOTH = Streams({str(kind): (BEFORE, after) for kind, after in AFTER.items()})


def into(
    spark: "SparkSession", sink: Any, source: Streams, policy: EvolutionPolicy, **more: Any
) -> Any:
    evolution = Evolution(policies=[policy], memory=Schemas())
    return replace(
        flow(spark, [sink], source=StreamReader(source)), evolution=evolution, **more
    )


def packed(folder: Path) -> dict[str, list[pa.RecordBatch]]:
    """Return what a packed topic holds of each stream, in order."""
    found: dict[str, list[pa.RecordBatch]] = {}
    reader = TopicReader(Topics(Location.of(folder)).get("t"))
    for file in reader.files(Position(), reader.latest(Position(), ReadLimit())):
        table = pq.read_table(folder / "t" / file.file.path, partitioning=None)
        for row in table.sort_by("offset").to_pylist():
            schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
            rows = pa.ipc.read_record_batch(pa.py_buffer(row["payload"]), schema)
            found.setdefault(row["stream"], []).append(rows)
    return found


@pytest.mark.parametrize(
    "ranges", [[(0, 1), (1, 2)], [(0, 2)]], ids=["two batches", "one batch"]
)
@pytest.mark.parametrize("handling", ROWS)
def test_a_topic_of_many_streams_follows_the_policy_for_each_of_them(
    spark: "SparkSession", tmp_path: Path, handling: Handling, ranges: list[tuple[int, int]]
) -> None:
    policy = EvolutionPolicy(handling, renames={"b": "new"})
    running = into(spark, topic_writer(tmp_path, "t"), BOTH, policy)
    for number, (start, end) in enumerate(ranges, start=1):
        running.run(batch(number, start, end))
    history, streams = Topics(Location.of(tmp_path)).get("t").history, packed(tmp_path)
    for kind, expected in ROWS[handling].items():
        second = streams[str(kind)][-1]
        assert second.to_pylist() == [expected]
        assert str(second.schema.field("a").type if "a" in expected else "int32") == (
            TYPE_OF_A.get((handling, kind), "int32")
        )
        newest = history.newest(str(kind))
        assert newest is not None
        assert [field.name for field in newest.value.fields] == second.schema.names
    order = ["b", "id", "a", "s"] if handling is EVOLVE else list(ROW)
    assert streams["reorder"][-1].schema.names == order


def test_a_sink_of_packed_streams_sees_each_change_of_one_batch(spark: "SparkSession") -> None:
    sink, handling = Kept(), IGNORE
    policy = EvolutionPolicy(handling, renames={"b": "new"})
    counts = into(spark, sink, BOTH, policy).run(batch(1, 0, 2))
    assert (counts.read, counts.written) == (14, 14)
    by_stream: dict[str, list[Any]] = {}
    for row in sink.rows:
        by_stream.setdefault(row["topic"], []).append(row["value"])
    for kind, expected in ROWS[handling].items():
        first, second = by_stream[str(kind)]
        assert {name: first[name] for name in ROW} == ROW | {"s": first["s"]}
        assert second == expected


@pytest.mark.parametrize("first", [IGNORE, EVOLVE])
def test_a_policy_that_changes_in_doubt_is_an_error_and_no_loss(
    spark: "SparkSession", first: Handling
) -> None:
    """Under one policy a stream is written as a whole, under the other in two parts."""
    sink = Kept()
    source = Streams({"s": (BEFORE, AFTER[ChangeKind.ADD])})
    policies = {each: EvolutionPolicy(each) for each in (IGNORE, EVOLVE)}
    second = EVOLVE if first is IGNORE else IGNORE
    into(spark, sink, source, policies[first]).run(batch(1, 0, 2))
    if first is IGNORE:  # a crash came after the first of two parts
        sink.marks.pop("copy-uid-0/s~1")
    rows = list(sink.rows)
    with pytest.raises(StateError, match="were changed while the batch was unfinished"):
        into(spark, sink, source, policies[second]).run(batch(1, 0, 2, again=True))
    assert sink.rows == rows
    counts = into(spark, sink, source, policies[first]).run(batch(1, 0, 2, again=True))
    assert counts.read == 2


def test_a_rejected_change_in_one_stream_keeps_all_of_the_batch_out(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sink = Kept()
    policy = EvolutionPolicy(handlings={ChangeKind.DROP: Handling.REJECT})
    with pytest.raises(SchemaChangeError, match="drop a"):
        into(spark, sink, BOTH, policy).run(batch(1, 0, 2))
    assert sink.rows == []
    writer = topic_writer(tmp_path, "t")
    for kind, after in AFTER.items():
        source = Streams({str(kind): (BEFORE, after)})
        policy = EvolutionPolicy(handlings={kind: Handling.REJECT}, renames={"b": "new"})
        with pytest.raises(SchemaChangeError, match=str(kind)):
            into(spark, writer, source, policy).run(batch(1, 0, 2))
        assert list((tmp_path / "t").rglob("*.parquet")) == []


def test_rows_that_do_not_fit_an_ignored_change_are_dead_lettered_or_stop(
    spark: "SparkSession", tmp_path: Path
) -> None:
    text = pa.string()
    after = pa.Table.from_batches(
        [arrow(id=(n, pa.int32()), a=(a, text)) for n, a in ((2, "6"), (3, "six"), (4, "7"))]
    )
    before = arrow(id=(1, pa.int32()), a=(5, pa.int32()))
    source = Streams({"s": (before, *after.combine_chunks().to_batches(), before)})
    writer, policy = topic_writer(tmp_path, "t"), EvolutionPolicy(IGNORE)
    into(spark, writer, source, policy).run(batch(1, 0, 1))
    with pytest.raises(ToleranceExceededError, match="a does not fit the target's INT"):
        into(spark, writer, source, policy).run(batch(2, 1, 2))
    letters = dead_letters(tmp_path, "dead")
    tolerant = into(spark, writer, source, policy, dead_letters=letters)
    for again in (False, True):
        counts = tolerant.run(batch(2, 1, 3, again=again))
        assert counts == Counts(
            4, 3, rejected=1, causes={"TASK_PUT RecordError": 1}, size_bytes=counts.size_bytes
        )
    rows = [row for b in packed(tmp_path)["s"] for row in b.to_pylist()]
    assert sorted(rows, key=str) == [
        {"id": 1, "a": 5},
        {"id": 1, "a": 5},
        {"id": 2, "a": 6},
        {"id": 4, "a": 7},
    ]
    (letter,) = DeltaTable(tmp_path / "dead").to_pyarrow_table().to_pylist()
    assert json.loads(letter["value"]) == {"id": 3, "a": "six"}
    assert letter["cause"]["topic"] == "s"
    assert "does not fit" in letter["cause"]["message"]
