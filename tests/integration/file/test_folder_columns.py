"""Columns whose values are in the names of folders, as Hive and Spark write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sdk import Position, SourceError
from headrace_plugins.connectors.file.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Source = Callable[..., Any]
FORMATS = ("csv", "json", "parquet", "odd parquet", "avro")


def put(spark: SparkSession, path: Path, format_: str, ids: list[int]) -> None:
    """Write a file with a column ``id``; odd Parquet has nanoseconds, which Arrow reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    match format_:
        case "csv":
            path.write_text("id\n" + "".join(f"{each}\n" for each in ids))
        case "json":
            path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
        case "avro":
            folder = path.parent / "_written"
            spark.createDataFrame(rows.to_pylist()).coalesce(1).write.format("avro").save(
                str(folder)
            )
            next(folder.glob("*.avro")).rename(path)
        case _:
            if format_ == "odd parquet":
                rows = rows.append_column("at", pa.array([0] * len(ids), pa.timestamp("ns")))
            pq.write_table(rows, path)


@pytest.mark.parametrize("format_", FORMATS)
def test_values_are_read_from_the_names_of_folders(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    suffix = format_.rsplit(maxsplit=1)[-1]
    for folder, ids in {
        "day=2026-01-01/city=K%C3%B6ln%2FBonn/n=1": [1, 2],
        "day=2026-01-02/city=a 'b' \"c\",d/n=20": [3],
        "day=__HIVE_DEFAULT_PARTITION__/city=__HIVE_DEFAULT_PARTITION__/n=3": [4],
        "other": [5],
    }.items():
        put(spark, tmp_path / folder / f"x.{suffix}", format_, ids)
    found = source(tmp_path, recursive="true", format=suffix).rows()
    names = ("id", "day", "city", "n")
    assert sorted([tuple(row[name] for name in names) for row in found]) == [
        (1, date(2026, 1, 1), "Köln/Bonn", 1),
        (2, date(2026, 1, 1), "Köln/Bonn", 1),
        (3, date(2026, 1, 2), "a 'b' \"c\",d", 20),
        (4, None, None, 3),
        (5, None, None, None),
    ]
    assert list(found[0])[:1] == ["id"]
    assert list(found[0])[-3:] == ["day", "city", "n"]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_declared_schema_decides_which_are_read_and_as_what(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    suffix = format_.rsplit(maxsplit=1)[-1]
    put(spark, tmp_path / "in" / "a=1" / "b=007" / f"x.{suffix}", format_, [1])
    read = source(f"{tmp_path}/in/*/*/*", format=suffix, schema="b STRING, id BIGINT")
    assert read.rows() == [{"b": "007", "id": 1}]


def test_what_spark_writes_is_read_as_it_was(
    source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        (n, date(2026, 1, 1 + n % 3), None if n % 5 == 0 else f"{n % 4}/ü=%") for n in range(99)
    ]
    frame = spark.createDataFrame(rows, "id INT, day DATE, city STRING")
    frame.write.partitionBy("day", "city").parquet(str(tmp_path / "in"))
    found = source(tmp_path / "in", recursive="true", format="parquet").rows()
    assert sorted(tuple(row.values()) for row in found) == rows


def test_parquet_is_read_by_arrow_only_if_that_gives_the_same_rows(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "n=1").mkdir()
    days = pa.array([date(1000, 1, 1)])
    rows = pa.table({"id": [1], "day": days})
    pq.write_table(rows, tmp_path / "n=1" / "new.parquet")
    assert source(tmp_path, recursive="true", format="parquet").read_by() == "Arrow"
    keys = {"recursive": "true", "format": "parquet", "schema": "id STRING, n BIGINT"}
    declared = source(tmp_path, **keys)
    assert declared.read_by().startswith("Spark")
    assert declared.rows() == [{"id": "1", "n": 1}]
    old = rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    pq.write_table(old, tmp_path / "n=1" / "old.parquet")
    read = source(tmp_path, recursive="true", format="parquet")
    assert read.read_by().startswith("Spark")
    assert sorted(str(row["day"]) for row in read.rows()) == ["0999-12-27", "1000-01-01"]


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_each_file_of_many_has_its_own_value(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    for number in range(12):
        put(spark, tmp_path / f"n={number}" / f"x.{format_}", format_, [number])
    found = source(tmp_path, recursive="true", format=format_).rows()
    assert sorted((row["id"], row["n"]) for row in found) == [(n, n) for n in range(12)]


def test_a_column_of_the_file_itself_is_read_from_the_file(
    source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    for name, text in {"own.csv": "id,day\n1,monday\n", "none.csv": "id\n2\n"}.items():
        path = tmp_path / "day=friday" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = source(tmp_path, recursive="true", format="csv").rows()
    assert sorted(map(str, found)) == [
        "{'id': 1, 'day': 'monday'}",
        "{'id': 2, 'day': 'friday'}",
    ]


@pytest.mark.parametrize("schema", ["infer", "id BIGINT, n STRUCT<a: BIGINT>"])
def test_a_json_file_that_has_the_column_keeps_its_values(
    source: Source, tmp_path: Path, schema: str
) -> None:
    for name, text in {
        "n=web/x.json": '{"id":1,"n":{"a":5}}\n{"id":2}\n',
        "n=__HIVE_DEFAULT_PARTITION__/y.json": '{"id":3}\n',
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    found = source(tmp_path, recursive="true", format="json", schema=schema).rows()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "n": {"a": 5}},
        {"id": 2, "n": None},
        {"id": 3, "n": None},
    ]


def test_each_json_file_may_have_the_column_or_be_in_its_folder(
    source: Source, tmp_path: Path
) -> None:
    for name, text in {"n=5/x.json": '{"id":1,"n":7}\n', "n=6/y.json": '{"id":2}\n'}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    found = source(tmp_path, recursive="true", format="json").rows()
    assert sorted((row["id"], row["n"]) for row in found) == [(1, 7), (2, 6)]


@pytest.mark.parametrize("schema", ["infer", "_c0 BIGINT, day DATE, _c1 STRING"])
def test_files_without_a_header_have_fewer_values_than_the_schema(
    source: Source, tmp_path: Path, schema: str
) -> None:
    (tmp_path / "day=2026-01-31").mkdir()
    (tmp_path / "day=2026-01-31" / "x.csv").write_text("1,a\n2,b\n")
    read = source(tmp_path, recursive="true", format="csv", header="false", schema=schema)
    assert [(row["_c0"], row["_c1"], row["day"]) for row in read.rows()] == [
        (1, "a", date(2026, 1, 31)),
        (2, "b", date(2026, 1, 31)),
    ]


def test_a_later_folder_may_add_a_column(source: Source, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id\n1\n")
    read = source(tmp_path, recursive="true", format="csv")
    assert read.rows() == [{"id": 1}]
    (tmp_path / "day=2026-01-31").mkdir()
    (tmp_path / "day=2026-01-31" / "y.csv").write_text("id\n2\n")
    assert read.rows() == [{"id": 2, "day": date(2026, 1, 31)}]


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_folder_that_has_no_value_of_its_type_is_an_error(
    source: Source, spark: SparkSession, context: Any, tmp_path: Path, format_: str
) -> None:
    put(spark, tmp_path / "n=1" / f"x.{format_}", format_, [1])
    read = source(tmp_path, recursive="true", format=format_)
    assert read.rows() == [{"id": 1, "n": 1}]
    put(spark, tmp_path / "n=2a" / f"x.{format_}", format_, [2])
    with pytest.raises(SourceError) as raised:
        read.rows()
    assert f"n=2a/x.{format_}" in raised.value.problem
    assert "`n` BIGINT: invalid value '2a'" in raised.value.problem
    assert "partition.columns" in raised.value.fix
    again = source(tmp_path, recursive="true", format=format_, partition_columns="false")
    again.at = Position.of({"path": str(tmp_path)}, {"files": 1})
    assert [row["id"] for row in again.rows()] == [2]


def test_a_required_column_may_be_that_of_a_folder(
    source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "n=5").mkdir()
    (tmp_path / "n=5" / "x.csv").write_text("id\n1\n")
    read = source(
        tmp_path, recursive="true", schema="id BIGINT NOT NULL, n INT NOT NULL", format="csv"
    )
    assert read.rows() == [{"id": 1, "n": 5}]
    (tmp_path / "y.csv").write_text("id\n2\n")
    frame = read.step()
    assert frame is not None
    assert frame.where("error IS NULL").count() == 0
    put(spark, tmp_path / "n=6" / "z.csv", "csv", [3])
    put(spark, tmp_path / "w.csv", "csv", [4])
    frame = read.step()
    assert [row.value.asDict() for row in frame.where("error IS NULL").collect()] == [
        {"id": 3, "n": 6}
    ]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("k INT", "1\n2\n"),
        ("day DATE, v STRING", "2026-01-31,a\n2026-01-30,b\n"),
    ],
)
def test_files_without_a_header_may_have_the_folders_columns_themselves(
    source: Source, tmp_path: Path, schema: str, text: str
) -> None:
    folder = tmp_path / "k=5" / "day=2020-02-20"
    folder.mkdir(parents=True)
    (folder / "x.csv").write_text(text)
    read = source(tmp_path, recursive="true", format="csv", header="false", schema=schema)
    assert [",".join(map(str, row.values())) for row in read.rows()] == text.split()


def test_no_record_of_another_width_is_lost(source: Source, tmp_path: Path) -> None:
    (tmp_path / "k=5").mkdir()
    (tmp_path / "k=5" / "x.csv").write_text("1,a\n2,b\n3,c\n")
    read = source(tmp_path, recursive="true", format="csv", header="false", schema="k INT")
    frame = read.step()
    assert frame.where("error IS NOT NULL").count() == frame.count() == 3


@pytest.mark.parametrize("folder", ["", "day=D"])
def test_an_inferred_schema_of_headers_is_that_of_files_without(
    source: Source, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "x.csv").write_text("id,n\n1,a\n")
    keys = {"format": "csv", "recursive": "true"}
    assert source(tmp_path, **keys).rows() == [{"id": 1, "n": "a"}]
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "y.csv").write_text("2,b\n3,c\n")
    read = source(tmp_path, **keys, header="false")
    read.at = Position.of({"path": str(tmp_path)}, {"files": 1})
    day = {"day": "D"} if folder else {}
    assert read.rows() == [{"id": 2, "n": "b", **day}, {"id": 3, "n": "c", **day}]


@pytest.mark.parametrize(
    ("schema", "header", "expected"),
    [
        ("id STRING, day STRING", "a,b", {"id": "1", "day": "2"}),
        ("id STRING, day STRING", "a", {"id": "1", "day": "D"}),
        ("id STRING, day STRING", "id,other", {"id": "1", "day": "D"}),
        ("id STRING, day STRING", "day,id", {"id": "2", "day": "1"}),
        ("x STRING, y STRING, day STRING", "a,b", {"x": "1", "y": "2", "day": "D"}),
        ("day STRING", "id", {"day": "D"}),
        ("day STRING", "id,v", {"day": "D"}),
        ("day STRING", "day", {"day": "1"}),
    ],
)
def test_a_header_is_renamed_only_if_it_has_no_name_of_the_schema(
    source: Source, tmp_path: Path, schema: str, header: str, expected: dict[str, str]
) -> None:
    (tmp_path / "day=D").mkdir()
    values = "1,2" if "," in header else "1"
    (tmp_path / "day=D" / "x.csv").write_text(f"{header}\n{values}\n")
    read = source(tmp_path, recursive="true", format="csv", schema=schema)
    assert read.rows() == [expected]


@pytest.mark.parametrize("first", ["5,b,77", "#c", "\udcff,a"])
def test_an_odd_first_record_without_a_header_is_the_only_one_that_is_rejected(
    source: Source, tmp_path: Path, first: str
) -> None:
    (tmp_path / "n=1").mkdir()
    (tmp_path / "n=1" / "x.csv").write_text("1,a\n")
    read = source(tmp_path, recursive="true", format="csv", header="false")
    assert read.rows() == [{"_c0": 1, "_c1": "a", "n": 1}]
    (tmp_path / "n=2").mkdir()
    text = f"{first}\n2,b\n3,c\n"
    (tmp_path / "n=2" / "y.csv").write_bytes(text.encode(errors="surrogateescape"))
    frame = read.step()
    good = frame.where("error IS NULL").collect()
    assert [tuple(row.value) for row in good] == [(2, "b", 2), (3, "c", 2)]
    assert frame.count() == 3


def test_a_long_first_value_without_a_header_is_read(source: Source, tmp_path: Path) -> None:
    (tmp_path / "n=1").mkdir()
    (tmp_path / "n=1" / "x.csv").write_text(f"{'x' * 200_000}\ny\n")
    read = source(
        tmp_path, recursive="true", format="csv", header="false", schema="t STRING, n INT"
    )
    assert [(len(row["t"]), row["n"]) for row in read.rows()] == [(200_000, 1), (1, 1)]


def test_nulls_in_required_columns_of_parquet_are_read_as_spark_does(
    source: Source, tmp_path: Path
) -> None:
    for folder in ("n=4", "n=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"id": [1, None]}), tmp_path / folder / "x.parquet")
    keys = {"recursive": "true", "format": "parquet"}
    found = source(tmp_path, **keys, schema="id BIGINT NOT NULL, n INT NOT NULL").rows()
    assert sorted(map(str, found)) == sorted(
        str({"id": id_, "n": n}) for id_ in (1, None) for n in (4, None)
    )


def test_only_the_wanted_columns_of_parquet_are_read(source: Source, tmp_path: Path) -> None:
    (tmp_path / "n=4").mkdir()
    rows = pa.table({"a": [1, 2], "b.c": [3, 4], "d": [5, 6]})
    pq.write_table(rows, tmp_path / "n=4" / "x.parquet")
    keys = {"recursive": "true", "format": "parquet"}
    assert source(tmp_path, **keys, schema="n BIGINT").rows() == [{"n": 4}, {"n": 4}]
    found = source(tmp_path, **keys, schema="`b.c` BIGINT, n BIGINT").rows()
    assert found == [{"b.c": 3, "n": 4}, {"b.c": 4, "n": 4}]


def test_names_that_differ_in_case_are_the_files_own(source: Source, tmp_path: Path) -> None:
    (tmp_path / "Day=1").mkdir()
    (tmp_path / "Day=1" / "x.csv").write_text("id,day\n1,2\n")
    assert source(tmp_path, recursive="true", format="csv").rows() == [{"id": 1, "day": 2}]


def test_times_of_folders_are_in_iso_8601(source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "day=2026-01-31" / "at=2026-01-31 10%3A00%3A00"
    folder.mkdir(parents=True)
    (folder / "x.csv").write_text("id,on\n1,31.12.2025\n")
    keys = {"recursive": "true", "format": "csv", "time_zone": "Europe/Paris"}
    [row] = source(tmp_path, **keys, date_format="dd.MM.yyyy").rows()
    assert (row["on"], row["day"]) == (date(2025, 12, 31), date(2026, 1, 31))
    assert row["at"].isoformat() == "2026-01-31T09:00:00"


def test_a_name_that_is_not_in_utf_8_is_decoded_as_far_as_possible(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "%FFx=1").mkdir()
    (tmp_path / "%FFx=1" / "x.csv").write_text("id\n1\n")
    assert source(tmp_path, recursive="true", format="csv").rows() == [{"id": 1, "\ufffdx": 1}]


def test_a_folder_may_begin_with_an_underscore_if_it_is_a_partition(
    source: Source, tmp_path: Path
) -> None:
    for folder in ("_year=2026", "_tmp", ".n=1", "_year=2027/_n=2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.csv").write_text("id\n1\n")
        (tmp_path / folder / "_a=b.csv").write_text("id\n2\n")
    for path in (tmp_path, f"{tmp_path}/_year=*/**/*.csv", f"{tmp_path}/**/*.csv"):
        found = source(path, recursive="true", format="csv").rows()
        assert sorted(row["_year"] for row in found) == [2026, 2027]


@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "avro"])
@pytest.mark.parametrize("schema", ["infer", "id BIGINT, city STRING"])
def test_a_folder_in_another_case_has_the_values_of_the_column(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str, schema: str
) -> None:
    put(spark, tmp_path / "city=Oslo" / f"x.{format_}", format_, [1])
    put(spark, tmp_path / "City=Rom" / f"y.{format_}", format_, [2])
    found = source(tmp_path, recursive="true", format=format_, schema=schema).rows()
    name = list(found[0])[1]
    assert sorted((row["id"], row[name]) for row in found) == [(1, "Oslo"), (2, "Rom")]


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_a_declared_column_in_another_case_is_an_error(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    put(spark, tmp_path / "in" / f"x.{format_}", format_, [1])
    with pytest.raises(SourceError, match="has the column id; the schema declares ID"):
        source(tmp_path / "in", format=format_, schema="ID BIGINT").rows()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_later_folder_does_not_change_the_type_of_a_column(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    suffix = format_.rsplit(maxsplit=1)[-1]
    big = 9007199254740993
    put(spark, tmp_path / f"n={big}" / f"a.{suffix}", format_, [1])
    read = source(tmp_path, recursive="true", format=suffix)
    assert [row["n"] for row in read.rows()] == [big]
    put(spark, tmp_path / "n=1.5" / f"b.{suffix}", format_, [2])
    with pytest.raises(SourceError, match=r"n=1\.5/.* has no value of its column"):
        read.rows()
    (tmp_path / "n=1.5").rename(tmp_path / "n=2")
    again = source(tmp_path, recursive="true", format=suffix)
    assert sorted(row["n"] for row in again.rows()) == [2, big]


@pytest.mark.parametrize("space", ["\u3000", "\u00a0", "\u0085", "\u2028"])
@pytest.mark.parametrize("format_", ["csv", "parquet", "avro"])
def test_spaces_beyond_ascii_are_characters_like_others(
    source: Source, spark: SparkSession, tmp_path: Path, format_: str, space: str
) -> None:
    for number, city in enumerate([f"a{space}b", "c"]):
        put(spark, tmp_path / f"city={city}" / f"x.{format_}", format_, [number])
    read = source(tmp_path, recursive="true", format=format_, schema="id BIGINT, city STRING")
    assert sorted((row["id"], row["city"]) for row in read.rows()) == [
        (0, f"a{space}b"),
        (1, "c"),
    ]


def test_a_name_that_is_not_utf_8_hides_no_other_column(
    source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    put(spark, tmp_path / "day=2026-01-31" / "city=K%F6ln" / "a.csv", "csv", [1])
    with pytest.raises(SourceError, match="Invalid UTF-8"):
        source(tmp_path, recursive="true").rows()


def test_a_json_file_with_a_long_first_line_keeps_its_nulls(
    source: Source, tmp_path: Path
) -> None:
    lines = [{"n": 7, "note": "x" * 20_000}, {"n": None, "note": ""}]
    path = tmp_path / "n=5" / "a.json"
    path.parent.mkdir()
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = source(tmp_path, recursive="true", format="json").rows()
    assert [row["n"] for row in found] == [7, None]


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_columns_of_each_of_many_first_files_are_read(
    source: Source, tmp_path: Path, format_: str
) -> None:
    for number in range(6):
        row: dict[str, Any] = {"id": number} | ({"x": "X"} if number == 1 else {})
        text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
        path = tmp_path / f"{number}.{format_}"
        path.write_text(text if format_ == "csv" else f"{json.dumps(row)}\n")
    read = source(tmp_path, format=format_)
    first = read.rows()
    assert [row["x"] for row in first] == [None, "X", None, None, None, None]


def test_a_document_is_not_parsed_again_to_find_its_columns(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "n=5" / "a.json"
    path.parent.mkdir()
    path.write_text('[{"id": 1}, {"id": 2}]')
    sizes, sample = [], Columns._sample

    def counted(self: Columns, path: str, size_bytes: int) -> bytes:
        sizes.append(size_bytes)
        return sample(self, path, size_bytes)

    monkeypatch.setattr(Columns, "_sample", counted)
    read = source(tmp_path, recursive="true", format="json", multiline="true")
    assert [(row["id"], row["n"]) for row in read.rows()] == [(1, 5), (2, 5)]
    assert len(sizes) == 3  # of some files, of all, and for the columns that it has itself
