"""Records of one batch that go to several topics, each exactly once."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    TargetDownError,
    batch,
    dead_letters,
    flow,
    read_topic,
    transform,
)
from tests.integration.dataplane.test_flow_gears import Streams, ToLines
from tests.no_keys import NO_KEYS

from headrace.dataplane import Step, StreamReader, TopicsWriter
from headrace.dataplane.records import constant_text
from headrace.model import Counts, ToleranceExceededError
from headrace.sdk import FrameSink, Mark, RetriableError, SinkBatch, StateError, Transform
from headrace.sdk.config import ConfigDef, ConfigType
from headrace.sdk.location import LocalFileSystem, Location
from headrace.topics import Topics
from headrace_plugins.transforms.sql import Filter

pytestmark = pytest.mark.spark


class ToTopic(Transform):
    """Sends records to the topic that an SQL expression names."""

    uses_names = True
    routes = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("sql", ConfigType.STRING, doc="")

    def apply(self, shape):
        return replace(shape, topic=self.config.get_str("sql"))


def to_topic(sql: str) -> Step:
    return Step(transform(ToTopic, "to", sql=sql))


BY_LAST_DIGIT = to_topic("concat('t', id % 3)")
THIRDS = {f"t{n}": [i for i in range(30) if i % 3 == n] for n in range(3)}


@dataclass
class Appended:
    """Topics in a folder; fails once when a topic was appended to."""

    folder: Path
    names: list[str] = field(default_factory=list)
    fail_after: str | None = None

    def writer(self) -> TopicsWriter:
        return TopicsWriter(Topics(Location.of(self.folder / "topics")), "own", self)

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if name == self.fail_after:
            self.fail_after = None
            raise TargetDownError

    def flow(self, spark, *steps: Step, **more: Any):
        staging = self.folder / "topics" / "~divided"
        return flow(spark, [self.writer()], *steps, staging=staging, **more)

    def ids(self, spark, name: str) -> list[int]:
        rows = read_topic(spark, self.folder / "topics", name)
        return sorted(row["value"]["id"] for row in rows)

    def topics(self) -> list[str]:
        return [topic.name for topic in Topics(Location.of(self.folder / "topics")).list()]


def test_a_topic_that_no_data_decides_is_the_one_that_is_written(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path)
    steps = [to_topic("'other'"), Step(transform(Filter, "few", condition="id < 5"))]
    counts = to.flow(spark, *steps).run(batch(1, 0, 10))
    assert counts == Counts(read=10, written=5, filtered=5, filters={"few": 5})
    assert to.topics() == ["other"]
    # The same batch under the same mark: the topic has it.
    assert to.flow(spark, *steps).run(batch(1, 0, 10, again=True)) == counts
    assert to.ids(spark, "other") == list(range(5))


def test_what_spark_computes_without_data_is_one_topic(spark) -> None:
    frame = spark.range(1)
    assert constant_text(frame, "regexp_replace('it\\'s', 's$', '!')") == "it'!"
    assert constant_text(frame, "concat('t', id)") is None
    assert constant_text(frame, "`id`") is None
    assert constant_text(frame, "uuid()") is None
    # A column wins over a function of the same name.
    assert constant_text(frame.selectExpr("'x' || id AS user"), "concat('t', user)") is None


def test_each_topic_gets_its_records_and_the_counts_are_those_of_all(
    spark, tmp_path: Path
) -> None:
    to = Appended(tmp_path)
    steps = [BY_LAST_DIGIT, Step(transform(Filter, "few", condition="id < 30"))]
    counts = to.flow(spark, *steps).run(batch(1, 0, 100))
    assert counts == Counts(read=100, written=30, filtered=70, filters={"few": 70})
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS
    assert to.names == ["t0", "t1", "t2"]
    assert list((tmp_path / "topics" / "~divided").rglob("*.parquet")) == []


def test_a_batch_that_ends_between_two_topics_gives_the_same_split_once(
    spark, tmp_path: Path
) -> None:
    to = Appended(tmp_path, fail_after="t1")
    copy = to.flow(spark, BY_LAST_DIGIT)
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 30))
    assert to.topics() == ["t0", "t1", "t2"]
    again = replace(batch(1, 0, 30, again=True), epoch=2)
    assert copy.run(again) == Counts(read=30, written=30)
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS
    # And when all hold it already: the position was not stored yet.
    assert copy.run(replace(again, epoch=3)) == Counts(read=30, written=30)
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS


def test_only_attempts_are_removed_where_batches_are_divided(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path)
    to.flow(spark, BY_LAST_DIGIT).run(batch(1, 0, 30))
    [task] = (tmp_path / "topics" / "~divided").iterdir()
    for name in ("000000000000-1", ".DS_Store", "notes", "a-b"):
        (task / name).mkdir()
    to.flow(spark, BY_LAST_DIGIT).run(batch(2, 30, 60))
    assert sorted(path.name for path in task.iterdir()) == [".DS_Store", "a-b", "notes"]


def test_files_of_an_attempt_that_could_not_be_removed_are_not_committed(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = Appended(tmp_path)
    delete_folder = LocalFileSystem.delete_folder

    def refused(self: LocalFileSystem, at: Location) -> bool:
        return "~divided" in at.path and delete_folder(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "delete_folder", refused)
        with pytest.raises(RetriableError, match="older attempt"):
            to.flow(spark, BY_LAST_DIGIT).run(batch(1, 0, 30))
    assert to.names == []
    again = replace(batch(1, 0, 30, again=True), epoch=2)
    to.flow(spark, BY_LAST_DIGIT).run(again)
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS


@pytest.mark.parametrize("sql", ["concat('t', id % 4)", "'t1'"])
def test_a_batch_in_doubt_is_divided_only_by_the_chain_that_began_to(
    spark, tmp_path: Path, sql: str
) -> None:
    to = Appended(tmp_path, fail_after="t0")
    begun = to.flow(spark, BY_LAST_DIGIT, chain="thirds")
    with pytest.raises(TargetDownError):
        begun.run(batch(1, 0, 30))
    held = to.ids(spark, "t0")
    again = replace(batch(1, 0, 30, again=True), epoch=2, routing=begun.routing)
    with pytest.raises(StateError, match="transforms or converters") as refused:
        to.flow(spark, to_topic(sql), chain="other").run(again)
    assert refused.value.fix
    assert to.ids(spark, "t0") == held == THIRDS["t0"]
    begun.run(replace(again, epoch=3))
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS


def test_a_batch_in_doubt_is_divided_only_as_its_source_was_read(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path, fail_after="t0")
    begun = to.flow(spark, BY_LAST_DIGIT, chain="thirds", source_keys={"schema": "1"})
    with pytest.raises(TargetDownError):
        begun.run(batch(1, 0, 30))
    again = replace(batch(1, 0, 30, again=True), epoch=2, routing=begun.routing)
    with pytest.raises(StateError, match="source's schema"):
        to.flow(spark, BY_LAST_DIGIT, chain="thirds", source_keys={}).run(again)
    assert to.ids(spark, "t0") == THIRDS["t0"]
    # The intent of an earlier version does not have the keys.
    begun.run(replace(again, epoch=3, routing="thirds"))
    assert {name: to.ids(spark, name) for name in to.topics()} == THIRDS


def test_a_batch_in_doubt_for_one_topic_is_not_divided(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path, fail_after="t1")
    begun = to.flow(spark, to_topic("'t1'"), chain="one")
    assert begun.routing == ""
    with pytest.raises(TargetDownError):
        begun.run(batch(1, 0, 30))
    again = replace(batch(1, 0, 30, again=True), epoch=2, routing=begun.routing)
    with pytest.raises(StateError, match="transforms or converters"):
        to.flow(spark, BY_LAST_DIGIT, chain="thirds").run(again)
    assert to.topics() == ["t1"]


def test_a_topic_with_more_fields_takes_what_has_fewer(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path)
    more = Step(transform(ToTopic, "to", sql="concat('t', id % 3)"))
    wide = [Step(transform(Widen, "wide")), to_topic("'t1'")]
    to.flow(spark, *wide).run(batch(1, 0, 1))
    to.flow(spark, more).run(batch(2, 1, 30))
    assert to.ids(spark, "t1") == [0, *THIRDS["t1"][0:]]
    assert to.ids(spark, "t2") == THIRDS["t2"]


class Widen(Transform):
    """Adds a field."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def apply(self, shape):
        columns = shape.value.columns()
        columns["more"] = columns["id"]
        return replace(shape, value=shape.value.with_fields(columns))


