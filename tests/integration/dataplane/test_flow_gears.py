"""The flow over every gear of source and sink, on real Spark."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs
from tests.integration.dataplane.flow_doubles import (
    NOW,
    TASK,
    Kept,
    batch,
    flow,
    place,
    row_of,
    topic_writer,
    values,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import SplitReader, StreamReader, TopicSource
from headrace.evolution import Evolution
from headrace.model import Batch, Counts, SchemaChangeError
from headrace.sdk import (
    BatchSink,
    Position,
    ReadLimit,
    Record,
    RecordSink,
    RetriableError,
    Schema,
    SourceError,
    Split,
    SplitSource,
    StreamSplitSource,
)
from headrace.sdk.location import Location
from headrace.sdk.schema_evolution import ChangeKind, EvolutionPolicy, Handling
from headrace.topics import TopicReader, Topics

pytestmark = pytest.mark.spark


class Parts(SplitSource):
    """Arrow rows, five a split."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(20)

    def schema(self) -> Schema:
        return Schema.struct({"id": Schema.int64(), "name": Schema.string(optional=True)})

    def splits(self, start: Position, end: Position) -> list[Split]:
        return [Split({"first": n}) for n in range(row_of(start), row_of(end), 5)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        first = split.payload["first"]
        assert isinstance(first, int)
        ids = list(range(first, first + 5))
        yield pa.RecordBatch.from_pydict({"name": [f"n{n}" for n in ids], "id": ids})


class BusyParts(Parts):
    """Each split fails at its first reading."""

    def __init__(self, folder: Path) -> None:
        super().__init__(NO_KEYS)
        self.folder = folder

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        try:
            (self.folder / str(split.payload["first"])).touch(exist_ok=False)
        except FileExistsError:
            return super().read(split)
        raise RetriableError(problem="The system is busy.")


def test_splits_of_a_busy_system_are_read_again_and_told_once_for_a_batch(
    spark, tmp_path: Path
) -> None:
    sink, reader = Kept(), SplitReader(BusyParts(tmp_path))
    assert flow(spark, [sink], source=reader).run(batch(1, 0, 20)).written == 20
    assert sorted(value["id"] for value in values(sink)) == list(range(20))
    with capture_logs() as told:
        reader.acknowledge(place(20))
        reader.acknowledge(place(20))
    assert [line["retries"] for line in told] == [4]


def test_what_a_system_asks_for_reaches_the_driver(spark) -> None:
    class Away(Parts):
        def read(self, split: Split) -> Iterator[pa.RecordBatch]:
            raise RetriableError(
                problem="The system is away.", after=timedelta(minutes=5), fix="Wait."
            )

    with pytest.raises(RetriableError) as told:
        flow(spark, [Kept()], source=SplitReader(Away(NO_KEYS))).run(batch(1, 0, 20))
    assert told.value.after == timedelta(minutes=5)
    assert (told.value.problem, told.value.fix) == ("The system is away.", "Wait.")


def test_splits_are_read_on_executors_and_fitted_to_the_schema(spark) -> None:
    sink = Kept()
    counts = flow(spark, [sink], source=SplitReader(Parts(NO_KEYS))).run(batch(1, 0, 20))
    assert counts == Counts(read=20, written=20)
    found = sorted(values(sink), key=lambda value: value["id"])
    assert found == [{"id": n, "name": f"n{n}"} for n in range(20)]


class Streams(StreamSplitSource):
    """Two streams; the second gets one more column from its second batch on."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(2)

    def splits(self, start: Position, end: Position) -> list[Split]:
        return [Split({"number": n}) for n in range(row_of(start), row_of(end))]

    def read(self, split: Split) -> Iterator[tuple[str, pa.RecordBatch]]:
        number = split.payload["number"]
        yield "a", pa.RecordBatch.from_pydict({"x": [number, number]})
        extra = {"z": [1.5]} if number else {}
        yield "b", pa.RecordBatch.from_pydict({"y": [f"s{number}"], **extra})


def test_many_streams_travel_packed_and_are_unpacked_by_stream(spark, tmp_path: Path) -> None:
    writer = topic_writer(tmp_path, "packed")
    counts = flow(spark, [writer], source=StreamReader(Streams(NO_KEYS))).run(batch(1, 0, 2))
    assert counts == Counts(read=6, written=6)
    reader = TopicReader(Topics(Location.of(tmp_path)).get("packed"))
    end = reader.latest(Position(), ReadLimit())
    sink = Kept()
    out = flow(spark, [sink], source=TopicSource(reader, ordered=False))
    counts = out.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert (counts.read, counts.written) == (6, 6)
    by_topic = {name: [r["value"] for r in sink.rows if r["topic"] == name] for name in "ab"}
    assert sorted(value["x"] for value in by_topic["a"]) == [0, 0, 1, 1]
    assert sorted(by_topic["b"], key=lambda value: value["y"]) == [
        {"y": "s0", "z": None},
        {"y": "s1", "z": 1.5},
    ]
    history = reader.topic.history.versions()
    assert {(v.stream, v.number, len(v.value.fields)) for v in history} == {
        ("a", 1, 1),
        ("b", 1, 1),
        ("b", 2, 2),
    }


def test_a_rejected_change_of_a_packed_stream_stops_the_task_with_nothing_written(
    spark, tmp_path: Path
) -> None:
    writer = topic_writer(tmp_path, "packed")
    policy = EvolutionPolicy(handlings={ChangeKind.ADD: Handling.REJECT})
    running = replace(
        flow(spark, [writer], source=StreamReader(Streams(NO_KEYS))),
        evolution=Evolution(policies=[policy]),
    )
    running.run(batch(1, 0, 1))
    version = Topics(Location.of(tmp_path)).get("packed").log.newest()
    with pytest.raises(SchemaChangeError, match="add z"):
        running.run(batch(2, 1, 2))
    topic = Topics(Location.of(tmp_path)).get("packed")
    assert topic.log.newest() == version
    assert len(list(topic.location.local.rglob("*.parquet"))) == 1


class ToFiles(BatchSink):
    """Stages JSON files on executors and commits them by renaming."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, rows, batch, part):
        values = [row for rows_of in rows for row in rows_of.to_pylist()]
        (self.folder / f".{part}").write_text("\n".join(str(value) for value in values))
        return {"part": part}

    def commit(self, messages, batch, receipt) -> None:
        for message in messages:
            part = message["part"]
            (self.folder / f".{part}").rename(self.folder / f"{batch.mark.batch}-{part}")
        (self.folder / f"{batch.mark.batch}.receipt").write_text(receipt)

    def committed(self, mark, topic):
        path = self.folder / f"{mark.batch}.receipt"
        return path.read_text() if path.exists() else None


class ToTidyFiles(ToFiles):
    def abort(self, messages, batch) -> None:
        for file in self.folder.glob(".*"):
            file.unlink()


class LastBroken(Parts):
    """The last split fails when the three others are staged."""

    def __init__(self, staged: Path) -> None:
        super().__init__(NO_KEYS)
        self.staged = staged

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if split.payload["first"] == 15:
            while len(list(self.staged.glob(".*"))) < 3:
                time.sleep(0.05)
            raise SourceError(problem="It is broken.")
        yield from super().read(split)


def test_what_other_executors_have_staged_is_aborted_when_one_fails(
    spark, tmp_path: Path
) -> None:
    source = SplitReader(LastBroken(tmp_path))
    with pytest.raises(SourceError, match="It is broken"):
        flow(spark, [ToTidyFiles(tmp_path)], source=source).run(batch(1, 0, 20))
    assert list(tmp_path.iterdir()) == []


def test_a_batch_sink_commits_the_parts_of_the_executors_once(spark, tmp_path: Path) -> None:
    copy = flow(spark, [ToFiles(tmp_path)])
    first = copy.run(batch(1, 0, 10))
    again = copy.run(batch(1, 0, 10, again=True))
    assert first == again == Counts(read=10, written=10)
    lines = [
        line
        for path in tmp_path.iterdir()
        if not path.suffix
        for line in path.read_text().splitlines()
    ]
    assert len(lines) == 10


class ToLines(RecordSink):
    """Appends each record to a file, as a sink of Kafka Connect would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, records: Sequence[Record]) -> None:
        lines = [f"{r.topic} {r.value['id']} {r.timestamp:%Y}\n" for r in records]
        name = f"{records[0].value['id']}.txt"
        (self.folder / name).write_text("".join(lines))


def test_a_record_sink_gets_records_on_the_executors(spark, tmp_path: Path) -> None:
    counts = flow(spark, [ToLines(tmp_path)]).run(batch(1, 0, 10))
    assert counts == Counts(read=10, written=10)
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"numbers {n} 2026" for n in range(10))


class InOrder(RecordSink):
    """Wants its records in their order, and writes down the calls it gets."""

    ordered = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []

    def put(self, records: Sequence[Record]) -> None:
        self.seen += [record.value["id"] for record in records]

    def flush(self) -> None:
        (self.folder / f"{self.seen[0]}").write_text(repr(self.seen))


def test_an_ordered_record_sink_gets_a_batch_as_one_in_order(spark, tmp_path: Path) -> None:
    flow(spark, [InOrder(tmp_path)]).run(batch(1, 0, 30))
    (file,) = tmp_path.iterdir()
    assert file.read_text() == repr(list(range(30)))
