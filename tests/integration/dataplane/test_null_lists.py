"""Null lists reach Python as they are, though they travel there as empty ones."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from headrace.dataplane.python_frames import map_in_arrow

pytestmark = pytest.mark.spark

ROWS = """SELECT id, IF(id % 3 = 0, NULL, array(id)) AS `a list`,
IF(id % 2 = 0, NULL, map('k', IF(id = 1, NULL, array(id)))) AS m,
array(id, NULL) AS full,
IF(id = 3, NULL, named_struct(
  'x', id, 'l', IF(id = 4, NULL, array(struct(id AS `in`, NULL AS n))),
  's', IF(id = 2, NULL, named_struct('deep.', IF(id > 4, array(), NULL), 't', 'z'))
)) AS s, struct(id AS only) AS plain, parse_json('[1]') AS v
FROM range(0, 6, 1, 1)"""


def told(batches: Any) -> Any:
    """Give each batch as text: its types and its rows."""
    for batch in batches:
        batch.validate(full=True)
        kinds = [str(kind).replace(" not null", "") for kind in batch.schema.types]
        text = json.dumps([batch.schema.names, kinds, batch.to_pylist()], default=str)
        yield pa.RecordBatch.from_pydict({"text": [text]})


def test_what_python_gets_is_what_spark_would_have_given_it(spark) -> None:
    frame = spark.sql(ROWS)
    ((expected,),) = frame.mapInArrow(told, "text string").collect()
    ((found,),) = map_in_arrow(frame, told, "text string").collect()
    assert json.loads(found) == json.loads(expected)


def test_no_list_is_null_on_its_way(spark) -> None:
    def run(batches: Any) -> Any:
        return (pa.RecordBatch.from_pydict({"n": [batch.num_rows]}) for batch in batches)

    frame = spark.sql(ROWS).select("a list", "m", F.col("s.l").alias("l"))
    mapped = map_in_arrow(frame, run, "n long")
    given = mapped._jdf.queryExecution().analyzed().children().head()
    columns = list(given.schema().fields())
    assert [field.nullable() for field in columns] == [False] * 4
    assert [row.n for row in mapped.collect()] == [6]


def test_a_frame_without_lists_is_not_touched(spark) -> None:
    mapped = map_in_arrow(spark.range(3), lambda batches: batches, "id long")
    assert "Project" not in mapped._jdf.queryExecution().analyzed().toString()
    assert mapped.count() == 3
