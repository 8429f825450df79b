"""The flow on real Spark: counts, tolerance, dead letters, many sinks, replays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.dataplane import (
    DeadLetters,
    Flow,
    FrameReader,
    SplitReader,
    Step,
    StreamReader,
    TopicReader,
    Topics,
    TopicSource,
    TopicWriter,
    as_frame_sink,
)
from headrace.model import Batch, Counts, TaskId
from headrace.sdk import (
    BatchSink,
    ConfigError,
    FrameSink,
    FrameSource,
    Mark,
    Position,
    ReadLimit,
    Record,
    RecordSink,
    Schema,
    SinkBatch,
    Split,
    SplitSource,
    StreamSplitSource,
    ToleranceExceededError,
    rows,
)
from headrace_plugins.predicates.condition import Condition
from headrace_plugins.transforms.cast import Cast
from headrace_plugins.transforms.filter import Filter
from headrace_plugins.transforms.insert_field import InsertField
from headrace_plugins.transforms.replace_field import ReplaceField

pytestmark = pytest.mark.spark

TASK = TaskId("copy", 0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = {"table": "t"}


def place(row: int) -> Position:
    return Position.of(PLACE, {"row": row}) if row else Position()


def row_of(position: Position) -> int:
    offset = position.offset(PLACE)
    return int(offset["row"]) if offset else 0


def batch(number: int, start: int, end: int, *, again: bool = False) -> Batch:
    return Batch(TASK, number, 1, place(start), place(end), NOW, again=again)


class Numbers(FrameSource):
    """Rows ``id`` and ``text``, where the text of every tenth row is no number."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(row_of(start) + (limit.rows or 10))

    def read(self, spark, start, end):
        text = "IF(id % 10 = 7, concat('x', id), CAST(id AS STRING)) AS text"
        return rows(spark.range(row_of(start), row_of(end), 1, 2).selectExpr("id", text))


class TargetDownError(Exception):
    """The target does not answer."""


@dataclass
class Kept(FrameSink):
    """A sink in memory that keeps its newest mark, as a real one does."""

    ordered: bool = False  # type: ignore[misc]  # each instance has its own here
    rows: list[dict[str, Any]] = field(default_factory=list)
    mark: Mark | None = None
    receipt: str = ""
    aborted: int = 0
    fail: bool = False

    def committed(self, mark: Mark, topic: str) -> str | None:
        return self.receipt if self.mark and mark.batch == self.mark.batch else None

    def write(self, frame, batch: SinkBatch):
        values = [row.asDict(recursive=True) for row in frame.collect()]
        return _KeptWrite(self, values, batch.mark)


@dataclass
class _KeptWrite:
    sink: Kept
    values: list[dict[str, Any]]
    mark: Mark

    @property
    def rows(self) -> int:
        return len(self.values)

    def commit(self, receipt: str) -> None:
        if self.sink.fail:
            self.sink.fail = False
            raise TargetDownError
        self.sink.rows += self.values
        self.sink.mark, self.sink.receipt = self.mark, receipt

    def abort(self) -> None:
        self.sink.aborted += 1


def transform(kind, alias: str, **config: str):
    props = {key.replace("_", "."): value for key, value in config.items()}
    return kind(alias, kind.config_def().parse(props))


def condition(text: str) -> Condition:
    return Condition("p", Condition.config_def().parse({"condition": text}))


def flow(spark, sinks: Sequence[Any], *steps: Step, source=None, dead_letters=None) -> Flow:
    return Flow(
        spark=spark,
        application="copy-uid-0",
        topic="numbers",
        source=source or FrameReader(Numbers()),
        steps=steps,
        sinks=[as_frame_sink(sink) for sink in sinks],
        dead_letters=dead_letters,
    )


def topic_writer(folder: Path, name: str) -> TopicWriter:
    return TopicWriter(Topics(folder).get(name), lambda _: None)


def values(sink: Kept) -> list[dict[str, Any]]:
    return [row["value"] for row in sink.rows]


def test_a_batch_without_steps_arrives_whole(spark) -> None:
    sink = Kept()
    counts = flow(spark, [sink]).run(batch(1, 0, 100))
    assert counts == Counts(read=100, written=100)
    assert sorted(value["id"] for value in values(sink)) == list(range(100))


