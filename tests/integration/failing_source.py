"""A source that fails until a file is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import (
    FrameSource,
    Position,
    ReadLimit,
    RetriableError,
    SourceConnector,
    SourceError,
)
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
    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return FailingFrame


class FailingFrame(FrameSource):
    """Fails where it looks for new rows."""

    def __init__(self, config: Config) -> None:
        self.go = Path(config.get_str("go"))

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        if not self.go.exists():
            problem = "It is broken."
            raise SourceError(problem)
        return ALL

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        return spark.range(0, 0 if start == end else 1, 1, 1).selectExpr("id AS value")


class Away(SourceConnector):
    """A system that is always away."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return AwayFrame


class AwayFrame(FailingFrame):
    """Is away when it is asked for new rows."""

    def __init__(self, config: Config) -> None:
        """Keep nothing."""

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        problem = "It is away."
        raise RetriableError(problem)
