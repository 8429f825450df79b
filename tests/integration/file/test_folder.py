"""The sink into a folder: what is written, and that each batch is there once."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.sdk import ConfigError, FrameSink, RecordError, Schema, SinkBatch, SinkError
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.sparktypes import from_spark_json
from headrace.sdk.sqltext import sql_type

pytestmark = pytest.mark.spark

Sink = Callable[..., FrameSink]
Describe = Callable[..., SinkBatch]
ID = Schema.struct({"id": Schema.int64()})


def records(spark: Any, sql: str) -> tuple[Any, Schema]:
    """Give the rows of a query as values, with their schema."""
    frame = spark.sql(sql)
    schema = from_spark_json(json.loads(frame.schema.json()))
    return frame.selectExpr("CAST(NULL AS STRING) AS key", "struct(*) AS value"), schema


def ids(spark: Any, start: int, end: int) -> Any:
    return spark.range(start, end, 1, 2).selectExpr("struct(id) AS value")


def visible(folder: Path) -> list[Path]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in files if "_headrace" not in p.relative_to(folder).parts)


def found_ids(folder: Path) -> list[int]:
    return sorted(n for p in visible(folder) for n in pq.read_table(p).column("id").to_pylist())


def test_a_batch_is_invisible_until_it_is_committed(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    task = sink(tmp_path / "out")
    staged = task.write(ids(spark, 0, 100), batch(ID))
    assert staged.rows == 100
    assert visible(tmp_path / "out") == []
    assert task.committed(batch(ID).mark, "t") is None
    staged.commit("receipt")
    assert found_ids(tmp_path / "out") == list(range(100))
    assert task.committed(batch(ID).mark, "t") == "receipt"
    names = [path.name for path in visible(tmp_path / "out")]
    assert names[0] == "part-c-0-000000000001-00000.snappy.parquet"
    assert not list((tmp_path / "out").rglob("*.crc"))
    assert not list((tmp_path / "out" / "_headrace" / "staging").rglob("part-*"))


@pytest.mark.parametrize("quote", ['"', "'", "þ"])
def test_csv_is_read_as_it_was_written_with_any_quote(  # noqa: PLR0917
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path, source: Any, quote: str
) -> None:
    texts = ["", None, quote, '"', ",", "a\nb", quote * 2]
    frame = spark.createDataFrame(
        [(n, text) for n, text in enumerate(texts)], "n INT, s STRING"
    )
    schema = from_spark_json(json.loads(frame.schema.json()))
    task = sink(tmp_path / "out", format="csv", quote=quote)
    task.write(frame.selectExpr("struct(*) AS value"), batch(schema)).commit("receipt")
    back = source(tmp_path / "out", format="csv", quote=quote, schema="n INT, s STRING").rows()
    assert {row["n"]: row["s"] for row in back} == dict(enumerate(texts))


def test_the_same_batch_again_changes_nothing(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    one = batch(ID)
    for _ in range(2):
        sink(tmp_path).write(ids(spark, 0, 10), one).commit(one.mark.receipt({}))
    assert found_ids(tmp_path) == list(range(10))
    assert sink(tmp_path).committed(batch(ID, epoch=2).mark, "t") == one.mark.receipt({})


def test_a_crash_between_the_mark_and_the_moves_is_made_good(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    sink(tmp_path).write(ids(spark, 0, 10), batch(ID)).commit("receipt")
    (mark,) = (tmp_path / "_headrace").glob("*.json")
    moves = json.loads(mark.read_text())["moves"]
    assert len(moves) == 2
    # The state after a crash: the mark is there, the first of two files was moved.
    old, new = moves[1]
    (tmp_path / old).parent.mkdir(parents=True)
    (tmp_path / new).rename(tmp_path / old)
    assert len(found_ids(tmp_path)) == 5
    assert sink(tmp_path).committed(batch(ID, epoch=2).mark, "t") == "receipt"
    assert found_ids(tmp_path) == list(range(10))


def test_a_crash_before_the_mark_leaves_nothing(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    sink(tmp_path).write(ids(spark, 0, 10), batch(ID, epoch=1))
    task = sink(tmp_path)
    assert task.committed(batch(ID, epoch=2).mark, "t") is None
    task.write(ids(spark, 0, 10), batch(ID, epoch=2)).commit("r")
    assert found_ids(tmp_path) == list(range(10))
    assert not list((tmp_path / "_headrace" / "staging").rglob("part-*"))


def test_a_stale_owner_cannot_damage_what_a_newer_one_committed(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    stale = sink(tmp_path).write(ids(spark, 0, 7), batch(ID, epoch=1))
    sink(tmp_path).write(ids(spark, 0, 10), batch(ID, epoch=2)).commit("new")
    with pytest.raises(StaleEpochError):
        stale.commit("stale")
    next_of_stale = sink(tmp_path).write(ids(spark, 10, 20), batch(ID, 2, epoch=1))
    with pytest.raises(StaleEpochError):
        next_of_stale.commit("stale")
    assert found_ids(tmp_path) == list(range(10))


def test_a_batch_older_than_what_the_target_holds_is_refused(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    task = sink(tmp_path)
    task.write(ids(spark, 0, 1), batch(ID, 5)).commit("r")
    with pytest.raises(StaleEpochError, match="already has batch 5 of c-0"):
        task.committed(batch(ID, 4).mark, "t")


def test_an_aborted_batch_leaves_nothing(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    staged = sink(tmp_path).write(ids(spark, 0, 10), batch(ID))
    staged.abort()
    staged.abort()
    assert visible(tmp_path) == []
    assert not list((tmp_path / "_headrace").rglob("part-*"))


def test_applications_share_a_folder_and_may_have_slashes(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    task = sink(tmp_path)
    for number, name in enumerate(["c/0", "c/0/shop.orders", "c%2F0", "..", "x" * 300]):
        one = batch(ID, application=name)
        task.write(ids(spark, number, number + 1), one).commit(name)
        assert task.committed(one.mark, "t") == name
    assert found_ids(tmp_path) == [0, 1, 2, 3, 4]


def test_a_batch_without_rows_adds_no_file(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    for name in ("parquet", "csv", "json"):
        staged = sink(tmp_path / name, format=name).write(ids(spark, 0, 0), batch(ID))
        assert staged.rows == 0
        staged.commit("r")
        assert visible(tmp_path / name) == []
        assert sink(tmp_path / name).committed(batch(ID).mark, "t") == "r"


def test_fields_become_folders_that_spark_reads_back(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame, schema = records(spark, "SELECT id, id % 2 AS half, 'a/b' AS p FROM range(10)")
    sink(tmp_path, partition_by="half,p").write(frame, batch(schema)).commit("r")
    assert {p.parent.relative_to(tmp_path).as_posix() for p in visible(tmp_path)} == {
        "half=0/p=a%2Fb",
        "half=1/p=a%2Fb",
    }
    back = spark.read.parquet(str(tmp_path))
    assert back.where("half = 1 AND p = 'a/b'").count() == 5


LONG = [
    "repeat('x', 252)",
    "repeat('é', 126)",
    "repeat('中', 84)",
    "concat(repeat('/', 83), 'ab')",
]
"""The longest values that fit the name of a folder with the prefix p= and Spark's escapes."""


