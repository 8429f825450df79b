"""A sink that prints records."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from headrace.sdk import DeliveryGuarantee, FrameSink, SinkConnector
from headrace.sdk.config import Importance, Range, Settings, ValidString, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headrace.sdk import Mark, SinkBatch
    from headrace.sdk.config import Config
    from headrace.sdk.sink import StagedWrite

_LINE = (
    "to_json(named_struct('topic', topic, 'timestamp', timestamp, 'key', key, "
    "'headers', headers, 'value', value), map('ignoreNullFields', 'false'))"
)


class ConsoleSinkSettings(Settings, group="Console"):
    """The settings of ``ConsoleSink``."""

    format: str = setting(
        "json prints one record per line, with its topic, timestamp, key, headers and "
        "value; table prints the values of a batch as a table with one column per field.",
        default="json",
        validator=ValidString("json", "table"),
        importance=Importance.HIGH,
    )
    limit: int = setting(
        "The maximum number of records to print per batch.",
        default=20,
        validator=Range(at_least=0),
    )


class ConsoleSink(SinkConnector):
    """Prints the first records of each batch, and the number of further records.

    Spark computes every record, but returns at most `limit`. The sink stores no mark, so a
    retried batch is printed again.
    """

    version = "1.0"
    delivery = DeliveryGuarantee.AT_LEAST_ONCE

    settings: ConsoleSinkSettings

    @override
    @classmethod
    def repeatable(cls, config: Config) -> bool:
        return True  # nothing is stored

    @override
    @classmethod
    def task(cls, config: Config) -> FrameSink:
        return ConsoleTask(
            limit=config["limit"],
            as_table=config.get_str("format") == "table",
            output=sys.stdout,
        )


class ConsoleTask(FrameSink):
    """Prints to ``output``, from this process."""

    ordered = True

    def __init__(self, *, limit: int, as_table: bool, output: TextIO) -> None:
        """Print at most ``limit`` records per batch."""
        self._limit = limit
        self._as_table = as_table
        self._output = output

    @override
    def committed(self, mark: Mark, topic: str) -> str | None:
        return None

    @override
    def write(self, frame: DataFrame, batch: SinkBatch) -> StagedWrite:
        # One pass over all records that selects the first ones by position. A limit would
        # leave partitions unread, and a sort may read its input twice, which doubles the
        # record counts.
        first = f"min_by({_LINE}, position, {max(self._limit, 1)}) AS lines"
        rows, lines = frame.selectExpr("count(1) AS records", first).collect()[0]
        lines = (lines or [])[: self._limit]
        return _Shown(lines, rows, batch, as_table=self._as_table, output=self._output)


@dataclass(frozen=True)
class _Shown:
    """The output of a batch, printed on commit."""

    lines: Sequence[str]
    rows: int
    batch: SinkBatch
    as_table: bool
    output: TextIO

    def commit(self, receipt: str) -> None:
        if self.as_table:
            self._print_table([json.loads(line) for line in self.lines])
        else:
            self.output.writelines(f"{line}\n" for line in self.lines)
        more = self.rows - len(self.lines)
        if more:
            noun = "record" if more == 1 else "records"
            self.output.write(f"… {more} more {noun} of {self.batch.topic}\n")
        self.output.flush()

    def abort(self) -> None:
        """Nothing was printed."""

    def _print_table(self, records: Sequence[dict[str, Any]]) -> None:
        table = Table(title=Text(f"{self.batch.topic}, batch {self.batch.mark.batch}"))
        names = [member.name for member in self.batch.schema.fields] or ["value"]
        for name in names:
            table.add_column(Text(name), overflow="fold")
        for record in records:
            value = record["value"]
            cells = value if isinstance(value, dict) else {names[0]: value}
            table.add_row(*(Text(_cell(cells.get(name))) for name in names))
        Console(file=self.output).print(table)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
