"""Mapping rules of the Delta sink: one batch into several tables, each exactly once."""

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.integration.plugins.connectors.delta_writing import (
    Records,
    batch_of,
    held,
    rows_of,
    sink,
    write,
)

from headrace.sdk import ConfigError, FrameSink, Mark, StateError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.sink import Selective, StagedWrite
from headrace.sdk.tables import TableRows
from headrace_plugins.connectors.delta.sink import DeltaSink

pytestmark = pytest.mark.spark

ROW = "id BIGINT, name STRING, price STRING"
ROWS = [(1, "a", "1.50"), (2, "b", "2.50"), (3, None, "3.50")]


def mapped(folder: Path, *rules: dict[str, Any], **texts: str) -> FrameSink:
    path = texts.pop("path", f"{folder}/${{table}}")
    return sink(path, table_mapping=json.dumps(rules), **texts)


def filtered(staged: StagedWrite) -> int:
    return sum(staged.filtered().values()) if isinstance(staged, Selective) else 0


def test_one_topic_goes_to_two_tables_each_with_its_columns_and_rows(
    tmp_path: Path, records: Records
) -> None:
    task = mapped(
        tmp_path,
        {
            "from": "t",
            "to": "priced",
            "columns": {
                "exclude": "name",
                "rename": {"id": "item"},
                "types": {"price": "DECIMAL(6, 2)"},
                "add": {"topic": "record.topic", "twice": "CAST(price AS DOUBLE) * 2"},
            },
            "where": "id <> 2",
        },
        {
            "from": "t*",
            "to": "names",
            "columns": {"include": ["id", "name"]},
            "where": "id < 3",
        },
    )
    frame = records(ROWS, ROW)
    staged = task.write(frame, batch_of(frame, 1))
    assert not [*tmp_path.glob("*/_delta_log")]
    assert (staged.rows, filtered(staged)) == (3, 0)
    staged.commit(batch_of(frame, 1).mark.receipt({}))
    assert rows_of(tmp_path / "priced") == [
        (1, Decimal("1.50"), "t", 3.0),
        (3, Decimal("3.50"), "t", 7.0),
    ]
    assert rows_of(tmp_path / "names") == [(1, "a"), (2, "b")]


def test_records_that_no_table_gets_are_counted_as_filtered(
    tmp_path: Path, records: Records
) -> None:
    task = mapped(
        tmp_path,
        {"from": "t", "to": "a", "skip.ids": "[2-3]", "key.fields": "id"},
        {"from": "t", "to": "b", "where": "name = 'b'"},
    )
    frame = records(ROWS, ROW)
    staged = task.write(frame, batch_of(frame, 1))
    assert (staged.rows, filtered(staged)) == (2, 1)


@pytest.mark.parametrize("unmatched", ["ignore", "default"])
def test_a_topic_that_no_rule_matches_is_left_out_or_written(
    tmp_path: Path, records: Records, unmatched: str
) -> None:
    task = mapped(tmp_path, {"from": "x"}, table_mapping_unmatched=unmatched)
    frame = records(ROWS, ROW)
    staged = task.write(frame, batch_of(frame, 1))
    staged.commit(batch_of(frame, 1).mark.receipt({}))
    expected = (0, 3) if unmatched == "ignore" else (3, 0)
    assert (staged.rows, filtered(staged)) == expected
    assert (tmp_path / "t").exists() == (unmatched == "default")


def test_a_condition_that_no_record_can_meet_leaves_an_empty_table(
    tmp_path: Path, records: Records
) -> None:
    task = mapped(tmp_path, {"from": "t", "to": "none", "where": "1 = 2"})
    frame = records(ROWS, ROW)
    staged = task.write(frame, batch_of(frame, 1))
    staged.commit(batch_of(frame, 1).mark.receipt({}))
    assert (staged.rows, filtered(staged)) == (0, 3)
    assert held(task, Mark("copy/0", 1, 1)) == {}


def test_shards_go_into_one_table(tmp_path: Path, records: Records) -> None:
    task = mapped(tmp_path, {"from": "offer[00-31]", "to": "offer"})
    for shard in (0, 7, 31):
        frame = records([(shard, "x")])
        batch = batch_of(frame, 1, topic=f"offer{shard:02}")
        batch = replace(batch, mark=Mark(f"copy/{shard}", 1, 1))
        task.write(frame, batch).commit(batch.mark.receipt({}))
    assert rows_of(tmp_path / "offer") == [(0, "x"), (31, "x"), (7, "x")]


