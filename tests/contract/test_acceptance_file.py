"""The file connectors pass the acceptance kit: whole files, files that grow, both sinks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.contract.breakable import FolderTarget
from typing_extensions import override

from headrace.sdk.testing import (
    ALL_KINDS,
    Arrived,
    BadConfig,
    CaptureAcceptance,
    Row,
    SinkAcceptance,
    SinkDriver,
    SourceAcceptance,
    SourceDriver,
)
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

HOUSEKEEPING = "_headrace"
IN_JSON = (
    *("boolean", "int8", "int16", "int32", "int64", "float32", "float64"),
    *("string", "array", "map", "struct", "nested"),
)


class FilesDriver(SourceDriver):
    """Puts each append into a file of its own."""

    connector = FileSource

    def __init__(self, folder: Path, **more: str) -> None:
        self._folder = folder
        self._more = more
        self._files = 0

    @override
    def config(self) -> Mapping[str, str]:
        return {"path": str(self._folder), "settle.ms": "0", **self._more}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"path": None}, "path"),
            BadConfig({"path": "/no/such/folder"}, "path"),
            BadConfig({"path": "s3://bucket/folder"}, "path"),
            BadConfig({"file": "/also"}, "file"),
            BadConfig({"format": "word"}, "format"),
            BadConfig({"mode": "turn"}, "mode"),
            BadConfig({"schema": "id NOTHING"}, "schema"),
            BadConfig({"max.files": "0"}, "max.files"),
            BadConfig({"delimiter": "ab"}, "delimiter"),
            BadConfig({"encoding": "UTF-99"}, "encoding"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        self._files += 1
        # A name that a reader passes over, until the file is complete.
        name = f"{self._files:06d}.{self._more['format']}"
        part = self._folder / f"_{name}"
        self.write(part, rows)
        part.rename(self._folder / name)

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


class ParquetDriver(FilesDriver):
    @override
    def write(self, path: Path, rows: Sequence[Row]) -> None:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)


class TestParquetFiles(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return ParquetDriver(tmp_path, format="parquet")


class TestJsonFiles(SourceAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return FilesDriver(
            tmp_path,
            format="json",
            schema="id BIGINT, text STRING",
            **{"max.files": "1"},  # only Parquet's rows are known before they are read
        )


class LinesDriver(SourceDriver):
    """Adds lines to one file."""

    connector = FileSource

    def __init__(self, folder: Path) -> None:
        self._file = folder / "growing.txt"
        self._file.touch()

    @override
    def config(self) -> Mapping[str, str]:
        return {"file": str(self._file), "mode": "grow", "batch.size": "3"}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"file": "/no/such/folder/file.txt"}, "file"),
            BadConfig({"batch.size": "0"}, "batch.size"),
            BadConfig({"format": "parquet"}, "format"),
            BadConfig({"format": "csv", "multiline": "true"}, "multiline"),
        ]

    @override
    def append(self, rows: Sequence[Row]) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{row['line']}\n" for row in rows)

    @override
    def row(self, number: int) -> Row:
        return {"line": f"line {number}"}

    @override
    def seen(self, record: Arrived) -> Row:
        return {"line": record.value}


class TestGrowingFile(CaptureAcceptance):
    @override
    def driver(self, tmp_path: Path) -> SourceDriver:
        return LinesDriver(tmp_path)


ONLY_TOMBSTONES = "It refuses only records without a value, and the kit writes rows."


class FolderDriver(FolderTarget):
    """Reads the files of a folder without Spark."""

    connector = FileSink

    def __init__(self, folder: Path, *, mode: str, fmt: str) -> None:
        self._folder = folder / "target"
        self._folder.mkdir()
        self._mode, self._format = mode, fmt

    @override
    def config(self) -> Mapping[str, str]:
        path = self._folder if self._mode == "folder" else self._folder / "lines.json"
        return {"path": str(path), "mode": self._mode, "format": self._format}

    @override
    def bad_configs(self) -> Sequence[BadConfig]:
        return [
            BadConfig({"path": None}, "path"),
            BadConfig({"path": "s3://bucket/folder"}, "path"),
            BadConfig({"format": "word"}, "format"),
            BadConfig({"mode": "append", "format": "parquet"}, "format"),
            BadConfig(
                {"mode": "append", "partition.by": "id", "format": "json"}, "partition.by"
            ),
            BadConfig({"mode": "folder", "compression": "tight"}, "compression"),
        ]

    @override
    def read_back(self) -> list[Row]:
        files = sorted(self._folder.rglob(f"*.{self._format}"))
        visible = [f for f in files if HOUSEKEEPING not in f.parts]
        return [row for file in visible for row in self._rows(file)]

    def _rows(self, file: Path) -> list[dict[str, Any]]:
        if self._format == "parquet":
            rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
            return rows
        return [json.loads(line) for line in file.read_text().split("\n") if line]


class TestParquetFolder(SinkAcceptance):
    cannot_refuse = ONLY_TOMBSTONES

    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return FolderDriver(tmp_path, mode="folder", fmt="parquet")


class TestJsonFolder(SinkAcceptance):
    cannot_refuse = ONLY_TOMBSTONES
    kinds = IN_JSON
    why_not_all_kinds = "JSON has no such type: Spark writes it as a text."

    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return FolderDriver(tmp_path, mode="folder", fmt="json")


class TestLineFile(SinkAcceptance):
    kinds = IN_JSON
    why_not_all_kinds = "JSON has no such type: Spark writes it as a text."

    @override
    def driver(self, tmp_path: Path) -> SinkDriver:
        return FolderDriver(tmp_path, mode="append", fmt="json")


def test_the_kinds_left_out_are_those_without_json() -> None:
    assert set(ALL_KINDS) - set(IN_JSON) == {
        *("not_a_number", "bytes", "decimal", "big_decimal", "date", "timestamp", "time"),
    }
