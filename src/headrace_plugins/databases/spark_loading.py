"""Loads staging tables with Spark's JDBC writer, and finds the records that it cannot write."""

# ruff: noqa: S608 - names are quoted, and the numbers of records are numbers
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.sdk import RecordError
from headrace.sdk.sink import Refused, class_name
from headrace_plugins.databases.staging import RECORD, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ERROR = class_name(RecordError)


def load_by_spark(
    rows: DataFrame, staging: Staging, types: Mapping[str, str], *, tolerant: bool
) -> tuple[Staging, list[Refused]]:
    """Load a staging table; return it with its row count, and the refused records.

    Args:
        rows: The rows, with the columns of the table.
        staging: The table, which is empty.
        types: The SQL types of the target's columns, by name.
        tolerant: Whether to skip records that the table refuses.

    Raises RecordError if the table refuses a record and ``tolerant`` is false.
    """
    if not tolerant:
        seen = Observation()
        counted = rows.observe(seen, F.expr("count(1)").alias("rows"))
        staging.database.load_frame(counted, staging.name, staging.columns, types)
        return replace(staging, rows=int(seen.get["rows"] or 0)), []
    rows = rows.persist()
    try:
        total = rows.count()
        load = _Tolerant(staging, types)
        load.run(rows)
        return replace(staging, rows=total - len(load.refused)), load.refused
    finally:
        rows.unpersist()


@dataclass
class _Tolerant:
    """Loads rows, and bisects them by record id if a record is refused."""

    staging: Staging
    types: Mapping[str, str]
    refused: list[Refused] = field(default_factory=list)

    def run(self, rows: DataFrame) -> None:
        staging = self.staging
        try:
            staging.database.load_frame(rows, staging.name, staging.columns, self.types)
        except RecordError as error:
            least, most, count = rows.agg(
                F.min(RECORD), F.max(RECORD), F.count(F.lit(1))
            ).collect()[0]
            self._remove(least, most)
            if least == most:
                # Rows of one record id are equal: the table refuses all of them.
                self.refused += [Refused(least, _ERROR, error.problem)] * count
                return
            middle = (least + most) // 2
            self.run(rows.where(F.col(RECORD) <= middle))
            self.run(rows.where(F.col(RECORD) > middle))

    def _remove(self, least: int, most: int) -> None:
        """Delete the rows that partitions of a failed job have written."""
        staging = self.staging
        record = staging.database.quote(RECORD)
        with staging.database.session() as session:
            session.execute(
                f"DELETE FROM {staging.path} WHERE {record} BETWEEN {least} AND {most}"
            )
            session.commit()
