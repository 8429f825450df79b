"""Reads the letters that are claimed for a replay, as records again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.dead_letter_queue import claim_in, claims_of, sink_of
from headrace.dataplane.json_sql import CORRUPT, parse_sql, value_sql
from headrace.dataplane.python_frames import map_in_arrow
from headrace.dataplane.sources import SourceFrame
from headrace.sdk import Lag, Position, Schema, StateError, check_range
from headrace.sdk.arrow import conform, to_arrow
from headrace.sdk.expressions import ERROR_TYPE
from headrace.sdk.sparktypes import schema_from_json, to_spark_json
from headrace.sdk.sqltext import literal
from headrace.sdk.transform import DATA_EXCEPTION
from headrace.topics.rows import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.sdk import ReadLimit
    from headrace.sdk.location import Location


_TEXT = Schema.string(optional=True)
_ERROR = Schema.struct(
    dict.fromkeys(("stage", "plugin", "exception", "message", "raw"), _TEXT), optional=True
)


class ReplayReader:
    """The claimed letters of one dead-letter topic, a claim at a time.

    All letters of a claim come from one topic with one schema, and go to all sinks or to the
    one that alone has refused them: the others have them. The position is the
    newest claim that was replayed, so that the batch loop gives each claim once.
    """

    def __init__(self, topic: str, folder: Location, sinks: Sequence[str]) -> None:
        """Read the claims on ``topic``.

        Args:
            topic: The dead-letter topic.
            folder: That of all topics.
            sinks: What the connector's sinks are called in marks.
        """
        self._claims = claims_of(topic, folder)
        self._sinks = sinks
        self._partition = {"replays": topic}

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        newest = self._claims.log.newest() if self._claims.exists() else -1
        for version in range(self._version(start) + 1, newest + 1):
            if self._claim(version).get("action") == "replay":
                return Position.of(self._partition, {"claim": version})
        return start

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        return Lag()

    def ended(self, position: Position) -> bool:
        """See SourceTask; only what was claimed before is replayed."""
        return True

    def acknowledge(self, position: Position) -> None:
        """See ReplayableSource; claims stay, or their letters would be open again."""

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """See SourceReader.

        Raises:
            StateError: The one sink that the letters go to is not there any more.
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
                f"A replay brings {claim['rows']} letters to a sink that the connector has no "
                "more, or that cannot be distinguished from others."
            )
            fix = (
                "Set the connector's sinks back to what they were until the replay is done, "
                "or give up the batch of task -1 and leave its letters out."
            )
            raise StateError(problem, fix=fix) from None

    def _claim(self, version: int) -> dict[str, Any]:
        return claim_in(self._claims.log.commit(version))

    def _version(self, position: Position) -> int:
        offset = position.offset(self._partition)
        return -1 if offset is None else int(offset["claim"])


def _records(rows: DataFrame, key_schema: str | None, value_schema: str) -> DataFrame:
    """Give letters the key and the value that they stand for, with all types."""
    schemas = {"value": schema_from_json(value_schema).replaced(optional=True)}
    if key_schema is not None:
        schemas["key"] = schema_from_json(key_schema).replaced(optional=True)
    parsed = [f"{parse_sql(part, schema)} AS {part}_" for part, schema in schemas.items()]
    rows = rows.selectExpr("*", *parsed)
    bad = " OR ".join(f"{part}_.{CORRUPT} IS NOT NULL" for part in schemas)
    error = (
        "named_struct('stage', 'VALUE_CONVERTER', 'plugin', 'replay', 'exception', "
        f"{literal(DATA_EXCEPTION)}, 'message', 'The JSON does not fit the record.', "
        "'raw', value)"
    )
    frame = rows.selectExpr(
        *(f"{value_sql(f'{part}_', schema)} AS {part}" for part, schema in schemas.items()),
        "headers",
        "timestamp",
        "partition",
        f"IF({bad}, {error}, CAST(NULL AS {ERROR_TYPE})) AS error",
    )
    whole = Schema.struct(
        schemas
        | {"headers": HEADERS, "timestamp": Schema.timestamp(optional=True)}
        | {"partition": Schema.int32(optional=True), "error": _ERROR}
    )
    arrow = to_arrow(whole)

    def exact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Expressions forget what must not be null and what a type stands for.
        return (conform(batch, arrow) for batch in batches)

    return map_in_arrow(frame, exact, T.StructType.fromJson(to_spark_json(whole)))
