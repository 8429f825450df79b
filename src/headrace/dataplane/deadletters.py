"""Sends rejected records, each with its cause, to the dead-letter topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk import Mark, Schema, SinkBatch, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.dataplane.topics import TopicWriter
    from headrace.model import TaskId

_TEXT = Schema.string(optional=True)


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter topic of one task.

    The key and the value are the record's as they were before the first transform, as
    JSON, or the raw input when no record could be made of it. The headers are those of
    Kafka Connect, ``__connect.errors.*``.

    Args:
        writer: Appends to the topic.
        task: The task whose records it takes.
        plugin_class: The class that is named when an error does not name one.
    """

    writer: TopicWriter
    task: TaskId

    def write(self, rejected: DataFrame, mark: Mark, topic: str) -> int:
        """Append the rejected records once; return how many there are.

        Columns: ``key``, ``value``, ``headers``, ``timestamp``, ``topic``, ``error``.
        """
        mark = Mark(f"{mark.application}/dlq", mark.batch, mark.epoch)
        batch = SinkBatch(mark, topic, schema=_TEXT, key_schema=_TEXT)
        receipt = self.writer.committed(mark, topic)
        if receipt is not None:
            return int(receipt)
        staged = self.writer.write(rejected.selectExpr(*self._columns()), batch)
        staged.commit(str(staged.rows))
        return staged.rows

    def _columns(self) -> list[str]:
        context = {
            "topic": "topic",
            "connector.name": literal(self.task.connector),
            "task.id": literal(str(self.task.number)),
            "stage": "error.stage",
            "class.name": "error.plugin",
            "exception.class.name": "error.exception",
            "exception.message": "error.message",
        }
        added = ", ".join(
            f"named_struct('key', {literal('__connect.errors.' + name)}, "
            f"'value', {sql}, 'type', 'string')"
            for name, sql in context.items()
        )
        return [
            f"{_json('key')} AS key",
            f"coalesce(error.raw, {_json('value')}) AS value",
            f"concat(coalesce(headers, array()), array({added})) AS headers",
            "timestamp",
            "topic",
            "CAST(NULL AS INT) AS partition",
        ]


def _json(column: str) -> str:
    """Return SQL for a value of any type as JSON, and null for null."""
    wrapped = f"to_json(named_struct('v', {column}), map('ignoreNullFields', 'false'))"
    inner = f"substring({wrapped}, 6, length({wrapped}) - 6)"
    return f"IF({column} IS NULL, CAST(NULL AS STRING), {inner})"
