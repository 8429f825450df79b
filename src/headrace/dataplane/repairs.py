"""Stores the records that a repair sends to a sink until their delivery, and reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's customary name

from headrace.dataplane.records import with_texts, with_variants
from headrace.dataplane.sources import SourceFrame
from headrace.dataplane.verification import Resending
from headrace.sdk import Lag, Position, ReadLimit, Schema, StateError, check_range
from headrace.sdk.location import Location
from headrace.sdk.sparktypes import schema_from_json, schema_to_json, to_spark_json
from headrace.topics.segments import HEADERS

_FOLDER = "~repairs"
"""Beside the topics; "~" is not allowed in the name of a topic."""
_CLAIM = "claim.json"


@dataclass(frozen=True)
class Repairs:
    """The repairs of one connector: numbered folders, each with the records for one sink.

    Guarantee 2: a repair is complete once its claim file exists; a retried batch reads the same
    records, even if the source has changed. A repair is deleted when its batch is finished.
    """

    folder: Location

    @classmethod
    def of(cls, connector: str, topics_dir: Location) -> Repairs:
        """Return the repairs of a connector."""
        return cls(topics_dir / _FOLDER / connector)

    def stage(self, resending: Resending, *, after: int, topic: str, sink: str) -> int:
        """Store the records of a repair; return how many. Only one process at a time.

        Args:
            resending: The records.
            after: The number of the newest finished repair; -1 for none.
            topic: The topic of the records.
            sink: The name in marks of the sink that gets the records.
        """
        number = max([after, *self.numbers()]) + 1
        place = self.folder / str(number)
        place.delete_folder()  # left by a command that was killed
        value, key = resending.value_schema, resending.key_schema
        rows = with_texts(resending.frame, value, key)
        rows.write.parquet((place / "rows").spark_path)
        written = [each.location for each in (place / "rows").walk() if not each.is_folder]
        place.file_system.sync(written, up_to=self.folder.parent.parent)
        count = rows.sparkSession.read.parquet((place / "rows").spark_path).count()
        claim = {
            "topic": topic,
            "sink": sink,
            "key_schema": schema_to_json(key),
            "value_schema": schema_to_json(value),
            "rows": count,
        }
        (place / _CLAIM).put(json.dumps(claim), up_to=self.folder.parent.parent)
        return count

    def numbers(self) -> list[int]:
        """Return the numbers of the stored repairs, the oldest first."""
        if not self.folder.exists():
            return []
        found = (each for each in self.folder.list() if each.name.isdecimal())
        return sorted(int(each.name) for each in found if (each.location / _CLAIM).exists())

    def claim(self, number: int) -> dict[str, Any]:
        """Return the claim of a repair. Raises StateError if the repair does not exist."""
        file = self.folder / str(number) / _CLAIM
        if not file.exists():
            problem = f"The records of repair {number} are missing in {self.folder}."
            raise StateError(problem, fix="Give up the batch of task -1, and verify again.")
        claim: dict[str, Any] = json.loads(file.read_text())
        return claim

    def rows(self, number: int) -> Location:
        """Return the folder with the records of a repair."""
        return self.folder / str(number) / "rows"

    def delete(self, until: int) -> None:
        """Delete the repairs up to and including a number."""
        for number in self.numbers():
            if number <= until:
                (self.folder / str(number)).delete_folder()


class RepairReader:
    """Reads the repairs of a connector, one at a time, as a source of the batch loop.

    The position is ``{"repairs": connector} -> {"repair": n}``, the newest sent repair.
    """

    PARTITION = "repairs"

    def __init__(self, connector: str, repairs: Repairs) -> None:
        self._repairs = repairs
        self._partition = {self.PARTITION: connector}

    def has_more(self, position: Position) -> bool:
        """Return whether there is a repair after a position."""
        return self.latest(position, ReadLimit()) != position

    def number(self, position: Position) -> int:
        """Return the number of the newest sent repair; -1 for none."""
        offset = position.offset(self._partition)
        return -1 if offset is None else int(offset["repair"])

    def latest(self, start: Position, limit: ReadLimit) -> Position:
        """See SourceReader."""
        newer = [n for n in self._repairs.numbers() if n > self.number(start)]
        return start.moved(self._partition, {"repair": newer[0]}) if newer else start

    def lag(self, start: Position, until: Position | None = None) -> Lag:
        """See SourceReader."""
        return Lag()

    def ended(self, position: Position) -> bool:
        """See SourceReader; only repairs that are already stored are sent."""
        return True

    def acknowledge(self, position: Position) -> None:
        """See SourceReader."""
        self._repairs.delete(self.number(position))

    def read(self, spark: SparkSession, start: Position, end: Position) -> SourceFrame:
        """See SourceReader."""
        check_range(start, end, [self._partition])
        number = self.number(end)
        claim = self._repairs.claim(number)
        schemas = {part: schema_from_json(claim[f"{part}_schema"]) for part in ("key", "value")}
        columns = {**schemas, "headers": HEADERS, "timestamp": _TIME}
        types = T.StructType.fromJson(to_spark_json(Schema.struct(columns)))
        frame = spark.read.schema(types).parquet(self._repairs.rows(number).spark_path)
        frame = with_variants(frame, schemas["value"], schemas["key"])
        return SourceFrame(
            frame, rows=int(claim["rows"]), topic=str(claim["topic"]), only_sink=claim["sink"]
        )


_TIME = Schema.timestamp(optional=True)
