"""A source that fails until a file is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import FrameSource, Position, ReadLimit, SourceConnector, SourceError
from headrace.sdk.config import Config, ConfigDef, ConfigType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = Position.of({"rows": "all"}, {"rows": 1})


class Failing(SourceConnector):
    """Gives one row once a file is there; until then its tasks fail."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("go", ConfigType.STRING, doc="The file that mends it.")

    @override
    def task(self, config: Config) -> FrameSource:
        return FailingFrame(Path(config.get_str("go")))


class FailingFrame(FrameSource):
    """Fails where it looks for new rows."""

    def __init__(self, go: Path) -> None:
        self.go = go

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        if not self.go.exists():
            problem = "It is broken."
            raise SourceError(problem)
        return ALL

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        return spark.range(0, 0 if start == end else 1, 1, 1).selectExpr("id AS value")
