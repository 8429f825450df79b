"""Parses the file of dead letters that were exported and repaired by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.records import in_workers
from headrace.sdk import ConfigError, Schema
from headrace.sdk.arrow import to_arrow
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics.rows import HEADERS

_TEXT = Schema.string(optional=True)
REPAIRS = Schema.struct(
    dict.fromkeys(("id", "new_key", "new_value", "new_text"), _TEXT)
    | {"new_headers": HEADERS.replaced(optional=True)}
)
"""The contents of a line, null if missing: the key and the value as the original JSON text,
``new_text`` the value as a text, and headers."""
_MOST_BYTES = 16 * 2**20
_COMPRESSED = (".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst")
"""Suffixes of files that only Spark reads."""
_SPACE = re.compile(r"[ \t\n\r]*")


def few_repairs(file: Path, connector: str | None = None) -> pa.Table | None:
    """Read a file that fits into memory as ``REPAIRS``; return None if Spark must read it.

    A letter of another connector than ``connector`` gets an id that no letter has, as its own
    is unique in its dead-letter topic only. Raises ConfigError if a line is not JSON, or if two
    lines have the same id.
    """
    if not file.is_file() or file.suffix in _COMPRESSED or file.stat().st_size > _MOST_BYTES:
        return None
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        repairs = pa.Table.from_batches([_parsed(lines, connector)])
    ids = repairs.column("id")
    _check(repairs.num_rows, pc.count(ids).as_py(), pc.count_distinct(ids).as_py())
    return repairs


def repairs_frame(spark: SparkSession, file: Path, connector: str | None = None) -> DataFrame:
    """Read a file of any size as ``REPAIRS``; see ``few_repairs``."""

    def parsed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = batch.column(0).to_pylist()
            yield _parsed((line.decode(errors="replace") for line in lines), connector)

    lines = spark.read.text(str(file)).selectExpr("CAST(value AS BINARY)")
    types = T.StructType.fromJson(to_spark_json(REPAIRS))
    rows = in_workers(lines, parsed, types)
    _check(*rows.selectExpr("count(1)", "count(id)", "count(DISTINCT id)").collect()[0])
    return rows


def _check(lines: int, named: int, different: int) -> None:
    if named < lines:
        problem = f"{lines - named} of {lines} lines are not JSON objects with an id."
        raise ConfigError(problem, field="--records", fix="Fix these lines; keep their ids.")
    if different < named:
        problem = f"{named - different} lines have the same id as another line."
        raise ConfigError(problem, field="--records", fix="Keep one line for each letter.")


def _parsed(lines: Iterable[str], connector: str | None) -> pa.RecordBatch:
    rows = [_repair(line, connector) for line in lines if line.strip()]
    return pa.RecordBatch.from_pylist(rows, to_arrow(REPAIRS))


def _repair(line: str, connector: str | None) -> dict[str, Any]:
    """Return the contents of a line; an empty dict if the line is not a JSON object."""
    try:
        found = _members(line)
    except (ValueError, RecursionError):
        return {}
    value, text = found.get("value", (None, None))
    id_, of = _text(*found.get("id", (None, ""))), found.get("connector", (None, ""))[0]
    if id_ is not None and None not in (of, connector) and of != connector:
        id_ = f"{of}/{id_}"
    return {
        "id": id_,
        "new_key": found.get("key", (None, None))[1],
        "new_value": text,
        "new_text": _text(value, text or ""),
        "new_headers": _headers(found.get("headers", (None, ""))[0]),
    }


def _members(line: str) -> dict[str, tuple[Any, str]]:
    """Return the members of an object, each with its value and its original JSON text.

    Serializing the value again would change the digits of numbers. Raises ValueError if the
    line is not exactly one object.
    """
    pairs: list[tuple[str, tuple[Any, str]]] = []
    at = _past("{", line, 0)
    while not line.startswith("}", at):
        if pairs:
            at = _past(",", line, at)
        name, at = _JSON.raw_decode(line, at)
        at = _past(":", line, at)
        value, end = _JSON.raw_decode(line, at)
        pairs.append((name, (value, line[at:end])))
        at = _past("", line, end)
    if _past("}", line, at) != len(line):
        raise ValueError
    return _unique(pairs)


def _past(sign: str, line: str, at: int) -> int:
    """Return the offset after a sign and the whitespace around it."""
    at = _behind_space(line, at)
    if not line.startswith(sign, at):
        raise ValueError
    return _behind_space(line, at + len(sign))


def _behind_space(line: str, at: int) -> int:
    found = _SPACE.match(line, at)
    assert found is not None  # the pattern also matches the empty string
    return found.end()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if not all(isinstance(name, str) for name, _ in pairs):
        raise ValueError
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
_COMPACT = json.JSONEncoder(separators=(",", ":"))


def _headers(value: Any) -> list[dict[str, str | None] | None] | None:
    if not isinstance(value, list):
        return None
    return [_header(each) if isinstance(each, dict) else None for each in value]


def _header(found: dict[str, Any]) -> dict[str, str | None]:
    parts = {name: found.get(name) for name in ("key", "value", "type")}
    return {name: _text(part, _COMPACT.encode(part)) for name, part in parts.items()}


def _text(value: Any, json_text: str) -> str | None:
    """Return a string as it is, null as None, and any other value as its JSON."""
    if not isinstance(value, str):
        return None if value is None else json_text
    return value.encode(errors="replace").decode()  # half of a surrogate pair is not UTF-8
