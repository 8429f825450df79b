"""Reads the rows of tables as records and applies the chain as in a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from headrace.dataplane.records import RecordFrame, constant_text, declared, record_frame
from headrace.dataplane.sources import frame_of_parts
from headrace.sdk import ArrowParts, ConfigError
from headrace.sdk.sqltext import literal, quote
from headrace.sdk.struct_exprs import is_variant
from headrace.sdk.tables import TableRows

MOST_TOPICS = 1000
KEPT, FILTERED, REJECTED, NO_VALUE = range(4)
"""The outcome of a row: the chain keeps it, drops it, rejects it, or sets its value to null,
which deletes the row."""


@dataclass(frozen=True)
class Expected:
    """The rows of one stream that a target should contain.

    Args:
        topic: The topic that the chain sends the rows to.
        read: Reads the source and applies the chain. Called again to check rows that differed.
        read_at_once: The same with a consistent snapshot of the rows.
        divided: Whether the chain sends other rows of the stream to other topics.
    """

    stream: str
    topic: str
    read: Callable[[SparkSession], RecordFrame]
    read_at_once: Callable[[SparkSession], RecordFrame]
    divided: bool = False

    def records(self, spark: SparkSession, *, at_once: bool = False) -> RecordFrame:
        """Return the records of the topic."""
        records = self.read_at_once(spark) if at_once else self.read(spark)
        if not self.divided:
            return records
        of_topic = records.frame.where(f"{records.shape.topic} <=> {literal(self.topic)}")
        return replace(records, frame=of_topic)


def table_records(spark: SparkSession, table: TableRows, topic: str) -> RecordFrame:
    """Return the rows of a table as records. Input that is not a row has an error."""
    found = table.read(spark)
    if isinstance(found, ArrowParts):
        records = frame_of_parts(spark, found)
        names, more = [field.name for field in found.schema.fields], ["value", "error"]
    else:
        records = found.selectExpr(
            f"struct({', '.join(_with_variants(found, table))}) AS value"
        )
        names, more = found.columns, ["value"]
    own = {name.lower(): name for name in names}
    key = [f"value.{quote(own[name.lower()])}" for name in table.key] if table.keyed else []
    if key:
        records = records.selectExpr(*more, f"struct({', '.join(key)}) AS key")
    if table.schema is not None:
        records = declared(records, "value", table.schema)
    return record_frame(records, topic, timestamp="current_timestamp()")


def _with_variants(frame: DataFrame, table: TableRows) -> list[str]:
    """Return the columns of a table; parses JSON columns whose schema is a Variant."""
    fields = table.schema.fields if table.schema is not None else ()
    variants = {field.name for field in fields if is_variant(field.schema)}
    texts = {f.name for f in frame.schema.fields if f.dataType.typeName() == "string"}
    columns = []
    for name in frame.columns:
        sql = quote(name)
        if name in variants & texts:
            sql = f"coalesce(try_parse_json({sql}), CAST({sql} AS VARIANT)) AS {sql}"
        columns.append(sql)
    return columns


def topics_of(spark: SparkSession, records: RecordFrame) -> tuple[list[str], bool]:
    """Return the topics of records, and whether they depend on the data (then runs a job).

    Raises ConfigError: there are too many topics.
    """
    topic = constant_text(records.frame, records.shape.topic)
    if topic is not None:
        return [topic], False
    alive = records.frame.where(f"{fate_sql(records)} = {KEPT}")
    rows = alive.selectExpr(f"{records.shape.topic} AS topic").distinct().limit(MOST_TOPICS + 1)
    found = sorted(row[0] for row in rows.collect() if row[0] is not None)
    if len(found) > MOST_TOPICS:
        problem = f"The transforms send rows to more than {MOST_TOPICS} topics."
        raise ConfigError(problem, field="transforms", fix="Compare the tables in parts.")
    return found, True


def fate_sql(records: RecordFrame) -> str:
    """Return SQL of the outcome of each record: a number, see ``KEPT`` and the others."""
    outcome, missing = records.outcome(), records.shape.value.is_null()
    return (
        f"CASE WHEN {outcome['error']} IS NOT NULL THEN {REJECTED} "
        f"WHEN {outcome['dropped']} IS NOT NULL THEN {FILTERED} "
        f"WHEN {missing} THEN {NO_VALUE} ELSE {KEPT} END"
    )