def test_a_name_that_no_topic_can_have_rejects_the_record(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path)
    step = to_topic("CASE id % 10 WHEN 1 THEN NULL WHEN 2 THEN 'a/b' ELSE 'good' END")
    with pytest.raises(ToleranceExceededError, match="is not a valid topic name"):
        to.flow(spark, step).run(batch(1, 0, 30))
    letters = dead_letters(tmp_path / "topics", "dlq")
    counts = to.flow(spark, step, dead_letters=letters).run(batch(1, 0, 30))
    assert (counts.read, counts.written, counts.rejected) == (30, 24, 6)
    found = read_topic(spark, tmp_path / "topics", "dlq")
    headers = [{h["key"]: h["value"] for h in row["headers"]} for row in found]
    causes = {h["__connect.errors.exception.message"] for h in headers}
    assert causes == {
        'The name "a/b" is not a valid topic name.',
        "The name null is not a valid topic name.",
    }
    assert len(to.ids(spark, "good")) == 24


@dataclass
class Tables(FrameSink):
    """A table for each topic, each with its own newest mark."""

    tables: dict[str, Kept] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def committed(self, mark: Mark, topic: str) -> str | None:
        return self.tables.setdefault(topic, Kept()).committed(mark, topic)

    def write(self, frame, batch: SinkBatch):
        self.asked.append(batch.topic)
        return self.tables.setdefault(batch.topic, Kept()).write(frame, batch)


