"""Mode set: which files are read, when, and as what."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.dataplane import FrameReader
from headrace.sdk import DataLostError, Position, ReadLimit, SourceError

pytestmark = pytest.mark.spark

Source = Callable[..., Any]


def put(path: Path, text: str, *, age: int = 0) -> Path:
    """Write a file that was changed so many seconds before a fixed time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (1_700_000_000 - age,) * 2)
    return path


def errors(frame: Any) -> list[tuple[str, str]]:
    found = frame.where("error IS NOT NULL").select("error.raw", "error.message").collect()
    return sorted((row.raw, row.message) for row in found)


def test_types_of_csv_are_inferred_once_and_remembered(
    source: Source, context: Any, tmp_path: Path
) -> None:
    put(
        tmp_path / "a.csv",
        "id,price,ok,on,at,zip,name\n1,2.5,true,2024-01-31,2024-01-31T10:00:00,007,x\n",
    )
    assert source(tmp_path).rows() == [
        {
            "id": 1,
            "price": 2.5,
            "ok": True,
            "on": date(2024, 1, 31),
            "at": datetime(2024, 1, 31, 10),  # noqa: DTZ001 - Spark gives naive times
            "zip": "007",
            "name": "x",
        }
    ]
    put(tmp_path / "b.csv", "id,price,ok,on,at,zip,name\nx,1,true,,,1,y\n", age=-10)
    reading = source(tmp_path)
    reading.at = Position.of({"path": str(tmp_path)}, {"files": 1})
    ((raw, message),) = errors(reading.step())
    assert raw == "x,1,true,,,1,y"
    assert "b.csv" in message
    assert "`id` BIGINT" in message


def test_the_end_without_a_limit_is_past_all_files_whatever_a_batch_may_hold(
    source: Source, tmp_path: Path
) -> None:
    for name in "abc":
        put(tmp_path / f"{name}.txt", f"{name}\n", age=10)
    assert source(tmp_path, max_files="1").rows(ReadLimit()) == ["a", "b", "c"]


def test_files_are_read_by_time_of_change_and_then_by_path(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "b.txt", "b\n", age=10)
    put(tmp_path / "c.txt", "c\n", age=10)
    put(tmp_path / "a.txt", "a\n", age=5)
    put(tmp_path / "_d.txt", "hidden\n", age=20)
    put(tmp_path / ".e.txt", "hidden\n", age=20)
    reading = source(tmp_path, max_files="1")
    limit = ReadLimit(rows=1000)
    assert [reading.rows(limit) for _ in range(4)] == [["b"], ["c"], ["a"], []]
    put(tmp_path / "z.txt", "older but later\n", age=100)
    assert reading.rows() == ["older but later"]


def test_the_column_position_orders_records_of_many_files_as_the_ledger_does(
    source: Source, tmp_path: Path
) -> None:
    names = ["z", "b c", "ü%20", "a[1]", "x#y", "m"]
    for age, name in enumerate(names):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"name": [f"{name}{n}" for n in range(3)]}), path)
        os.utime(path, (1_700_000_000 + age,) * 2)
    frame = source(tmp_path).step()
    found = [row.value.name for row in frame.orderBy("position").collect()]
    assert found == [f"{name}{n}" for name in names for n in range(3)]
    assert frame.where("position[0] IS NULL").count() == 0


def test_who_does_not_select_the_position_does_not_read_for_it(
    source: Source, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"a": [1]}), tmp_path / f"{name}.parquet")
    frame = source(tmp_path).step().select("value")
    assert "file_" not in frame._jdf.queryExecution().executedPlan().toString()


def test_a_batch_stays_within_bytes_and_rows_but_never_below_a_file(
    source: Source, tmp_path: Path
) -> None:
    for number in range(4):
        pq.write_table(pa.table({"n": list(range(10))}), tmp_path / f"{number}.parquet")
    size = (tmp_path / "0.parquet").stat().st_size
    assert len(source(tmp_path).rows(ReadLimit(rows=25))) == 20
    assert len(source(tmp_path).rows(ReadLimit(rows=5))) == 10
    assert len(source(tmp_path).rows(ReadLimit(size_bytes=size * 3))) == 30
    until = Position.of({"path": str(tmp_path)}, {"files": 1})
    reading = source(tmp_path)
    assert len(reading.rows(ReadLimit(until=until))) == 10
    assert reading.rows(ReadLimit(until=until)) == []


