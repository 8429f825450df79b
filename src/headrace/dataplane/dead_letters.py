"""Sends rejected records, each with its cause, to the dead-letter topic.

Two words for one fate: the chain *rejects* a record, a sink *refuses* it. Both are rejected
records of the batch, and become dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.json_sql import json_sql
from headrace.dataplane.topic_sinks import fitted
from headrace.model import (
    MOST_LINES,
    NOTHING_KNOWN,
    Batch,
    Counts,
    ErrorLog,
    Fingerprint,
    TaskId,
    changed_chain,
)
from headrace.sdk import DataLostError, Mark, Schema, SourceError, StateError
from headrace.sdk.delta import (
    AddedFile,
    discard_other_attempts,
    discard_staged,
    stage_parquet,
)
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import sync
from headrace.sdk.mark import receipt_figures
from headrace.sdk.sparktypes import schema_to_json
from headrace.sdk.sqltext import literal
from headrace.topics import LETTERS, Topic, letter_headers

_FIGURES = ("count(1)", "any_value(cause.message)")
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_LETTERS, _TOPIC = "letters", "topic"
_FOLDER = "letters"
"""Upkeep clears what crashed attempts left in ``data``; these a restart may still need."""


@dataclass(frozen=True, slots=True)
class RejectedFrame:
    """Rejected records as they came.

    Args:
        frame: Columns ``key``, ``value``, ``headers``, ``timestamp``, ``topic``,
            ``partition``, ``position``, ``raw_key`` and ``raw_value`` as the record
            came, ``error``, and ``chain_error``: that of the chain, null where only the sink
            refuses the record.
    """

    frame: DataFrame
    value: Schema
    key: Schema | None


@dataclass(frozen=True, slots=True)
class Staged:
    """Letters under one mark.

    Args:
        causes: How many there are, by stage and class of the error.
        files: The files with them, in the topic's folder; none where they are skipped.
        settled: Whether an earlier attempt has appended them: what it says holds.
        examples: For each cause, the message of some record.
    """

    causes: Mapping[str, int] = field(default_factory=dict)
    files: Sequence[AddedFile] = ()
    settled: bool = False
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class StagedDeadLetters:
    """The rejected records of a batch, staged: the chain's, and those that a sink refuses."""

    chain: Staged = field(default_factory=Staged)
    sink: Staged = field(default_factory=Staged)

    @property
    def causes(self) -> Mapping[str, int]:
        """How many there are, by stage and class of the error."""
        return dict(Counter(self.chain.causes) + Counter(self.sink.causes))

    @property
    def examples(self) -> Mapping[str, str]:
        """For each cause, the message of some record."""
        return {**self.chain.examples, **self.sink.examples}

    def to_json(self) -> dict[str, Any]:
        """Return those that have files, for the sink's receipt."""
        parts = {"chain": self.chain, "sink": self.sink}
        return {
            name: {"causes": part.causes, "files": [asdict(file) for file in part.files]}
            for name, part in parts.items()
            if part.files
        }

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> StagedDeadLetters:
        parts = {
            name: Staged(part["causes"], [AddedFile(**file) for file in part["files"]])
            for name, part in figures.items()
        }
        return cls(**parts)


_UNREAD = "error.stage IN ('KEY_CONVERTER', 'VALUE_CONVERTER', 'HEADER_CONVERTER')"


def _unread(raw: str) -> str:
    """Return SQL for the text of bytes that never became a value."""
    return f"IF({_UNREAD}, make_valid_utf8(CAST({raw} AS STRING)), NULL)"


def _text(schema: Schema) -> str:
    return literal(schema_to_json(schema))


