"""The rows of a table as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.sparktypes import to_spark_json
from headrace_plugins.databases.database import Database, Select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace_plugins.databases.catalog import Table


def rows_frame(
    database: Database, table: Table, connections: int
) -> Callable[[SparkSession], DataFrame]:
    """Return what reads all rows of a table that its columns' schemas have values for."""

    def read(spark: SparkSession) -> DataFrame:
        with database.session() as session:
            ranges = database.physical_ranges(session, table, connections) or [""]
        selects = [
            Select(columns=table.columns, source=database.path(table.name), where=each)
            for each in ranges
        ]
        schema = table.schema(database.kind)
        arrow, types = to_arrow(schema), T.StructType.fromJson(to_spark_json(schema))

        def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for found, _ in database.read(selects[number]):
                        yield conform(found, arrow)

        parts = len(selects)
        return spark.range(0, parts, 1, parts).mapInArrow(rows, types)

    return read
