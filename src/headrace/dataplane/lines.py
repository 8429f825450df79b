"""Letters as JSON lines, which people read and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sdk import ConfigError
from headrace.sdk.sqltext import literal
from headrace.topics import letter_headers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ID = "id"
"""Names a letter in its topic: the version that brought it, and its offset there."""

_HEADERS = "array<struct<key:string,value:string,type:string>>"
_TIME = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX"
_TOLD = ("connector", "task", "stage", "class", "exception", "message", "rejected", "topic")


def line_sql() -> str:
    """Return SQL of a letter's line. The key and the value stand in it as they are."""
    parts = {name: f"cause.{name}" for name in _TOLD}
    parts |= {name: f"cause.{name}" for name in ("partition", "position", "sink")}
    told = {ID: ID, **parts, "timestamp": "timestamp", "headers": original_headers()}
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in told.items())
    around = f"to_json(named_struct({pairs}), map('timestampFormat', '{_TIME}'))"
    key, value = (_as_json(name) for name in ("key", "value"))
    head = f"substring({around}, 1, length({around}) - 1)"
    return f"concat({head}, ',\"key\":', {key}, ',\"value\":', {value}, '}}')"


def original_headers() -> str:
    """Return SQL of the headers that the record came with, without the context's."""
    added = ", ".join(literal(name) for name in letter_headers())
    return f"filter(headers, h -> h.key IS NULL OR h.key NOT IN ({added}))"


def checked_repairs(spark: SparkSession, file: Path) -> DataFrame:
    """Read lines that were exported and repaired: what they say of each letter.

    Columns: ``id``, ``new_key``, ``new_value`` (JSON; null where a line has none) and
    ``new_headers``. Raises ConfigError when a line is no JSON, or two name one letter.
    """
    parsed = spark.read.text(str(file)).where("trim(value) <> ''")
    parsed = parsed.selectExpr("try_parse_json(value) AS line")
    rows = parsed.selectExpr(
        "try_variant_get(line, '$.id', 'string') AS id",
        "to_json(try_variant_get(line, '$.key', 'variant')) AS new_key",
        "to_json(try_variant_get(line, '$.value', 'variant')) AS new_value",
        f"try_variant_get(line, '$.headers', '{_HEADERS}') AS new_headers",
    )
    lines, named, different = rows.selectExpr(
        "count(1)", f"count({ID})", f"count(DISTINCT {ID})"
    ).collect()[0]
    if named < lines:
        problem = f"{lines - named} of {lines} lines are no JSON objects with an id."
        raise ConfigError(problem, field="--records", fix="Mend them; keep each line's id.")
    if different < named:
        problem = f"{named - different} lines name a letter that another line names."
        raise ConfigError(problem, field="--records", fix="Keep one line for each letter.")
    return rows


def _as_json(part: str) -> str:
    """Return SQL of a letter's key or value; text that is no record is quoted."""
    wrapped = f"to_json(named_struct('v', {part}))"
    quoted = f"substring({wrapped}, 6, length({wrapped}) - 6)"
    return f"IF({part} IS NULL, 'null', IF(cause.raw IS NULL, {part}, {quoted}))"
