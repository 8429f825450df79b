"""Sends rejected records, each with its cause, to the dead-letter topic.

The chain *rejects* a record, a sink *refuses* it. Both are rejected records of the batch, and
become dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
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
from headrace.sdk.location import Location, sync
from headrace.sdk.mark import receipt_figures
from headrace.sdk.sparktypes import schema_to_json
from headrace.sdk.sqltext import literal
from headrace.topics import LETTERS, Topic, letter_headers

_FIGURES = ("count(1)", "any_value(cause.message)")
_CAUSE = ["cause.stage", "cause.exception", "cause.message"]
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_LETTERS, _TOPIC = "letters", "topic"
_FOLDER = "letters"
"""Not ``data``, where upkeep removes files of crashed attempts: a restart may need letters."""


@dataclass(frozen=True, slots=True)
class RejectedFrame:
    """Rejected records as they came.

    Args:
        frame: Columns ``key``, ``value``, ``headers``, ``timestamp``, ``topic``,
            ``partition``, ``position``, ``raw_key`` and ``raw_value`` as the record
            came, ``error``, and ``chain_error``: the chain's error, null if only the sink
            refused the record.
    """

    frame: DataFrame
    value: Schema
    key: Schema | None


@dataclass(frozen=True, slots=True)
class Staged:
    """Letters under one mark.

    Args:
        causes: The number of letters, by stage and class of the error.
        files: The files of the letters, in the topic's folder; empty if they are skipped.
        settled: Whether an earlier attempt has appended the letters; its counts are final.
        examples: For each cause, the message of one record.
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
    """The staged letters of a batch: rejected by the chain, and refused by a sink."""

    chain: Staged = field(default_factory=Staged)
    sink: Staged = field(default_factory=Staged)

    @property
    def causes(self) -> Mapping[str, int]:
        """The number of letters, by stage and class of the error."""
        return dict(Counter(self.chain.causes) + Counter(self.sink.causes))

    @property
    def examples(self) -> Mapping[str, str]:
        """For each cause, the message of one record."""
        return {**self.chain.examples, **self.sink.examples}

    def to_json(self) -> dict[str, Any]:
        """Return the parts that have files, for the sink's receipt."""
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
    """Return SQL for the text of bytes that could not be converted."""
    return f"IF({_UNREAD}, make_valid_utf8(CAST({raw} AS STRING)), NULL)"


def _text(schema: Schema) -> str:
    return literal(schema_to_json(schema))


@dataclass(frozen=True, kw_only=True)
class DeadLetterWriter:
    """Writes the rejected records of one task.

    The letters are staged before the good records become visible, the sink's transaction
    stores the list of staged files, and the letters are appended afterwards: that transaction
    decides for both, and a retried batch appends missing letters.

    Args:
        topic: The dead-letter topic; None to count, log and skip rejected records.
        appended: Called with the topic's name after each append.
        sinks: The names of the task's sinks in marks, by their numbers.
        context_headers: Whether letters have Kafka Connect's context headers.
        log: Logs rejected records; None to log nothing.
    """

    task: TaskId
    topic: Topic | None
    appended: Callable[[str], None]
    sinks: Sequence[str] = ("",)
    context_headers: bool = False
    log: ErrorLog | None = None

    def settled(self, mark: Mark, batch: Batch) -> Staged | None:
        """Return already appended letters, after a retry with a sink without marks, or None."""
        receipt = self.topic.receipt(mark) if self.topic is not None and batch.again else None
        if receipt is None:
            return None
        mark.require_range(receipt)
        return Staged(receipt_figures(receipt), settled=True)

    def staged(self, rows: DataFrame, mark: Mark) -> Staged:
        if self.topic is None:
            return self._logged(self.counted(rows), lambda: rows)
        stored = self.topic.prepare(LETTERS)
        path = self.topic.location
        files = stage_parquet(fitted(rows, stored), path, mark, folder=_FOLDER)
        if not files:
            return Staged()
        # The files must be durable before the sink's transaction names them.
        sync((path / file.path for file in files), up_to=path)
        # Read the files, since each query of ``rows`` would run its plan again.
        counted = _counted_in([path / file.path for file in files])
        paths = [(path / file.path).spark_path for file in files]
        read = rows.sparkSession.read.schema(rows.schema)
        return self._logged(replace(counted, files=files), partial(read.parquet, *paths))

    def _logged(self, staged: Staged, rows: Callable[[], DataFrame]) -> Staged:
        if self.log is not None and staged.count:
            shown = rows().selectExpr("cause.*", "timestamp").limit(MOST_LINES).collect()
            self.log.log([row.asDict() for row in shown], staged.count)
        return staged

    def counted(self, rows: DataFrame) -> Staged:
        grouped = rows.groupBy("cause.stage", "cause.exception")
        groups = grouped.agg(*(F.expr(sql) for sql in _FIGURES)).collect()
        causes = {f"{stage} {exception}": int(count) for stage, exception, count, _ in groups}
        examples = {f"{stage} {exception}": str(text) for stage, exception, _, text in groups}
        return Staged(causes, examples=examples)

    def append(self, staged: Staged, mark: Mark, *, shared: bool = False) -> None:
        """Append staged letters once; ``shared``: any sink's transaction may decide for them.

        Guarantee 4. Raises StaleEpochError if the topic has another attempt's letters, unless
        they are shared.
        """
        if self.topic is None or not staged.files:
            return
        # The files may be of an attempt before a crash: the sink's receipt names them, and
        # appending them completes that attempt, so its epoch is used.
        epoch = int(staged.files[0].path.split("/")[-2].rpartition("-")[2])
        decided = replace(mark, epoch=epoch)
        there = self.topic.receipt(decided)
        if there == "":
            return  # appended long ago: the topic no longer stores the receipt
        gone = [file for file in staged.files if not (self.topic.location / file.path).exists()]
        if there is None and gone:
            # A topic that names a missing file could not be read.
            problem = f"Dead letters staged for {self.topic.name} are missing: {gone[0].path}."
            raise DataLostError(problem, fix="Restore the topic's folder.")
        receipt = decided.receipt(staged.causes)
        now = datetime.now(UTC)
        try:
            added = self.topic.append(staged.files, decided, receipt, now, flushed=True).added
        except StaleEpochError:
            there = self.topic.receipt(mark)
            if not shared or not there:
                raise
            # In an earlier run another sink was the first, and its transaction has decided for
            # the same letters.
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
        # As in Kafka, where the text of an exception begins with its class and its message.
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


