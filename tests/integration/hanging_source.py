"""A source that hangs until it is let go, whoever asks it to stop. Hosts import this file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import override

from headrace.sdk import (
    CaptureSource,
    FrameSource,
    Position,
    ReadLimit,
    Record,
    Schema,
    SourceConnector,
    Split,
    SplitSource,
)
from headrace.sdk.config import Config, ConfigDef, ConfigType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 5
PARTITION = {"rows": "all"}
ALL = Position.of(PARTITION, {"rows": ROWS})


class Hanging(SourceConnector):
    """Gives a few rows once a file is there; until then it hangs in the gear's main call."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef().define("gear", ConfigType.STRING, doc="The gear.")
        return definition.define("go", ConfigType.STRING, doc="The file that ends it.")

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[HangingFrame | HangingSplit | HangingCapture]:
        gear = config.get_str("gear")
        if gear == "frame":
            return HangingFrame
        return HangingSplit if gear == "split" else HangingCapture


def hang(go: str) -> None:
    Path(f"{go}.hangs").touch()
    while not Path(go).exists():
        time.sleep(0.05)


class HangingFrame(FrameSource):
    """Hangs in the driver, where no job can be cancelled."""

    def __init__(self, config: Config) -> None:
        self.go = config.get_str("go")

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return ALL

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        hang(self.go)
        numbers = spark.range(0, 0 if start == end else ROWS, 1, 1)
        return numbers.selectExpr("concat('frame ', id) AS value")


class HangingSplit(SplitSource):
    """Hangs in an executor's Python, in a job."""

    def __init__(self, config: Config) -> None:
        self.go = config.get_str("go")

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return ALL

    @override
    def schema(self) -> Schema:
        return Schema.struct({"value": Schema.string()})

    @override
    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return [] if start == end else [Split({})]

    @override
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        hang(self.go)
        yield pa.RecordBatch.from_pydict({"value": [f"split {n}" for n in range(ROWS)]})


class HangingCapture(CaptureSource):
    """Hangs in its host."""

    def __init__(self, config: Config) -> None:
        self.go = config.get_str("go")
        self.polled = False

    @override
    def poll(self) -> Sequence[Record] | None:
        if self.polled or self.context.position():
            return None
        hang(self.go)
        self.polled = True
        return [self.record(n) for n in range(ROWS)]

    def record(self, number: int) -> Record:
        return Record(
            topic="capture",
            value=f"capture {number}",
            value_schema=Schema.string(),
            source_partition=PARTITION,
            source_offset={"rows": ROWS},
        )