def test_filtered_records_are_counted_by_transform(spark) -> None:
    sink = Kept()
    even = Step(transform(Filter, "even", condition="id % 2 = 0"))
    small = Step(transform(Filter, "small", condition="id < 50"))
    counts = flow(spark, [sink], even, small).run(batch(1, 0, 100))
    assert counts == Counts(
        read=100, written=25, filtered=75, filters={"even": 50, "small": 25}
    )


def test_a_filter_with_a_predicate_drops_what_the_predicate_picks(spark) -> None:
    sink = Kept()
    step = Step(Filter("f", Filter.config_def().parse({})), condition("id < 10"))
    counts = flow(
        spark,
        [sink],
        step,
    ).run(batch(1, 0, 100))
    assert (counts.filtered, counts.written) == (10, 90)
    negated = Kept()
    counts = flow(spark, [negated], replace(step, negate=True)).run(batch(1, 0, 100))
    assert (counts.filtered, counts.written) == (90, 10)


def test_transforms_see_each_others_work(spark) -> None:
    sink = Kept()
    steps = [
        Step(transform(ReplaceField, "rename", renames="id:key,text:word")),
        Step(transform(Filter, "few", condition="key < 3 AND record.topic = 'numbers'")),
        Step(transform(Cast, "cast", spec="word:int64,key:string")),
        Step(transform(InsertField, "add", static_field="from", static_value="it's")),
        Step(transform(ReplaceField, "drop", exclude="key")),
    ]
    counts = flow(spark, [sink], *steps).run(batch(1, 0, 10))
    assert (counts.read, counts.written, counts.filtered) == (10, 3, 7)
    found = sorted(values(sink), key=lambda value: value["word"])
    assert found == [{"word": n, "from": "it's"} for n in range(3)]


def test_a_bad_record_stops_the_task_with_nothing_written(spark) -> None:
    sink = Kept()
    step = Step(transform(Cast, "cast", spec="text:int32"))
    with pytest.raises(ToleranceExceededError) as caught:
        flow(spark, [sink], step).run(batch(1, 0, 100))
    assert "cannot be cast to int32" in str(caught.value)
    assert "cast (Cast)" in str(caught.value)
    assert sink.rows == []


def test_bad_records_are_dead_lettered_as_they_came_with_their_cause(
    spark, tmp_path: Path
) -> None:
    sink = Kept()
    steps = [
        Step(transform(ReplaceField, "rename", renames="text:word")),
        Step(transform(Cast, "cast", spec="word:int32")),
    ]
    letters = DeadLetters(topic_writer(tmp_path, "copy.dlq"), TASK)
    counts = flow(spark, [sink], *steps, dead_letters=letters).run(batch(1, 0, 100))
    assert counts == Counts(read=100, written=90, rejected=10)
    found = read_topic(spark, tmp_path, "copy.dlq")
    assert min(row["value"] for row in found) == '{"id":17,"text":"x17"}'
    headers = {h["key"]: h["value"] for h in found[0]["headers"]}
    assert headers["__connect.errors.stage"] == "TRANSFORMATION"
    assert headers["__connect.errors.connector.name"] == "copy"
    assert "cannot be cast" in headers["__connect.errors.exception.message"]


def test_dead_letters_are_not_doubled_when_the_batch_runs_again(spark, tmp_path: Path) -> None:
    sink = Kept(fail=True)
    step = Step(transform(Cast, "cast", spec="text:int32"))
    letters = DeadLetters(topic_writer(tmp_path, "copy.dlq"), TASK)
    copy = flow(spark, [sink], step, dead_letters=letters)
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 100))
    counts = copy.run(batch(1, 0, 100, again=True))
    assert counts == Counts(read=100, written=90, rejected=10)
    assert len(read_topic(spark, tmp_path, "copy.dlq")) == 10


def test_a_batch_that_a_sink_already_holds_is_not_written_again(spark) -> None:
    sink = Kept()
    copy = flow(spark, [sink], Step(transform(Filter, "f", condition="id < 5")))
    first = copy.run(batch(1, 0, 10))
    again = copy.run(batch(1, 0, 10, again=True))
    assert again == first
    assert len(sink.rows) == 5


