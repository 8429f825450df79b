"""Files of other programs are read as they are, or refused with what to do."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
import zlib
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.file.conftest import Reading

from headrace.dataplane import FrameReader
from headrace.sdk import ConfigError, HeadraceError, ReadLimit, Schema, SourceError
from headrace.sdk.sparktypes import from_spark_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("source", ["arrow"], indirect=True)]

Source = Callable[..., Reading]
UTC = dt.UTC
NANOS = 1_700_000_000_123_456_789
EARLY = dt.datetime.fromisoformat("1001-01-07T09:02:03.123456")
AT = dt.datetime.fromisoformat("2023-11-14T22:13:20.123456")


def read(source: Source, path: Path, **keys: str) -> tuple[list[Any], list[str]]:
    """Return the rows, and why others are rejected."""
    frame = source(path, **keys).step()
    found = [] if frame is None else frame.collect()
    bad = [row.error.message for row in found if "error" in row and row.error]
    return [
        tuple(r.value.asDict(recursive=True).values()) for r in found if r.value and not bad
    ], bad


@pytest.mark.parametrize("name", ["2026-11-28T05:05:00.csv", "05:05.jsonl", ":5.parquet"])
def test_a_name_with_a_colon_is_as_good_as_any(
    source: Source, tmp_path: Path, name: str
) -> None:
    table = pa.table({"a": [1, 2]})
    if name.endswith("parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        (tmp_path / name).write_text('{"a":1}\n{"a":2}' if "json" in name else "a\n1\n2\n")
    assert read(source, tmp_path / name) == ([(1,), (2,)], [])


def test_avro_with_a_colon_in_its_name_is_a_clear_error(source: Source, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    with (tmp_path / "05:05.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"a": 1}])
    with pytest.raises(SourceError, match="contains a colon"):
        read(source, tmp_path)


def test_lines_of_text_end_with_a_line_feed_and_keep_a_lone_carriage_return(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "05:05.txt").write_bytes(b"a\r\n\n10 %\r20 %\nz")
    assert source(tmp_path).rows() == ["a", "", "10 %\r20 %", "z"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_of_text_longer_than_the_limit_is_an_error_with_its_place(
    source: Source, tmp_path: Path, name: str
) -> None:
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "wb") as file:
        file.write(b"one\n")
        file.writelines(bytes(1 << 20) for _ in range(100))
        file.write(b"\nthree\n")
    with pytest.raises(Exception, match=r"line 2 of .*a\.txt.* is longer than 64 MiB"):
        source(tmp_path).rows()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"id,name", []),
        (b"id,name\n", []),
        (b"\n\n", []),
        (b"\xef\xbb\xbfid,name\n1,x", [(1, "x")]),
        (b"id,name\r1,a\r2,b\r", [(1, "a"), (2, "b")]),
        (b'"i\nd",name\n1,a\n', [(1, "a")]),
        (b"Name,name\n1,2\n", [(1, 2)]),
        (b"\n\r\nid,name\n1,x\n", [(1, "x")]),
    ],
)
def test_csv_of_odd_forms(
    source: Source, tmp_path: Path, data: bytes, expected: list[Any]
) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    assert read(source, tmp_path) == (expected, [])


def test_a_wide_header_is_read_to_its_end(source: Source, tmp_path: Path) -> None:
    names = [f"a_sensor_with_a_long_name_{number:05}" for number in range(3_000)]
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\n{','.join(['1'] * 3_000)}\n")
    [row] = source(tmp_path).rows()
    assert list(row) == names


@pytest.mark.parametrize("keys", [{}, {"schema": "id INT, name STRING"}])
def test_a_header_without_an_end_is_refused(
    source: Source, tmp_path: Path, keys: dict[str, str]
) -> None:
    (tmp_path / "a.csv").write_text('id,"name\n1,a\n2,b\n')
    with pytest.raises(SourceError, match="a quote in it is not closed"):
        source(tmp_path, **keys).step()


def test_deflate_of_several_streams_is_read_to_its_end(source: Source, tmp_path: Path) -> None:
    streams = zlib.compress(b"1,a\n2,b\n") + zlib.compress(b"3,c\n")
    (tmp_path / "a.csv.deflate").write_bytes(streams)
    keys = {"header": "false", "schema": "id INT, name STRING"}
    assert read(source, tmp_path, **keys) == ([(1, "a"), (2, "b"), (3, "c")], [])


def test_a_file_without_rows_teaches_no_types(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n")
    reading = source(tmp_path)
    assert reading.rows() == []
    (tmp_path / "b.csv").write_text("id,name\n1,x\n")
    assert reading.rows() == [{"id": 1, "name": "x"}]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16-LE", "UTF-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_wide_encodings_are_read_whole(
    source: Source, tmp_path: Path, encoding: str, name: str
) -> None:
    text = (
        'id,name\n1,"\u00fc\n\u8ba2"\n'
        if name == "a.csv"
        else '{"id":1,"name":"\u00fc\\n\u8ba2"}\n'
    )
    (tmp_path / name).write_text(text, encoding=encoding)
    assert read(source, tmp_path, encoding=encoding) == ([(1, "\u00fc\n\u8ba2")], [])


@pytest.mark.parametrize(("name", "text"), [("a.csv", "id\n1\n"), ("a.json", '{"id":1}\n')])
def test_utf_16_is_recognized_where_it_is_not_set(
    source: Source, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-16")
    with pytest.raises(SourceError, match="Set encoding to UTF-16"):
        source(tmp_path).step()


def test_a_schema_names_columns_that_the_header_names_twice(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    with pytest.raises(ConfigError, match="Declare a schema"):
        source(tmp_path).step()
    assert read(source, tmp_path, schema="id INT, other INT") == ([(1, 2)], [])


def test_a_document_of_json_on_several_lines_is_to_be_read_as_one(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{\n "a": [\n  1\n ]\n}\n')
    with pytest.raises(SourceError, match="Set multiline to true"):
        source(tmp_path).step()
    assert read(source, tmp_path, multiline="true") == ([([1],)], [])


def test_an_array_of_json_is_to_be_read_as_a_document(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a":1},{"a":2}]\n')
    with pytest.raises(ConfigError, match="Set multiline to true"):
        source(tmp_path).step()
    assert read(source, tmp_path, multiline="true") == ([(1,), (2,)], [])


@pytest.mark.parametrize(
    "keys", [{"schema": "v VARIANT"}, {"schema": "v INT", "multiline": "true"}]
)
def test_texts_in_single_quotes_are_no_json(
    source: Source, tmp_path: Path, keys: dict[str, str]
) -> None:
    (tmp_path / "a.json").write_text("{'v':1}\n")
    rows, bad = read(source, tmp_path, **keys)
    assert (rows, len(bad)) == ([], 1)


def parquet(tmp_path: Path, **columns: pa.Array) -> Path:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{len(list(folder.iterdir()))}.parquet")
    return folder


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.nulls(1), None),
        (pa.array(np.array([1.5], np.float16)), 1.5),
        (pa.array([3_723_004], pa.time32("ms")), 3_723_004_000),
        (pa.array([3_723_000_004], pa.time64("us")), 3_723_000_004),
        (pa.array([NANOS // 1000 * 1000], pa.timestamp("ns")), AT),
        (pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
        (pa.array([{"n": None}], pa.struct([("n", pa.null())])), {"n": None}),
        (pa.array([[1.5]], pa.list_(pa.float16())), [1.5]),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array([b"x"], pa.large_binary()), b"x"),
    ],
)
def test_parquet_of_odd_types(
    source: Source, tmp_path: Path, array: pa.Array, expected: Any
) -> None:
    folder = parquet(tmp_path, a=array, id=pa.array([7]))
    assert read(source, folder) == ([(expected, 7)], [])


def test_parquet_that_brotli_compressed_is_read_by_arrow(
    source: Source, tmp_path: Path
) -> None:
    pq.write_table(
        pa.table({"id": pa.array([7])}), tmp_path / "a.parquet", compression="brotli"
    )
    assert read(source, tmp_path) == ([(7,)], [])


def test_names_of_parquet_may_differ_in_case_only(source: Source, tmp_path: Path) -> None:
    folder = parquet(tmp_path, Name=pa.array([1]), name=pa.array([2]))
    assert read(source, folder) == ([(1, 2)], [])


def test_int96_is_a_point_in_time(source: Source, tmp_path: Path) -> None:
    for name, time in (("a", AT), ("b", EARLY)):
        table = pa.table({"t": pa.array([time], pa.timestamp("us"))})
        pq.write_table(
            table, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=True
        )
    frame = source(tmp_path).step()
    assert frame is not None
    [value, *_] = from_spark_json(json.loads(frame.schema.json())).fields
    assert [f.schema for f in value.schema.fields] == [Schema.timestamp(optional=True)]
    assert [row.value.t for row in frame.collect()] == [AT, EARLY]


@pytest.mark.parametrize("nested", [False, True])
def test_nanoseconds_of_int96_are_rejected_or_cut(
    source: Source, tmp_path: Path, nested: bool
) -> None:
    times = pa.array([NANOS, NANOS // 1000 * 1000, None], pa.timestamp("ns"))
    if nested:
        times = pa.ListArray.from_arrays([0, 1, 2, 3], times)
    table = pa.table({"t": times})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    frame = source(tmp_path).step()
    assert frame is not None
    errors = [row.error for row in frame.collect()]
    assert [bool(error) for error in errors].count(True) == 1
    assert "789" in next(error.raw for error in errors if error)
    rows, bad = read(source, tmp_path, timestamp_nanos="truncate")
    assert (len(rows), bad) == (3, [])


def test_pandas_writes_nanoseconds_and_columns_of_none(source: Source, tmp_path: Path) -> None:
    times = pd.to_datetime(["2024-01-01", None])
    frame = pd.DataFrame({"i": [1, 2], "t": times, "n": [None, None]})
    frame.to_parquet(tmp_path / "a.parquet")
    rows, bad = read(source, tmp_path)
    assert rows == [(1, dt.datetime.fromisoformat("2024-01-01"), None), (2, None, None)]
    assert bad == []


@pytest.mark.parametrize("nested", [False, True])
def test_nanoseconds_are_rejected_or_cut(source: Source, tmp_path: Path, nested: bool) -> None:
    times = pa.array([NANOS, NANOS - 789, None], pa.timestamp("ns"))
    if nested:
        times = pa.ListArray.from_arrays([0, 1, 3, 3], times)
    folder = parquet(tmp_path, t=times)
    reading = source(folder)
    frame = reading.step()
    assert frame is not None
    bad = [row.error for row in frame.collect() if row.error]
    assert [error.message.partition(";")[0] for error in bad] == ["A time has nanoseconds"]
    assert "789" in bad[0].raw
    rows, bad = read(source, folder, timestamp_nanos="truncate")
    assert (len(rows), bad) == (3, [])
    assert rows[0] == (([AT] if nested else AT),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "t\n2023-11-14T22:13:20.123456789Z\n2023-11-14 22:13:20.1234567\n"),
        (
            "a.json",
            '{"t":"2023-11-14T22:13:20.123456789Z"}\n{"t":"2023-11-14 22:13:20.1234567"}\n',
        ),
    ],
)
def test_nanoseconds_of_texts_are_rejected_or_cut(
    source: Source, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    reading = source(tmp_path, schema="t TIMESTAMP")
    frame = reading.step()
    assert frame is not None
    assert len([row for row in frame.collect() if row.error]) == 2
    keys = {"schema": "t TIMESTAMP", "timestamp_nanos": "truncate"}
    assert read(source, tmp_path, **keys) == ([(AT,), (AT,)], [])


def avro(path: Path, rows: list[dict[str, Any]], **fields: Any) -> None:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": named}, rows)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3), 3_723_000_000),
        (["null", {"type": "int", "logicalType": "time-millis"}], None, None),
        ({"type": "long", "logicalType": "time-micros"}, dt.time(1, 2, 3, 4), 3_723_000_004),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, AT, AT),
        ({"type": "long", "logicalType": "timestamp-micros"}, AT.replace(tzinfo=UTC), AT),
        ({"type": "long", "logicalType": "timestamp-nanos"}, NANOS, NANOS),
        ("null", None, None),
        (["null", "int", "string"], "x", {"member0": None, "member1": "x"}),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab"),
    ],
)
def test_avro_of_odd_types(
    source: Source, tmp_path: Path, kind: Any, value: Any, expected: Any
) -> None:
    avro(tmp_path / "a.avro", [{"id": 1, "a": value}], a=kind, id="long")
    assert read(source, tmp_path) == ([(expected, 1)], [])


def test_avro_of_classes_within_classes(source: Source, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "namespace": "a.Outer$"}
    fields = [{"name": "id", "type": ["null", "long"]}]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {**schema, "fields": fields}, [{"id": 1}])
    assert read(source, tmp_path) == ([(1,)], [])


@pytest.mark.parametrize(
    ("problem", "make"),
    [
        ("differ in case only", lambda path: avro(path / "a.avro", [], A="int", a="int")),
        (
            "is not supported",
            lambda path: pq.write_table(
                pa.table({"d": pa.array([1], pa.duration("us"))}), path / "a.parquet"
            ),
        ),
        (
            "does not fit into Spark's decimals",
            lambda path: pq.write_table(
                pa.table({"d": pa.array([Decimal(10)], pa.decimal256(50))}), path / "a.parquet"
            ),
        ),
        (
            "Avro schema of .*a.avro: Found recursive reference",
            lambda path: avro(path / "a.avro", [], next=["null", "r"]),
        ),
        (
            "Avro schema of .*a.avro: .*Illegal",
            lambda path: avro(
                path / "a.avro", [], e={"type": "enum", "name": "a$b", "symbols": ["x"]}
            ),
        ),
        ("has a field without a name", lambda path: (path / "a.json").write_text('{"":1}\n')),
    ],
)
def test_what_spark_cannot_hold_is_refused(
    source: Source, tmp_path: Path, problem: str, make: Callable[[Path], Any]
) -> None:
    make(tmp_path)
    with pytest.raises(HeadraceError, match=problem):
        source(tmp_path).step()


@pytest.mark.parametrize(
    ("data", "encoding"),
    [(b"one\n\xff\xfe\nthree\n", "UTF-8"), (b"one\n\xff\xff\nthree\n", "GB18030")],
)
def test_a_line_of_text_that_cannot_be_decoded_is_rejected(
    source: Source, tmp_path: Path, data: bytes, encoding: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    frame = source(tmp_path, encoding=encoding).step()
    assert frame is not None
    found = frame.collect()
    assert [row.value for row in found if not row.error] == ["one", "three"]
    (bad,) = [row.error for row in found if row.error]
    assert bad.message.startswith(f"Invalid {encoding}")
    assert "a.txt" in bad.message


@pytest.mark.parametrize("encoding", ["UTF-16", "GB18030", "ISO-8859-1"])
def test_lines_of_text_are_decoded(source: Source, tmp_path: Path, encoding: str) -> None:
    lines = ["\u00fc", "", "x\u00e9"]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding=encoding)
    assert source(tmp_path, encoding=encoding).rows() == lines


@pytest.mark.parametrize(
    ("name", "keys", "reader"),
    [
        ("a.csv", {}, "Arrow"),
        ("a.json", {}, "Arrow"),
        ("a.csv", {"escape": "!"}, "Arrow"),
        ("a.csv", {"date_format": "d.M.yy"}, "Arrow"),
        ("a.csv", {"schema": "id VARIANT"}, "Arrow"),
        ("a.csv", {"delimiter": "§"}, "Arrow"),
        ("a.json", {"multiline": "true"}, "Arrow"),
        ("a.json", {"schema": "id VARIANT"}, "Arrow"),
        ("a.txt", {}, "Arrow"),
        ("a.avro", {}, "Spark, as format is avro"),
    ],
)
def test_who_reads_a_file_is_known(
    source: Source, tmp_path: Path, name: str, keys: dict[str, str], reader: str
) -> None:
    text = '{"id": 1}\n' if "json" in name else "id\n1\n"
    (tmp_path / name).write_text(text, encoding="utf-8")
    if name.endswith("avro"):
        schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
        with (tmp_path / name).open("wb") as file:
            fastavro.writer(file, schema, [{"id": 1}])
    reading = source(tmp_path, **keys)
    end = reading.task.latest(reading.at, ReadLimit())
    found = FrameReader(reading.task).read(reading.spark, reading.at, end).reader
    assert str(found).startswith(reader)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_csv_that_spark_writes_is_read_as_spark_reads_it(
    source: Source, spark: SparkSession, tmp_path: Path, quote: str
) -> None:
    """It puts a backslash before quotes, and before others of its kind."""
    chance = random.Random(7)  # noqa: S311 - no secret
    texts = ["".join(chance.choices("ab,\"'\n\\", k=chance.randint(1, 9))) for _ in range(600)]
    options: Any = {"header": True, "quote": quote, "multiLine": True}
    trims = {"ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}
    frame = spark.createDataFrame(list(pairwise(texts)), "a STRING, b STRING").coalesce(1)
    frame.write.options(**options, **trims).csv(str(tmp_path / "out"))
    theirs = spark.read.schema("a STRING, b STRING").options(**options)
    rows = [tuple(row) for row in theirs.csv(str(tmp_path / "out")).collect()]
    assert len(rows) == len(texts) - 1
    assert read(source, tmp_path / "out", escape="\\", quote=quote) == (rows, [])
