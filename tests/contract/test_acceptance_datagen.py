"""The generator passes the acceptance kit, in each of its gears."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from headrace.sdk.testing import (
    Arrived,
    BadConfig,
    CaptureAcceptance,
    Row,
    SourceAcceptance,
    SourceDriver,
)
from headrace_plugins.connectors.datagen.connector import DatagenSource

_SCHEMA = "id BIGINT NOT NULL, text STRING, amount DECIMAL(12, 2)"


class GeneratorDriver(SourceDriver):
    """To append is to raise the number of rows; a task that is open does not see it."""

    connector = DatagenSource
    fixed = "A generator makes the rows that its configuration says."

    def __init__(self, **more: str) -> None:
        self._more = more
        self._rows = 0

    @override
    def config(self) -> Mapping[str, str]:
        return {
            "rows": str(self._rows),
            "generator": "numbers",
            "schema": _SCHEMA,
            **self._more,
        }

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"rows": "-1"}, "rows"),
            BadConfig({"null.ratio": "1.5"}, "null.ratio"),
            BadConfig({"schema": "id NOTHING"}, "schema"),
            BadConfig({"schema": "m MAP<DOUBLE, INT>"}, "schema"),
            BadConfig({"start.time": "yesterday"}, "start.time"),
            BadConfig({"gear": "fifth"}, "gear"),
            BadConfig({"gear": "split", "streams": "1", "bad.ratio": "0.5"}, "bad.ratio"),
            BadConfig({"gear": "frame", "streams": "2"}, "streams"),
            BadConfig({"streams": "1", "schema.change.after": "5"}, "schema.change.after"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        self._rows += len(rows)

    @override
    def row(self, number: int) -> Row:
        return {"id": number}

    @override
    def seen(self, record: Arrived) -> Row:
        return {"id": record.value["id"]}


class TestFrameGear(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return GeneratorDriver(gear="frame")


class TestSplitGear(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return GeneratorDriver(gear="split")


class TestManyStreams(SourceAcceptance):
    unordered = "Rows are dealt out to streams, and each stream arrives by itself."

    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return GeneratorDriver(streams="3")


class TestCaptureGear(CaptureAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return GeneratorDriver(gear="capture")
