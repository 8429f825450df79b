"""Reads open dead letters that fit into memory with Arrow, and files of repaired letters.

Most replays and discards concern few letters, for which Spark's first jobs take seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.records import in_workers
from headrace.sdk import ConfigError, Mark, Position, ReadLimit, Schema
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.delta import AddedFile, staged_parts, staging_folder
from headrace.sdk.folders import write_part
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import to_spark_json
from headrace.topics import LETTERS, Topic, TopicReader, letter_headers, parse_start
from headrace.topics.segments import HEADERS, PART, VERSION, TopicFile, stored_schema

_TEXT = Schema.string(optional=True)
REPAIRS = Schema.struct(
    dict.fromkeys(("id", "new_key", "new_value", "new_text"), _TEXT)
    | {"new_headers": HEADERS.replaced(optional=True)}
)
"""The contents of a line, null if missing: the key and the value as the original JSON text,
``new_text`` the value as a text, and headers."""
_FILE_BYTES = 16 * 2**20
_COMPRESSED = (".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst")
"""Suffixes of files that only Spark reads."""
_SPACE = re.compile(r"[ \t\n\r]*")


def few_repairs(file: Path, connector: str) -> pa.Table | None:
    """Read a file that fits into memory as ``REPAIRS``; return None if Spark must read it.

    A letter of another connector than ``connector`` gets an id that no letter has, as its own
    is unique in its dead-letter topic only. Raises ConfigError if a line is not JSON, or if two
    lines have the same id.
    """
    if not file.is_file() or file.suffix in _COMPRESSED or file.stat().st_size > _FILE_BYTES:
        return None
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        repairs = pa.Table.from_batches([_parsed(lines, connector)])
    ids = repairs.column("id")
    _check(repairs.num_rows, pc.count(ids).as_py(), pc.count_distinct(ids).as_py())
    return repairs


def repairs_frame(spark: SparkSession, file: Path, connector: str) -> DataFrame:
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


def _parsed(lines: Iterable[str], connector: str) -> pa.RecordBatch:
    rows = [_repair(line, connector) for line in lines if line.strip()]
    return pa.RecordBatch.from_pylist(rows, to_arrow(REPAIRS))


def _repair(line: str, connector: str) -> dict[str, Any]:
    """Return the contents of a line; an empty dict if the line is not a JSON object."""
    try:
        found = _members(line)
    except (ValueError, RecursionError):
        return {}
    value, text = found.get("value", (None, None))
    id_, of = _text(*found.get("id", (None, ""))), found.get("connector", (None, ""))[0]
    if id_ is not None and of not in (None, connector):
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
        name, at = _DECODER.raw_decode(line, at)
        at = _past(":", line, at)
        value, end = _DECODER.raw_decode(line, at)
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


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
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


MOST_ROWS = 20_000
"""Limit for the letters of a topic plus the ids in its claims; above it, Spark is used."""
_MOST_BYTES = 64 * 2**20
_BATCH_ROWS = 64
"""Letters per read, after which their size is checked; a letter may have several megabytes."""
IN_LINES = (
    *("connector", "task", "stage", "class", "exception", "message", "rejected"),
    *("topic", "partition", "position", "sink"),
)
"""The fields of a cause that a letter's line contains."""


