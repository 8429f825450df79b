"""The transform Python: functions of one record and of Arrow batches."""

from pathlib import Path

import pytest
from tests.integration.dataplane.flow_doubles import (
    Kept,
    batch,
    dead_letters,
    flow,
    read_topic,
    transform,
    values,
)

from headrace.dataplane import Step
from headrace.sdk import ConfigError, ConfigErrors
from headrace_plugins.transforms import Python

OF_RECORD = """
def transform(record):
    if record.value["id"] == 3:
        return None
    return {"id": record.value["id"], "text": record.topic + str(int(record.value["text"]))}
"""

OF_BATCH = """
import pyarrow as pa
import pyarrow.compute as pc

def halves(rows):
    rows = rows.filter(pc.not_equal(rows.column("id"), 3))
    number = pc.cast(rows.column("text"), pa.int64())
    return pa.RecordBatch.from_pydict(
        {"half": pc.divide(pc.cast(number, pa.float64()), 2.0), "__row": rows.column("__row")}
    )
"""


@pytest.mark.spark
def test_a_function_of_a_record_given_as_code(spark, tmp_path: Path) -> None:
    sink = Kept()
    letters = dead_letters(tmp_path, "dlq")
    step = Step(transform(Python, "py", code=OF_RECORD))
    counts = flow(spark, [sink], step, dead_letters=letters).run(batch(1, 0, 10))
    assert (counts.read, counts.written, counts.rejected) == (10, 8, 1)
    assert counts.filters == {"py": 1}
    assert sorted(value["text"] for value in values(sink)) == [
        f"numbers{n}" for n in (0, 1, 2, 4, 5, 6, 8, 9)
    ]
    (dead,) = read_topic(spark, tmp_path, "dlq")
    headers = {h["key"]: h["value"] for h in dead["headers"]}
    assert headers["__connect.errors.class.name"] == "py (Python)"
    assert headers["__connect.errors.exception.class.name"] == "ValueError"
    assert "x7" in headers["__connect.errors.exception.message"]


@pytest.mark.spark
def test_a_function_of_a_batch_given_as_a_file_with_fields_of_its_own(
    spark, tmp_path: Path
) -> None:
    sink = Kept()
    file = tmp_path / "halves.py"
    file.write_text(OF_BATCH)
    letters = dead_letters(tmp_path, "dlq")
    config = {"function": f"{file}:halves", "of": "batch", "schema": "half double"}
    step = Step(transform(Python, "py", **config))
    counts = flow(spark, [sink], step, dead_letters=letters).run(batch(1, 0, 10))
    assert (counts.read, counts.written, counts.rejected) == (10, 8, 1)
    assert counts.filters == {"py": 1}
    assert sorted(v["half"] for v in values(sink)) == [0, 0.5, 1, 2, 2.5, 3, 4, 4.5]


def problem(**config: str) -> str:
    with pytest.raises(ConfigError) as caught:
        transform(Python, "py", **config).runner()
    error = caught.value
    return (error.errors[0] if isinstance(error, ConfigErrors) else error).problem


def test_a_function_that_is_not_there_is_told_before_data_moves(tmp_path: Path) -> None:
    assert "Either" in problem()
    assert "names no function" in problem(function="json")
    assert "no function nothing" in problem(function="json:nothing")
    assert "cannot be loaded" in problem(function="no.such:module")
    assert "cannot be read" in problem(function=f"{tmp_path}/no.py:f")
    assert "SyntaxError" in problem(code="def transform(")
    assert "no function transform" in problem(code="x = 1")
