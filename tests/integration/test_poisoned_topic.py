"""A topic of bytes that is poisoned at every stage between it and a table."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.cli.progress import Scoreboard
from headrace.dataplane import DeadLetterFilter, TopicWriter
from headrace.model import Counts, TaskId
from headrace.runtime.app import Runtime
from headrace.sdk import Mark, SinkBatch
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import from_spark_json
from headrace.topics import Topics

pytestmark = pytest.mark.spark

NAME = "poisoned"
DEFINITION = """
name: poisoned
topic: bytes
errors.tolerance: all
errors.deadletterqueue.topic.name: poisoned.dlq
key.converter: LongConverter
value.converter: JsonConverter
value.converter.schemas.enable: false
header.converter: JsonConverter
header.converter.schemas.enable: false
transforms:
  - type: Cast
    spec: amount:float64
sinks:
  - connector: delta
    path: {table}
"""
KEY, VALUE, HEADER, CAST, PUT = 7, 9, 11, 13, 17
"""Which records of each hundred are bad, and where that is found."""
BAD = (KEY, VALUE, HEADER, CAST, PUT)
DATA = "org.apache.kafka.connect.errors.DataException"
CAUSES = {
    "KEY_CONVERTER": KEY,
    "VALUE_CONVERTER": VALUE,
    "HEADER_CONVERTER": HEADER,
    "TRANSFORMATION": CAST,
    "TASK_PUT": PUT,
}


def fill(spark, folder: Path, rows: int) -> None:
    """Append records to a topic of bytes, as a foreign program does."""
    amount = f"IF(id % 100 = {CAST}, 'much', concat(id, '.5'))"
    note = f"IF(id % 100 = {PUT}, NULL, concat('n', id))"
    fields = f"named_struct('id', id, 'amount', {amount}, 'note', {note})"
    told = f"IF(id % 100 = {HEADER}, '{{', '1')"
    header = f"'key', 'h', 'value', {told}, 'type', CAST(NULL AS STRING)"
    columns = [
        f"IF(id % 100 = {KEY}, X'01', unhex(lpad(hex(id), 16, '0'))) AS key",
        f"CAST(IF(id % 100 = {VALUE}, concat('{{', id), to_json({fields})) AS BINARY) AS value",
        f"array(named_struct({header})) AS headers",
        "TIMESTAMP '2026-01-02 03:04:05Z' AS timestamp",
        "'bytes' AS topic",
        "CAST(NULL AS INT) AS partition",
    ]
    frame = spark.range(0, rows, 1, 4).selectExpr(*columns)
    schemas = {f.name: f.schema for f in from_spark_json(frame.schema.jsonValue()).fields}
    to = SinkBatch(Mark("filler", 1, 1), "bytes", schemas["value"], schemas["key"])
    TopicWriter(Topics(Location.of(folder)).get("bytes"), lambda _: None).write(
        frame, to
    ).commit("")


def mended(letter: dict[str, Any], rows: dict[str, int]) -> dict[str, Any]:
    """Repair a letter as a person would, by what is still readable of it."""
    stage = letter["stage"]
    rows[stage] = rows.get(stage, 0) + 1
    if stage == "VALUE_CONVERTER":
        number = int(letter["value"].removeprefix("{"))
        letter["value"] = {"id": number, "amount": f"{number}.5", "note": f"n{number}"}
        letter["key"] = number
        return letter
    if isinstance(letter["value"], str):
        letter["value"] = json.loads(letter["value"])
    number = letter["value"]["id"]
    letter["key"] = number
    if stage == "HEADER_CONVERTER":
        assert letter["headers"][0]["value"] == "{"
        letter["headers"][0]["value"] = "1"
    letter["value"]["amount"] = f"{number}.5"
    letter["value"]["note"] = f"n{number}"
    return letter


class Poisoned:
    """The connector, its table and its dead letters."""

    def __init__(self, runtime: Runtime, folder: Path, rows: int) -> None:
        self.runtime, self.folder, self.rows = runtime, folder, rows
        self.table = folder / "table"
        _ = runtime.state  # topics without a store would be those of one that is lost
        runtime.spark.sql(
            f"CREATE TABLE delta.`{self.table}` (id BIGINT, amount DOUBLE, "
            "note STRING NOT NULL) USING delta"
        )
        fill(runtime.spark, folder / "home" / "topics", rows)
        file = folder / "poisoned.yaml"
        file.write_text(DEFINITION.format(table=self.table))
        (self.definition,) = runtime.definitions([file])
        self.box = runtime.dead_letter_queue

    def run(self) -> Counts:
        outcome = self.runtime.run([self.definition], Scoreboard(lambda: 0.0), once=True)
        assert not outcome.errors
        return self.runtime.state.totals(TaskId(NAME, 0))

    def replay(self, file: Path) -> tuple[int, int]:
        claimed, outcome = self.runtime.replay(
            self.definition, DeadLetterFilter(), file, Scoreboard(lambda: 0.0)
        )
        assert not outcome.errors
        return claimed.records, claimed.unrepaired

    def delivered(self) -> tuple[int, int, int]:
        """How many rows there are, how many different ids, and how many are wrong."""
        table = self.runtime.spark.read.format("delta").load(str(self.table))
        wrong = "NOT (amount <=> id + 0.5D AND note <=> concat('n', id))"
        row = table.selectExpr("count(1)", "count(DISTINCT id)", f"count_if({wrong})")
        rows, ids, bad = row.collect()[0]
        return rows, ids, bad

    def stages(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for group in self.runtime.dead_letter_queue("poisoned.dlq").groups(DeadLetterFilter()):
            found[group["stage"]] = found.get(group["stage"], 0) + group["letters"]
        return found


def check_every_stage(runtime: Runtime, folder: Path, rows: int) -> None:
    poisoned, bad = Poisoned(runtime, folder, rows), rows // 100
    counts = poisoned.run()
    assert counts.balanced
    good = rows - len(BAD) * bad
    assert (counts.read, counts.written, counts.rejected) == (rows, good, len(BAD) * bad)
    assert poisoned.delivered() == (good, good, 0)
    assert poisoned.stages() == dict.fromkeys(CAUSES, bad)
    told = {cause.split()[0]: cause.split()[1] for cause in counts.causes}
    assert told == {stage: DATA for stage in CAUSES if stage != "TASK_PUT"} | {
        "TASK_PUT": "headrace.sdk.errors.RecordError"
    }

    exported, repaired = folder / "letters.jsonl", folder / "repaired.jsonl"
    box = runtime.dead_letter_queue("poisoned.dlq")
    assert box.export(DeadLetterFilter(), exported) == len(BAD) * bad
    seen: dict[str, int] = {}
    with exported.open() as lines, repaired.open("w") as out:
        for line in lines:
            out.write(f"{json.dumps(mended(json.loads(line), seen))}\n")
    assert seen == dict.fromkeys(CAUSES, bad)
    assert poisoned.replay(repaired) == (len(BAD) * bad, 0)
    assert poisoned.delivered() == (rows, rows, 0)
    assert poisoned.stages() == {}
    # Once: nothing is open any more.
    assert poisoned.replay(repaired) == (0, 0)
    assert poisoned.delivered() == (rows, rows, 0)
    assert "note" in DeltaTable(poisoned.table).schema().to_json()


def test_each_stage_gives_its_letters_and_their_repair_brings_the_records_once(
    runtime, tmp_path: Path
) -> None:
    check_every_stage(runtime, tmp_path, 1000)


@pytest.mark.long
@pytest.mark.timeout(1400)
def test_a_million_records_with_one_bad_in_a_hundred_at_each_stage_of_a_sink(
    runtime, tmp_path: Path
) -> None:
    check_every_stage(runtime, tmp_path, 1_000_000)
