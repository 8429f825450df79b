"""A copy whose source reads what its sink writes is refused before it runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.control.validation import check_definition
from headrace.model import Definition, PluginSpec
from headrace.plugins.registry import Registry


@pytest.mark.parametrize(
    ("source", "sink", "is_loop"),
    [
        ({"format": "json"}, {"path": "in", "format": "json"}, True),
        ({"format": "json"}, {"path": "link", "format": "json"}, True),
        ({"format": "json", "path": "link/../in"}, {"path": "in", "format": "json"}, True),
        ({"format": "json"}, {"path": "in/deeper", "format": "json"}, False),
        ({"format": "json", "recursive": "true"}, {"path": "in/deeper"}, True),
        ({"path": "in/*.log", "format": "text"}, {"path": "in/a.log", "mode": "append"}, True),
        ({"path": "in/*.log", "format": "text"}, {"path": "in/a.txt", "mode": "append"}, False),
        ({"format": "parquet"}, {"connector": "delta", "path": "in"}, True),
        ({"connector": "delta"}, {"connector": "delta", "path": "in"}, True),
        ({"connector": "delta"}, {"connector": "delta", "path": "out"}, False),
        ({"format": "json"}, {"connector": "console"}, False),
    ],
)
def test_a_target_within_the_source_is_refused(
    tmp_path: Path, source: dict[str, str], sink: dict[str, str], is_loop: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    if source.get("connector") == "delta":
        write_deltalake(tmp_path / "in", pa.table({"id": [1]}))

    def spec(keys: dict[str, str], place: str) -> PluginSpec:
        keys = {"connector": "file", **keys}
        if "path" in keys:
            keys["path"] = f"{tmp_path}/{keys['path']}"
        return PluginSpec(keys.pop("connector"), keys, place)

    parts = spec({"path": "in", **source}, "source"), (spec(sink, "sinks[0]"),)
    found = check_definition(Definition("copy", parts[0], parts[1], ()), Registry())
    loops = [error.field for error in found.errors if "without end" in error.problem]
    assert loops == (["sinks[0].path"] if is_loop else [])
