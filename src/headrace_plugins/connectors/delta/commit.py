"""Commits staged batches: by adding files to the log, by merges, or by Spark's writer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.sdk import RetriableError, SinkError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import (
    QUIET,
    add_files,
    discard_other_attempts,
    discard_staged,
    find_receipt,
    mark_metadata,
    mark_properties,
)
from headrace.sdk.deltalog import flush_commits, flushing, load_table, misses_commit
from headrace.sdk.errors import SetupError
from headrace.sdk.keyed_rows import DELETED
from headrace.sdk.sink import run_in_workers
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import quote
from headrace_plugins.connectors.delta.columns import as_field, nullable
from headrace_plugins.connectors.delta.table import (
    HIDDEN,
    add_columns,
    append_obstacle,
    create_table,
    definition_of,
    fields_of,
    merge_obstacle,
    open_table,
    properties_of,
    record_created,
    size_of,
    turns_on_features,
    writer_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from headrace.sdk import Mark
    from headrace.sdk.delta import AddedFile
    from headrace.sdk.location import Location
    from headrace_plugins.connectors.delta.columns import Fit
    from headrace_plugins.connectors.delta.replacement import Replacement
    from headrace_plugins.connectors.delta.table import Upkeep


log = structlog.get_logger(__name__)


_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_SOURCE, _TARGET = "headrace_batch", "t"
_CONFLICTS = "DELTA_CONCURRENT_"
_MISSED = ("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_TRUNCATED_TRANSACTION_LOG")
"""Delta's error classes if a commit is missing, perhaps one made while the log was listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """One batch of staged rows; may be pickled to a worker.

    Args:
        table: The table's folder.
        files: The staged files; for a merge each key occurs once, with the column ``DELETED``.
        fields: The files' columns, as Spark's JSON, without ``DELETED``.
        keys: The key columns of a merge; empty for an append.
        mark: Identifies the batch.
        receipt: Stored with the commit.
        planned: The definition of the table that the batch was planned for.
    """

    table: Location
    files: Sequence[Location]
    fields: Sequence[Mapping[str, Any]]
    keys: Sequence[str]
    mark: Mark
    receipt: str
    planned: tuple[Any, ...] | None

    def is_done(self) -> bool:
        """Return whether the batch is already committed to the table."""
        return self.mark.wrote(find_receipt(load_table(self.table), self.mark))

    def require_planned(self, table: DeltaTable) -> None:
        """Raise RetriableError if the table's definition has changed."""
        if definition_of(table) != self.planned:
            raise _changed_by_another(self.table)