@dataclass(frozen=True, kw_only=True)
class DeadLetterWriter:
    """What becomes of the rejected records of one task.

    They are staged before the good records become visible, the sink's transaction keeps
    the list of the staged files, and they are appended after it: that one transaction
    decides for both, and a batch that runs again appends what is missing.

    Args:
        topic: The dead-letter topic; None: they are counted, logged and skipped.
        appended: Called with the topic's name after each append.
        sinks: What the task's sinks are called in marks, by their numbers.
        context_headers: Whether letters have Kafka Connect's context headers.
        log: Logs rejected records; None logs none.
    """

    task: TaskId
    topic: Topic | None
    appended: Callable[[str], None]
    sinks: Sequence[str] = ("",)
    context_headers: bool = False
    log: ErrorLog | None = None

    def settled(self, mark: Mark, batch: Batch) -> Staged | None:
        """Return letters that are in the topic: a sink without marks is written once more."""
        receipt = self.topic.receipt(mark) if self.topic is not None and batch.again else None
        if receipt is None:
            return None
        mark.require_range(receipt)
        return Staged(receipt_figures(receipt), settled=True)

    def staged(self, rows: DataFrame, mark: Mark) -> Staged:
        files: Sequence[AddedFile] = ()
        if self.topic is not None:
            stored = self.topic.prepare(LETTERS)
            path = self.topic.location
            files = stage_parquet(fitted(rows, stored), path, mark, folder=_FOLDER)
            if not files:
                return Staged()
            # The sink's transaction will name them: by then they are durable.
            sync((path / file.path for file in files), up_to=path)
            # Read back, as the plan behind it would run again for each question.
            rows = rows.sparkSession.read.schema(rows.schema).parquet(
                *((path / file.path).spark_path for file in files)
            )
        counted = self.counted(rows)
        if self.log is not None and counted.count:
            shown = rows.selectExpr("cause.*", "timestamp").limit(MOST_LINES).collect()
            self.log.log([row.asDict() for row in shown], counted.count)
        return replace(counted, files=files)

    def counted(self, rows: DataFrame) -> Staged:
        grouped = rows.groupBy("cause.stage", "cause.exception")
        groups = grouped.agg(*(F.expr(sql) for sql in _FIGURES)).collect()
        causes = {f"{stage} {exception}": int(count) for stage, exception, count, _ in groups}
        examples = {f"{stage} {exception}": str(text) for stage, exception, _, text in groups}
        return Staged(causes, examples=examples)

    def append(self, staged: Staged, mark: Mark, *, shared: bool = False) -> None:
        """Append staged letters once; ``shared`` are those that any sink may decide for.

        Guarantee 4. Raises StaleEpochError when the topic has another attempt's, unless they
        are shared.
        """
        if self.topic is None or not staged.files:
            return
        # The files may be those of an attempt before a crash: the sink's receipt names them,
        # and whoever appends them carries out what that attempt has decided.
        epoch = int(staged.files[0].path.split("/")[-2].rpartition("-")[2])
        decided = replace(mark, epoch=epoch)
        there = self.topic.receipt(decided)
        if there == "":
            return  # appended so long ago that the topic has forgotten by whom
        gone = [file for file in staged.files if not (self.topic.location / file.path).exists()]
        if there is None and gone:
            # A topic that named a missing file could be read by nobody.
            problem = (
                f"Letters that were staged for {self.topic.name} are gone: {gone[0].path}."
            )
            raise DataLostError(problem, fix="Put the topic's folder back as it was.")
        receipt = decided.receipt(staged.causes)
        now = datetime.now(UTC)
        try:
            added = self.topic.append(staged.files, decided, receipt, now, flushed=True).added
        except StaleEpochError:
            there = self.topic.receipt(mark)
            if not shared or not there:
                raise
            # Another sink was the first when the batch ran before, and its transaction has
            # decided for the same letters.
            mark.require_range(there)
            discard_staged(self.topic.location, decided, folder=_FOLDER)
            return
        if added:
            discard_other_attempts(self.topic.location, decided, folder=_FOLDER)
            self.appended(self.topic.name)

    def rows(
        self, rejected: RejectedFrame, which: str, batch: Batch, sink: int | None
    ) -> DataFrame:
        value, key = rejected.value, rejected.key
        rows = rejected.frame.where(which).selectExpr(
            f"coalesce({json_sql('key', key)}, {_unread('raw_key')}) AS key",
            f"coalesce(IF({_UNREAD}, NULL, error.raw), {json_sql('value', value)}, "
            f"{_unread('raw_value')}) AS value",
            "coalesce(headers, array()) AS headers",
            "timestamp",
            f"{self._cause(batch, value, key, sink)} AS cause",
        )
        offset = "monotonically_increasing_id() AS offset"
        headers = "headers"
        if self.context_headers:
            added = ", ".join(
                f"named_struct('key', {literal(name)}, 'value', CAST(cause.{part} AS STRING), "
                "'type', 'string')"
                for name, part in letter_headers().items()
            )
            headers = f"concat(headers, array({added})) AS headers"
        return rows.selectExpr("key", "value", headers, "timestamp", offset, "cause")

    def _cause(self, batch: Batch, value: Schema, key: Schema | None, sink: int | None) -> str:
        begun = int(batch.begun.timestamp() * 1_000_000)
        # Kafka's text of an exception begins with its class and its message.
        trace = "concat_ws(': ', error.exception, error.message)"
        parts = {
            "connector": literal(self.task.connector),
            "task": str(self.task.number),
            "batch": f"{batch.id}L",
            "rejected": f"timestamp_micros({begun})",
            "stage": "error.stage",
            "class": "error.plugin",
            "exception": "error.exception",
            "message": "error.message",
            "stacktrace": trace,
            "topic": "topic",
            "partition": "partition",
            "position": "to_json(position)",
            "key_schema": "CAST(NULL AS STRING)" if key is None else _text(key),
            "value_schema": _text(value),
            "raw": f"coalesce(IF({_UNREAD}, raw_value, NULL), CAST(error.raw AS BINARY))",
            "sink": "CAST(NULL AS INT)" if sink is None else f"{sink}",
            "sink_name": "CAST(NULL AS STRING)" if sink is None else literal(self.sinks[sink]),
        }
        pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in parts.items())
        return f"named_struct({pairs})"


