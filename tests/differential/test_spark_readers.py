"""What Arrow reads of CSV and JSON lines, Spark reads as the same values.

Spark takes more: what stands behind a JSON value, a number for a time, decimals that have to
be rounded. Those rows Headrace rejects. Texts are compared with Python's parsers alone: Spark
writes the numbers in texts of JSON in another form, and takes for null what CSV has in quotes
and is nothing. It knows no ``nan`` in small letters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.differential import test_csv_reading, test_json_reading
from tests.integration.file.conftest import Reading, text_keys
from tests.task_doubles import Context

from headrace.control.connector_settings import source_def
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.source import FileSource

pytestmark = pytest.mark.spark

FILES = 40
JSON_KINDS = ["BIGINT", "SMALLINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "ARRAY<BIGINT>"]
SPARK_CSV: dict[str, Any] = {
    "header": True,
    "multiLine": True,
    "escape": '"',
    "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
}
CSV_KINDS = ["BIGINT", "SMALLINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]


def found(reading: Reading) -> tuple[list[str], int]:
    """Return the rows of a folder as texts, and how many are rejected."""
    frame = reading.step()
    assert frame is not None
    rows = frame.selectExpr("IF(error IS NULL, to_json(value), NULL) AS row").collect()
    good = sorted(row[0] for row in rows if row[0] is not None)
    return good, len(rows) - len(good)


@pytest.fixture
def both(spark: Any, tmp_path: Path) -> Callable[..., list[tuple[list[str], int]]]:
    """Read a folder by the source and by Spark."""
    definition = FileSource.config_def().merged(source_def())
    context = Context(scratch=tmp_path)

    def read(folder: Path, **keys: str) -> list[tuple[list[str], int]]:
        props = {"name": "c", "connector.class": "file", "path": str(folder)}
        parsed = definition.parse(props | {"settle.ms": "0"} | text_keys(keys))
        task = FileSource.task(parsed)
        assert isinstance(task, FileSet)
        task.start(context)
        reading = found(Reading(spark, context, task))
        reader = spark.read.schema(keys["schema"])
        is_json = any(path.suffix == ".json" for path in folder.iterdir())
        frame = reader.json(str(folder)) if is_json else reader.csv(str(folder), **SPARK_CSV)
        rows = frame.selectExpr("to_json(struct(*)) AS row").collect()
        return [reading, (sorted(row[0] for row in rows), 0)]

    return read


@pytest.mark.parametrize("kind", JSON_KINDS)
def test_json_lines(both: Any, tmp_path: Path, kind: str) -> None:
    chance = random.Random(kind)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        data = test_json_reading.written(chance, [kind])
        (tmp_path / "in" / f"{number}.json").write_bytes(data or b"{}\n")
    (arrow, bad), (spark, _) = both(tmp_path / "in", schema=f"c0 {kind}")
    assert bad > 0
    assert len(arrow) > FILES
    # Each row that Arrow gives is one of Spark's, as often as it is there.
    assert missing(arrow, spark) == []


@pytest.mark.parametrize("kind", CSV_KINDS)
def test_csv(both: Any, tmp_path: Path, kind: str) -> None:
    chance = random.Random(kind)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        text = test_csv_reading.written(chance, [kind, "BIGINT"], ",")
        (tmp_path / "in" / f"{number}.csv").write_text(text or "c0,c1\n", newline="")
    (arrow, _), (spark, _) = both(tmp_path / "in", schema=f"c0 {kind}, c1 BIGINT")
    assert len(arrow) > FILES
    alike = [row.replace('"c0":"",', "") for row in arrow if '"c0":"NaN"' not in row]
    assert missing(alike, spark) == []


def missing(some: list[str], others: list[str]) -> list[str]:
    left = list(others)
    lost = []
    for row in some:
        if row in left:
            left.remove(row)
        else:
            lost.append(row)
    return lost
