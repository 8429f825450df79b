"""Frame sinks that write batches to one topic or to many topics.

If the records of a batch go to several topics, one job writes them as Parquet, one folder per
topic. That costs as much as writing to one topic: the source is read once, regardless of the
number of topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name
from typing_extensions import override

from headrace.dataplane.records import with_texts
from headrace.model import TopicRetention, is_topic_name
from headrace.sdk import ConfigError, FrameSink, Mark, RetriableError, Schema, SinkBatch
from headrace.sdk.delta import (
    AddedFile,
    discard_staged,
    stage_parquet,
    staged_files,
    staging_folder,
)
from headrace.sdk.folders import folder_name
from headrace.sdk.location import Location
from headrace.sdk.sink import Counting, StagedWrite
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics import Topic, Topics, packed_row_schema, topic_row_schema

MOST_TOPICS = 1000
"""The limit of topics per batch; more are considered a mistake, such as routing by a key."""
_ATTEMPT = re.compile(r"(\d+)-(\d+)", re.ASCII)


@dataclass(frozen=True)
class _Staged:
    """Files of one batch in the topic's folder that are not yet part of a version."""

    topic: Topic
    mark: Mark
    files: Sequence[AddedFile]
    rows: int
    appended: Callable[[str], None]
    schemas: Sequence[tuple[str, Schema]] = ()

    def commit(self, receipt: str) -> None:
        now = datetime.now(UTC)
        self.topic.append(self.files, self.mark, receipt, now, schemas=self.schemas)
        self.appended(self.topic.name)

    def abort(self) -> None:
        discard_staged(self.topic.location, self.mark)


class TopicWriter(FrameSink):
    """Appends records to one topic exactly once."""

    counting = Counting.MEASURED

    def __init__(
        self,
        topic: Topic,
        appended: Callable[[str], None],
        retention: TopicRetention | None = None,
    ) -> None:
        """Write to ``topic``; call ``appended`` with its name after each append.

        A topic that does not exist is created with ``retention``.
        """
        self._topic = topic
        self._appended = appended
        self._retention = retention

    def topic(self, name: str) -> Topic:
        """Return the topic that records of this name go to."""
        return self._topic

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        # Giving up a batch asks for all known streams, which are not all named like topics.
        return self.topic(topic).receipt(mark) if is_topic_name(topic) else None

    @override
    def known_schema(self, topic: str) -> Schema | None:
        return self.topic(topic).value_schema()

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        topic = self.topic(batch.topic)
        brought = topic_row_schema(batch.schema, batch.key_schema)
        frame = with_texts(frame, batch.schema, batch.key_schema)
        stored = topic.prepare(brought, self._retention)
        rows = _topic_rows(frame, has_key=batch.key_schema is not None)
        if stored != brought:
            # Files with narrower types cannot always be read with the table's types.
            rows = fitted(rows, stored)
        files = stage_parquet(rows, topic.location, batch.mark)
        return self.staged(batch.mark, files, topic)

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        to = self.topic(topic)
        return self.staged(mark, (), to) if to.exists() else None

    def packed_table(self) -> Location:
        """Return the folder of the table that packed rows are staged in."""
        self._topic.prepare(packed_row_schema(), self._retention)
        return self._topic.location

    def stream_schema(self, stream: str) -> Schema | None:
        """Return the newest schema of one of the packed streams of the topic."""
        newest = self._topic.history.newest(stream)
        return None if newest is None else newest.value

    def staged(
        self,
        mark: Mark,
        files: Sequence[AddedFile],
        topic: Topic | None = None,
        *,
        schemas: Sequence[tuple[str, Schema]] = (),
    ) -> StagedWrite:
        """Return files in the attempt's folder as a staged write.

        Args:
            mark: The batch's mark.
            files: The files.
            topic: The topic of the files; by default the one for packed rows.
            schemas: For packed rows, each stream with each schema of its rows.
        """
        rows = sum(file.rows for file in files)
        return _Staged(topic or self._topic, mark, files, rows, self._appended, schemas)


