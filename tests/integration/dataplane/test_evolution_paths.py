"""Each kind of change does what the policy says, whichever way records come to a topic."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import batch, flow, place, row_of, topic_writer
from tests.task_doubles import Schemas, copying

from headrace.capture import Targets
from headrace.capture.capture_thread import Gathering
from headrace.capture.staging import Stager
from headrace.dataplane import FrameReader, SplitReader
from headrace.evolution import Evolution
from headrace.model import SchemaChangeError
from headrace.sdk import (
    CapturedBatch,
    ConfigError,
    FrameSource,
    Mark,
    Position,
    ReadLimit,
    Record,
    Schema,
    Split,
    SplitSource,
)
from headrace.sdk.arrow import from_arrow
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace.sdk.sqltext import rows
from headrace.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVOLVE, LENIENT, IGNORE = Handling.EVOLVE, Handling.LENIENT, Handling.IGNORE
ADD, WIDEN, NARROW, RETYPE = list(ChangeKind)[:4]
RENAME, DROP, REORDER = ChangeKind.RENAME, ChangeKind.DROP, ChangeKind.REORDER
NM = pa.struct({"n": pa.int32(), "m": pa.string()})


def arrow(**columns: tuple[Any, pa.DataType]) -> pa.RecordBatch:
    """Return a batch of one row."""
    arrays = [pa.array([value], kind) for value, kind in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


ID, A, B = (1, pa.int32()), (5, pa.int32()), ("x", pa.string())
S = ({"n": 1, "m": "q"}, NM)
BEFORE = arrow(id=ID, a=A, b=B, s=S)
NMK = pa.struct([*NM, pa.field("k", pa.int32())])
AFTER = {
    ADD: arrow(id=ID, a=A, b=B, s=({"n": 1, "m": "q", "k": 2}, NMK), c=(7, pa.int32())),
    WIDEN: arrow(id=ID, a=(6, pa.int64()), b=B, s=S),
    NARROW: arrow(id=ID, a=(6, pa.int8()), b=B, s=S),
    RETYPE: arrow(id=ID, a=("6", pa.string()), b=B, s=S),
    RENAME: arrow(id=ID, a=A, new=("y", pa.string()), s=S),
    DROP: arrow(id=ID, b=B, s=({"n": 1}, pa.struct({"n": pa.int32()}))),
    REORDER: arrow(b=B, id=ID, a=A, s=({"m": "q", "n": 1}, pa.struct([NM[1], NM[0]]))),
}
ROW: dict[str, Any] = {"id": 1, "a": 5, "b": "x", "s": {"n": 1, "m": "q"}}
GONE = ROW | {"a": None, "s": {"n": 1, "m": None}}
MORE = ROW | {"s": {"n": 1, "m": "q", "k": 2}, "c": 7}
# What the topic holds of the second record, and the type of its field a; a topic keeps the
# fields that it has.
Outcome = tuple[ChangeKind, Handling, dict[str, Any] | None, str]
OUTCOMES: list[Outcome] = [
    (ADD, EVOLVE, MORE, "integer"),
    (ADD, LENIENT, MORE, "integer"),
    (ADD, IGNORE, ROW, "integer"),
    (WIDEN, EVOLVE, ROW | {"a": 6}, "long"),
    (WIDEN, LENIENT, ROW | {"a": 6}, "long"),
    (WIDEN, IGNORE, ROW | {"a": 6}, "integer"),
    (NARROW, EVOLVE, ROW | {"a": 6}, "integer"),
    (NARROW, LENIENT, ROW | {"a": 6}, "integer"),
    (NARROW, IGNORE, ROW | {"a": 6}, "integer"),
    (RETYPE, EVOLVE, None, "integer"),
    (RETYPE, LENIENT, ROW | {"a": None, "a__string": "6"}, "integer"),
    (RETYPE, IGNORE, ROW | {"a": 6}, "integer"),
    (RENAME, EVOLVE, ROW | {"b": None, "new": "y"}, "integer"),
    (RENAME, LENIENT, ROW | {"b": "y", "new": "y"}, "integer"),
    (RENAME, IGNORE, ROW | {"b": "y"}, "integer"),
    (DROP, EVOLVE, GONE, "integer"),
    (DROP, LENIENT, GONE, "integer"),
    (DROP, IGNORE, GONE, "integer"),
    (REORDER, EVOLVE, ROW, "integer"),
    (REORDER, LENIENT, ROW, "integer"),
    (REORDER, IGNORE, ROW, "integer"),
]


@dataclass
class Frames(FrameSource):
    """The rows of one Arrow batch, read by Spark."""

    batch: pa.RecordBatch

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(row_of(start) + 1)

    def read(self, spark, start, end):
        return rows(spark.createDataFrame(pa.Table.from_batches([self.batch])))


@dataclass
class Splits(SplitSource):
    """The same in one split."""

    batch: pa.RecordBatch

    def schema(self) -> Schema:
        return from_arrow(self.batch.schema)

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(row_of(start) + 1)

    def splits(self, start: Position, end: Position) -> list[Split]:
        return [Split({})]

    def read(self, split: Split):
        yield self.batch


class Captured:
    """Appends as a plugin host does; each is a host that was started anew."""

    def __init__(self, folder: Path, policy: EvolutionPolicy) -> None:
        self.targets = Targets(Location.of(folder), "t", "copy")
        self.spec = copying(folder, evolution=policy)

    def append(self, number: int, *polls: Any) -> None:
        gathering = Gathering(Position())
        for polled in polls:
            gathering.add(polled)
        staged = Stager(self.spec, self.targets, Schemas()).stage(gathering)
        assert staged.counts.balanced
        self.targets.commit(staged.additions, Mark("copy", number, 1), staged.counts)


def as_frame(spark: "SparkSession", folder: Path, number: int, data: Any, policy: Any) -> None:
    _flow(spark, folder, FrameReader(Frames(data)), policy).run(
        batch(number, number - 1, number)
    )


def as_split(spark: "SparkSession", folder: Path, number: int, data: Any, policy: Any) -> None:
    _flow(spark, folder, SplitReader(Splits(data)), policy).run(
        batch(number, number - 1, number)
    )


def _flow(spark: "SparkSession", folder: Path, source: Any, policy: EvolutionPolicy) -> Any:
    evolution = Evolution(policies=[policy])
    return flow(spark, [topic_writer(folder, "t")], source=source, evolution=evolution)


def as_captured_batch(_: object, folder: Path, number: int, data: Any, policy: Any) -> None:
    Captured(folder, policy).append(number, CapturedBatch(data, Position()))


def as_records(_: object, folder: Path, number: int, data: Any, policy: Any) -> None:
    schema = from_arrow(data.schema)
    records = [Record("t", row, value_schema=schema) for row in data.to_pylist()]
    Captured(folder, policy).append(number, records)


PATHS: dict[str, Callable[..., None]] = {
    "frame": as_frame,
    "split": as_split,
    "captured batch": as_captured_batch,
    "captured records": as_records,
}


def policy_of(kind: ChangeKind, handling: Handling) -> EvolutionPolicy:
    return EvolutionPolicy(handlings={kind: handling}, renames={"b": "new"})


def begun(folder: Path) -> Path:
    """Make the topic with its first record, the quick way."""
    as_captured_batch(None, folder, 1, BEFORE, EvolutionPolicy())
    return folder


CASES = [
    pytest.param(path, outcome, id=f"{path}, {outcome[0]}, {outcome[1]}")
    for path in PATHS
    for outcome in OUTCOMES
    # Frames and splits are one path but for the reading.
    if path != "split" or outcome[1] is IGNORE
]


@pytest.mark.parametrize(("path", "outcome"), CASES)
def test_a_change_comes_to_the_topic_as_its_policy_says(
    spark: "SparkSession",
    tmp_path: Path,
    path: str,
    outcome: Outcome,
) -> None:
    kind, handling, expected, type_of_a = outcome
    append = PATHS[path]
    begun(tmp_path)
    if expected is None:  # files of a topic have one type for a field
        with pytest.raises(ConfigError, match="no common type"):
            append(spark, tmp_path, 2, AFTER[kind], policy_of(kind, handling))
        return
    append(spark, tmp_path, 2, AFTER[kind], policy_of(kind, handling))
    table = DeltaTable(tmp_path / "t")
    found = [row["value"] for row in table.to_pyarrow_table().to_pylist()]
    first = dict.fromkeys(expected) | ROW
    if kind is ADD and handling is not IGNORE:
        first |= {"s": ROW["s"] | {"k": None}}
    assert sorted(found, key=str) == sorted([first, expected], key=str)
    types = {field.name: field.type.type for field in _fields(table) if field.name == "a"}
    assert types == {"a": type_of_a}
    values = [v.value for v in Topics(Location.of(tmp_path)).get("t").history.versions()]
    assert values[-1] == Topics(Location.of(tmp_path)).get("t").value_schema()
    assert len(values) == (1 if len(expected) == len(ROW) and type_of_a == "integer" else 2)


def _fields(table: DeltaTable) -> list[Any]:
    (value,) = (field for field in table.schema().fields if field.name == "value")
    return list(value.type.fields)  # type: ignore[union-attr]  # it is a struct


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", AFTER)
def test_a_rejected_change_leaves_the_topic_as_it_was(
    spark: "SparkSession", tmp_path: Path, path: str, kind: ChangeKind
) -> None:
    version = DeltaTable(begun(tmp_path) / "t").version()
    with pytest.raises(SchemaChangeError) as caught:
        PATHS[path](spark, tmp_path, 2, AFTER[kind], policy_of(kind, Handling.REJECT))
    assert caught.value.field == f"schema.evolution.{kind}"
    assert DeltaTable(tmp_path / "t").version() == version
    assert len(list((tmp_path / "t").rglob("*.parquet"))) == 1
