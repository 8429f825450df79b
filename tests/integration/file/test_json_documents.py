"""JSON documents and values of any kind: as they are, or bad records with what is wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.integration.file.conftest import Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("source", ["arrow"], indirect=True)]

Source = Callable[..., Reading]


def read(source: Source, path: Path, **keys: str) -> tuple[list[Any], list[str]]:
    """Return the rows as JSON, and why others are rejected."""
    frame = source(path, **keys).step()
    assert frame is not None
    found = frame.selectExpr("to_json(struct(value)) AS row", "error.message AS why").collect()
    rows = [json.loads(row.row).get("value") for row in found if row.why is None]
    return rows, [row.why.replace(str(path), "") for row in found if row.why is not None]


@pytest.mark.parametrize(
    ("data", "rows", "bad"),
    [
        ('[{"a":\n1},\r\n {"a":2}]', [{"a": 1}, {"a": 2}], []),
        ('\ufeff{"a": 1}\n', [{"a": 1}], []),
        ("[]", [], []),
        ('{"a":1}{"a":2}', [], ["Invalid JSON: Extra data, in line 1. /a.json."]),
        ('{"a":1}\n\n]', [], ["Invalid JSON: Extra data, in line 3. /a.json."]),
        ('[{"a":1}] x', [], ["Invalid JSON: Extra data, in line 1. /a.json."]),
        (
            '[{"a":1}\n{"a":2}]',
            [],
            ["Invalid JSON: Expecting ',' delimiter, in line 2. /a.json."],
        ),
        ('[{"a":1},]', [], ["Invalid JSON: Expecting value, in line 1. /a.json."]),
        (
            '[{"a":1},\n 5,\n {"a":"x"},{"a":2}]',
            [{"a": 1}, {"a": 2}],
            [
                "Expected an object, got 5. /a.json, line 2.",
                '`a` INT: invalid value "x". /a.json, line 3.',
            ],
        ),
        ("[" * 100_000, [], ["The value is nested too deeply. /a.json."]),
    ],
)
def test_a_document_is_read_as_a_whole_or_not_at_all(
    source: Source, tmp_path: Path, data: str, rows: list[Any], bad: list[str]
) -> None:
    (tmp_path / "a.json").write_text(data, encoding="utf-8", newline="")
    assert read(source, tmp_path, multiline="true", schema="a INT") == (rows, bad)


def test_a_document_in_another_encoding_is_decoded_first(
    source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('[{"a": "\u00fc\u8ba2"}]', encoding="utf-16")
    rows = [{"a": "\u00fc\u8ba2"}]
    assert read(source, tmp_path, multiline="true", encoding="UTF-16") == (rows, [])


def test_a_document_in_no_encoding_is_a_bad_record(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"a": "\xff"}]')
    bad = ["Invalid UTF-8: invalid start byte. /a.json."]
    assert read(source, tmp_path, multiline="true", schema="a STRING") == ([], bad)


def test_a_document_of_any_kind_is_one_record(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n {"a": 1},\n 2\n]')
    keys = {"multiline": "true", "schema": "VARIANT"}
    assert read(source, tmp_path, **keys) == ([[{"a": 1}, 2]], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.0", "-0.0"),
        ("-0", "-0.0"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("0.12345678901234567891", "0.12345678901234567891"),
        ("1e5", "100000.0"),
        ("1.5e300", "1.5E300"),
        ('"a\\u00e9\\n"', '"a\u00e9\\n"'),
        ('{"b":{"c":[null,true]}}', '{"b":{"c":[null,true]}}'),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_variant_is_the_value_that_was_there(
    source: Source, tmp_path: Path, text: str, expected: str, *, whole: bool
) -> None:
    (tmp_path / "a.json").write_text(text if whole else f'{{"v":{text}}}', encoding="utf-8")
    frame = source(tmp_path, schema="VARIANT" if whole else "v VARIANT").step()
    assert frame is not None
    [row] = frame.selectExpr(f"to_json(value{'' if whole else '.v'}) AS v").collect()
    assert row.v == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a":1}{"a":2}', "Invalid JSON: Extra data, at character "),
        (b'"\xff"', "Invalid UTF-8: invalid start byte"),
        (b"1" + b"0" * 38 + b"1", "a VARIANT cannot hold the number 10000000000"),
        (
            b"1.2345678901234567890e5",
            "a VARIANT cannot hold the number 1.2345678901234567890e5",
        ),
        (b"1e400", "a VARIANT cannot hold the number 1e400"),
        (b"NaN", "a VARIANT cannot hold the number NaN"),
        (b'"\\ud800"', "unpaired surrogate"),
        (b'{"x":1,"x":2}', "two fields are called 'x'"),
        (b"[" * 2000 + b"]" * 2000, "The value is nested too deeply"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_what_a_variant_cannot_hold_is_a_bad_record(
    source: Source, tmp_path: Path, value: bytes, why: str, *, whole: bool
) -> None:
    good, bad = (b"1", value) if whole else (b'{"v":1}', b'{"v":' + value + b"}")
    (tmp_path / "a.json").write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    rows, reasons = read(source, tmp_path, schema="VARIANT" if whole else "v VARIANT")
    assert rows == [1 if whole else {"v": 1}] * 2
    assert len(reasons) == 1
    if b"}{" not in value or whole:
        assert why in reasons[0]
    assert reasons[0].endswith(". /a.json, line 2.")


def test_a_text_keeps_what_an_object_names_twice(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"v":{"x":1,"x":2.50}}\n')
    rows = [{"v": '{"x":1,"x":2.50}'}]
    assert read(source, tmp_path, schema="v STRING") == (rows, [])


@pytest.mark.parametrize("codec", ["lz4", "snappy", "deflate", "gzip", "bzip2"])
@pytest.mark.parametrize("format_", ["csv", "json", "text"])
def test_what_spark_compresses_is_read(
    source: Source, tmp_path: Path, codec: str, format_: str
) -> None:
    folder = tmp_path / "in"
    reading = source(tmp_path, format="text")
    rows = reading.spark.range(30_000).selectExpr("concat('row ', repeat(id, 20)) AS value")
    rows.coalesce(1).write.option("compression", codec).format(format_).save(str(folder))
    keys = {"header": "false"} if format_ == "csv" else {}
    frame = source(folder, format=format_, recursive="true", **keys).step()
    assert frame is not None
    column = {"csv": "value._c0", "json": "value.value", "text": "value"}[format_]
    made = frame.selectExpr(f"{column} AS value")
    assert made.exceptAll(rows).count() == 0
    assert made.count() == 30_000


@pytest.mark.parametrize("name", ["a.json.lz4", "a.csv.snappy", "a.csv.deflate"])
def test_what_is_compressed_otherwise_is_refused(
    source: Source, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"id\n1\n2\n3\n" * 100)
    with pytest.raises(Exception, match="cannot be read"):
        source(tmp_path, schema="id INT").rows()


def test_times_of_a_pattern_are_what_the_calendar_has(source: Source, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("d,t\n29/02/2024,1 Jan 2024 3:05 PM\n30/02/2024,\n")
    keys = {"date_format": "dd/MM/yyyy", "timestamp_format": "d MMM yyyy h:mm a"}
    rows, bad = read(source, tmp_path, **keys, schema="d DATE, t TIMESTAMP")
    assert rows == [{"d": "2024-02-29", "t": "2024-01-01T15:05:00.000Z"}]
    assert [why.partition(":")[0] for why in bad] == ["`d` DATE"]


def test_columns_of_a_pattern_are_inferred(source: Source, tmp_path: Path) -> None:
    lines = ["d,t,iso", '29/02/2024,"1 Jan 2024 3:05 PM",2024-01-01', ",,2024-01-02"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    keys = {"date_format": "dd/MM/yyyy", "timestamp_format": "d MMM yyyy h:mm a"}
    rows, _ = read(source, tmp_path, **keys)
    assert rows[0] == {
        "d": "2024-02-29",
        "t": "2024-01-01T15:05:00.000Z",
        "iso": "2024-01-01",
    }


@pytest.mark.parametrize("bad", ['{"id":8}{"id":9}', '[{"id":7},', "[5]", "", "[" * 9999])
@pytest.mark.parametrize("name", ["bad.json", "bad.json.gz"])
def test_documents_at_fault_teach_no_columns(
    source: Source, tmp_path: Path, bad: str, name: str
) -> None:
    data = bad.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    many = json.dumps([{"id": number} for number in range(2_000)])
    (tmp_path / "good.json.gz").write_bytes(gzip.compress(many.encode()))
    rows, reasons = read(source, tmp_path, multiline="true")
    assert len(rows) == 2_000
    assert len(reasons) == (1 if bad else 0)


@pytest.mark.parametrize("value", [{"k" * 60_000: 1}, "x" * 20_000_001], ids=["name", "text"])
def test_what_is_too_large_for_a_variant_is_a_bad_record(
    source: Source, tmp_path: Path, value: Any
) -> None:
    lines = ['{"v":1}', json.dumps({"v": value}), '{"v":2}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    rows, reasons = read(source, tmp_path, schema="v VARIANT")
    assert (rows, len(reasons)) == ([{"v": 1}, {"v": 2}], 1)


def test_deep_variants_are_written_to_parquet(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"a":' * 100 + "1" + "}" * 100)
    frame = source(tmp_path, schema="VARIANT").step()
    assert frame is not None
    frame.select("value").write.parquet(str(tmp_path / "out"))
    [part] = (tmp_path / "out").glob("part-*")
    assert pq.read_metadata(part).num_rows == 1
