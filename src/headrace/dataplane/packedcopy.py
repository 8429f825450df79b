"""Copies packed rows into a topic of many streams, whose schemas follow its policy."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.dataplane.deadletters import Letters, RejectedFrame
from headrace.dataplane.delivery import check_balance, held_receipt
from headrace.dataplane.failures import not_tolerated
from headrace.evolution.apply_sql import PLUGIN, STAGE
from headrace.model import Counts
from headrace.sdk import Schema
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.deadletters import DeadLetterPart
    from headrace.dataplane.packed import Packed, StagedPacked
    from headrace.dataplane.topic_sinks import TopicWriter
    from headrace.evolution import Evolution
    from headrace.evolution.apply_arrow import Moves
    from headrace.model import Batch

__all__ = ["PackedCopy"]

_ERROR = "RecordError"
_LETTER = [
    f"CAST(NULL AS {kind}) AS {name}"
    for name, kind in {
        "key": "STRING",
        "value": "STRING",
        "headers": "ARRAY<STRUCT<key: STRING, value: STRING, type: STRING>>",
        "partition": "INT",
        "position": "ARRAY<BIGINT>",
        "raw_key": "BINARY",
        "raw_value": "BINARY",
        "told": ERROR_TYPE,
    }.items()
]
"""What a packed row has nothing for."""


@dataclass(frozen=True, kw_only=True)
class PackedCopy:
    """One batch of packed rows on its way into one topic.

    Args:
        spark: The worker's session.
        packed: The rows.
        topic: Where they go.
        number: Which of the task's sinks that is.
        evolution: What is done about changes of schemas.
        letters: The dead letters of rows that do not fit.
        batch: The batch.
        judge: Raises when a batch brings more rejected records than are tolerated.
    """

    spark: SparkSession
    packed: Packed
    topic: TopicWriter
    number: int
    evolution: Evolution
    letters: DeadLetterPart
    batch: Batch
    judge: Callable[[Batch, Counts], None] | None

    def run(self) -> Counts:
        """Write the batch, unless the topic has it; return its counts when it is durable."""
        mark, batch = self.letters.mark, self.batch
        receipt = held_receipt(self.topic, mark, self.topic.own, batch)
        if receipt is not None:
            return self.letters.settled(receipt)
        with ExitStack() as undo:
            undo.callback(self.topic.discard_packed, mark)
            done, moves = self._staged()
            counts = Counts(done.read, done.written, rejected=done.rejected)
            check_balance(counts, batch)
            if self.judge is not None:
                self.judge(batch, counts)
            undo.callback(self.letters.discard)
            letters = Letters()
            if counts.rejected:
                letters = self.letters.stage(self._rejected(moves), counts.rejected, batch)
            undo.pop_all()
        counts = replace(counts, causes=letters.causes)
        # Guarantee 2: the receipt is in the transaction that makes the data visible.
        staged = self.topic.staged_packed(mark, done.files, done.schemas)
        staged.commit(self.letters.receipt(counts, letters))
        self.letters.append(letters)
        return counts

    def _staged(self) -> tuple[StagedPacked, Moves]:
        """Stage the rows with the schemas that they are to have.

        Which those are is known only once all rows have been seen. As a rule no row has to
        change, or all as in the batch before: then once is enough.
        """
        table, folder = self.topic.packed_folder(self.letters.mark)
        moves = self.evolution.guessed_moves(self.number)
        done = self.packed.stage(self.spark, table, folder, moves)
        needed = self.evolution.stream_moves(
            self.topic.stream_schema, self.number, done.brought
        )
        if needed != {pair: moves[pair] for pair in done.brought if pair in moves}:
            done.discard(table)
            done = self.packed.stage(self.spark, table, folder, needed)
        if done.rejected and self.letters.letters is None:
            # Guarantee 4: a record that goes nowhere stops its task.
            error = {"stage": STAGE, "plugin": PLUGIN, "exception": _ERROR}
            raise not_tolerated(json.dumps(error | {"message": done.misfit}))
        return done, needed

    def _rejected(self, moves: Moves) -> RejectedFrame:
        begun = int(self.batch.begun.timestamp() * 1_000_000)
        error = (
            f"named_struct('stage', {literal(STAGE)}, 'plugin', {literal(PLUGIN)}, "
            f"'exception', {literal(_ERROR)}, 'message', message, 'raw', raw) AS error"
        )
        frame: DataFrame = self.packed.misfits(self.spark, moves).selectExpr(
            "stream AS topic", f"timestamp_micros({begun}) AS timestamp", error, *_LETTER
        )
        return RejectedFrame(frame, Schema.string(optional=True), None)