def _counted_in(files: Sequence[Location]) -> Staged:
    """Count the letters of files by cause, without a Spark job, which takes longer to plan."""
    causes, examples = Counter[str](), dict[str, str]()
    for file in files:
        with file.open_input() as source:
            for batch in pq.ParquetFile(source).iter_batches(columns=_CAUSE):
                cause = batch.column(0)
                names = pc.binary_join_element_wise(
                    cause.field("stage"),
                    cause.field("exception"),
                    " ",
                    null_handling="replace",
                    null_replacement="None",
                )
                for found in pc.value_counts(names).to_pylist():
                    name = found["values"]
                    causes[name] += found["counts"]
                    if name not in examples:
                        first = pc.index(names, name).as_py()
                        examples[name] = str(cause.field("message")[first])
    return Staged(causes, examples=examples)


@dataclass(frozen=True)
class DeadLetterPart:
    """The dead letters of one sink's part of a batch, from its transaction to their topic.

    Args:
        letters: Writes rejected records; None if no errors are tolerated.
        mark: The batch's mark in the sink.
        writer: The application without the sink's name.
        fingerprint: Identifies everything that determines the batch's records.
        sink: The sink's number; records that it refuses are replayed only to it.
        first: Whether its transaction decides for the letters of records that the chain
            rejects, which all sinks share.
        alone: Whether the records go only to this one of several sinks.
    """

    letters: DeadLetterWriter | None
    mark: Mark
    writer: str
    fingerprint: Fingerprint = NOTHING_KNOWN
    sink: int = 0
    first: bool = True
    alone: bool = False

    def settled(self, receipt: str) -> Counts:
        """Return the counts of a batch that the sink has committed.

        Appends letters that are missing in their topic because of a crash.
        """
        staged = dict(receipt_figures(receipt).get(_LETTERS, {}))
        topic = staged.pop(_TOPIC, None)
        if topic is not None and topic != self._topic:
            problem = f"Dead letters of the unfinished batch belong to the topic {topic}."
            fix = (
                f"Set errors.tolerance to all and {DEAD_LETTER_TOPIC} to {topic} until the "
                "batch is finished."
            )
            raise StateError(problem, fix=fix)
        self.append(StagedDeadLetters.from_json(staged))
        return Counts.from_receipt(receipt)

    def stage(self, rejected: RejectedFrame, count: int, batch: Batch) -> StagedDeadLetters:
        """Stage and log the letters of a batch with ``count`` rejected records.

        Raises:
            StateError: The rejected records differ from the letters that are already appended.
            SourceError: A second read found another number of rejected records.
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
            problem = f"{count} records were rejected, but a second read rejected {again}."
            raise SourceError(problem, fix="The source must return the same rows on each read.")
        return letters

    def receipt(self, counts: Counts, letters: StagedDeadLetters) -> str:
        """Return the receipt that the sink stores with the batch's mark."""
        figures = asdict(counts) | self.fingerprint.figures()
        if staged := letters.to_json():
            figures[_LETTERS] = {**staged, _TOPIC: self._topic}
        return self.mark.receipt(figures)

    def append(self, letters: StagedDeadLetters) -> None:
        """Append the letters after the sink's transaction has decided for them."""
        if self.letters is not None:
            self.letters.append(letters.chain, self.chain_mark, shared=True)
            self.letters.append(letters.sink, self.sink_mark)

    def discard(self) -> None:
        """Remove the staged letters, because the sink does not commit.

        Letters of the chain belong to the first sink, which may have committed, so other sinks
        keep them. Letters that an earlier attempt has appended are also kept.
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
        """The mark of the letters that the chain rejected, the same for all sinks.

        It does not depend on the first sink: sinks may change while a batch is in doubt.
        """
        return replace(self.mark, application=f"{self.writer}/dlq")

    @property
    def sink_mark(self) -> Mark:
        """The mark of the letters that the sink refused."""
        return replace(self.mark, application=f"{self.mark.application}/refused")