def test_every_sink_gets_every_record_and_only_the_missing_one_is_written_again(spark) -> None:
    first, second = Kept(), Kept(fail=True)
    copy = flow(spark, [first, second])
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 10))
    assert (len(first.rows), len(second.rows)) == (10, 0)
    counts = copy.run(batch(1, 0, 10, again=True))
    assert counts == Counts(read=10, written=10)
    assert (len(first.rows), len(second.rows)) == (10, 10)


def test_sql_that_names_no_field_is_a_clear_error(spark) -> None:
    step = Step(transform(Filter, "f", condition="nonsense > 1"))
    with pytest.raises(ConfigError) as caught:
        flow(spark, [Kept()], step).run(batch(1, 0, 10))
    assert caught.value.field == "transforms.f"
    assert "nonsense" in caught.value.problem
    assert "id, text" in caught.value.fix


def test_records_go_through_a_topic_and_come_back_in_order(spark, tmp_path: Path) -> None:
    writer = topic_writer(tmp_path, "t")
    into = flow(spark, [writer])
    for number in range(3):
        counts = into.run(batch(number + 1, number * 10, number * 10 + 10))
        assert counts == Counts(read=10, written=10)
    reader = TopicReader(Topics(tmp_path).get("t"))
    end = reader.latest(Position(), ReadLimit())
    sink = Kept(ordered=True)
    out = flow(spark, [sink], source=TopicSource(reader, ordered=True))
    counts = out.run(Batch(TASK, 1, 1, Position(), end, NOW))
    assert (counts.read, counts.written) == (30, 30)
    assert counts.size_bytes > 0
    in_order = sorted(sink.rows, key=lambda row: row["position"])
    assert [row["value"]["id"] for row in in_order] == list(range(30))


class Widening(FrameSource):
    """A table that has one more column from row 10 on."""

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return place(20)

    def read(self, spark, start, end):
        frame = spark.range(row_of(start), row_of(end))
        return rows(frame.selectExpr("id", "id * 2 AS more") if row_of(start) else frame)


def test_a_schema_change_in_mid_stream_reaches_the_sink(spark, tmp_path: Path) -> None:
    into = flow(spark, [topic_writer(tmp_path, "t")], source=FrameReader(Widening()))
    into.run(batch(1, 0, 10))
    reader = TopicReader(Topics(tmp_path).get("t"))
    source = TopicSource(reader, ordered=False)
    sink = Kept()
    out = flow(spark, [sink], source=source)
    middle = reader.latest(Position(), ReadLimit())
    out.run(Batch(TASK, 1, 1, Position(), middle, NOW))
    into.run(batch(2, 10, 20))
    end = reader.latest(middle, ReadLimit())
    out.run(Batch(TASK, 2, 1, middle, end, NOW))
    found = sorted(values(sink), key=lambda value: value["id"])
    assert found[:10] == [{"id": n} for n in range(10)]
    assert found[10:] == [{"id": n, "more": 2 * n} for n in range(10, 20)]
    whole = Kept()
    flow(spark, [whole], source=source).run(Batch(TASK, 3, 1, Position(), end, NOW))
    assert [value["more"] for value in sorted(values(whole), key=lambda v: v["id"])][:11] == [
        *[None] * 10,
        20,
    ]


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


def test_splits_are_read_on_executors_and_fitted_to_the_schema(spark) -> None:
    sink = Kept()
    counts = flow(spark, [sink], source=SplitReader(Parts())).run(batch(1, 0, 20))
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
    counts = flow(spark, [writer], source=StreamReader(Streams())).run(batch(1, 0, 2))
    assert counts == Counts(read=6, written=6)
    reader = TopicReader(Topics(tmp_path).get("packed"))
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


def read_topic(spark, folder: Path, name: str) -> list[dict[str, Any]]:
    reader = TopicReader(Topics(folder).get(name))
    end = reader.latest(Position(), ReadLimit())
    data = TopicSource(reader, ordered=False).read(spark, Position(), end)
    assert data.frame is not None
    return [row.asDict(recursive=True) for row in data.frame.collect()]