@dataclass(frozen=True)
class FewLetters:
    """The chosen letters of one topic that no claim has closed.

    Args:
        rows: The columns of ``LETTERS``, ``id``, and ``unfit``: not (yet) a valid record.
    """

    rows: pa.Table

    @classmethod
    def read(
        cls,
        topic: Topic,
        closed: Mapping[Location, int],
        chosen: Callable[[pa.RecordBatch], pa.Array],
        most: int | None = None,
    ) -> Self | None:
        """Return the open letters; None if there are too many letters or too many to scan.

        Args:
            topic: The dead-letter topic.
            closed: The files with the ids of closed letters, and how many rows each has.
            chosen: Returns a mask of the selected letters of a batch.
            most: Only about so many of the oldest are needed, or fewer if they are large.
        """
        reader = TopicReader(topic, start=parse_start(topic, "earliest"))
        start = Position()
        end = reader.latest(start, ReadLimit())
        if reader.count(start, end) + sum(closed.values()) > MOST_ROWS:
            return None
        gone = _ids(closed)
        schema = to_arrow(stored_schema(LETTERS))
        kept: list[pa.RecordBatch] = []
        rows, size_bytes = 0, 0
        read_batches = (
            (file, read)
            for file in reader.files(start, end)
            for read in reader.rows(start, end).read(
                topic.location / file.file.path, schema.names, _BATCH_ROWS
            )
        )
        for file, read in read_batches:
            batch = _named(conform(read, schema), file)
            is_open = pc.invert(pc.is_in(batch.column("id"), value_set=gone))
            batch = batch.filter(pc.and_(is_open, chosen(batch)))
            rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
            if size_bytes > _MOST_BYTES and most is None:
                return None
            kept.append(batch)
            if most is not None and (rows >= most or size_bytes > _MOST_BYTES):
                break
        if not kept:
            kept = [_named(pa.RecordBatch.from_pylist([], schema), None)]
        return cls(pa.Table.from_batches(kept))

    def repaired(self, repairs: pa.Table) -> Self:
        """Return the letters that have a row in ``REPAIRS``, with the repairs applied."""
        named = repairs.column("id").combine_chunks()
        rows = self.rows.filter(pc.is_in(self.rows.column("id"), value_set=named))
        said = repairs.take(pc.index_in(rows.column("id"), value_set=named))
        # A text that was not a valid record must have been changed.
        value, text = rows.column("value"), said.column("new_text")
        both_null = pc.and_(pc.is_null(value), pc.is_null(text))
        same = pc.or_(both_null, pc.fill_null(pc.equal(value, text), fill_value=False))
        left = pc.or_(pc.is_null(said.column("new_value")), same)
        new = {"unfit": pc.and_(rows.column("unfit"), left)}
        for name in ("key", "value", "headers"):
            new[name] = pc.coalesce(said.column(f"new_{name}"), rows.column(name))
        for name, column in new.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return type(self)(rows)

    def groups(self, by: Sequence[str]) -> list[dict[str, Any]]:
        """Count the letters by fields of their cause, and by ``unfit``."""
        fields = self._fields(by).append_column("unfit", self.rows.column("unfit"))
        found = fields.group_by([*by, "unfit"]).aggregate([([], "count_all")])
        return [
            {**{name: group[name] for name in (*by, "unfit")}, "count": group["count_all"]}
            for group in found.to_pylist()
        ]

    def summed(self, by: Sequence[str]) -> list[dict[str, Any]]:
        """Return the number and the time range of the letters by fields of their cause."""
        figures = [([], "count_all"), ("rejected", "min"), ("rejected", "max")]
        found = self._fields([*by, "rejected"]).group_by(by).aggregate(figures)
        return [
            {name: group[name] for name in by}
            | {"letters": group["count_all"]}
            | {"first": _second(group["rejected_min"]), "last": _second(group["rejected_max"])}
            for group in found.to_pylist()
        ]

    def lines(self, limit: int | None = None) -> list[str]:
        """Return the lines of ``export`` of the oldest letters, each without a line end."""
        at = (each.split("-") for each in self.rows.column("id").to_pylist())
        places = [tuple(map(int, each)) for each in at]
        oldest = sorted(range(len(places)), key=places.__getitem__)[:limit]
        rows = self.rows.take(pa.array(oldest, pa.int64()))
        cause, raw = rows.column("cause"), pc.struct_field(rows.column("cause"), "raw")
        parts = {"id": rows.column("id")}
        parts |= {name: pc.struct_field(cause, name) for name in IN_LINES}
        parts |= {
            "rejected": _iso(parts["rejected"]),
            "timestamp": _iso(rows.column("timestamp")),
        }
        around = pa.table(parts).to_pylist()
        headers, found = _original_headers(rows), []
        for each, of_record, is_text, key, value in zip(
            around,
            headers,
            pc.is_valid(raw).to_pylist(),
            rows.column("key").to_pylist(),
            rows.column("value").to_pylist(),
            strict=True,
        ):
            head = _JSON(_present({**each, "headers": of_record}))[:-1]
            # Text that is not a record is quoted; a record is JSON already.
            pair = [
                "null" if part is None else _JSON(part) if is_text else part
                for part in (key, value)
            ]
            found.append(f'{head},"key":{pair[0]},"value":{pair[1]}}}')
        return found

    def stage(
        self, stream: Mapping[str, Any] | None, table: Topic, mark: Mark
    ) -> list[AddedFile]:
        """Stage the claim rows of all letters, or of the valid letters of one stream."""
        rows = self.rows
        if stream is not None:
            fields = self._fields(list(stream)).to_pylist()
            ours = pa.array([each == stream for each in fields], pa.bool_())
            rows = rows.filter(pc.and_not(ours, rows.column("unfit")))
        schema = to_arrow(table.schema())
        found = (each for each in _claimed(rows).to_batches() if each.num_rows)
        batches = (conform(each, schema) for each in found)
        name = write_part(table.location / staging_folder(mark), "snappy", 0, batches)
        return staged_parts(table.location, mark, [] if name is None else [name])

    def _fields(self, names: Sequence[str]) -> pa.Table:
        """Return fields of the letters' causes as columns."""
        cause = self.rows.column("cause")
        return pa.table({name: pc.struct_field(cause, name) for name in names})


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _iso(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.strftime(times, format="%Y-%m-%dT%H:%M:%SZ")


def _second(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"


def _ids(closed: Mapping[Location, int]) -> pa.ChunkedArray:
    ids: list[pa.Array] = []
    for path in closed:
        with path.open_input() as source:
            ids += pq.read_table(source, columns=["id"]).column("id").chunks
    return pa.chunked_array(ids, pa.string())


def _named(rows: pa.RecordBatch, file: TopicFile | None) -> pa.RecordBatch:
    """Add the columns ``id`` (see ``ID``) and ``unfit`` to letters."""
    version = rows.column(VERSION)
    if file is not None:
        version = pc.fill_null(version, file.version)
    numbers = [pc.cast(each, pa.string()) for each in (version, rows.column("offset"))]
    named = rows.append_column("id", pc.binary_join_element_wise(*numbers, "-"))
    unfit = pc.is_valid(pc.struct_field(rows.column("cause"), "raw"))
    return named.append_column("unfit", unfit).drop_columns([VERSION, PART])


def _original_headers(letters: pa.Table) -> list[Any]:
    """Return each record's headers without the context headers."""
    added = letter_headers().keys()
    return [
        each and [h and _present(h) for h in each if h is None or h["key"] not in added]
        for each in letters.column("headers").to_pylist()
    ]


def _claimed(letters: pa.Table) -> pa.Table:
    headers = _original_headers(letters)
    kind = letters.schema.field("headers").type
    partition = pc.struct_field(letters.column("cause"), "partition")
    return pa.table(
        {
            "key": letters.column("key"),
            "value": letters.column("value"),
            "headers": pa.array(headers, kind),
            "timestamp": letters.column("timestamp"),
            "offset": pa.array(range(letters.num_rows), pa.int64()),
            "id": letters.column("id"),
            "partition": partition,
        }
    )
