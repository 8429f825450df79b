"""The Delta sink passes the acceptance kit, in both modes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from tests.contract.breakable import FolderTarget
from typing_extensions import override

from headrace.sdk.testing import BadConfig, Row, SinkAcceptance, SinkDriver
from headrace_plugins.connectors.delta.sink import DeltaSink


class DeltaDriver(FolderTarget):
    """Reads the table with deltalake."""

    connector = DeltaSink

    def __init__(self, folder: Path, **more: str) -> None:
        self._folder = folder / "table"
        self._more = more

    @override
    def config(self) -> Mapping[str, str]:
        return {"path": str(self._folder), **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"path": "s3://bucket/table"}, "path"),
            BadConfig({"path": ""}, "path"),
            BadConfig({"mode": "replace"}, "mode"),
            BadConfig({"mode": "append", "delete.enabled": "true"}, "delete.enabled"),
            BadConfig({"table.properties": "nonsense"}, "table.properties"),
            BadConfig({"optimize.interval.commits": "-1"}, "optimize.interval.commits"),
        ]

    @override
    def read_back(self) -> list[Row]:
        if not DeltaTable.is_deltatable(str(self._folder)):
            return []
        rows: list[dict[str, Any]] = (
            DeltaTable(self._folder).to_pyarrow_dataset().to_table().to_pylist()
        )
        return list(rows)

    @override
    def refused(self, number: int) -> Row:
        DeltaTable.create(
            self._folder,
            schema=pa.schema(
                [pa.field("id", pa.int64()), pa.field("text", pa.string(), nullable=False)]
            ),
            mode="ignore",
        )
        return {"id": number, "text": None}


class TestAppend(SinkAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return DeltaDriver(tmp_path)


class TestUpsert(SinkAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return DeltaDriver(tmp_path, mode="upsert", **{"key.fields": "id"})
