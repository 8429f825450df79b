"""Merges staged rows into a table with ``deltalake``, each batch exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from headrace.sdk import RetriableError, SinkError
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import QUIET, add_files, find_receipt, mark_properties
from headrace.sdk.sparktypes import from_spark_json
from headrace_plugins.connectors.delta.rows import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.sdk import Mark
    from headrace.sdk.location import Location

__all__ = ["Merge"]

log = structlog.get_logger(__name__)

_TRIES = 5
_INT96_UNIT = "us"  # Spark's older form of timestamps has no unit of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """One batch of rows and deletions to merge; it is pickled to a worker.

    Args:
        table: The table's folder.
        files: The staged files, each key once, with the column ``DELETED``.
        fields: The columns of the files, as Spark's JSON, without ``DELETED``.
        keys: The columns that tell which row of the table a staged row stands for.
        mark: The batch.
        receipt: What the commit keeps.
    """

    table: Location
    files: Sequence[Location]
    fields: Sequence[Mapping[str, Any]]
    keys: Sequence[str]
    mark: Mark
    receipt: str

    def run(self) -> None:
        """Merge; the rows, the mark and the receipt become visible in one transaction.

        Guarantee 2: a table that holds the batch already is left as it is. When another
        writer commits meanwhile, the merge starts again from what it left behind.

        Raises:
            StaleEpochError: Another attempt has written the batch, or a newer one.
            RetriableError: Other writers came first again and again.
            SinkError: The merge failed for good.
        """
        for _ in range(_TRIES):
            table = DeltaTable(str(self.table))
            if self.mark.wrote(find_receipt(table, self.mark)):
                return
            try:
                figures = self._merge(table)
            except CommitFailedError:
                continue
            except DeltaError as error:
                problem = f"The merge into {self.table} failed: {error}"
                raise SinkError(problem) from error
            self._ensure_mark()
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
            )
            .when_matched_delete(predicate=f"s.{DELETED}")
            # Columns of the table that the batch lacks keep their values.
            .when_matched_update(values, predicate=f"NOT s.{DELETED}")
            .when_not_matched_insert(values, predicate=f"NOT s.{DELETED}")
            .execute()
        )
        wanted = ("inserted", "updated", "deleted")
        return {name: int(figures[f"num_target_rows_{name}"]) for name in wanted}

    def _ensure_mark(self) -> None:
        """Keep the mark of a merge that changed nothing, for which no commit is made."""
        table = DeltaTable(str(self.table))
        if not self.mark.wrote(find_receipt(table, self.mark)):
            add_files(table, [], self.mark, self.receipt, datetime.now(UTC))

    def _rows(self) -> pa.RecordBatchReader:
        """Stream the staged rows; they are never all in memory here."""
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
