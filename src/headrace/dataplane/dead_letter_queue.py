"""Reads a dead-letter topic, and replays or discards its letters."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.arrow_letters import IN_LINES, FewLetters, few_repairs, repairs_frame
from headrace.dataplane.json_sql import CORRUPT, null_sql, parse_sql, value_sql
from headrace.dataplane.records import NO_ERROR, declared
from headrace.dataplane.sources import SourceFrame, TopicSource
from headrace.dataplane.topic_sinks import fitted
from headrace.model import TopicNotFoundError
from headrace.sdk import Lag, Mark, Position, ReadLimit, Schema, StateError, check_range
from headrace.sdk.delta import AddedFile, stage_parquet
from headrace.sdk.deltalog import load_table
from headrace.sdk.errors import StaleEpochError
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import schema_from_json, to_spark_json
from headrace.sdk.sqltext import literal, sql_type
from headrace.sdk.transform import DATA_EXCEPTION
from headrace.topics import (
    LETTERS,
    Topic,
    TopicReader,
    letter_headers,
    parse_start,
    topic_row_schema,
)
from headrace.topics.table_log import Commit

ID = "id"
"""Identifies a letter in its topic: the version that added it, and its offset in it."""

_TIME = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX"


def line_sql() -> str:
    """Return SQL of a letter's line. It contains the key and the value unchanged."""
    parts = {name: f"cause.{name}" for name in IN_LINES}
    line = {ID: ID, **parts, "timestamp": "timestamp", "headers": original_headers()}
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in line.items())
    around = f"to_json(named_struct({pairs}), map('timestampFormat', '{_TIME}'))"
    key, value = (_as_json(name) for name in ("key", "value"))
    head = f"substring({around}, 1, length({around}) - 1)"
    return f"concat({head}, ',\"key\":', {key}, ',\"value\":', {value}, '}}')"


def original_headers() -> str:
    """Return SQL of the record's original headers, without the context headers."""
    added = ", ".join(literal(name) for name in letter_headers())
    return f"filter(headers, h -> h.key IS NULL OR h.key NOT IN ({added}))"


def _as_json(part: str) -> str:
    """Return SQL of a letter's key or value as JSON; quotes text that is not a record."""
    wrapped = f"to_json(named_struct('v', {part}))"
    quoted = f"substring({wrapped}, 6, length({wrapped}) - 6)"
    return f"IF({part} IS NULL, 'null', IF(cause.raw IS NULL, {part}, {quoted}))"


