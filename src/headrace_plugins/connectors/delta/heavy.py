"""Commits through delta-spark: what only Spark's own writer knows how to do.

It costs a second or two a batch, so it is for tables with features that ``deltalake`` does
not write, for types that grow, and for merges into large tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.sdk import RetriableError, SetupError, SinkError
from headrace.sdk.delta import find_receipt, mark_metadata
from headrace.sdk.sqltext import quote
from headrace_plugins.connectors.delta.rows import DELETED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import Mark
    from headrace.sdk.location import Location

__all__ = ["SparkCommit", "change_schema", "make_table"]

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_SOURCE, _TARGET = "headrace_batch", "t"
_CONFLICTS = "DELTA_CONCURRENT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCommit:
    """One batch of staged rows that Spark commits.

    Args:
        table: The table's folder.
        files: The staged files.
        fields: Their columns, as Spark's JSON, without ``DELETED``.
        keys: For a merge, the key's columns; none for an append.
        mark: The batch.
        receipt: What the commit keeps.
    """

    table: Location
    files: Sequence[Location]
    fields: Sequence[Mapping[str, Any]]
    keys: Sequence[str]
    mark: Mark
    receipt: str

    def run(self, spark: SparkSession) -> None:
        """Append or merge; the rows, the mark and the receipt are one transaction.

        Guarantee 2: delta-spark skips a transaction of an application that it has seen.

        Raises:
            StaleEpochError: Another attempt has written the batch, or a newer one.
            RetriableError: Another writer committed first.
            SinkError: Spark refused the rows, such as for a constraint of the table.
            SetupError: The session has no delta-spark.
        """
        if self._is_done():
            return
        session = _session(spark)
        # A session's settings are the only way to give a merge its mark.
        prefix = "spark.databricks.delta"
        session.conf.set(f"{prefix}.write.txnAppId", self.mark.application)
        session.conf.set(f"{prefix}.write.txnVersion", str(self.mark.batch))
        session.conf.set(
            f"{prefix}.commitInfo.userMetadata", mark_metadata(self.mark, self.receipt)
        )
        try:
            rows = self._rows(session)
            if self.keys:
                self._merge(session, rows)
            else:
                rows.write.format("delta").mode("append").save(self.table.spark_path)
        except (PySparkException, Py4JError) as error:
            raise _failure(self.table, error) from error
        # delta-spark skips in silence what another attempt has written meanwhile.
        self._is_done()

    def _is_done(self) -> bool:
        return self.mark.wrote(find_receipt(DeltaTable(str(self.table)), self.mark))

    def _rows(self, session: SparkSession) -> DataFrame:
        fields = list(self.fields)
        if self.keys:
            deleted = {"name": DELETED, "type": "boolean", "nullable": True, "metadata": {}}
            fields.append(deleted)
        schema = T.StructType.fromJson({"type": "struct", "fields": fields})
        if not self.files:
            return session.createDataFrame([], schema)
        return session.read.schema(schema).parquet(*(file.spark_path for file in self.files))

    def _merge(self, session: SparkSession, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(_SOURCE)
        names = [quote(str(field["name"])) for field in self.fields]
        on = " AND ".join(f"{_TARGET}.{quote(key)} = s.{quote(key)}" for key in self.keys)
        updates = ", ".join(f"{_TARGET}.{name} = s.{name}" for name in names)
        values = ", ".join(f"s.{name}" for name in names)
        # Names are quoted, and no value is part of it.
        merge = (
            f"MERGE INTO delta.{quote(self.table.spark_path)} AS {_TARGET} "  # noqa: S608
            f"USING {_SOURCE} AS s ON {on} "
            f"WHEN MATCHED AND s.{DELETED} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND NOT s.{DELETED} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({values})"
        )
        session.sql(merge)


def change_schema(spark: SparkSession, table: Location, schema: Mapping[str, Any]) -> None:
    """Add the columns, and widen the types, that ``schema`` (Spark's JSON) has more.

    Raises:
        RetriableError: Another writer committed first.
        SinkError: Delta refused.
        SetupError: The session has no delta-spark.
    """
    session = _session(spark)
    empty = session.createDataFrame([], T.StructType.fromJson(dict(schema)))
    try:
        writer = empty.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.save(table.spark_path)
    except (PySparkException, Py4JError) as error:
        raise _failure(table, error) from error


def make_table(
    spark: SparkSession,
    table: Location,
    schema: Mapping[str, Any],
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Make a table whose properties turn on features; nothing happens when it is there.

    Raises:
        SinkError: Delta refused.
        SetupError: The session has no delta-spark.
    """
    session = _session(spark)
    empty = session.createDataFrame([], T.StructType.fromJson(dict(schema)))
    writer = empty.write.format("delta").mode("ignore").options(**properties)
    try:
        writer.partitionBy(*partition_by).save(table.spark_path)
    except (PySparkException, Py4JError) as error:
        raise _failure(table, error) from error


def _session(spark: SparkSession) -> SparkSession:
    """Return a session of its own, whose settings no other thread sees."""
    if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SetupError(
            problem="This table can only be written by delta-spark, which the session lacks.",
            fix="Start Spark with the feature delta, or use a table without such properties.",
        )
    return spark.newSession()


def _failure(table: Location, error: Exception) -> Exception:
    # Delta's own exceptions come as Py4J's, with a first line that says only that.
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    first = " ".join(text.splitlines()[:2]) or type(error).__name__
    if _CONFLICTS in text:
        return RetriableError(f"Another writer changed {table} meanwhile: {first}")
    return SinkError(f"Spark could not write to {table}: {first}")
