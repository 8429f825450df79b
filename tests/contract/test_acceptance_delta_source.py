"""The Delta source passes the acceptance kit: rows that are appended, and a change feed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from typing_extensions import override

from headrace.sdk.testing import Arrived, BadConfig, Row, SourceAcceptance, SourceDriver
from headrace_plugins.connectors.delta.source import DeltaSource

_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


class TableDriver(SourceDriver):
    """Appends rows in a commit of one file."""

    connector = DeltaSource

    def __init__(self, folder: Path, **more: str) -> None:
        self._path = folder / "table"
        self._more = {key.replace("_", "."): value for key, value in more.items()}
        feed = {"delta.enableChangeDataFeed": "true"} if more else None
        DeltaTable.create(self._path, _SCHEMA, configuration=feed)

    @override
    def config(self) -> Mapping[str, str]:
        return {"path": str(self._path), **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        plain = str(self._path.with_name("plain"))
        DeltaTable.create(plain, _SCHEMA, mode="ignore")
        return [
            BadConfig({"path": ""}, "path"),
            BadConfig({"path": "/no/such/folder"}, "path"),
            BadConfig({"path": str(self._path.parent)}, "path"),
            BadConfig({"path": "s3://bucket/table"}, "path"),
            BadConfig({"starting.version": "newest"}, "starting.version"),
            BadConfig({"starting.version": "7"}, "starting.version"),
            BadConfig({"starting.timestamp": "yesterday"}, "starting.timestamp"),
            BadConfig(
                {"starting.version": "0", "starting.timestamp": "2026-01-31"},
                "starting.timestamp",
            ),
            BadConfig({"starting.version": "1", "ending.version": "0"}, "ending.version"),
            BadConfig({"ending.timestamp": "tomorrow"}, "ending.timestamp"),
            BadConfig({"max.files": "0"}, "max.files"),
            BadConfig({"snapshot.mode": "sometimes"}, "snapshot.mode"),
            BadConfig({"key.fields": "number"}, "key.fields"),
            BadConfig({"path": plain, "read.change.feed": "true"}, "read.change.feed"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        write_deltalake(
            self._path,
            pa.Table.from_pylist([dict(row) for row in rows], _SCHEMA),
            mode="append",
        )


class TestAppendedRows(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return TableDriver(tmp_path)


class FeedDriver(TableDriver):
    @override
    def seen(self, record: Arrived) -> Row:
        assert record.value["op"] in {"r", "c"}
        row: Row = record.value["after"]
        return row


class TestChanges(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return FeedDriver(tmp_path, read_change_feed="true", key_fields="id")