def test_a_batch_that_only_some_tables_hold_is_written_to_the_others(
    tmp_path: Path, records: Records
) -> None:
    rules = [{"from": "t", "to": name, "priority": n} for n, name in enumerate("ba")]
    frame = records(ROWS, ROW)
    # The first attempt ended between its two commits.
    alone = mapped(tmp_path, rules[0])
    assert write(alone, frame, 1) == 3
    task = mapped(tmp_path, *rules)
    assert held(task, Mark("copy/0", 1, 2)) is None
    assert write(task, frame, 1, epoch=2) == 3
    assert len(rows_of(tmp_path / "a")) == len(rows_of(tmp_path / "b")) == 3
    assert held(task, Mark("copy/0", 1, 3)) == {"batch": 1}
    with pytest.raises(StaleEpochError):
        write(alone, frame, 1, epoch=4)


def test_a_table_does_not_get_what_other_transforms_made_than_another_has(
    tmp_path: Path, records: Records
) -> None:
    frame = records(ROWS, ROW)
    first = batch_of(frame, 1)
    mapped(tmp_path, {"from": "t", "to": "a"}).write(frame, first).commit(
        first.mark.receipt({"chain": "before"})
    )
    task = mapped(tmp_path, {"from": "t", "to": "a"}, {"from": "t", "to": "b"})
    again = batch_of(frame, 1, epoch=2)
    staged = task.write(frame, again)
    with pytest.raises(StateError, match="is already in a"):
        staged.commit(again.mark.receipt({"chain": "now"}))
    assert not (tmp_path / "b" / "_delta_log").exists()


def test_a_record_goes_to_all_tables_or_to_none_though_one_has_changed(
    tmp_path: Path, records: Records
) -> None:
    frame = records(ROWS, ROW)
    first = batch_of(frame, 1)
    rules = [{"from": "t", "to": name} for name in "ab"]
    counts = {"read": 4, "written": 3, "rejected": 1}
    mapped(tmp_path, rules[0]).write(frame, first).commit(first.mark.receipt(counts))
    again = batch_of(frame, 1, epoch=2)
    staged = mapped(tmp_path, *rules).write(frame, again)
    with pytest.raises(StateError, match="with 1 rejected records instead of 0"):
        staged.commit(again.mark.receipt({"read": 4, "written": 4, "rejected": 0}))
    staged = mapped(tmp_path, *rules).write(frame, again)
    staged.commit(again.mark.receipt(counts | {"letters": "of the second attempt"}))
    # Only the letters that were staged last are there.
    held_now = held(mapped(tmp_path, *rules), Mark("copy/0", 1, 3))
    assert held_now == counts | {"letters": "of the second attempt"}


def test_what_is_staged_for_one_table_is_removed_when_another_cannot_be_written(
    tmp_path: Path, records: Records
) -> None:
    task = mapped(
        tmp_path,
        {"from": "t", "to": "good"},
        {"from": "t", "to": "bad", "columns": {"types": {"name": "INT"}}},
    )
    frame = records(ROWS, ROW)
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        task.write(frame, batch_of(frame, 1))
    assert not [path for path in tmp_path.rglob("*.parquet") if path.is_file()]


def test_values_that_cannot_be_cast_are_refused_by_the_table_that_gets_them(
    tmp_path: Path, records: Records
) -> None:
    columns = {"types": {"name": "INT"}}
    task = mapped(tmp_path, {"from": "t", "to": "b", "columns": columns, "where": "id > 1"})
    frame = records(ROWS, ROW)
    found = {each.field: each for each in task.refusals(frame, batch_of(frame, 1))}
    refusal = found["name"]
    assert [row.value.id for row in frame.where(refusal.condition).collect()] == [2]


def test_an_expression_that_spark_cannot_run_is_an_error_of_its_key(
    tmp_path: Path, records: Records
) -> None:
    frame = records(ROWS, ROW)
    columns = {"add": {"x": "nosuch(id)"}}
    task = mapped(tmp_path, {"from": "t", "columns": columns})
    with pytest.raises(ConfigError, match=r"Spark cannot analyze it.*nosuch") as told:
        task.write(frame, batch_of(frame, 1))
    assert told.value.field == "table.mapping[0].columns.add.x"
    with pytest.raises(ConfigError, match="missing") as told:
        mapped(tmp_path, {"from": "t", "where": "missing > 1"}).write(frame, batch_of(frame, 1))
    assert told.value.field == "table.mapping[0].where"


def test_several_tables_need_their_name_in_the_path(tmp_path: Path, records: Records) -> None:
    task = mapped(
        tmp_path, {"from": "t", "to": "a"}, {"from": "t", "to": "b"}, path=str(tmp_path)
    )
    frame = records(ROWS, ROW)
    with pytest.raises(ConfigError, match="path is the same for all") as told:
        task.write(frame, batch_of(frame, 1))
    assert told.value.field == "path"


@pytest.mark.parametrize("table", ["..", "a/../b", "a//b"])
def test_the_name_of_a_table_does_not_lead_out_of_the_path(
    tmp_path: Path, records: Records, table: str
) -> None:
    task = mapped(tmp_path, {"from": "t", "to": table})
    frame = records(ROWS, ROW)
    with pytest.raises(ConfigError, match="cannot be used as a folder"):
        task.write(frame, batch_of(frame, 1))


