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
from headrace.dataplane.chain import apply_chain
from headrace.dataplane.records import record_frame
from headrace.sdk import ConfigError, ConfigErrors
from headrace_plugins.transforms.python import Python

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


LOST = """
def transform(record):
    if record.value["id"] == 0:
        return {**record.value, "more": 1}
    return record.with_topic("other") if record.value["id"] == 1 else dict(record.value)
"""


@pytest.mark.spark
def test_nothing_that_a_function_of_a_record_gives_is_lost_in_silence(
    spark, tmp_path: Path
) -> None:
    sink = Kept()
    letters = dead_letters(tmp_path, "dlq")
    step = Step(transform(Python, "py", code=LOST))
    counts = flow(spark, [sink], step, dead_letters=letters).run(batch(1, 0, 4))
    assert (counts.read, counts.written, counts.rejected) == (4, 2, 2)
    assert sorted(value["id"] for value in values(sink)) == [2, 3]
    dead = read_topic(spark, tmp_path, "dlq")
    texts = " ".join(str(h["value"]) for letter in dead for h in letter["headers"])
    assert "the field more, which is not in the schema" in texts
    assert "returned topic other without changes.topic" in texts


@pytest.mark.spark
def test_nothing_that_a_function_of_a_batch_gives_is_lost_in_silence(
    spark, tmp_path: Path
) -> None:
    code = "def transform(rows):\n    return rows.append_column('more', rows.column('id'))"
    letters = dead_letters(tmp_path, "dlq")
    step = Step(transform(Python, "py", code=code, of="batch"))
    counts = flow(spark, [Kept()], step, dead_letters=letters).run(batch(1, 0, 2))
    assert (counts.read, counts.rejected) == (2, 2)


@pytest.mark.parametrize("of", ["record", "batch"])
@pytest.mark.spark
def test_variants_are_json_texts_to_a_function_and_variants_behind_it(spark, of: str) -> None:
    query = """SELECT struct(id, parse_json('{"a":[' || id || ']}') AS v) AS value,
    parse_json('1') AS key FROM range(2)"""
    code = "def transform(it):\n    return it"
    step = Step(transform(Python, "py", code=code, of=of))
    records = apply_chain(record_frame(spark.sql(query), "t"), [step])
    rows = records.frame.selectExpr("to_json(value) AS value", "schema_of_variant(key) AS key")
    assert [row.asDict() for row in rows.collect()] == [
        {"value": f'{{"id":{n},"v":{{"a":[{n}]}}}}', "key": "BIGINT"} for n in range(2)
    ]


@pytest.mark.parametrize("of", ["record", "batch"])
@pytest.mark.spark
def test_a_text_that_is_no_json_makes_a_bad_record_where_a_variant_should_be(
    spark, tmp_path: Path, of: str
) -> None:
    code = {
        "record": """def transform(it):
    return {"id": it.value["id"], "v": "[" * (it.value["id"] == 1) + "5"}""",
        "batch": """import pyarrow as pa
def transform(it):
    texts = ["[" * (n == 1) + "5" for n in it.column("id").to_pylist()]
    return pa.RecordBatch.from_pydict({"id": it.column("id"), "v": texts})""",
    }[of]
    sink = Kept()
    step = Step(transform(Python, "py", code=code, of=of, schema="id bigint, v variant"))
    letters = dead_letters(tmp_path, "dlq")
    counts = flow(spark, [sink], step, dead_letters=letters).run(batch(1, 0, 3))
    assert (counts.read, counts.written, counts.rejected) == (3, 2, 1)
    (dead,) = read_topic(spark, tmp_path, "dlq")
    texts = [str(header["value"]) for header in dead["headers"]]
    assert any("Invalid JSON for a Variant" in text for text in texts)


def problem(**config: str) -> str:
    with pytest.raises(ConfigError) as caught:
        transform(Python, "py", **config).runner()
    error = caught.value
    return (error.errors[0] if isinstance(error, ConfigErrors) else error).problem


def test_a_function_that_is_not_there_is_told_before_data_moves(tmp_path: Path) -> None:
    assert "Either" in problem()
    assert "Invalid function" in problem(function="json")
    assert "no function nothing" in problem(function="json:nothing")
    assert "cannot be loaded" in problem(function="no.such:module")
    assert "cannot be read" in problem(function=f"{tmp_path}/no.py:f")
    assert "not valid Python in line 1" in problem(code="def transform(")
    assert "no function transform" in problem(code="x = 1")
