"""What frame sinks refuse: by the table's own rules, or by the errors that they raise."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.integration.dataplane.flow_doubles import (
    CAST,
    CHAIN,
    Kept,
    batch,
    dead_letters,
    flow,
    read_topic,
)
from tests.no_keys import NO_KEYS

from headrace.dataplane import FrameReader
from headrace.model import Counts
from headrace.sdk import ConfigError, FrameSource
from headrace_plugins.connectors.delta.columns import Columns, Fit, broken_constraints
from headrace_plugins.connectors.delta.sink import DeltaSink

pytestmark = pytest.mark.spark

PUT = "TASK_PUT ValueError"


def refused(spark, folder: Path) -> list[tuple[str, str]]:
    letters = read_topic(spark, folder, "copy.dlq")
    put = [letter for letter in letters if letter["cause"]["stage"] == "TASK_PUT"]
    return sorted((letter["cause"]["message"], letter["value"]) for letter in put)


class Warmth(FrameSource):
    """Readings, of which one has no name, one is cold and one has no number."""

    def latest(self, start, limit):
        return start

    def read(self, spark, start, end):
        rows = [("a", 20), (None, 21), ("c", 10), ("d", None), ("e", 22)]
        frame = spark.createDataFrame(rows, "name string, date bigint")
        return frame.selectExpr("struct(*) AS value")


def test_a_table_with_constraints_and_comments_refuses_single_records(
    spark, tmp_path: Path
) -> None:
    table = tmp_path / "out"
    check = (
        "`date` > 15 AND DATE > 0 AND DATE '2026-01-01' > DATE '2000-01-01' AND name <> 'date'"
    )
    spark.sql(
        f"CREATE TABLE delta.`{table}` (name STRING NOT NULL COMMENT 'who', Date BIGINT) "
        f'USING delta TBLPROPERTIES ("delta.constraints.warm" = "{check}")'
    )
    sink = DeltaSink.task(DeltaSink.config_def().parse({"path": str(table)}))
    reader = FrameReader(Warmth(NO_KEYS))
    running = flow(spark, [sink], source=reader, dead_letters=dead_letters(tmp_path))
    counts = running.run(batch(1, 0, 5))
    assert (counts.read, counts.written, counts.rejected) == (5, 2, 3)
    told = [message for message, _ in refused(spark, tmp_path)]
    assert sum("constraint warm" in message for message in told) == 2
    assert sum("NOT NULL" in message for message in told) == 1
    names = DeltaTable(table).to_pyarrow_table()["name"].to_pylist()
    assert sorted(names) == ["a", "e"]


@pytest.mark.parametrize(
    ("name", "value", "in_column"),
    [
        (
            "delta.constraints.c",
            "from_avro(X'00', '\"int\"', map('avroSchemaUrl', '/x')) > 0",
            False,
        ),
        ("delta.constraints.c", "(SELECT max(value) FROM text.`/etc/hostname`) > ''", False),
        ("delta.constraints.c", "reflect('java.lang.System', 'getenv') IS NULL", False),
        ("delta.invariants", '{"expression": {"expression": "xpath(name, 1)"}}', True),
        ("delta.generationExpression", "`schema_of_avro`('int', map())", True),
    ],
)
def test_sql_of_a_table_that_reaches_out_of_its_records_is_not_run(
    spark, tmp_path: Path, name, value, in_column
) -> None:
    column = {"name": "name", "type": "string", "nullable": True}
    inner = [{**column, "metadata": {name: value} if in_column else {}}]
    nested = {"type": "struct", "fields": inner}
    table = Fit(
        fields=({"name": "s", "type": nested, "nullable": True, "metadata": {}},), names={}
    )
    properties = {} if in_column else {name: value}
    columns = Columns({}, {})
    with pytest.raises(ConfigError, match=f"{name} of the table: .* is not allowed"):
        list(broken_constraints(spark.range(1), columns, table, properties, merges=False))


@dataclass
class StrictFrames(Kept):
    """A frame sink whose driver refuses a whole frame for one of its rows."""

    rejects = (ValueError,)
    calls: int = 0

    def write(self, frame, batch):
        self.calls += 1
        staged = super().write(frame, batch)
        for value in (row["value"] for row in staged.values):
            if value["id"] % 20 == 3:
                message = f"no {value['id']}"
                raise ValueError(message)
        return staged


def test_a_frame_sink_that_raises_is_given_smaller_frames(spark, tmp_path: Path) -> None:
    sink = StrictFrames()
    running = flow(spark, [sink], CAST, dead_letters=dead_letters(tmp_path))
    done = Counts(read=40, written=34, rejected=6, causes={CHAIN: 4, PUT: 2})
    assert running.run(batch(1, 0, 40)) == done
    good = [n for n in range(40) if n % 20 != 3 and n % 10 != 7]
    assert sorted(row["value"]["id"] for row in sink.rows) == good
    assert set(sink.rows[0]) == {"key", "value", "headers", "timestamp", "topic", "partition"}
    told = refused(spark, tmp_path)
    assert told == [("no 23", '{"id":23,"text":"23"}'), ("no 3", '{"id":3,"text":"3"}')]
    # What an attempt had staged is gone before the next.
    assert sink.aborted < sink.calls
    assert running.run(batch(2, 40, 43)) == Counts(read=3, written=3)


def test_a_frame_sinks_error_ends_the_task_where_nothing_is_tolerated(spark) -> None:
    sink = StrictFrames()
    with pytest.raises(ValueError, match="no 3"):
        flow(spark, [sink]).run(batch(1, 0, 7))
    assert (sink.calls, sink.rows) == (1, [])