def test_a_value_that_cannot_name_a_folder_is_refused(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    values = [*LONG, *(f"concat({each}, 'xxx')" for each in LONG), "concat('a', char(0))"]
    values.append("'__HIVE_DEFAULT_PARTITION__'")  # it would be read as null
    rows = ", ".join(f"({n}, {each})" for n, each in enumerate(values))
    frame, schema = records(spark, f"SELECT * FROM VALUES {rows} AS t(id, p)")  # noqa: S608 - ours
    task = sink(tmp_path, partition_by="p")
    (refusal,) = task.refusals(frame, batch(schema))
    assert refusal.field == "p"
    refused = frame.where(refusal.condition).selectExpr("value.id").collect()
    assert sorted(row.id for row in refused) == [4, 5, 6, 7, 8, 9]
    task.write(frame.where(f"NOT ({refusal.condition})"), batch(schema)).commit("r")
    assert spark.read.parquet(str(tmp_path)).count() == len(LONG)
    with pytest.raises(RecordError, match="cannot be the name of a folder"):
        task.write(frame, batch(schema, 2))


@pytest.mark.parametrize("other", ["a file", "another file system"])
def test_a_batch_is_finished_once_its_partition_is_a_folder(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path, other: str
) -> None:
    frame, schema = records(spark, "SELECT id, id % 2 AS half FROM range(10)")
    task, place = sink(tmp_path, partition_by="half"), tmp_path / "half=1"
    staged = task.write(frame, batch(schema))
    with TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if other == "a file":
            place.touch()
        else:
            place.symlink_to(elsewhere)
        with pytest.raises(SinkError, match="half=1 is not a folder in the file system"):
            staged.commit("r")
    place.unlink()
    assert sink(tmp_path, partition_by="half").committed(batch(schema).mark, "t") == "r"
    assert found_ids(tmp_path) == [*range(10)]


def test_a_topic_in_the_path_gives_each_topic_a_folder(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    task = sink(tmp_path / "${topic}" / "x")
    for topic in ("shop.orders", "../evil"):
        task.write(ids(spark, 0, 1), batch(ID, topic=topic)).commit("r")
    assert {p.parent.relative_to(tmp_path).as_posix() for p in visible(tmp_path)} >= {
        "shop.orders/x",
        ".._evil/x",
    }
    assert visible(tmp_path.parent / "evil") == []


TEXTS: list[tuple[dict[str, str], str, list[str]]] = [
    ({"format": "csv"}, ".csv", ["id,name", '1,"a,""b"""', "2,NA"]),
    (
        {"format": "csv", "header": "false", "delimiter": "tab"},
        ".csv",
        ['1\t"a,""b"""', "2\tNA"],
    ),
    ({"format": "json"}, ".json", ['{"id":1,"name":"a,\\"b\\""}', '{"id":2}']),
    ({"format": "text"}, ".txt", ['{"id":1,"name":"a,\\"b\\""}', '{"id":2}']),
]


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_text_formats(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path, number: int
) -> None:
    keys, name, lines = TEXTS[number]
    sql = "SELECT * FROM VALUES (1, 'a,\"b\"'), (2, NULL) AS t(id, name)"
    frame, schema = records(spark, sql)
    task = sink(tmp_path, **{"null_value": "NA", **keys})
    staged = task.write(frame.coalesce(1), batch(schema))
    assert staged.rows == 2
    staged.commit("r")
    (path,) = visible(tmp_path)
    assert path.name.endswith(name)
    assert path.read_text().splitlines() == lines


BLANKS = [
    " a",
    "a ",
    "\ta\t",
    "\x01a\x1f",
    "  ",
    "\t",
    "\r",
    "\n",
    " , ",
    ' "q" ',
    "",
    "\u00a0a",
]


def test_a_csv_file_has_texts_exactly_as_they_are(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(list(enumerate(BLANKS)), "id BIGINT, name STRING")
    schema = from_spark_json(json.loads(frame.schema.json()))
    rows = frame.coalesce(1).selectExpr("CAST(NULL AS STRING) AS key", "struct(*) AS value")
    sink(tmp_path, format="csv").write(rows, batch(schema)).commit("r")
    (path,) = visible(tmp_path)
    with path.open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == BLANKS


@pytest.mark.parametrize("format_", ["csv", "json", "text"])
def test_text_files_have_times_to_the_microsecond(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path, format_: str
) -> None:
    at = "TIMESTAMP_NTZ '2024-01-02 03:04:05.123'"
    sql = f"SELECT timestamp_micros(1704164645000006) AS a, {at} AS b"
    frame, schema = records(spark, sql)
    sink(tmp_path, format=format_).write(frame, batch(schema)).commit("r")
    (path,) = visible(tmp_path)
    assert "2024-01-02T03:04:05.000006Z" in path.read_text()
    assert "2024-01-02T03:04:05.123000" in path.read_text()


EXTREMES = """
    SELECT * FROM VALUES
    (-0.0D, CAST(1e-45 AS FLOAT), CAST(repeat('9', 38) AS DECIMAL(38,0)),
     CAST('-12345678901234567890.000000000000000001' AS DECIMAL(38,18)),
     TIMESTAMP'9999-12-31T23:59:59.999999Z', DATE'0001-01-01', 9223372036854775807L, X'00FF'),
    (CAST('NaN' AS DOUBLE), CAST('-Infinity' AS FLOAT), NULL, NULL,
     TIMESTAMP'0001-01-01T00:00:00.000001Z', DATE'9999-12-31', -9223372036854775808L, X'')
    AS t(f, g, d, e, t, day, i, b)
"""


@pytest.mark.parametrize("format_", ["json", "csv", "avro", "parquet"])
def test_the_extremes_of_types_come_back_as_they_were(  # noqa: PLR0917 - fixtures
    spark: Any, sink: Sink, source: Any, batch: Describe, tmp_path: Path, format_: str
) -> None:
    frame, schema = records(spark, EXTREMES)
    if format_ == "csv":
        # Bytes are texts there, in Base64.
        frame = frame.selectExpr("struct(value.* except (b)) AS value")
        schema = Schema.struct({f.name: f.schema for f in schema.fields if f.name != "b"})
    sink(tmp_path / "out", format=format_).write(frame, batch(schema)).commit("r")
    ddl = ", ".join(f"{f.name} {sql_type(f.schema)}" for f in schema.fields)
    found = source(tmp_path / "out", format=format_, schema=ddl).step()
    assert in_text(found) == in_text(frame)


def in_text(frame: Any) -> list[str]:
    """Return rows as texts: no value is that of a type in Python which loses something."""
    names = frame.selectExpr("value.*").columns
    columns = [
        f"base64({name})" if name == "b" else f"CAST({name} AS STRING)" for name in names
    ]
    return sorted(
        str(tuple(row)) for row in frame.selectExpr("value.*").selectExpr(*columns).collect()
    )


def test_bytes_are_base64_in_csv(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame, schema = records(spark, "SELECT X'00FF' AS b, 1 AS `a.b`")
    sink(tmp_path, format="csv").write(frame, batch(schema)).commit("r")
    assert visible(tmp_path)[0].read_text() == "b,a.b\nAP8=,1\n"


@pytest.mark.parametrize("format_", ["json", "csv", "text"])
def test_text_files_are_compressed_by_zstd(  # noqa: PLR0917 - fixtures
    spark: Any, sink: Sink, source: Any, batch: Describe, tmp_path: Path, format_: str
) -> None:
    frame, schema = records(spark, "SELECT id, repeat('x', 99) AS s FROM range(1000)")
    written = sink(tmp_path, format=format_, compression="zstd").write(frame, batch(schema))
    assert written.rows == 1000
    written.commit("r")
    assert {path.suffix for path in visible(tmp_path)} == {".zst"}
    again = sink(tmp_path, format=format_, compression="zstd").write(frame, batch(schema, 2))
    again.abort()
    if format_ != "text":
        assert len(source(tmp_path, format=format_).rows()) == 1000


def test_null_is_no_row_of_csv_with_one_column(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame, schema = records(spark, "SELECT * FROM VALUES ('x'), (NULL), ('') AS t(a)")
    task = sink(tmp_path, format="csv")
    (refusal,) = task.refusals(frame, batch(schema))
    assert frame.where(refusal.condition).count() == 1
    with pytest.raises(RecordError, match=r"Set null\.value"):
        task.write(frame, batch(schema))
    sink(tmp_path, format="csv", null_value="NA").write(
        frame.coalesce(1), batch(schema)
    ).commit("r")
    assert visible(tmp_path)[0].read_text() == 'a\nx\nNA\n""\n'


def test_single_values_are_a_column_or_a_line(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 'x' AS value")
    sink(tmp_path / "p").write(frame, batch(Schema.string())).commit("r")
    assert pq.read_table(visible(tmp_path / "p")[0]).to_pylist() == [{"value": "x"}]
    sink(tmp_path / "t", format="text", compression="gzip").write(
        frame, batch(Schema.string())
    ).commit("r")
    assert visible(tmp_path / "t")[0].name.endswith(".txt.gz")


def test_a_tombstone_is_no_row_of_nulls(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT IF(id = 1, NULL, struct(id)) AS value FROM range(3)")
    with pytest.raises(RecordError, match="RecordIsTombstone"):
        sink(tmp_path).write(frame, batch(ID.replaced(optional=True)))
    assert visible(tmp_path) == []


def test_what_a_format_cannot_hold_is_a_clear_error(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    frame, schema = records(spark, "SELECT 1 AS id, array(1) AS tags")
    with pytest.raises(ConfigError, match="does not support tags"):
        sink(tmp_path, format="csv").write(frame, batch(schema))
    with pytest.raises(ConfigError, match="no field day"):
        sink(tmp_path, partition_by="day").write(frame, batch(schema))
    frame, schema = records(spark, "SELECT struct(1 AS `a b`) AS deep")
    with pytest.raises(SinkError, match="the field name 'a b'"):
        sink(tmp_path, format="avro").write(frame, batch(schema))


def test_an_unwritable_folder_is_told_at_the_start(sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written to"):
        sink(tmp_path / "file" / "out")


def test_a_small_batch_is_cheap(
    spark: Any, sink: Sink, batch: Describe, tmp_path: Path
) -> None:
    task = sink(tmp_path)
    source = tmp_path / "_in"
    spark.range(0, 100, 1, 1).selectExpr("id", "CAST(id AS STRING) AS s").write.parquet(
        str(source)
    )
    frame = spark.read.parquet(str(source)).selectExpr("struct(*) AS value")
    schema = Schema.struct({"id": Schema.int64(), "s": Schema.string()})
    best = 10.0
    for number in range(1, 12):
        begun = time.perf_counter()
        task.write(frame, batch(schema, number)).commit("r")
        best = min(best, time.perf_counter() - begun)
    assert best < 1.0, f"the best of 11 took {best:.2f} s, on {os.cpu_count()} cores"