class TopicsWriter(TopicWriter):
    """Appends each batch to its own topic exactly once."""

    def __init__(
        self,
        topics: Topics,
        own: str,
        appended: Callable[[str], None],
        retention: TopicRetention | None = None,
    ) -> None:
        """Write to any of ``topics``, packed rows to the task's ``own``.

        ``appended`` is called with the topic's name after each append. Topics that do not
        exist are created with ``retention``.
        """
        super().__init__(topics.get(own), appended, retention)
        self._topics = topics

    @override
    def topic(self, name: str) -> Topic:
        return self._topics.get(name)

    def rows(self, frame: DataFrame, batch: SinkBatch) -> DataFrame:
        """Return records as topic rows with the additional column ``topic``."""
        frame = with_texts(frame, batch.schema, batch.key_schema)
        return _topic_rows(frame, "topic", has_key=batch.key_schema is not None)

    def take(self, folder: Location, rows: DataFrame, batch: SinkBatch) -> StagedWrite:
        """Stage the files of a folder, which contain some of ``rows``, in the batch's topic."""
        topic, mark, rows = self.topic(batch.topic), batch.mark, rows.drop("topic")
        brought = topic_row_schema(batch.schema, batch.key_schema)
        stored = topic.prepare(brought, self._retention)
        if stored != brought:
            part = rows.sparkSession.read.schema(rows.schema).parquet(folder.spark_path)
            files = stage_parquet(fitted(part, stored), topic.location, mark)
            return self.staged(mark, files, topic)
        to = topic.location / staging_folder(mark)
        if not to.delete_folder():  # left by an attempt that did not commit
            # Its files would be committed with this attempt's, which would duplicate rows.
            raise RetriableError(
                problem=f"Cannot delete the files of an older attempt at the batch in {to}.",
                fix="Make the folder writable for the worker, or delete it.",
            )
        for file in _parquet_files(folder):
            file.move_to(to / file.name)
        return self.staged(mark, staged_files(topic.location, mark), topic)


@contextmanager
def attempt_folder(staging: Location, mark: Mark) -> Iterator[Location]:
    """Yield a new folder of an attempt, and delete it at the end.

    Deletes what crashed attempts at the batch and at older ones left; attempts at this batch in
    newer epochs stay.

    Args:
        staging: The folder of all attempts, on a file system that all executors reach.
        mark: The mark of the batch's part.
    """
    attempts = staging / folder_name(mark.application)
    for entry in attempts.list():
        found = _ATTEMPT.fullmatch(entry.name)
        if found and (int(found[1]), int(found[2])) <= (mark.batch, mark.epoch):
            entry.location.delete_folder()
    own = attempts / f"{mark.batch:012d}-{mark.epoch}"
    try:
        yield own
    finally:
        own.delete_folder()


@contextmanager
def by_topic(
    frame: DataFrame, staging: Location, mark: Mark
) -> Iterator[Mapping[str, Location]]:
    """Stage records by topic, in one job; yield the folder of each topic while it is open.

    ``frame`` has the column ``topic``, never null.
    """
    with attempt_folder(staging, mark) as attempt:
        writer = frame.write.mode("overwrite").partitionBy("topic")
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            attempt.spark_path
        )
        folders = {
            unquote(entry.name.partition("=")[2]): entry.location
            for entry in sorted(attempt.list(), key=lambda entry: entry.name)
            if entry.name.startswith("topic=")
        }
        _check_number(len(folders))
        yield folders


def topic_mark(mark: Mark, topic: str) -> Mark:
    """Return the mark of a batch's part for one topic."""
    return replace(mark, application=f"{mark.application}/{topic}")


def rows_in(folder: Location) -> int:
    """Return how many rows the Parquet files of a folder have."""
    rows = 0
    for path in _parquet_files(folder):
        with path.open_input() as file:
            rows += pq.read_metadata(file).num_rows
    return rows


def _parquet_files(folder: Location) -> list[Location]:
    return [each.location for each in folder.list() if each.name.endswith(".parquet")]


def _check_number(count: int) -> None:
    if count > MOST_TOPICS:
        raise ConfigError(
            problem=f"The records of a batch go to {count} topics; the limit is {MOST_TOPICS}.",
            fix="Route by a field with few different values, or make the batches smaller.",
            field="transforms",
        )


def _topic_rows(frame: DataFrame, *more: str, has_key: bool) -> DataFrame:
    """Return a record frame as rows of a topic, with its columns ``more``."""
    key = ["key"] if has_key else []
    offset = "monotonically_increasing_id() AS offset"
    return frame.selectExpr(*key, "value", "headers", "timestamp", offset, *more)


def fitted(frame: DataFrame, schema: Schema) -> DataFrame:
    """Return rows of a topic with the types and the fields of its table."""
    # Spark does not accept nullable columns for required fields; nulls were already checked
    # when the records got their schema.
    return frame.to(T.StructType.fromJson(_nullable(to_spark_json(schema))))


def _nullable(spark_json: Any) -> Any:
    if isinstance(spark_json, list):
        return [_nullable(item) for item in spark_json]
    if not isinstance(spark_json, dict):
        return spark_json
    flags = ("nullable", "containsNull", "valueContainsNull")
    return {
        key: True if key in flags else item if key == "metadata" else _nullable(item)
        for key, item in spark_json.items()
    }
