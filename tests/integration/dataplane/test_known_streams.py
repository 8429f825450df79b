"""Many streams whose schemas are known go to tables and topics, each as it is and once."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import (
    Kept,
    TargetDownError,
    batch,
    dead_letters,
    flow,
    topic_writer,
    transform,
)
from tests.integration.dataplane.known_streams import (
    ALL_ORDERS,
    FIRST,
    ORDERS,
    PLUGIN,
    SECOND,
    Row,
    Table,
    Tables,
    order,
    person,
    with_bad,
)
from tests.task_doubles import Schemas

from headrace.dataplane import Step, StreamFrameReader, TopicSource, preview
from headrace.evolution import Evolution
from headrace.model import Batch, Counts, ToleranceExceededError
from headrace.sdk import (
    ConfigError,
    FrameSink,
    Mark,
    Position,
    ReadLimit,
    Schema,
    SinkBatch,
    SourceError,
)
from headrace.sdk.location import Location
from headrace.sdk.schema import PRIMARY_KEY
from headrace.sdk.sink import ArrowWrite
from headrace.topics import TopicReader, Topics
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.transforms.fields import ReplaceField

pytestmark = pytest.mark.spark


@pytest.fixture(params=["arrow", "frames"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Tables]:
    """Make a source of some batches, in each of the forms that it may have."""
    (tmp_path / "readings").mkdir()
    framed = request.param == "frames"
    return lambda *batches: Tables(batches, tmp_path / "readings", framed)


@pytest.fixture
def in_arrow(tmp_path: Path) -> Callable[..., Tables]:
    (tmp_path / "readings").mkdir()
    return lambda *batches: Tables(batches, tmp_path / "readings")


def delta(folder: Path) -> FrameSink:
    config = DeltaSink.config_def().parse({"path": f"{folder}/${{topic}}"})
    task = DeltaSink.task(config)
    assert isinstance(task, FrameSink)
    return task


def copy(spark: Any, sink: Any, source: Tables, *steps: Step, **told: Any) -> Any:
    told.setdefault("evolution", Evolution(memory=Schemas()))
    return flow(spark, [sink], *steps, source=StreamFrameReader(source), **told)


def rows_in(folder: Path, key: str) -> list[dict[str, Any]]:
    table = DeltaTable(folder).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row[key])


def types_in(folder: Path) -> dict[str, str]:
    fields = json.loads(DeltaTable(folder).schema().to_json())["fields"]
    return {
        f["name"]: f["type"] if isinstance(f["type"], str) else f["type"]["type"]
        for f in fields
    }


TYPES = {"id": "long", "price": "decimal(12,2)", "at": "timestamp", "tags": "array"}


def require_all(folder: Path) -> None:
    """Check that two tables have both batches, with the types that their source gave them."""
    assert types_in(folder / "orders") == TYPES | {"note": "string"}
    assert types_in(folder / "people") == {"name": "string", "born": "date", "photo": "binary"}
    assert rows_in(folder / "orders", "id") == ALL_ORDERS
    assert rows_in(folder / "people", "name") == [person("Ann"), person("Bob")]
    assert not (folder / "none").exists()


def test_each_stream_goes_to_a_table_of_its_own_with_its_types(
    spark: Any, tables: Callable[..., Tables], tmp_path: Path
) -> None:
    source = tables(FIRST, SECOND)
    running = copy(spark, delta(tmp_path / "out"), source)
    assert running.run(batch(1, 0, 1)) == Counts(read=4, written=4)
    if not source.framed:
        assert source.read_parts() == 3  # none of them for another stream
    assert running.run(batch(2, 1, 2)) == Counts(read=2, written=2)
    require_all(tmp_path / "out")


def test_streams_travel_packed_through_a_topic(
    spark: Any, tables: Callable[..., Tables], tmp_path: Path
) -> None:
    source = tables(FIRST, SECOND)
    running = copy(spark, topic_writer(tmp_path, "packed"), source)
    assert running.run(batch(1, 0, 1)) == Counts(read=4, written=4)
    if not source.framed:
        assert source.read_parts() == 3
    for again in (False, True):
        counts = running.run(batch(2, 1, 2, again=again))
        assert counts == Counts(read=2, written=2)
    reader = TopicReader(Topics(Location.of(tmp_path)).get("packed"))
    end = reader.latest(Position(), ReadLimit())
    history = reader.topic.history.versions()
    assert {(v.stream, len(v.value.fields)) for v in history} == {
        ("orders", 4),
        ("orders", 5),
        ("people", 3),
    }
    out = flow(spark, [delta(tmp_path / "out")], source=TopicSource(reader, ordered=False))
    first = batch(1, 0, 1)
    out.run(Batch(first.task, 1, 1, Position(), end, first.begun))
    require_all(tmp_path / "out")


def test_a_chain_is_laid_over_each_stream(
    spark: Any, tables: Callable[..., Tables], tmp_path: Path
) -> None:
    rename = Step(transform(ReplaceField, "rename", renames="id:number,name:title"))
    running = copy(spark, delta(tmp_path), tables(FIRST), rename)
    assert running.run(batch(1, 0, 1)).written == 4
    assert [row["number"] for row in rows_in(tmp_path / "orders", "number")] == [1, 2, 3]
    assert rows_in(tmp_path / "people", "title")[0]["title"] == "Ann"


@pytest.mark.parametrize("target", ["tables", "topic"])
def test_a_rejected_row_stops_the_task_or_is_dead_lettered(
    spark: Any, tables: Callable[..., Tables], tmp_path: Path, target: str
) -> None:
    to = delta(tmp_path / "out") if target == "tables" else topic_writer(tmp_path, "out")
    source = tables(with_bad(FIRST))
    with pytest.raises(ToleranceExceededError, match=r"Not a row\.") as stopped:
        copy(spark, to, source).run(batch(1, 0, 1))
    assert (stopped.value.plugin, stopped.value.record) == (PLUGIN, "oops")
    assert [*(tmp_path / "out").rglob("*.parquet")] == []
    tolerant = copy(spark, to, source, dead_letters=dead_letters(tmp_path, "dead"))
    for again in (False, True):
        counts = tolerant.run(batch(1, 0, 1, again=again))
        assert counts == Counts(
            read=5, written=4, rejected=1, causes={"TASK_POLL RecordError": 1}
        )
    if target == "tables":
        assert [row["id"] for row in rows_in(tmp_path / "out" / "orders", "id")] == [1, 2, 3]
    (letter,) = DeltaTable(tmp_path / "dead").to_pyarrow_table().to_pylist()
    assert letter["value"] == "oops"
    assert letter["cause"]["topic"] == "orders"
    assert (letter["cause"]["stage"], letter["cause"]["class"]) == ("TASK_POLL", PLUGIN)
    assert letter["cause"]["sink"] is None  # it is no one sink's


@dataclass
class Failing(Kept):
    """A sink in memory that fails once, at the commit of one stream."""

    fails_at: str = ""
    order: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def priority(self, topic: str) -> int:
        return self.places.get(topic, 0)

    def write(self, frame: Any, batch: SinkBatch) -> Any:
        self.order.append(batch.topic)
        self.fail = batch.topic == self.fails_at
        return super().write(frame, batch)


def test_a_crash_between_the_commits_of_two_streams_repeats_none(
    spark: Any, tables: Callable[..., Tables]
) -> None:
    source, sink = tables(FIRST), Failing(fails_at="people")
    with pytest.raises(TargetDownError):
        copy(spark, sink, source).run(batch(1, 0, 1))
    assert {row["topic"] for row in sink.rows} == {"orders"}
    sink.fails_at = ""
    sink.order.clear()
    counts = copy(spark, sink, source).run(batch(1, 0, 1, again=True))
    assert counts == Counts(read=4, written=4)
    assert sink.order == ["people"]
    assert sorted(row["topic"] for row in sink.rows) == ["orders"] * 3 + ["people"]


def test_the_sinks_say_in_which_order_streams_are_written(
    spark: Any, in_arrow: Callable[..., Tables]
) -> None:
    small = {name: Table(ORDERS, [[order(1)]]) for name in ("c", "d", "b", "a")}
    source, first = in_arrow(small), Failing(places={"d": 1, "a": -1})
    copy(spark, first, source).run(batch(1, 0, 1))
    assert first.order == ["a", "c", "b", "d"]
    second = Failing(places={"c": 2})
    both = copy(spark, first, source)
    both = replace(both, sinks=[first, second], names=["0", "1"])
    both.run(batch(2, 0, 1))
    assert second.order == ["a", "b", "c", "d"]


@dataclass
class Refusing(Failing):
    rejects = (ValueError,)


def test_a_sink_that_refuses_records_keeps_its_order(
    spark: Any, in_arrow: Callable[..., Tables]
) -> None:
    small = {name: Table(ORDERS, [[order(1)]]) for name in ("a", "b")}
    sink = Refusing(places={"a": 1})
    copy(spark, sink, in_arrow(small)).run(batch(1, 0, 1))
    assert sink.order == ["b", "a"]


@dataclass
class Lines(FrameSink):
    """Writes lines of JSON, from Arrow and as they are in the format ``lines``."""

    folder: Path
    loses: bool = False

    def committed(self, mark: Mark, topic: str) -> str | None:
        path = self.folder / f"{topic}-{mark.batch}.receipt"
        return path.read_text() if path.exists() else None

    def write(self, frame: Any, batch: SinkBatch) -> Any:
        raise AssertionError(batch.topic)

    def arrow_write(self, frame: Any, batch: SinkBatch) -> ArrowWrite:
        staging, loses = self.folder / f".{batch.topic}", self.loses
        staging.mkdir(exist_ok=True)

        def of_arrow(number: int, rows: Iterator[pa.RecordBatch]) -> str:
            path = staging / f"{number}-arrow"
            path.write_text("".join(f"{row}\n" for some in rows for row in some.to_pylist()))
            return path.name

        def of_bytes(number: int, chunks: Iterator[bytes]) -> tuple[str, int]:
            path = staging / f"{number}-raw"
            lines = b"".join(chunks).splitlines()[1 if loses else 0 :]
            path.write_bytes(b"\n".join(lines))
            return path.name, len(lines)

        def staged(names: Sequence[str]) -> Any:
            return _StagedLines(self.folder, staging, names, batch.mark.batch)

        def abort() -> None:
            for path in staging.iterdir():
                path.unlink()

        return ArrowWrite(of_arrow, staged, abort, {"lines": of_bytes})


@dataclass
class _StagedLines:
    folder: Path
    staging: Path
    names: Sequence[str]
    batch: int

    @property
    def rows(self) -> int:
        return sum(len((self.staging / name).read_text().splitlines()) for name in self.names)

    def commit(self, receipt: str) -> None:
        topic = self.staging.name.removeprefix(".")
        for name in self.names:
            (self.staging / name).rename(self.folder / f"{topic}-{self.batch}-{name}")
        (self.folder / f"{topic}-{self.batch}.receipt").write_text(receipt)

    def abort(self) -> None:
        """What is left in the staging folder is seen by nobody."""


RAW = Schema.struct({"id": Schema.int64()})


def raw_table(*parts: Sequence[Any], name: str = "lines", count: int | None = None) -> Table:
    return Table(RAW, parts, raw=name, count=count)


def names_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_file() and p.suffix != ".receipt")


def test_bytes_of_a_format_in_common_are_handed_over_as_they_are(
    spark: Any, in_arrow: Callable[..., Tables], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shared = raw_table([{"id": 1}, {"id": 2}], [{"id": 3}])
    other = raw_table([{"id": 4}], name="csv")
    source = in_arrow({"shared": shared, "other": other})
    for again in (False, True):
        counts = copy(spark, Lines(out), source).run(batch(1, 0, 1, again=again))
        assert counts == Counts(read=4, written=4)
    assert names_in(out) == ["other-1-0-arrow", "shared-1-0-raw", "shared-1-1-raw"]
    assert (out / "shared-1-0-raw").read_bytes() == b'{"id": 1}\n{"id": 2}'
    assert source.read_parts() == 1  # the one that had to be Arrow


def test_a_part_that_fails_takes_its_bytes_back(
    spark: Any, in_arrow: Callable[..., Tables], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    source = in_arrow({"t": raw_table([{"id": 1}], [{"id": 2}, "The line is broken."])})
    running = copy(spark, Lines(out), source, dead_letters=dead_letters(tmp_path, "dead"))
    with pytest.raises(Exception, match=r"The line is broken\."):
        running.run(batch(1, 0, 1))
    assert [path for path in out.rglob("*") if path.is_file()] == []


def test_bytes_that_are_lost_on_the_way_stop_the_batch_where_the_source_counts(
    spark: Any, in_arrow: Callable[..., Tables], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    source = in_arrow({"t": raw_table([{"id": 1}, {"id": 2}], count=2)})
    with pytest.raises(SourceError, match="read 2 records but wrote 1"):
        copy(spark, Lines(out, loses=True), source).run(batch(1, 0, 1))
    assert names_in(out) == []


def test_a_stream_that_comes_twice_is_refused(
    spark: Any, in_arrow: Callable[..., Tables]
) -> None:
    class Twice(Tables):
        def streams(self, spark: Any, start: Any, end: Any) -> Any:
            return [*super().streams(spark, start, end)] * 2

    made = in_arrow(FIRST)
    with pytest.raises(SourceError, match="the stream orders more than once"):
        copy(spark, Kept(), Twice(made.batches, made.readings)).run(batch(1, 0, 1))


def test_what_packed_rows_cannot_hold_is_refused(
    spark: Any, tables: Callable[..., Tables], tmp_path: Path
) -> None:
    source = tables(FIRST)
    if source.framed:
        source.keyed = True
    else:
        source.batches = [{"t": Table(Schema.string(), [[{"value": "x"}]])}]
    with pytest.raises(ConfigError, match="which a topic of many streams cannot store"):
        copy(spark, topic_writer(tmp_path, "packed"), source).run(batch(1, 0, 1))
    sink = Kept()
    assert copy(spark, sink, source).run(batch(1, 0, 1)).written == len(sink.rows) > 0


def test_a_preview_shows_the_first_stream(spark: Any, tables: Callable[..., Tables]) -> None:
    (stage,) = preview(spark, StreamFrameReader(tables(FIRST)), "t", [], 2)
    assert list(stage.fields) == ["id", "price", "at", "tags"]
    assert [record["value"]["id"] for record in stage.records] == [1, 2]


@dataclass
class Schemed(Kept):
    """A sink in memory that keeps the schema it was given."""

    schema: Schema | None = None

    def write(self, frame: Any, batch: SinkBatch) -> Any:
        self.schema = batch.schema
        return super().write(frame, batch)


def test_variants_and_keys_are_what_they_were(
    spark: Any, in_arrow: Callable[..., Tables], tmp_path: Path
) -> None:
    fields = {"id": Schema.int64(), "doc": Schema.variant(optional=True)}
    schema = Schema.struct(fields, name="shop.t", parameters={PRIMARY_KEY: '["id"]'})
    rows: list[Row] = [{"id": 1, "doc": '{"a":[1,2]}'}, {"id": 2, "doc": None}]
    source = in_arrow({"t": Table(schema, [rows])})
    direct, packed = Schemed(), Schemed()
    copy(spark, direct, source).run(batch(1, 0, 1))
    copy(spark, topic_writer(tmp_path, "packed"), source).run(batch(1, 0, 1))
    reader = TopicReader(Topics(Location.of(tmp_path)).get("packed"))
    end, first = reader.latest(Position(), ReadLimit()), batch(1, 0, 1)
    out = flow(spark, [packed], source=TopicSource(reader, ordered=False))
    out.run(Batch(first.task, 1, 1, Position(), end, first.begun))
    for sink in (direct, packed):
        docs = [row["value"]["doc"] for row in sink.rows]
        assert [doc and doc.toPython() for doc in docs] == [{"a": [1, 2]}, None]
        assert sink.schema == schema
