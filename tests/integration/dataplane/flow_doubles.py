"""What the tests of the flow share: a source, a sink in memory, a way to run a chain."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.no_keys import NO_KEYS

from headrace.dataplane import (
    DeadLetterWriter,
    Flow,
    FrameReader,
    Step,
    TopicSource,
    TopicWriter,
    as_frame_sink,
)
from headrace.model import Batch, TaskId
from headrace.sdk import FrameSink, FrameSource, Mark, Position, ReadLimit, SinkBatch
from headrace.sdk.location import Location
from headrace.sdk.sqltext import rows
from headrace.topics import TopicReader, Topics
from headrace_plugins.predicates import Condition
from headrace_plugins.transforms.cast import Cast

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
    """A sink in memory that keeps the newest mark of each application, as a real one does."""

    ordered: bool = False  # type: ignore[misc]  # each instance has its own here
    rows: list[dict[str, Any]] = field(default_factory=list)
    marks: dict[str, tuple[int, str]] = field(default_factory=dict)
    aborted: int = 0
    fail: bool = False

    def committed(self, mark: Mark, topic: str) -> str | None:
        batch, receipt = self.marks.get(mark.application, (0, ""))
        return receipt if batch == mark.batch else None

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
        self.sink.marks[self.mark.application] = self.mark.batch, receipt

    def abort(self) -> None:
        self.sink.aborted += 1


def transform(kind, alias: str, **config: str):
    props = {key.replace("_", "."): value for key, value in config.items()}
    return kind(alias, kind.config_def().parse(props))


def condition(text: str) -> Condition:
    return Condition("p", Condition.config_def().parse({"condition": text}))


def flow(
    spark,
    sinks: Sequence[Any],
    *steps: Step,
    source=None,
    staging: Path | None = None,
    **told: Any,
) -> Flow:
    told.setdefault("names", [str(n) for n in range(len(sinks))] if sinks[1:] else [""])
    return Flow(
        spark=spark,
        application="copy-uid-0",
        topic="numbers",
        source=source or FrameReader(Numbers(NO_KEYS)),
        steps=steps,
        sinks=[as_frame_sink(sink) for sink in sinks],
        staging=Location.of(staging or Path(tempfile.gettempdir()) / "headrace-test-staging"),
        **told,
    )


def topic_writer(folder: Path, name: str) -> TopicWriter:
    return TopicWriter(Topics(Location.of(folder)).get(name), lambda _: None)


def dead_letters(folder: Path, name: str | None = "copy.dlq", **told: Any) -> DeadLetterWriter:
    topic = None if name is None else Topics(Location.of(folder)).get(name)
    told.setdefault("context_headers", True)
    told.setdefault("sinks", ("0", "1"))
    return DeadLetterWriter(task=TASK, topic=topic, appended=lambda _: None, **told)


def values(sink: Kept) -> list[dict[str, Any]]:
    return [row["value"] for row in sink.rows]


def read_topic(spark, folder: Path, name: str) -> list[dict[str, Any]]:
    reader = TopicReader(Topics(Location.of(folder)).get(name))
    end = reader.latest(Position(), ReadLimit())
    data = TopicSource(reader, ordered=False).read(spark, Position(), end)
    assert data.frame is not None
    return [row.asDict(recursive=True) for row in data.frame.collect()]


CAST = Step(transform(Cast, "cast", spec="text:int32"))
CHAIN = "TRANSFORMATION org.apache.kafka.connect.errors.DataException"
"""What is said of a record that ``CAST`` rejects."""