_FOLDER = "~letters"
"""Beside the topics; "~" is not allowed in the name of a topic."""
_TEXT = Schema.string(optional=True)
_PARSED_ALONE = 100
"""Up to this many fields are parsed one by one to find the one that does not fit."""
_SHOWN_CHARS = 500
_CLAIMED = Schema.struct(
    {f.name: f.schema for f in topic_row_schema(_TEXT, _TEXT).fields}
    | {ID: _TEXT, "partition": Schema.int32(optional=True)}
)
_SECOND = "yyyy-MM-dd\\'T\\'HH:mm:ssXXX"
_FIGURES = (
    "count(1) AS letters",
    f"date_format(min(rejected), '{_SECOND}') AS first",
    f"date_format(max(rejected), '{_SECOND}') AS last",
)
_STREAM = ("topic", "key_schema", "value_schema", "sink", "sink_name")
"""The common properties of a claim's letters, which are replayed as one batch."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Selects letters; None means any.

    Args:
        stage: Kafka Connect's name of the stage.
        exception: The class of the error, with or without its package.
        since, until: The start time of the batch that rejected them: inclusive, exclusive.
    """

    connector: str | None = None
    stage: str | None = None
    exception: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: Sequence[str] = ()

    def sql(self) -> str:
        found = ["true"]
        for name, value in (("connector", self.connector), ("stage", self.stage)):
            if value is not None:
                found.append(f"cause.{name} = {literal(value)}")
        if self.exception is not None:
            last = "regexp_extract(cause.exception, '[^.$]*$', 0)"
            found.append(f"{literal(self.exception)} IN (cause.exception, {last})")
        for sign, bound in ((">=", self.since), ("<", self.until)):
            if bound is not None:
                micros = int(bound.timestamp() * 1_000_000)
                found.append(f"cause.rejected {sign} timestamp_micros({micros})")
        if self.ids:
            found.append(f"{ID} IN ({', '.join(literal(each) for each in self.ids)})")
        return " AND ".join(found)

    def matches(self, letters: pa.RecordBatch) -> pa.Array:
        """Return the mask of the chosen letters, like ``sql``; needs columns cause and id."""
        cause = letters.column("cause")
        found = [pc.is_valid(cause)]
        for name, value in (("connector", self.connector), ("stage", self.stage)):
            if value is not None:
                found.append(pc.equal(pc.struct_field(cause, name), value))
        if self.exception is not None:
            named = pc.struct_field(cause, "exception")
            last = pc.replace_substring_regex(named, r"(?s)^.*[.$]", "")
            found.append(pc.or_(*(pc.equal(n, self.exception) for n in (named, last))))
        for is_within, bound in ((pc.greater_equal, self.since), (pc.less, self.until)):
            if bound is not None:
                micros = int(bound.timestamp() * 1_000_000)
                at = pa.scalar(micros, pa.timestamp("us", "UTC"))
                found.append(is_within(pc.struct_field(cause, "rejected"), at))
        if self.ids:
            found.append(pc.is_in(letters.column(ID), value_set=pa.array(self.ids)))
        return reduce(pc.and_, (pc.fill_null(each, fill_value=False) for each in found))


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of claiming letters for a replay.

    Args:
        records: How many letters will be replayed.
        unrepaired: How many chosen letters were skipped, since they are not valid records yet.
        unknown: How many lines of the file have the id of a letter that is not open.
    """

    records: int
    unrepaired: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class _FrameLetters:
    """Any number of open letters, in Spark; see ``FewLetters``."""

    frame: DataFrame

    def groups(self, by: Sequence[str]) -> list[dict[str, Any]]:
        # One job for both counts: a job costs more than the letters of most replays.
        counted = self.frame.selectExpr("cause.*", "unfit").groupBy(*by, "unfit").count()
        return [row.asDict() for row in counted.collect()]

    def stage(
        self, stream: Mapping[str, Any] | None, table: Topic, mark: Mark
    ) -> list[AddedFile]:
        letters = self.frame
        if stream is not None:
            same = [f"cause.{n} <=> {_sql(v)}" for n, v in stream.items()]
            letters = letters.where(" AND ".join(["NOT unfit", *same]))
        rows = letters.selectExpr(
            "key",
            "value",
            f"{original_headers()} AS headers",
            "timestamp",
            "monotonically_increasing_id() AS offset",
            ID,
            "cause.partition AS partition",
        )
        return stage_parquet(fitted(rows, table.schema()), table.location, mark)


class DeadLetterQueue:
    """The letters of one topic. A letter is open until it is replayed or discarded.

    Letters are claimed for a replay or a discard in one transaction of a table beside the
    topics. A replay delivers only its claimed letters, so that no letter is sent twice, even if
    the replay is requested several times or killed. A claim closes letters of the topic's table
    at that time, not of a topic that was created again.
    """

    def __init__(
        self, spark: Callable[[], SparkSession], topic: Topic, folder: Location
    ) -> None:
        """Open ``topic``.

        Args:
            spark: Returns the session; counting and claiming a few letters does not need it.
            topic: The dead-letter topic.
            folder: The folder of all topics.
        """
        if not topic.exists() or topic.schema().field("cause") is None:
            problem = f"{topic.name} is not a dead-letter topic, or has no letters yet."
            raise TopicNotFoundError(problem, field="TOPIC", fix="See `headrace dlq list`.")
        topic.prepare(LETTERS)  # add columns that an older table may lack
        self._spark = spark
        self._topic = topic
        self._table = str(load_table(topic.location).metadata().id)
        self._claims = claims_of(topic.name, folder)

    def groups(self, chosen: DeadLetterFilter) -> list[dict[str, Any]]:
        """Return the number and the time range of the open letters by connector and cause."""
        by = ("connector", "stage", "class", "exception")
        if (few := self._few(chosen)) is not None:
            found = few.summed(by)
        else:
            rows = self._open(chosen).selectExpr("cause.*").groupBy(*by)
            figures = (F.expr(sql) for sql in _FIGURES)
            found = [row.asDict() for row in rows.agg(*figures).collect()]
        return sorted(found, key=lambda group: [group[name] or "" for name in by])

    def lines(self, chosen: DeadLetterFilter, rows: int) -> list[dict[str, Any]]:
        """Return the oldest open letters in the form of ``export``; fewer if they are large."""
        if (few := self._few(chosen, rows)) is not None:
            return [json.loads(line) for line in few.lines(rows)]
        frame = self._open(chosen).orderBy("position").limit(rows)
        return [json.loads(row[0]) for row in frame.selectExpr(line_sql()).collect()]

    def export(self, chosen: DeadLetterFilter, file: Path) -> int:
        """Write the open letters as JSON lines for repair by hand; return how many."""
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".letters-") as folder:
            whole, parts = Path(folder) / "all", Path(folder) / "parts"
            if (few := self._few(chosen)) is not None:
                lines = few.lines()
                whole.write_text("".join(f"{line}\n" for line in lines), "utf-8")
                count = len(lines)
            else:
                frame = self._open(chosen).orderBy("position")
                frame.selectExpr(f"{line_sql()} AS value").write.text(str(parts))
                count = _joined(sorted(parts.glob("part-*")), whole)
            whole.replace(file)
        return count

    def discard(self, chosen: DeadLetterFilter) -> int:
        """Close open letters; return how many. They stay in the topic."""
        at = self._next()
        letters = self._few(chosen) or _FrameLetters(self._open(chosen))
        return self._claim(letters, None, {"action": "discard"}, at)

    def claim(
        self,
        connector: str,
        chosen: DeadLetterFilter,
        repaired: Path | None,
        sinks: Sequence[str],
    ) -> Claimed:
        """Claim a connector's letters for a replay, with the repairs from exported lines.

        Guarantee 2: each claim is one transaction; letters of other claims are no longer open.
        A letter that only one sink has refused is replayed to that sink only.

        Args:
            connector: The connector whose next replay delivers them; others' letters stay open.
            chosen: Selects the letters; its own connector is ignored.
            repaired: The file, to claim only its letters; None for all.
            sinks: The names of the connector's sinks in marks.

        Raises:
            StateError: A letter belongs to a sink that no longer exists.
        """
        chosen, at = replace(chosen, connector=connector), self._next()
        repairs = None if repaired is None else few_repairs(repaired, connector)
        few = self._few(chosen) if repaired is None or repairs is not None else None
        unknown = 0
        if few is not None:
            if repairs is not None:
                few = few.repaired(repairs)
                unknown = repairs.num_rows - few.rows.num_rows
            found = self._claim_streams(few, sinks, at, connector)
            return replace(found, unknown=unknown)
        letters = self._open(chosen)
        if repaired is None:
            letters = letters.selectExpr("*", "cause.raw IS NOT NULL AS unfit")
        else:
            lines = repairs_frame(self._spark(), repaired, connector)
            unknown = lines.join(letters, ID, "left_anti").count()
            letters = letters.join(lines, ID).selectExpr(
                "* EXCEPT (key, value, headers, new_key, new_value, new_text, new_headers)",
                "coalesce(new_key, key) AS key",
                "coalesce(new_value, value) AS value",
                "coalesce(new_headers, headers) AS headers",
                "cause.raw IS NOT NULL AND (new_value IS NULL OR new_text <=> value) AS unfit",
            )
        letters = letters.persist()
        try:
            claimed = self._claim_streams(_FrameLetters(letters), sinks, at, connector)
        finally:
            letters.unpersist()
        return replace(claimed, unknown=unknown)

    def _claim_streams(
        self,
        letters: FewLetters | _FrameLetters,
        sinks: Sequence[str],
        at: int,
        connector: str,
    ) -> Claimed:
        counted = letters.groups(_STREAM)
        unrepaired = sum(group["count"] for group in counted if group["unfit"])
        found = [group for group in counted if not group["unfit"]]
        _check_sinks(found, sinks)
        records = 0
        for group in sorted(found, key=str):
            stream = {name: group[name] for name in _STREAM}
            sink = sink_of(stream, sinks)
            claim = stream | {"action": "replay", "sink_name": sink, "connector": connector}
            records += self._claim(letters, stream, claim, at)
            at += 1
        return Claimed(records, unrepaired)

    def _few(self, chosen: DeadLetterFilter, most: int | None = None) -> FewLetters | None:
        try:
            return FewLetters.read(self._topic, self._closed(), chosen.matches, most)
        except FileNotFoundError:  # a server's upkeep has compacted them meanwhile
            return None

    def _open(self, chosen: DeadLetterFilter) -> DataFrame:
        reader = TopicReader(self._topic, start=parse_start(self._topic, "earliest"))
        end = reader.latest(Position(), ReadLimit())
        frame = TopicSource(reader, ordered=True).read(self._spark(), Position(), end).frame
        if frame is None:  # there are no letters yet, or retention has removed all of them
            kind = T.StructType.fromJson(to_spark_json(LETTERS))
            frame = self._spark().createDataFrame([], kind).drop("offset")
            frame = frame.selectExpr("*", "CAST(NULL AS array<bigint>) AS position")
        letters = frame.where("cause IS NOT NULL").selectExpr(
            "*", f"concat(position[0], '-', position[1]) AS {ID}"
        )
        letters = letters.where(chosen.sql())
        paths = [file.spark_path for file in self._closed()]
        if not paths:
            return letters
        closed = self._spark().read.schema(f"{ID} STRING").parquet(*paths)
        return letters.join(closed, ID, "left_anti")

    def _closed(self) -> dict[Location, int]:
        """Return the files with the ids of closed letters, and their numbers of rows."""
        log = self._claims.log
        commits = (log.commit(version) for version in range(log.newest() + 1))
        # A topic that was created again reuses the ids of earlier letters.
        mine = (c for c in commits if claim_in(c).get("table") == self._table)
        return {self._claims.location / f.path: f.rows for c in mine for f in c.added}

    def _next(self) -> int:
        """Return the number of the next claim, which sees all claims so far."""
        self._claims.prepare(_CLAIMED)
        return self._claims.log.newest() + 1

    def _claim(
        self,
        letters: FewLetters | _FrameLetters,
        stream: Mapping[str, Any] | None,
        claim: Mapping[str, Any],
        at: int,
    ) -> int:
        mark = Mark("claims", at, time.time_ns())
        files = letters.stage(stream, self._claims, mark)
        count = sum(file.rows for file in files)
        if not count:
            return 0
        try:
            receipt = mark.receipt({**claim, "table": self._table, "rows": count})
            self._claims.append(files, mark, receipt, datetime.now(UTC))
        except StaleEpochError as error:
            problem = f"Another command is using the letters of {self._topic.name}."
            raise StateError(problem, fix="Wait until it is done, then try again.") from error
        return count


def _joined(parts: Sequence[Path], whole: Path) -> int:
    """Append files to one; return how many lines it has."""
    count = 0
    with whole.open("wb") as output:
        for part in parts:
            with part.open("rb") as lines:
                for line in lines:
                    count += 1
                    output.write(line)
    return count


def sink_of(cause: Mapping[str, Any], sinks: Sequence[str]) -> str | None:
    """Return the name in marks of the only sink that gets the letters; None for all sinks.

    Args:
        cause: The letters' cause, or their claim.
        sinks: The names of the connector's sinks.

    Raises:
        LookupError: The connector has no such sink.
    """
    if cause.get("sink") is None:
        return None
    name = cause.get("sink_name")
    if name not in sinks:
        raise LookupError
    return str(name)


def _check_sinks(streams: Sequence[Mapping[str, Any]], sinks: Sequence[str]) -> None:
    gone = 0
    for stream in streams:
        try:
            sink_of(stream, sinks)
        except LookupError:
            gone += stream["count"]
    if gone:
        problem = (
            f"{gone} of the letters were refused by a sink that the connector no longer has, "
            "or that cannot be identified."
        )
        fix = (
            "Add that sink again, choose other letters, or discard these letters: all other "
            "sinks have the records."
        )
        raise StateError(problem, fix=fix)


def _sql(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    return literal(value) if isinstance(value, str) else str(value)


def claim_in(commit: Commit) -> dict[str, Any]:
    """Return the claim of a commit; empty if the commit has no claim."""
    claim: dict[str, Any] = json.loads(commit.receipt) if commit.receipt else {}
    return claim


def claims_of(topic: str, folder: Location) -> Topic:
    """Return the table of claims (replayed and discarded letters) of a dead-letter topic."""
    return Topic("~letters", folder / _FOLDER / topic)


class ReplayReader:
    """Reads the claimed letters of one connector in a dead-letter topic, a claim at a time.

    All letters of a claim come from one topic with one schema, and go to all sinks, or only to
    the sink that refused them if the others already have them. The position is the newest
    replayed claim, so that the batch loop reads each claim once.
    """

    PARTITION = "replays"

    def __init__(
        self, topic: str, folder: Location, sinks: Sequence[str], connector: str
    ) -> None:
        """Read the claims of a connector on ``topic``.

        Args:
            topic: The dead-letter topic, which other connectors may use too.
            folder: The folder of all topics.
            sinks: The names of the connector's sinks in marks.
            connector: The connector's name.
        """
        self._claims = claims_of(topic, folder)
        self._connector = connector
        self._sinks = sinks
        self._partition = {self.PARTITION: topic}

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        newest = self._claims.log.newest() if self._claims.exists() else -1
        for version in range(self._version(start) + 1, newest + 1):
            claim = self._claim(version)
            mine = claim.get("connector") == self._connector
            if mine and claim.get("action") == "replay":
                return Position.of(self._partition, {"claim": version})
        return start

    def has_more(self, position: Position) -> bool:
        """Return whether there are claims after a position."""
        return self.latest(position, ReadLimit()) != position

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        """See SourceTask; only letters that are already claimed are replayed."""
        return True

    def acknowledge(self, position: Position) -> None:
        """See ReplayableSource; keeps claims, since their letters would be open otherwise."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """See SourceReader.

        Raises:
            StateError: The only sink of the letters no longer exists.
        """
        check_range(start, end, [self._partition])
        version = self._version(end)
        claim = self._claim(version)
        only, files = self._only_sink(claim), self._claims.log.commit(version).added
        rows = spark.read.schema(
            T.StructType.fromJson(to_spark_json(self._claims.schema()))
        ).parquet(*((self._claims.location / file.path).spark_path for file in files))
        frame = _records(rows, claim.get("key_schema"), str(claim["value_schema"]))
        size = sum(file.size_bytes for file in files)
        return SourceFrame(frame, size_bytes=size, topic=str(claim["topic"]), only_sink=only)

    def _only_sink(self, claim: Mapping[str, Any]) -> str | None:
        try:
            return sink_of(claim, self._sinks)
        except LookupError:
            # Without its sink the batch would be empty, and its letters would be lost.
            problem = (
                f"A replay has {claim['rows']} letters for a sink that the connector no longer "
                "has, or that cannot be identified."
            )
            fix = (
                "Restore the connector's previous sinks until the replay is done, or give up "
                "the batch of task -1, which drops its letters."
            )
            raise StateError(problem, fix=fix) from None

    def _claim(self, version: int) -> dict[str, Any]:
        return claim_in(self._claims.log.commit(version))

    def _version(self, position: Position) -> int:
        offset = position.offset(self._partition)
        return -1 if offset is None else int(offset["claim"])


def _unfit_sql(schemas: Mapping[str, Schema]) -> str:
    """Return SQL for the names and types of the parts, or fields of parts, that do not fit."""
    shown = []
    for part, schema in schemas.items():
        if schema.fields:
            text = literal(f"{part} is not an object")
            shown.append(f"IF({part} IS NULL OR ltrim({part}) LIKE '{{%', NULL, {text})")
        fields = [f for f in schema.fields if len(schema.fields) <= _PARSED_ALONE]
        parts = [
            (f"{part}.{f.name}", Schema.struct({f.name: f.schema}), f.schema) for f in fields
        ]
        for name, alone, kind in parts or [(part, schema, schema)]:
            text = literal(f"{name} {sql_type(kind)}")
            shown.append(f"IF({parse_sql(part, alone)}.{CORRUPT} IS NULL, NULL, {text})")
    return f"left(array_join(array({', '.join(shown)}), ', '), {_SHOWN_CHARS})"


def _records(rows: DataFrame, key_schema: str | None, value_schema: str) -> DataFrame:
    """Parse the keys and values of letters into typed records."""
    schemas = {"value": schema_from_json(value_schema).replaced(optional=True)}
    if key_schema is not None:
        schemas["key"] = schema_from_json(key_schema).replaced(optional=True)
    parsed = [f"{parse_sql(part, schema)} AS {part}_" for part, schema in schemas.items()]
    rows = rows.selectExpr("*", *parsed)
    corrupt = {part: f"{part}_.{CORRUPT} IS NOT NULL" for part in schemas}
    misfits = {
        part: f"({corrupt[part]} OR coalesce({null_sql(f'{part}_', schema)}, false))"
        for part, schema in schemas.items()
    }
    unfit = f"concat('The JSON does not fit: ', {_unfit_sql(schemas)}, '.')"
    lacks = "A value that the record's schema requires is null or missing."
    message = f"IF({' OR '.join(corrupt.values())}, {unfit}, {literal(lacks)})"
    error = (
        "named_struct('stage', 'VALUE_CONVERTER', 'plugin', 'replay', 'exception', "
        f"{literal(DATA_EXCEPTION)}, 'message', {message}, 'raw', value)"
    )
    bad = " OR ".join(misfits.values())
    columns = []
    for part, schema in schemas.items():
        # A text that does not fit may be parsed partly.
        own = f"IF({misfits[part]}, NULL, {value_sql(f'{part}_', schema)})"
        columns.append(f"{own} AS {part}")
        columns.append(f"CAST(IF({misfits[part]}, {part}, NULL) AS BINARY) AS raw_{part}")
    frame = rows.selectExpr(
        *columns,
        "headers",
        "timestamp",
        "partition",
        f"IF({bad}, {error}, {NO_ERROR}) AS error",
    )
    for part, schema in schemas.items():
        frame = declared(frame, part, schema)  # expressions lose required fields and names
    return frame
