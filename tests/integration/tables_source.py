"""A source of a folder's tables, which notices new ones while it runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from headrace.sdk import ConnectorContext, FrameSource, Position, ReadLimit, SourceConnector
from headrace.sdk.config import Config, ConfigDef, ConfigType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3


class Tables(SourceConnector):
    """One task for each file in a folder, each of a few rows; the newest comes last."""

    starts: ClassVar[list[str]] = []
    """The folders of all that were started in this process."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = ConfigDef().define("folder", ConfigType.STRING, doc="The folder.")
        return definition.define("table", ConfigType.STRING, "", doc="A task's table.")

    @override
    def start(self, config: Config, context: ConnectorContext) -> None:
        super().start(config, context)
        self.starts.append(config.get_str("folder"))
        self.ended = threading.Event()
        self.tables = self.found()
        self.watch = threading.Thread(target=self.look, name="tables-watch")
        self.watch.start()

    def found(self) -> list[str]:
        return sorted(path.name for path in Path(self.config.get_str("folder")).iterdir())

    def look(self) -> None:
        while not self.ended.wait(0.05):
            found = self.found()
            if "broken" in found:
                self.context.raise_error(OSError("the folder is broken"))
                return
            if found != self.tables:
                self.tables = found
                self.context.request_task_reconfiguration()

    @override
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{**self.config.originals, "table": table} for table in self.tables]

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[FrameSource]:
        return Table

    @override
    def stop(self) -> None:
        self.ended.set()
        self.watch.join()


class Table(FrameSource):
    """A table that does not change."""

    def __init__(self, config: Config) -> None:
        self.partition = {"table": config.get_str("table")}

    @override
    def latest(self, start: Position, limit: ReadLimit) -> Position:
        return Position.of(self.partition, {"rows": ROWS})

    @override
    def read(self, spark: SparkSession, start: Position, end: Position) -> DataFrame:
        numbers = spark.range(0, 0 if start == end else ROWS, 1, 1)
        return numbers.selectExpr(f"concat('{self.partition['table']} ', id) AS value")
