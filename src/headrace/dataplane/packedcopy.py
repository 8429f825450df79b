"""Copies packed rows into a topic of many streams, whose schemas follow its policy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.dataplane.deadletters import RejectedFrame
from headrace.dataplane.delivery import check_balance
from headrace.dataplane.evolution import PLUGIN, STAGE
from headrace.dataplane.failures import not_tolerated
from headrace.dataplane.sink_receipts import held_receipt
from headrace.model import Counts
from headrace.sdk import Schema
from headrace.sdk.sqltext import literal
from headrace.sdk.transform import ERROR_TYPE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.dataplane.evolution import Evolution
    from headrace.dataplane.packed import Packed, StagedPacked
    from headrace.dataplane.packedmoves import Moves
    from headrace.dataplane.rejects import Rejects
    from headrace.dataplane.topic_sinks import TopicWriter
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
        rejects: What becomes of rows that do not fit.
        batch: The batch.
    """

    spark: SparkSession
    packed: Packed
    topic: TopicWriter
    number: int
    evolution: Evolution
    rejects: Rejects
    batch: Batch

    def run(self) -> Counts:
        """Write the batch, unless the topic has it; return its counts when it is durable."""
        mark, rejects = self.rejects.mark, self.rejects
        receipt = held_receipt(self.topic, mark, self.topic.own, self.batch)
        if receipt is not None:
            return rejects.settled(receipt)
        done: list[tuple[StagedPacked, Moves]] = []

        def stage(table: Path, folder: Path) -> StagedPacked:
            done.append(self._staged(table, folder))
            return done[0][0]

        staged = self.topic.stage_packed(mark, stage)
        written, moves = done[0]
        try:
            counts = Counts(written.read, written.written, rejected=written.rejected)
            check_balance(counts, self.batch)
            letters = rejects.stage(counts, lambda: self._rejected(moves), self.batch)
        except BaseException:
            staged.abort()
            rejects.discard()
            raise
        # Guarantee 2: the receipt is in the transaction that makes the data visible.
        counts = Counts(
            written.read,
            written.written,
            rejected=written.rejected,
            causes=letters.causes,
        )
        staged.commit(rejects.receipt(counts, letters))
        rejects.append(letters)
        return counts

    def _staged(self, table: Path, folder: Path) -> tuple[StagedPacked, Moves]:
        """Stage the rows with the schemas that they are to have.

        Which those are is known only once all rows have been seen. As a rule no row has to
        change, or all as in the batch before: then once is enough.
        """
        moves = self.evolution.guessed_moves(self.number)
        done = self.packed.stage(self.spark, table, folder, moves)
        needed = self.evolution.stream_moves(self.topic, self.number, done.brought)
        if needed != {pair: moves[pair] for pair in done.brought if pair in moves}:
            done.discard(table)
            done = self.packed.stage(self.spark, table, folder, needed)
        if done.rejected and self.rejects.letters is None:
            # Guarantee 4: a record that goes nowhere stops its task.
            told = {"stage": STAGE, "plugin": PLUGIN, "exception": _ERROR}
            raise not_tolerated(json.dumps(told | {"message": done.misfit}))
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