def test_an_upsert_goes_by_the_renamed_key_and_deletes_by_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    def keyed(pairs: Sequence[tuple[Any, Any]]) -> DataFrame:
        rows = [(key, value, number) for number, (key, value) in enumerate(pairs)]
        ddl = f"key STRUCT<id: BIGINT>, value STRUCT<{ROW}>, number BIGINT"
        return spark.createDataFrame(rows, ddl).selectExpr(
            "key",
            "value",
            "CAST(NULL AS array<struct<key:string,value:string,type:string>>) AS headers",
            "current_timestamp() AS timestamp",
            "'t' AS topic",
            "CAST(NULL AS INT) AS partition",
            "array(number) AS position",
        )

    task = mapped(
        tmp_path,
        {
            "from": "t",
            "to": "u",
            "columns": {"rename": {"id": "item"}, "types": {"item": "STRING"}},
            "skip.ids": "9",
        },
        mode="upsert",
        delete_enabled="true",
    )
    assert write(task, keyed([((1,), ROWS[0]), ((2,), ROWS[1]), ((9,), (9, "x", ""))]), 1) == 2
    assert write(task, keyed([((1,), (1, "z", None)), ((2,), None), ((9,), None)]), 2) == 2
    assert rows_of(tmp_path / "u") == [("1", "z", None)]


def test_what_is_only_renamed_is_copied_past_the_jvm(tmp_path: Path, records: Records) -> None:
    columns = {"include": ["id", "name"], "rename": {"id": "item"}}
    task = mapped(tmp_path, {"from": "t", "to": "r", "columns": columns})
    frame = records(ROWS, ROW)
    batch = batch_of(frame, 1)
    batch = replace(batch, schema=batch.schema.replaced(optional=False))
    made = task.arrow_write(frame, batch)
    assert made is not None
    part = pa.RecordBatch.from_pylist(
        [{"id": 1, "name": "a", "price": "1"}],
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.string())]),
    )
    file = made.write(0, iter([part]))
    assert file is not None
    made.staged([file]).commit(batch.mark.receipt({}))
    assert DeltaTable(tmp_path / "r").to_pyarrow_table().to_pylist() == [
        {"item": 1, "name": "a"}
    ]
    typed = {"from": "t", "to": "r", "columns": {"types": {"name": "BINARY"}}}
    assert mapped(tmp_path, typed).arrow_write(frame, batch) is None


def test_a_batch_without_records_leaves_its_mark_in_each_table(
    tmp_path: Path, records: Records, spark: SparkSession
) -> None:
    task = mapped(tmp_path, {"from": "t", "to": "a"}, {"from": "t", "to": "b"})
    write(task, records(ROWS, ROW), 1)
    mark = Mark("copy/0", 2, 1)
    staged = task.write_mark(spark, mark, "t")
    assert staged is not None
    staged.commit(mark.receipt({"batch": 2}))
    assert held(task, mark) == {"batch": 2}


def test_the_smallest_priority_of_a_topic_s_tables_is_that_of_the_topic(tmp_path: Path) -> None:
    task = mapped(
        tmp_path,
        {"from": "line*", "to": "l", "priority": 2},
        {"from": "lines", "to": "m", "priority": 1},
    )
    assert [task.priority(topic) for topic in ("line", "lines", "orders")] == [2, 1, 0]


def test_a_table_whose_fields_are_only_renamed_is_read_back_with_their_names(
    tmp_path: Path, records: Records, spark: SparkSession
) -> None:
    frame = records(ROWS, ROW)
    schema = batch_of(frame, 1).schema
    rule = {"from": "t", "to": "r", "key.fields": "item", "columns": {"rename": {"id": "item"}}}

    def found(*rules: dict[str, Any]) -> Sequence[TableRows] | None:
        props = {"path": f"{tmp_path}/${{table}}", "table.mapping": json.dumps(rules)}
        return DeltaSink.table_rows(DeltaSink.config_def().parse(props), "t", schema)

    assert found(rule) == ()
    write(mapped(tmp_path, rule), frame, 1)
    [table] = found(rule) or ()
    rows = table.read(spark)
    assert isinstance(rows, DataFrame)
    assert (table.key, rows.columns) == (("id",), ["id", "name", "price"])
    assert table.schema is not None
    assert [each.name for each in table.schema.fields] == rows.columns
    assert sorted(map(tuple, rows.collect()), key=repr) == ROWS
    # What is left out or made by a rule would look as if it were lost.
    assert found({**rule, "where": "item > 1"}) is None
    assert found({"from": "t", "columns": {"include": ["id"]}}) is None
    assert found(rule, {"from": "t"}) is None
