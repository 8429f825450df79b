"""Record frames for the tests of sinks."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.plugins.connectors.delta_writing import Records


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """Make record frames of plain rows; None is a tombstone."""

    def make(rows: Sequence[Any], ddl: str = "id BIGINT, name STRING") -> DataFrame:
        values = [(row, number) for number, row in enumerate(rows)]
        frame = spark.createDataFrame(values, f"value STRUCT<{ddl}>, number BIGINT")
        return frame.selectExpr(
            "value",
            "CAST(NULL AS array<struct<key:string,value:string,type:string>>) AS headers",
            "current_timestamp() AS timestamp",
            "'t' AS topic",
            "CAST(NULL AS INT) AS partition",
            "array(number) AS position",
        )

    return make