class SparkCommit(_Commit):
    """Rows that Spark appends or merges."""

    def run(self, spark: SparkSession) -> None:
        """Append or merge the rows, with the mark and the receipt, in one transaction.

        Guarantee 2: delta-spark skips a transaction that the application already committed.

        Raises:
            StaleEpochError: Another attempt has written the batch, or a newer one.
            RetriableError: Another writer committed first, or changed the table's definition.
            SinkError: Spark refused the rows, such as for a constraint of the table.
            SetupError: The session has no delta-spark.
        """
        if self.is_done():
            return
        session = _session(spark, self.mark, self.receipt)
        try:
            rows = self._rows(session)
            if self.keys:
                self._merge(session, rows)
            else:
                rows.write.format("delta").mode("append").save(self.table.spark_path)
        except (PySparkException, Py4JError) as error:
            failure = _failure(self.table, error)
            if not isinstance(failure, RetriableError):
                self.require_planned(load_table(self.table))
            raise failure from error
        # delta-spark silently skips the batch if another attempt has committed it meanwhile.
        self.is_done()

    def _rows(self, session: SparkSession) -> DataFrame:
        deleted = [as_field(DELETED, "boolean")] if self.keys else []
        fields = {"type": "struct", "fields": [*self.fields, *deleted]}
        schema = T.StructType.fromJson(fields)
        if not self.files:
            return session.createDataFrame([], schema)
        return session.read.schema(schema).parquet(*(file.spark_path for file in self.files))

    def _merge(self, session: SparkSession, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(_SOURCE)
        names = [quote(str(field["name"])) for field in self.fields]
        on = " AND ".join(f"{_TARGET}.{quote(key)} = s.{quote(key)}" for key in self.keys)
        updates = ", ".join(f"{_TARGET}.{name} = s.{name}" for name in names)
        values = ", ".join(f"s.{name}" for name in names)
        # Names are quoted, and the statement contains no values.
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
    """Add columns and widen types of the table to match ``schema`` (Spark's JSON).

    Raises RetriableError if another writer committed first, SinkError if Delta refuses, and
    SetupError without delta-spark.
    """
    _save_nothing(
        spark, table, schema, lambda to: to.mode("append").option("mergeSchema", "true")
    )


def make_table(
    spark: SparkSession,
    table: Location,
    schema: Mapping[str, Any],
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Create a table whose properties enable features; do nothing if it exists.

    Raises SinkError if Delta refuses, and SetupError without delta-spark.
    """

    def how(writer: DataFrameWriter) -> DataFrameWriter:
        return writer.mode("ignore").options(**properties).partitionBy(*partition_by)

    _save_nothing(spark, table, schema, how)


def _save_nothing(
    spark: SparkSession,
    table: Location,
    schema: Mapping[str, Any],
    how: Callable[[DataFrameWriter], DataFrameWriter],
) -> None:
    empty = _session(spark).createDataFrame([], T.StructType.fromJson(dict(schema)))
    try:
        how(empty.write.format("delta")).save(table.spark_path)
    except (PySparkException, Py4JError) as error:
        raise _failure(table, error) from error


def delete_rows(spark: SparkSession, table: Location, condition: str, mark: Mark) -> None:
    """Delete rows with Spark, and store the mark; do nothing if the table has the mark.

    Without matching rows Spark makes no commit, so the mark is not stored. Raises
    RetriableError if another writer committed first, SinkError if Delta refuses, and
    SetupError without delta-spark.
    """
    try:
        # Names are quoted, and values are literals.
        _session(spark, mark, mark.receipt({})).sql(
            f"DELETE FROM delta.{quote(table.spark_path)} WHERE {condition}"  # noqa: S608
        )
    except (PySparkException, Py4JError) as error:
        raise _failure(table, error) from error


def _session(spark: SparkSession, mark: Mark | None = None, receipt: str = "") -> SparkSession:
    """Return a new session with settings of its own; its commits store the mark, if any."""
    if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SetupError(
            problem="Only delta-spark can write this table, and the session lacks delta-spark.",
            fix="Start Spark with the feature delta, or use a table without such properties.",
        )
    session = spark.newSession()
    if mark is not None:
        # A merge takes its mark only from the session's settings.
        prefix = "spark.databricks.delta"
        session.conf.set(f"{prefix}.write.txnAppId", mark.application)
        session.conf.set(f"{prefix}.write.txnVersion", str(mark.batch))
        session.conf.set(f"{prefix}.commitInfo.userMetadata", mark_metadata(mark, receipt))
    return session


def _changed_by_another(table: Location) -> RetriableError:
    problem = f"Another writer changed the table {table} while a batch was written."
    return RetriableError(problem, fix="No action is needed: the batch is written again.")


def _failure(table: Location, error: Exception) -> Exception:
    # Delta's exceptions are wrapped by Py4J; the first line names only the wrapper.
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    first = " ".join(text.splitlines()[:2]) or type(error).__name__
    if _CONFLICTS in text:
        return RetriableError(f"Another writer changed {table} meanwhile: {first}")
    if any(missed in text for missed in _MISSED):
        return RetriableError(f"Spark found a gap in the log of {table}: {first}")
    return SinkError(f"Spark could not write to {table}: {first}")


_TRIES = 5
_INT96_UNIT = "us"  # INT96, Spark's older timestamp type, does not define a unit


class Merge(_Commit):
    """Rows and deletions that a worker merges by ``deltalake``."""

    def run(self) -> None:
        """Merge the rows, with the mark and the receipt, in one transaction.

        Guarantee 2: nothing happens if the table already contains the batch. If another
        writer commits meanwhile, the merge is retried on the new version.

        Raises:
            StaleEpochError: Another attempt has written the batch, or a newer one.
            RetriableError: Other writers committed first in each of several tries, or changed
                the table's definition.
            SinkError: The merge failed for another reason.
        """
        for _ in range(_TRIES):
            table = load_table(self.table)
            if self.mark.wrote(find_receipt(table, self.mark)):
                return
            self.require_planned(table)
            try:
                figures = self._merge(table)
            except DeltaError as error:
                if isinstance(error, CommitFailedError) or misses_commit(error):
                    continue
                problem = f"The merge into {self.table} failed: {error}"
                raise SinkError(problem) from error
            if not self.is_done():
                # A merge that changes no row makes no commit: store its mark in an empty one.
                table = load_table(self.table)
                add_files(table, [], self.mark, self.receipt, datetime.now(UTC))
            log.info("delta.merged", table=str(self.table), batch=self.mark.batch, **figures)
            return
        problem = f"Other writers changed {self.table} during each of {_TRIES} merges."
        raise RetriableError(problem)

    def _merge(self, table: DeltaTable) -> dict[str, int]:
        on = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in self.keys)
        values = {_quoted(f["name"]): f"s.{_quoted(f['name'])}" for f in self.fields}
        if not self.files:
            return {}
        figures = (
            table.merge(
                self._rows(),
                on,
                source_alias="s",
                target_alias="t",
                commit_properties=mark_properties(self.mark, self.receipt),
                post_commithook_properties=QUIET,
                writer_properties=writer_properties(table),
            )
            .when_matched_delete(predicate=f"s.{DELETED}")
            # Columns of the table that the batch lacks keep their values.
            .when_matched_update(values, predicate=f"NOT s.{DELETED}")
            .when_not_matched_insert(values, predicate=f"NOT s.{DELETED}")
            .execute()
        )
        counts = ("inserted", "updated", "deleted")
        return {name: int(figures[f"num_target_rows_{name}"]) for name in counts}

    def _rows(self) -> pa.RecordBatchReader:
        """Stream the staged rows, without loading all of them into memory."""
        fields = {"type": "struct", "fields": list(self.fields)}
        schema = to_arrow(from_spark_json(fields)).append(pa.field(DELETED, pa.bool_()))

        def batches() -> Iterator[pa.RecordBatch]:
            for file in self.files:
                with (
                    file.open_input() as source,
                    pq.ParquetFile(source, coerce_int96_timestamp_unit=_INT96_UNIT) as parquet,
                ):
                    for batch in parquet.iter_batches(columns=schema.names):
                        yield conform(batch, schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def _merge_durably(merge: Merge, version: int) -> None:
    merge.run()
    # Guarantee 1: deltalake's commits are not yet flushed to disk.
    flush_commits(merge.table, merge.mark, version)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The table that a batch is written to, and the preparations that it needs.

    Args:
        planned: The definition of the table that the batch was planned for; None if there
            was no table.
        fit: How the batch's columns map to that table's.
    """

    spark: SparkSession
    path: Location
    planned: tuple[Any, ...] | None
    fit: Fit
    partition_by: Sequence[str]
    properties: Mapping[str, str]
    upkeep: Upkeep
    replacement: Replacement | None = None
    """The rows that the first commit of the run replaces."""

    def ready(self, mark: Mark) -> DeltaTable | None:
        """Create the table or add its new columns, and return the table's newest version.

        Returns None if the table already has the batch. The change of the definition is not
        part of the batch's transaction: new columns without values are harmless, and a retry
        of the batch finds them.

        Raises RetriableError: another writer has made the table, or changed its definition,
        since the batch was planned, so the staged rows may not suit it.
        """
        table = open_table(self.path)
        if table is not None and mark.wrote(find_receipt(table, mark)):
            return None
        if self.planned is None:
            table = table or self._made()
            suits = self._is_as_made(table)
        else:
            suits = definition_of(table) == self.planned
            if suits and table is not None and (self.fit.added or self.fit.widened):
                table = self._changed(table)
                suits = self._has_types(table)
        if table is None or not suits:
            raise _changed_by_another(self.path)
        return table

    def _has_types(self, table: DeltaTable) -> bool:
        # Delta records in the metadata which types were widened.
        found, fit = (
            {field["name"]: nullable(field["type"]) for field in fields}
            for fields in (fields_of(table), self.fit.fields)
        )
        return found == fit

    def _is_as_made(self, table: DeltaTable) -> bool:
        """Return whether a table, perhaps of another task, is as this batch would make it."""
        is_plain = properties_of(table).items() <= self.properties.items() and all(
            field["nullable"] and set(field["metadata"] or ()) <= {"comment"}
            for field in fields_of(table)
        )
        return (
            self._has_types(table)
            and table.metadata().partition_columns == list(self.partition_by)
            and (is_plain or turns_on_features(self.properties))
        )

    def _changed(self, table: DeltaTable) -> DeltaTable:
        version = int(table.version())
        # deltalake adds columns by way of Arrow, which has no VARIANT.
        has_variant = '"variant"' in json.dumps(self.fit.schema)
        # Guarantee 1: these commits are not yet on disk.
        with flushing(self.path, None, version):
            if self.fit.widened or has_variant or append_obstacle(table) is not None:
                change_schema(self.spark, self.path, self.fit.schema)
            else:
                add_columns(table, self.fit)
        return self._opened()

    def _made(self) -> DeltaTable:
        how: dict[str, Any] = {"partition_by": self.partition_by, "properties": self.properties}
        if not turns_on_features(self.properties):
            return create_table(self.path, self.fit, **how)
        with flushing(self.path, None):
            make_table(self.spark, self.path, self.fit.schema, **how)
        table = self._opened()
        record_created(table, self.path)
        return table

    def _opened(self) -> DeltaTable:
        table = open_table(self.path)
        if table is None:
            message = f"{self.path} was removed during the write"
            raise FileNotFoundError(message)
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedAppend:
    """Data files that only have to be added to the table's log."""

    to: Destination
    mark: Mark
    files: Sequence[AddedFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def commit(self, receipt: str) -> None:
        table = self.to.ready(self.mark)
        if table is None:
            return
        # Guarantee 2: the mark and the files are one transaction.
        if self.to.replacement is None:
            add_files(table, self.files, self.mark, receipt, datetime.now(UTC))
        else:
            self.to.replacement.commit(definition_of(table), self.files, self.mark, receipt)
        discard_other_attempts(self.to.path, self.mark)
        self.to.upkeep.after_commit(self.to.spark, self.to.path, self.mark.application)

    def abort(self) -> None:
        discard_staged(self.to.path, self.mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
    """Rows staged in a hidden folder of the table, to be merged, or appended by Spark."""

    to: Destination
    mark: Mark
    files: Sequence[AddedFile]
    rows: int
    """The number of records of the batch, including superseded ones."""
    keys: Sequence[str]
    """The key columns, for a merge."""
    merge_bytes: int
    """If the table has at least this size, Spark merges."""

    @property
    def target(self) -> str:
        """The table; see ``WorkerCommit``."""
        return self.to.path.url

    def commit(self, receipt: str) -> None:
        work = self.work(receipt)
        if work is not None:
            run_in_workers(self.to.spark, [work])
        self.finish()

    def work(self, receipt: str) -> Callable[[], object] | None:
        """Return the merge; None if nothing is left to do; see ``WorkerCommit``."""
        table = self.to.ready(self.mark)
        if table is None:
            return None
        if self.to.replacement is not None:
            self.to.replacement.settle()
        needs_spark = (
            not self.keys
            or merge_obstacle(table) is not None
            or size_of(table) >= self.merge_bytes
        )
        kind = SparkCommit if needs_spark else Merge
        work = kind(
            table=self.to.path,
            files=[self.to.path / file.path for file in self.files],
            fields=self._fields(),
            keys=self.keys,
            mark=self.mark,
            receipt=receipt,
            planned=definition_of(table),
        )
        version = int(table.version())
        if isinstance(work, Merge):
            return partial(_merge_durably, work, version)
        work.run(self.to.spark)
        # Guarantee 1: Spark's commits are not yet flushed to disk.
        flush_commits(self.to.path, self.mark, version)
        return None

    def finish(self) -> None:
        """Delete the staged files, and maintain the table if that is due."""
        discard_staged(self.to.path, self.mark, folder=HIDDEN)
        discard_other_attempts(self.to.path, self.mark, folder=HIDDEN)
        self.to.upkeep.after_commit(self.to.spark, self.to.path, self.mark.application)

    def abort(self) -> None:
        discard_staged(self.to.path, self.mark, folder=HIDDEN)

    def _fields(self) -> list[dict[str, Any]]:
        written = set(self.to.fit.names.values())
        fields = (field for field in self.to.fit.fields if field["name"] in written)
        return [as_field(field["name"], nullable(field["type"])) for field in fields]
