"""Times in Spark's datetime patterns are read as Spark's own parser reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace_plugins.connectors.file.formats import TimePattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERNS = {
    "yyyy-MM-dd HH:mm:ss": ["2024-02-29 23:59:59", "2023-02-29 00:00:00", "2024-1-1 00:00:00"],
    "dd/MM/yyyy": ["30/02/2023", "29/02/2024", "1/2/2024", " 01/02/2024", "01/02/2024 "],
    "d.M.yyyy H:m:s": ["1.2.2024 3:4:5", "01.02.2024 03:04:05", "1.2.24 3:4:5"],
    "dd/MM/yyyy HH:mm:ss.SSS": ["01/02/2024 03:04:05.678", "01/02/2024 03:04:05.6"],
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX": [
        "2024-01-02T03:04:05+02:00",
        "2024-01-02T03:04:05.123456Z",
        "2024-01-02T03:04:05",
    ],
    "d MMM yyyy h:mm a": ["2 Jan 2024 12:05 AM", "2 Dec 2024 1:05 PM", "2 Foo 2024 1:05 PM"],
    "dd MMMM yyyy": ["29 February 2024", "29 February 2023"],
    "yyyyMMddHHmmss": ["20240102030405", "2024010203040"],
    "dd/MM/yy": ["01/02/24", "01/02/99"],
    "yyyy-MM-dd": ["2024-02-30", "0001-01-01", "9999-12-31"],
    "yyyy 'o''clock' HH": ["2024 o'clock 05"],
}


@pytest.mark.spark
def test_times_are_read_as_by_spark(spark: SparkSession) -> None:
    found, expected = [], []
    for pattern, texts in PATTERNS.items():
        frame = spark.createDataFrame([(text,) for text in texts], "t STRING")
        rows = frame.selectExpr("t", f'unix_micros(try_to_timestamp(t, "{pattern}")) m')
        expected += [(pattern, row.t, row.m) for row in rows.collect()]
        found += [(pattern, text, _micros(pattern, text)) for text in texts]
    assert found == expected


def _micros(pattern: str, text: str) -> int | None:
    known = TimePattern.of(pattern)
    assert known is not None
    try:
        values: Any = known.read(pa.array([text]))
    except pa.ArrowInvalid:
        return None
    return int(values.cast(pa.int64())[0].as_py())


def test_digits_beyond_microseconds_are_refused_or_cut() -> None:
    pattern = TimePattern.of("yyyy-MM-dd HH:mm:ss.SSSSSSSSS")
    assert pattern is not None
    texts = pa.array(["2024-01-01 00:00:00.123456789"])
    with pytest.raises(pa.ArrowInvalid, match="more than microsecond"):
        pattern.read(texts)
    assert pattern.read(texts, truncates=True)[0].as_py().microsecond == 123_456


@pytest.mark.parametrize("pattern", ["EEE", "yyyy yyyy", "h:mm", "[yyyy", "G yyyy"])
def test_what_cannot_be_read_is_known(pattern: str) -> None:
    assert TimePattern.of(pattern) is None
