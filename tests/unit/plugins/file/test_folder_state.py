"""A target's own files: nobody else writes them, and they lead nowhere else."""

import json
from pathlib import Path

import pytest

from headrace.sdk import ConfigError, Mark, SinkError
from headrace.sdk.location import Location
from headrace_plugins.connectors.file.folder import _Folder
from headrace_plugins.connectors.file.output import (
    SinkSettings,
    discard_attempts,
    staging_folder,
)
from headrace_plugins.connectors.file.sink import FileSink

MARK = Mark("a", 1, 1)


def settings(path: str) -> SinkSettings:
    return SinkSettings.from_config(FileSink.config_def().parse({"path": path}))


@pytest.mark.parametrize("climbs", ["/outside", "../outside", "x/../../outside"])
@pytest.mark.parametrize("forged", ["staged", "final"])
def test_a_forged_mark_moves_no_file_into_or_out_of_the_folder(
    tmp_path: Path, climbs: str, forged: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    root = tmp_path / "target"
    named = str(outside) if climbs.startswith("/") else climbs
    staged = root / "_headrace/staging/a/1-1/part-0.json"
    staged.parent.mkdir(parents=True)
    staged.write_text("y")
    moves = (
        [[named, "in.json"]] if forged == "staged" else [[str(staged.relative_to(root)), named]]
    )
    held = {"application": "a", "batch": 0, "epoch": 0, "receipt": "", "moves": moves}
    (root / "_headrace/a.json").write_text(json.dumps(held))
    with pytest.raises(SinkError, match=r"a\.json names"):
        _Folder(Location.of(root)).completed(MARK)
    assert outside.read_text() == "x"
    assert staged.read_text() == "y"


@pytest.mark.parametrize("name", ["_headrace", "_delta_log"])
def test_no_sink_writes_among_the_files_of_a_target_s_log(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        settings(f"{tmp_path}/{name}/x")
    with pytest.raises(ConfigError, match="reserved"):
        settings(f"{tmp_path}/${{topic}}/x").target(name)


def test_foreign_files_among_the_attempts_are_passed_by(tmp_path: Path) -> None:
    house = Location.of(tmp_path)
    attempts = Path(staging_folder(house, MARK).path).parent
    for name in (".DS_Store", "000000000001-1", "000000000001-2"):
        (attempts / name).mkdir(parents=True)
    discard_attempts(house, MARK)
    assert sorted(each.name for each in attempts.iterdir()) == [".DS_Store", "000000000001-2"]
