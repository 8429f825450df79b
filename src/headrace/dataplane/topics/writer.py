"""Writes a task's batches to a topic: a frame sink like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from headrace.dataplane.topics.rows import (
    fitted,
    packed_row_schema,
    topic_row_schema,
    topic_rows,
)
from headrace.dataplane.variants import with_texts
from headrace.sdk import Counting, FrameSink
from headrace.sdk.delta import discard_staged, stage_parquet, staging_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.topics.topic import Topic
    from headrace.model import TopicRetention
    from headrace.sdk import Mark, Schema, SinkBatch, StagedWrite
    from headrace.sdk.delta import AddedFile


class WrittenPacked(Protocol):
    """Files of packed rows: how many records are in them, and the schemas of the streams."""

    @property
    def files(self) -> Sequence[AddedFile]:
        """Return the files."""

    @property
    def written(self) -> int:
        """Return how many records are in them."""

    @property
    def schemas(self) -> Sequence[tuple[str, Schema]]:
        """Return each stream with each schema that rows of it have."""


@dataclass(frozen=True)
class _Staged:
    """Files of one batch in the topic's folder that no version names yet."""

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
        discard_staged(self.topic.path, self.mark)


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

        A topic that is not there yet is made with ``retention``.
        """
        self._topic = topic
        self._appended = appended
        self._retention = retention

    @property
    def own(self) -> str:
        """The topic that packed rows go to."""
        return self._topic.name

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        """See FrameSink."""
        return self._topic.receipt(mark)

    @override
    def known_schema(self, topic: str) -> Schema | None:
        """See FrameSink."""
        return self._topic.value_schema()

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        """See FrameSink."""
        brought = topic_row_schema(batch.schema, batch.key_schema)
        frame = with_texts(frame, batch.schema, batch.key_schema)
        stored = self._topic.prepare(brought, self._retention)
        rows = topic_rows(frame, has_key=batch.key_schema is not None)
        if stored != brought:
            # A file with narrower types than the table's cannot always be read as those.
            rows = fitted(rows, stored)
        files = stage_parquet(rows, self._topic.path, batch.mark)
        return self._staged(batch.mark, files, sum(file.rows for file in files))

    @override
    def write_mark(self, spark: SparkSession, mark: Mark, topic: str) -> StagedWrite | None:
        """See FrameSink."""
        return self._staged(mark, (), 0) if self._topic.exists() else None

    def stage_packed(
        self, mark: Mark, write: Callable[[Path, Path], WrittenPacked]
    ) -> StagedWrite:
        """Stage packed rows: ``write`` puts files into a folder below the table's.

        It gets both folders, the second relative to the first.
        """
        self._topic.prepare(packed_row_schema(), self._retention)
        try:
            done = write(self._topic.path, staging_folder(mark))
        except BaseException:
            discard_staged(self._topic.path, mark)
            raise
        staged = self._staged(mark, done.files, done.written)
        return replace(staged, schemas=done.schemas)

    def stream_schema(self, stream: str) -> Schema | None:
        """Return the newest schema of one of the streams that are packed in the topic."""
        newest = self._topic.history.newest(stream)
        return None if newest is None else newest.value

    def _staged(
        self, mark: Mark, files: Sequence[AddedFile], rows: int, *, topic: Topic | None = None
    ) -> _Staged:
        return _Staged(topic or self._topic, mark, files, rows, self._appended)