def test_the_same_range_is_the_same_rows_after_a_restart(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.txt", "a\n")
    reading = source(tmp_path)
    reading.rows()
    put(tmp_path / "b.txt", "b\n", age=100)
    again = source(tmp_path)
    frame = FrameReader(again.task).read(again.spark, Position(), reading.at).frame
    assert frame is not None
    assert [row.value for row in frame.collect()] == ["a"]


def test_a_range_of_text_without_files_has_the_type_of_text(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.txt", "a\n")
    reading = source(tmp_path)
    reading.rows()
    frame = FrameReader(reading.task).read(reading.spark, reading.at, reading.at).frame
    assert frame is not None
    assert dict(frame.dtypes)["value"] == "string"


@pytest.mark.parametrize("change", ["rewritten", "touched", "removed"])
def test_a_file_that_changes_between_discovery_and_reading_is_an_error(
    source: Source, tmp_path: Path, change: str
) -> None:
    path = put(tmp_path / "a.txt", "a\n")
    reading = source(tmp_path)
    end = reading.task.latest(Position(), ReadLimit())
    match change:
        case "rewritten":
            put(path, "other\n")
        case "touched":
            put(path, "a\n", age=1)
        case _:
            path.unlink()
    with pytest.raises(DataLostError, match=r"a\.txt"):
        reading.task.read(reading.spark, Position(), end)


def test_a_file_that_is_still_changing_is_left_for_later(
    source: Source, tmp_path: Path
) -> None:
    path = put(tmp_path / "a.txt", "a\n")
    reading = source(tmp_path, settle_ms="3600000")
    path.touch()
    assert reading.rows() == []
    put(path, "a\nb\n")
    assert reading.rows() == ["a", "b"]


def test_a_gzip_file_is_understood(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,name\n1,x\n"))
    assert source(tmp_path / "*.csv.gz").rows() == [{"id": 1, "name": "x"}]


def test_a_pattern_goes_through_subfolders_and_brackets_in_names_are_no_pattern(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "x" / "y" / "a[1].csv", "id\n1\n")
    put(tmp_path / "x" / "b.txt", "no\n")
    put(tmp_path / "x" / "_tmp" / "c.csv", "id\n2\n")
    assert source(tmp_path / "**" / "*.csv").rows() == [{"id": 1}]
    assert source(tmp_path / "x" / "y" / "a[1].csv").task._settings.listing.is_glob is False


def test_malformed_rows_are_rejected_whole_whichever_columns_are_used(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.csv", 'id,n,name\n1,2,a\nx,3,b\n4,y,c\n5,6\n7,8,d,e\n\n9,10,"f"\n')
    frame = source(tmp_path, schema="id BIGINT, n INT, name STRING").step()
    assert [raw for raw, _ in errors(frame)] == ["4,y,c", "5,6", "7,8,d,e", "x,3,b"]
    # A plan that uses one column only must reject the same rows.
    good = frame.where("error IS NULL").select("value.name").collect()
    assert sorted(row.name for row in good) == ["a", "f"]
    assert frame.where("error IS NOT NULL").count() == 4


def test_malformed_json_is_rejected_and_a_value_of_another_type_too(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.json", '{"a": 1, "b": {"c": "x"}}\n{"a": \n{"a": "text", "b": null}\n')
    reading = source(tmp_path, schema="a BIGINT, b STRUCT<c: STRING>")
    frame = reading.step()
    assert [raw for raw, _ in errors(frame)] == ['{"a": ', '{"a": "text", "b": null}']
    assert frame.where("error IS NULL").selectExpr("value.b.c").collect()[0].c == "x"


def test_missing_and_marked_values_are_null(source: Source, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 'n,s\nNA,NA\n,\n1,""\n')
    assert source(tmp_path, null_value="NA").rows() == [
        {"n": None, "s": None},
        {"n": None, "s": None},
        {"n": 1, "s": ""},
    ]


def test_columns_of_csv_are_matched_by_name_and_new_ones_are_added(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.csv", "id,name\n1,x\n", age=10)
    reading = source(tmp_path)
    assert reading.rows() == [{"id": 1, "name": "x"}]
    put(tmp_path / "b.csv", "name,id\ny,2\n", age=5)
    put(tmp_path / "c.csv", "id,name,price\n3,z,1.5\n", age=4)
    put(tmp_path / "d.csv", "id\n4\n", age=3)
    assert sorted(reading.rows(), key=lambda row: row["id"]) == [
        {"id": 2, "name": "y", "price": None},
        {"id": 3, "name": "z", "price": 1.5},
        {"id": 4, "name": None, "price": None},
    ]


def test_a_declared_schema_may_rename_the_columns_by_their_order(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.csv", "Order No,Who\n1,x\n")
    assert source(tmp_path, schema="id BIGINT, name STRING").rows() == [{"id": 1, "name": "x"}]


def test_a_declared_schema_that_does_not_go_with_the_header_is_an_error(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.csv", "name,number\nx,1\n")
    with pytest.raises(SourceError, match=r"a\.csv is name, number; the declared"):
        source(tmp_path, schema="id BIGINT, name STRING").rows()


def test_headerless_and_tab_separated_files_are_read(source: Source, tmp_path: Path) -> None:
    put(tmp_path / "a.tsv", "1\tx\n2\ty\n")
    assert source(tmp_path / "*.tsv", header="false").rows() == [
        {"_c0": 1, "_c1": "x"},
        {"_c0": 2, "_c1": "y"},
    ]


def test_fields_that_later_json_adds_evolve_the_stored_schema(
    source: Source, context: Any, tmp_path: Path
) -> None:
    put(tmp_path / "a.json", '{"id": 1, "tags": ["x"], "who": {"name": "a"}}\n', age=10)
    reading = source(tmp_path)
    assert reading.rows() == [{"id": 1, "tags": ["x"], "who": {"name": "a"}}]
    put(tmp_path / "b.json", '{"id": 2.5, "who": {"name": "b", "age": 7}, "new": true}\n')
    assert reading.rows() == [
        {"id": 2.5, "tags": None, "who": {"name": "b", "age": 7}, "new": True}
    ]
    stored = context.schemas.stored[str(tmp_path)]
    assert [field.name for field in stored.fields] == ["id", "tags", "who", "new"]


def test_json_whose_lines_disagree_on_a_type_gives_texts_if_it_is_to(
    source: Source, tmp_path: Path
) -> None:
    put(tmp_path / "a.json", '{"a": 1}\nnot json\n{"a": "x"}\n{"a": {"b": 1}}\n')
    reading = source(tmp_path, infer_conflicts="text")
    assert reading.rows() == [{"a": "1"}, {"a": "x"}, {"a": '{"b":1}'}]


def test_a_json_document_is_read_as_a_whole(source: Source, tmp_path: Path) -> None:
    put(tmp_path / "a.json", json.dumps([{"a": 1}, {"a": 2, "b": "x"}], indent=1))
    rows = source(tmp_path, multiline="true").rows()
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_value_of_csv_may_hold_line_breaks(source: Source, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", 'id,text\n1,"two\nlines"\n')
    assert source(tmp_path, multiline="true").rows() == [{"id": 1, "text": "two\nlines"}]


def test_parquet_files_of_several_shapes_make_one(source: Source, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": pa.array([1], pa.int32()), "s": [{"x": 1}]}), tmp_path / "1.parquet"
    )
    pq.write_table(
        pa.table({"b": ["x"], "a": [2**40], "s": [{"x": 2, "y": "z"}]}), tmp_path / "2.parquet"
    )
    rows = sorted(source(tmp_path).rows(), key=lambda row: row["a"])
    assert rows == [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": 2**40, "s": {"x": 2, "y": "z"}, "b": "x"},
    ]


def test_avro_files_are_read_with_their_own_schema_and_evolve(
    source: Source, spark: Any, tmp_path: Path
) -> None:
    for number, sql in enumerate(
        ["1 AS id, 'x' AS name", "CAST(2 AS BIGINT) AS id, 2.5D AS p"]
    ):
        made = tmp_path / f"made{number}"
        spark.sql(f"SELECT {sql}").coalesce(1).write.format("avro").save(str(made))
        (part,) = made.glob("*.avro")
        (tmp_path / "in").mkdir(exist_ok=True)
        shutil.move(part, tmp_path / "in" / f"{number}.avro")
    rows = sorted(source(tmp_path / "in").rows(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "name": "x", "p": None}, {"id": 2, "name": None, "p": 2.5}]


def test_an_encoding_other_than_utf8_is_decoded(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,Größe\n1,ü\n".encode("iso-8859-1"))
    assert source(tmp_path, encoding="ISO-8859-1").rows() == [{"id": 1, "Größe": "ü"}]


def test_encodings_go_by_all_their_names_and_are_named_where_they_are_needed(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes("id,城市\n1,上海\n".encode("gb18030"))
    with pytest.raises(SourceError, match=r"cannot be inferred") as raised:
        source(tmp_path).rows()
    assert "set encoding if it is not UTF-8" in raised.value.fix
    assert source(tmp_path, encoding="GB18030").rows() == [{"id": 1, "城市": "上海"}]
    put(tmp_path / "other" / "b.csv", "")
    (tmp_path / "other" / "b.csv").write_bytes("id,Größe\n1,ü\n".encode("latin-1"))
    assert source(tmp_path / "other", encoding="latin1").rows() == [{"id": 1, "Größe": "ü"}]


def test_a_json_field_without_a_name_is_told_with_its_file(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "s": [{"": 2}]}\n')
    with pytest.raises(SourceError, match=r"a\.json has a field without a name"):
        source(tmp_path).rows()


def test_empty_files_are_no_rows(source: Source, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "", age=3)
    put(tmp_path / "b.csv", "id,n\n", age=2)
    put(tmp_path / "c.csv", "id,n\n1,2\n", age=1)
    assert source(tmp_path).rows() == [{"id": 1, "n": 2}]


def test_tasks_divide_the_files_and_none_is_read_twice(
    source: Source, context: Any, tmp_path: Path
) -> None:
    for number in range(20):
        put(tmp_path / f"{number}.txt", f"{number}\n")
    found = []
    for share in ("0/2", "1/2"):
        context.ledger.items.clear()  # each task has one of its own
        reading = source(tmp_path, task_share=share)
        rows = reading.rows()
        assert rows
        assert dict(next(iter(reading.at.items()))[0])["share"] == share
        found += rows
    assert sorted(found) == sorted(str(number) for number in range(20))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("id,name\n1,M\xfcller\n2,K\xf6hler\n".encode("latin-1"), "Line 2: Invalid UTF-8"),
        (b"id,name\n1,a,\n2,b,\n", "Line 2: 3 values instead of 2"),
        ("1,M\xfcller\n".encode("latin-1"), "Line 1: Invalid UTF-8"),
    ],
)
def test_no_types_are_inferred_from_records_that_are_all_invalid(
    source: Source, context: Any, tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    header = "true" if content.startswith(b"id") else "false"
    with pytest.raises(SourceError) as raised:
        source(tmp_path, header=header).rows()
    assert f"a.csv cannot be inferred: no record is valid. {reason}" in raised.value.problem
    assert "set its encoding" in raised.value.fix
    assert context.schemas.get(str(tmp_path)) is None


def test_a_number_with_leading_zeros_is_rejected_if_its_type_was_inferred_without(
    source: Source, tmp_path: Path
) -> None:
    rows = "".join(f"{n},{n}.5,x\n" for n in range(100, 120))
    put(tmp_path / "a.csv", f"zip,price,note\n{rows}01234,1.5,a\n1,2,3\n", age=9)
    put(tmp_path / "b.csv", 'zip,price,note\n"099",7,b\n0,0.5,007\n1,00.5,c\n')
    reading = source(tmp_path, infer_rows="10", max_files="1")
    [(raw, message)] = errors(reading.step(ReadLimit(rows=1)))
    assert raw == "01234,1.5,a"
    assert "`zip` BIGINT: the inferred type would drop the leading zeros of '01234'" in message
    assert "a.csv, line 22" in message
    frame = reading.step()
    assert [row.value.asDict() for row in frame.where("error IS NULL").collect()] == [
        {"zip": 0, "price": 0.5, "note": "007"}
    ]
    assert sorted(message.split(":")[0] for _, message in errors(frame)) == [
        "`price` DOUBLE",
        "`zip` BIGINT",
    ]
    declared = source(tmp_path, schema="zip BIGINT, price DOUBLE, note STRING")
    assert {row["zip"] for row in declared.rows()} >= {1234, 99}


def test_a_first_record_that_is_longer_than_the_sample_is_read_as_text(
    source: Source, tmp_path: Path
) -> None:
    lines = "x\n" * 20
    put(tmp_path / "a.csv", f'id,note\n1,"{lines}"\n2,b\n')
    rows = source(tmp_path, infer_rows="10").rows()
    assert rows == [{"id": "1", "note": lines}, {"id": "2", "note": "b"}]
