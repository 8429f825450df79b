"""A source that reads a table through the JDBC driver that its configuration names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk import ConfigError, FrameSource, Position, ReadLimit, SourceConnector
from headrace.sdk.config import Config, setting
from headrace.sdk.connector import TaskContext
from headrace.sdk.jdbc import DriverSettings, load_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION = {"table": "all"}


class TableSettings(DriverSettings):
    url: str = setting("The jdbc: URL.")
    table: str = setting("The table.")


class JdbcTable(SourceConnector):
    """Reads a table once."""

    settings: TableSettings
    checked: ClassVar[list[str]] = []
    """The tables that `check` was asked about in this process."""

    @override
    @classmethod
    def check(cls, config: Config) -> Iterable[ConfigError]:
        cls.checked.append(TableSettings.from_config(config).table)
        return ()

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return JdbcTableTask


class JdbcTableTask(FrameSource):
    settings: TableSettings

    @override
    def start(self, context: TaskContext) -> None:
        super().start(context)
        self.driver = load_driver(self.settings.driver, self.settings.url).class_name

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return Position.of(PARTITION, {"read": 1})

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        options = {
            "driver": self.driver,
            "url": self.settings.url,
            "dbtable": self.settings.table,
        }
        rows = spark.read.format("jdbc").options(**options).load()
        return rows.selectExpr("struct(*) AS value")