@dataclass(frozen=True)
class DeadLetterPart:
    """The dead letters of one sink's part of a batch, from its transaction to their topic.

    Args:
        letters: What becomes of rejected records; None where nothing is tolerated.
        mark: The batch's in the sink.
        writer: The application without the sink's name.
        fingerprint: What decides which records there are.
        sink: The sink's number: what it refuses is to be replayed to it alone.
        first: Whether its transaction takes the letters of what the chain rejects, which are
            for all sinks and no other's.
        alone: Whether the records go to this one of several sinks.
    """

    letters: DeadLetterWriter | None
    mark: Mark
    writer: str
    fingerprint: Fingerprint = NOTHING_KNOWN
    sink: int = 0
    first: bool = True
    alone: bool = False

    def settled(self, receipt: str) -> Counts:
        """Return the counts of a batch that the sink holds.

        Letters are appended that a crash kept from their topic.
        """
        staged = dict(receipt_figures(receipt).get(_LETTERS, {}))
        topic = staged.pop(_TOPIC, None)
        if topic is not None and topic != self._topic:
            problem = f"Dead letters of the unfinished batch belong into {topic}."
            fix = (
                f"Set errors.tolerance to all and {DEAD_LETTER_TOPIC} to {topic} until the "
                "batch is finished."
            )
            raise StateError(problem, fix=fix)
        self.append(StagedDeadLetters.from_json(staged))
        return Counts.from_receipt(receipt)

    def stage(self, rejected: RejectedFrame, count: int, batch: Batch) -> StagedDeadLetters:
        """Stage the letters of a batch of which so many records are rejected, and log them.

        Raises:
            StateError: Others are rejected than those whose letters are there.
        """
        writer = self.letters
        assert writer is not None
        only_sink = self.sink if self.alone else None
        chained = writer.rows(rejected, "chain_error IS NOT NULL", batch, only_sink)
        chain = writer.settled(self.chain_mark, batch)
        if chain is not None:
            if writer.counted(chained).causes != chain.causes:
                what = "transforms, converters or keys of the source"
                raise changed_chain(str(self._topic), what)
        elif self.first:
            chain = writer.staged(chained, self.chain_mark)
        else:
            chain = writer.counted(chained)
        letters = StagedDeadLetters(chain)
        if chain.count < count:
            refused = writer.settled(self.sink_mark, batch)
            if refused is None:
                rows = writer.rows(rejected, "chain_error IS NULL", batch, self.sink)
                refused = writer.staged(rows, self.sink_mark)
            letters = StagedDeadLetters(chain, refused)
        again = sum(letters.causes.values())
        if again != count and not letters.sink.settled:
            problem = f"{count} records were rejected, but {again} were found again."
            raise SourceError(problem, fix="The source gives other rows when it is read again.")
        return letters

    def receipt(self, counts: Counts, letters: StagedDeadLetters) -> str:
        """Return what the sink keeps beside the batch's mark."""
        figures = asdict(counts) | self.fingerprint.figures()
        if staged := letters.to_json():
            figures[_LETTERS] = {**staged, _TOPIC: self._topic}
        return self.mark.receipt(figures)

    def append(self, letters: StagedDeadLetters) -> None:
        """Append the letters, now that the sink's transaction has decided for them."""
        if self.letters is not None:
            self.letters.append(letters.chain, self.chain_mark, shared=True)
            self.letters.append(letters.sink, self.sink_mark)

    def discard(self) -> None:
        """Remove what was staged, as the sink's transaction does not come about.

        What the chain rejected is the first sink's, whose transaction may have come about, and
        nothing is removed that an earlier attempt has appended.
        """
        topic = None if self.letters is None else self.letters.topic
        for mark in (self.chain_mark, self.sink_mark) if self.first else (self.sink_mark,):
            if topic is not None and not topic.receipt(mark):
                discard_staged(topic.location, mark, folder=_FOLDER)

    @property
    def _topic(self) -> str | None:
        topic = None if self.letters is None else self.letters.topic
        return None if topic is None else topic.name

    @property
    def chain_mark(self) -> Mark:
        """The mark of the letters of what the chain rejects, the same for all sinks.

        It is the same whichever sink comes first: sinks may change while a batch is in doubt.
        """
        return replace(self.mark, application=f"{self.writer}/dlq")

    @property
    def sink_mark(self) -> Mark:
        """The mark of the letters of what the sink refuses."""
        return replace(self.mark, application=f"{self.mark.application}/refused")
