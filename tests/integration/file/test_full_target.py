"""A target whose file system is full is named in the error, whoever writes the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.volumes import may_mount, volume
from tests.integration.file.conftest import text_keys
from tests.integration.file.test_flow_of_files import TASK, batch
from tests.task_doubles import Context

from headrace.control.connector_settings import sink_def, source_def
from headrace.dataplane import Flow, FrameReader
from headrace.sdk import FrameSink, Position
from headrace.sdk.errors import StorageUnavailableError
from headrace.sdk.location import Location
from headrace_plugins.connectors.delta.sink import DeltaSink
from headrace_plugins.connectors.file.fileset import FileSet
from headrace_plugins.connectors.file.sink import FileSink
from headrace_plugins.connectors.file.source import FileSource

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount file systems")
@pytest.mark.parametrize("before", [False, True], ids=["while written", "before"])
@pytest.mark.parametrize(
    "keys",
    [
        {"plugin": "file", "format": "parquet"},
        {"plugin": "file", "format": "csv"},
        {"plugin": "file", "format": "csv", "compression": "zstd"},
        {"plugin": "file", "mode": "append", "format": "json"},
        {"plugin": "delta"},
    ],
    ids=lambda keys: "-".join(keys.values()),
)
def test_the_path_of_a_full_target_is_in_the_error(
    spark: Any, context: Context, tmp_path: Path, keys: dict[str, str], before: bool
) -> None:
    (tmp_path / "in").mkdir()
    lines = "".join(f"{n},{n * 7_919_993**3}\n" for n in range(200_000))
    (tmp_path / "in/a.csv").write_text(f"id,name\n{lines}")
    with volume(tmp_path / "full", 2) as disk:
        target = disk.path / "o'brien of today"
        plugin = FileSink if keys["plugin"] == "file" else DeltaSink
        to = {
            "name": "c",
            "connector.class": keys["plugin"],
            "topics": "t",
            "path": str(target),
        }
        of_format = text_keys({name: value for name, value in keys.items() if name != "plugin"})
        sink = plugin.task(plugin.config_def().merged(sink_def()).parse(to | of_format))
        assert isinstance(sink, FrameSink)
        sink.start(context)
        place = {"name": "c", "connector.class": "file", "path": f"{tmp_path}/in"}
        place |= {"settle.ms": "0", "schema": "id BIGINT, name STRING"}
        files = FileSource.task(FileSource.config_def().merged(source_def()).parse(place))
        assert isinstance(files, FileSet)
        files.start(context)
        flow = Flow(
            spark=spark,
            application=str(TASK),
            topic="t",
            source=FrameReader(files),
            steps=[],
            sinks=[sink],
            staging=Location.of(tmp_path / "divided"),
            dead_letters=None,
        )
        if before:
            disk.fill()
        with pytest.raises(
            StorageUnavailableError, match=f"no space left at ({target}|{disk.path}/_headrace)"
        ):
            flow.run(batch(flow, 1, Position()))