def test_a_sink_gets_one_topic_after_the_other_each_once(spark, tmp_path: Path) -> None:
    sink = Tables()
    sink.tables["t1"] = Kept(fail=True)
    copy = flow(spark, [sink], BY_LAST_DIGIT, staging=tmp_path)
    with pytest.raises(TargetDownError):
        copy.run(batch(1, 0, 30))
    assert sink.asked == ["t0", "t1", "t2"]
    assert copy.run(batch(1, 0, 30, again=True)) == Counts(read=30, written=30)
    assert sink.asked[3:] == ["t1", "t2"]
    found = {
        name: sorted(row["value"]["id"] for row in table.rows)
        for name, table in sink.tables.items()
    }
    assert found == THIRDS
    row = sink.tables["t1"].rows[0]
    assert (row["topic"], row["key"], row["timestamp"].year) == ("t1", None, 2026)
    assert not any(tmp_path.rglob("*.parquet"))


def test_a_record_sink_sees_the_topics_in_one_go(spark, tmp_path: Path) -> None:
    counts = flow(spark, [ToLines(tmp_path)], BY_LAST_DIGIT).run(batch(1, 0, 6))
    assert counts == Counts(read=6, written=6)
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"t{n % 3} {n} 2026" for n in range(6))


def test_streams_can_be_merged_into_one_topic(spark, tmp_path: Path) -> None:
    to = Appended(tmp_path)
    steps = [to_topic("regexp_replace(record.topic, '^[ab]$', 'all')")]
    counts = to.flow(spark, *steps, source=StreamReader(Streams(NO_KEYS))).run(batch(1, 0, 2))
    assert counts == Counts(read=6, written=6)
    assert to.topics() == ["all"]
    assert len(read_topic(spark, tmp_path / "topics", "all")) == 6
